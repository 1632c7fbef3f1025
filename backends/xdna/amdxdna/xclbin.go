package amdxdna

import (
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"strconv"
)

// Section kinds of an xclbin that concern an NPU.
const (
	sectionMetadata  = 2  // EMBEDDED_METADATA: XML with the kernels
	sectionPartition = 32 // AIE_PARTITION
)

// Xclbin is what a context needs from an xclbin file.
type Xclbin struct {
	UUID      [16]byte
	Partition Partition
	Kernels   []Kernel // of the embedded metadata, if there is any
}

// Partition is an AIE_PARTITION section.
type Partition struct {
	Name         string
	OpsPerCycle  uint32
	ColumnWidth  int
	StartColumns []int
	PDIs         []PDI
}

// PDI is one image and what may run on it.
type PDI struct {
	UUID      [16]byte
	Image     []byte
	Type      uint8 // of its first CDO group: 1 primary, 2 lite, 3 pre-post
	PDIID     uint64
	KernelIDs []uint64
}

// Kernel is a compute unit as the embedded metadata describes it.
type Kernel struct {
	Name       string
	Functional uint8  // id that the firmware knows it by
	ID         uint64 // one of the PDI's kernel ids
	Args       []KernelArg
}

// KernelArg is an argument of a kernel and where it lies in the register map.
type KernelArg struct {
	Name         string
	Offset, Size int
}

const (
	xclbinMagic     = "xclbin2\x00"
	xclbinHeader    = 304 // struct axlf_header within struct axlf
	xclbinLength    = xclbinHeader + 0
	xclbinUUID      = xclbinHeader + 112
	xclbinSections  = xclbinHeader + 144
	xclbinTable     = 456
	sectionBytes    = 40
	partitionBytes  = 184
	pdiBytes        = 96
	cdoBytes        = 96
	maxSections     = 128
	maxArrayEntries = 256
)

// ErrXclbin marks a file that is not an xclbin for an NPU.
var ErrXclbin = errors.New("not a usable xclbin")

func xclbinErr(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrXclbin}, args...)...)
}

// span is a checked view of bytes with the offsets of its section.
type span []byte

func (s span) at(what string, off, size uint64) (span, error) {
	if off > uint64(len(s)) || size > uint64(len(s))-off {
		return nil, xclbinErr("%s at %d with %d bytes lies outside its %d bytes", what, off, size, len(s))
	}
	return s[off : off+size], nil
}

func (s span) u16(off int) uint16 { return binary.LittleEndian.Uint16(s[off:]) }
func (s span) u32(off int) uint32 { return binary.LittleEndian.Uint32(s[off:]) }
func (s span) u64(off int) uint64 { return binary.LittleEndian.Uint64(s[off:]) }

// array reads {count u32, offset u32} at off of s and returns the elements, which lie in sec.
func (s span) array(sec span, what string, off int, elem uint64) ([]span, error) {
	count, at := s.u32(off), s.u32(off+4)
	if count > maxArrayEntries {
		return nil, xclbinErr("%d %s, at most %d are right", count, what, maxArrayEntries)
	}
	all, err := sec.at(what, uint64(at), uint64(count)*elem)
	if err != nil {
		return nil, err
	}
	out := make([]span, count)
	for i := range out {
		out[i] = all[uint64(i)*elem:][:elem]
	}
	return out, nil
}

// text reads a zero-terminated string at an offset of the section.
func (s span) text(what string, off uint32) (string, error) {
	if uint64(off) >= uint64(len(s)) {
		return "", xclbinErr("%s at %d lies outside its %d bytes", what, off, len(s))
	}
	for i := off; i < uint32(len(s)) && i < off+256; i++ {
		if s[i] == 0 {
			return string(s[off:i]), nil
		}
	}
	return "", xclbinErr("%s at %d has no end", what, off)
}

// ParseXclbin reads an xclbin. Images are views of the file.
func ParseXclbin(file []byte) (*Xclbin, error) {
	f := span(file)
	if len(f) < xclbinTable || string(f[:8]) != xclbinMagic {
		return nil, xclbinErr("it begins with %q, want %q and a header of %d bytes", file[:min(8, len(file))], xclbinMagic, xclbinTable)
	}
	if n := f.u64(xclbinLength); n > uint64(len(f)) {
		return nil, xclbinErr("it says %d bytes and has %d: truncated", n, len(f))
	}
	count := f.u32(xclbinSections)
	if count > maxSections {
		return nil, xclbinErr("%d sections, at most %d are right", count, maxSections)
	}
	table, err := f.at("section table", xclbinTable, uint64(count)*sectionBytes)
	if err != nil {
		return nil, err
	}
	x := &Xclbin{UUID: [16]byte(f[xclbinUUID : xclbinUUID+16])}
	found := false
	for i := range int(count) {
		h := table[i*sectionBytes:][:sectionBytes]
		kind := h.u32(0)
		if kind != sectionPartition && kind != sectionMetadata {
			continue
		}
		sec, err := f.at(fmt.Sprintf("section %d of kind %d", i, kind), h.u64(24), h.u64(32))
		if err != nil {
			return nil, err
		}
		if kind == sectionMetadata {
			if x.Kernels, err = parseMetadata(sec); err != nil {
				return nil, err
			}
			continue
		}
		if found {
			return nil, xclbinErr("more than one AIE partition")
		}
		found = true
		if x.Partition, err = parsePartition(sec); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, xclbinErr("it has no AIE_PARTITION section: built for another kind of device?")
	}
	return x, nil
}

