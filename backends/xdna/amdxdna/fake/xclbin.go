package fake

import (
	"encoding/binary"
	"fmt"
)

// Xclbin writes an xclbin with one AIE partition of that many columns, whose only PDI is image and whose only kernel has that name. Package
// amdxdna reads what the vendor's tools write; this is the same format for a device that runs control code instead of a PDI.
func Xclbin(image []byte, columns int, kernel string) []byte {
	le := binary.LittleEndian
	const partition, pdi, cdo = 184, 96, 96

	// AIE_PARTITION: the structure, then what its offsets point to.
	sec := make([]byte, partition+pdi+cdo)
	add := func(b []byte) uint32 {
		for len(sec)%8 != 0 {
			sec = append(sec, 0)
		}
		at := uint32(len(sec))
		sec = append(sec, b...)
		return at
	}
	name := add([]byte("partition\x00"))
	cols := add([]byte{0, 0, 1, 0})
	ids := add(le.AppendUint64(nil, 0x901))
	img := add(image)
	le.PutUint32(sec[4:], name)
	le.PutUint32(sec[8:], 2048)
	le.PutUint16(sec[32:], uint16(columns))
	le.PutUint32(sec[40:], 2)
	le.PutUint32(sec[44:], cols)
	le.PutUint32(sec[120:], 1)
	le.PutUint32(sec[124:], partition)
	p := sec[partition:]
	copy(p, "tessera-fake-pdi")
	le.PutUint32(p[16:], uint32(len(image)))
	le.PutUint32(p[20:], img)
	le.PutUint32(p[24:], 1)
	le.PutUint32(p[28:], partition+pdi)
	g := sec[partition+pdi:]
	le.PutUint32(g, name)
	g[4] = 1
	le.PutUint64(g[8:], 1)
	le.PutUint32(g[16:], 1)
	le.PutUint32(g[20:], ids)

	xml := []byte(fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>
<project><platform><device><core><kernel name="%s" language="c" type="dpu">
<extended-data subtype="DPU" functional="0" dpu_kernel_id="0x901"/>
<arg name="opcode" offset="0x00" size="0x8"/><arg name="instr" offset="0x08" size="0x8"/><arg name="ninstr" offset="0x10" size="0x4"/>
<arg name="bo0" offset="0x14" size="0x8"/><arg name="bo1" offset="0x1c" size="0x8"/><arg name="bo2" offset="0x24" size="0x8"/>
</kernel></core></device></platform></project>`, kernel))

	const table = 456
	out := make([]byte, table+2*40)
	copy(out, "xclbin2\x00")
	copy(out[304+112:], "tessera-fake-bin")
	section := func(i int, kind uint32, title string, b []byte) {
		for len(out)%8 != 0 {
			out = append(out, 0)
		}
		h := out[table+40*i:]
		le.PutUint32(h, kind)
		copy(h[4:20], title)
		le.PutUint64(h[24:], uint64(len(out)))
		le.PutUint64(h[32:], uint64(len(b)))
		out = append(out, b...)
	}
	le.PutUint32(out[304+144:], 2)
	section(0, 2, "EMBEDDED_METADAT", xml)
	section(1, 32, "AIE_PARTITION", sec)
	le.PutUint64(out[304:], uint64(len(out)))
	return out
}