func parsePartition(s span) (Partition, error) {
	var p Partition
	if len(s) < partitionBytes {
		return p, xclbinErr("AIE_PARTITION of %d bytes, want %d", len(s), partitionBytes)
	}
	var err error
	if off := s.u32(4); off != 0 {
		if p.Name, err = s.text("partition name", off); err != nil {
			return p, err
		}
	}
	p.OpsPerCycle = s.u32(8)
	p.ColumnWidth = int(s.u16(32))
	cols, err := s.array(s, "start columns", 40, 2)
	if err != nil {
		return p, err
	}
	for _, c := range cols {
		p.StartColumns = append(p.StartColumns, int(c.u16(0)))
	}
	pdis, err := s.array(s, "PDIs", 120, pdiBytes)
	if err != nil {
		return p, err
	}
	for _, d := range pdis {
		out := PDI{UUID: [16]byte(d[:16])}
		img, err := s.at("PDI image", uint64(d.u32(20)), uint64(d.u32(16)))
		if err != nil {
			return p, err
		}
		out.Image = img
		groups, err := d.array(s, "CDO groups", 24, cdoBytes)
		if err != nil {
			return p, err
		}
		for i, g := range groups {
			if i == 0 {
				out.Type, out.PDIID = g[4], g.u64(8)
			}
			ids, err := g.array(s, "kernel ids", 16, 8)
			if err != nil {
				return p, err
			}
			for _, id := range ids {
				out.KernelIDs = append(out.KernelIDs, id.u64(0))
			}
		}
		p.PDIs = append(p.PDIs, out)
	}
	if len(p.PDIs) == 0 {
		return p, xclbinErr("the AIE partition has no PDI")
	}
	if p.ColumnWidth == 0 {
		return p, xclbinErr("the AIE partition is 0 columns wide")
	}
	return p, nil
}

// parseMetadata reads the kernels of the XML: name, functional id, kernel id, arguments.
func parseMetadata(b []byte) ([]Kernel, error) {
	var doc struct {
		Kernels []struct {
			Name     string `xml:"name,attr"`
			Extended struct {
				Functional string `xml:"functional,attr"`
				ID         string `xml:"dpu_kernel_id,attr"`
			} `xml:"extended-data"`
			Args []struct {
				Name   string `xml:"name,attr"`
				Offset string `xml:"offset,attr"`
				Size   string `xml:"size,attr"`
			} `xml:"arg"`
		} `xml:"platform>device>core>kernel"`
	}
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		return nil, xclbinErr("embedded metadata: %v", err)
	}
	var out []Kernel
	for _, k := range doc.Kernels {
		n := Kernel{Name: k.Name}
		f, err := number(k.Extended.Functional, 8)
		if err != nil {
			return nil, xclbinErr("kernel %s: functional id: %v", k.Name, err)
		}
		n.Functional = uint8(f)
		if n.ID, err = number(k.Extended.ID, 64); err != nil {
			return nil, xclbinErr("kernel %s: kernel id: %v", k.Name, err)
		}
		for _, a := range k.Args {
			off, err := number(a.Offset, 31)
			if err != nil {
				return nil, xclbinErr("kernel %s: argument %s: offset: %v", k.Name, a.Name, err)
			}
			size, err := number(a.Size, 31)
			if err != nil {
				return nil, xclbinErr("kernel %s: argument %s: size: %v", k.Name, a.Name, err)
			}
			n.Args = append(n.Args, KernelArg{a.Name, int(off), int(size)})
		}
		out = append(out, n)
	}
	return out, nil
}

// number reads a decimal or 0x number; an absent one is 0.
func number(s string, bits int) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	return strconv.ParseUint(s, 0, bits)
}

// Kernel returns the kernel of that name, or the only one if the name is empty.
func (x *Xclbin) Kernel(name string) (Kernel, error) {
	if name == "" && len(x.Kernels) == 1 {
		return x.Kernels[0], nil
	}
	var names []string
	for _, k := range x.Kernels {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kernel{}, xclbinErr("no kernel %q, it has %v", name, names)
}

// Image returns the PDI on which a kernel runs: the one that lists its id, or the only one.
func (x *Xclbin) Image(k Kernel) (PDI, error) {
	for _, p := range x.Partition.PDIs {
		for _, id := range p.KernelIDs {
			if id == k.ID {
				return p, nil
			}
		}
	}
	if len(x.Partition.PDIs) == 1 {
		return x.Partition.PDIs[0], nil
	}
	return PDI{}, xclbinErr("no PDI lists kernel id %#x of %s", k.ID, k.Name)
}
