package txn

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 4)) }

// everyOp has each operation at least once, with values at the ends of their fields.
func everyOp(optimised bool) []Op {
	tile := BlockWriteOp(device.Tile{Col: 3, Row: 1}.Addr(0xA0000), 1, 2, 3)
	tile.TileWord = !optimised
	offset := uint64(1<<48 - 4)
	if optimised {
		offset = 1<<32 - 4
	}
	return []Op{
		WriteOp(0, 0), WriteOp(0xFFFFFFFF, 0xFFFFFFFF), MaskWriteOp(0x1D200, 0xF00, 0xF00), MaskPollOp(0x1D220, 0, 0x400000),
		BlockWriteOp(0x1D000, 1, 2, 3, 4, 5, 6, 7, 8), BlockWriteOp(0x1D000), tile,
		SyncOp(device.Tile{Col: 255, Row: 255}, device.MM2S, 255, 255, 255), SyncOp(device.Tile{}, device.S2MM, 0, 1, 1),
		DDRPatchOp(0x1D004, 0xFFFFFFFF, offset), ReadRegsOp(0x4300100), ReadRegsOp(1, 2, 3),
		LoadPDIOp(0xFFFF, 0xFFFFFFFF, 1<<64-1), PreemptOp(3), PreemptOp(255), NoopOp(),
		{Code: RecordTimer, Data: []uint32{7}}, {Code: RecordTimer}, {Code: MergeSync, Data: []uint32{1, 2}},
	}
}

func TestRoundTripEveryOp(t *testing.T) {
	for _, d := range device.All() {
		for _, h := range []Header{NewHeader(d), NewHeader(d).Optimised()} {
			p := &Program{Head: h, List: everyOp(h.Major == 1)}
			words, err := Encode(p)
			require.NoError(t, err)
			back, err := Decode(words)
			require.NoError(t, err)
			require.Equal(t, p, back)

			raw, err := EncodeBytes(p)
			require.NoError(t, err)
			back, err = DecodeBytes(raw)
			require.NoError(t, err)
			require.Equal(t, p, back)

			var buf bytes.Buffer
			n, err := WriteTo(&buf, p)
			require.NoError(t, err)
			require.EqualValues(t, len(raw), n)
			require.Equal(t, raw, buf.Bytes())
			st, err := Measure(p)
			require.NoError(t, err)
			require.Equal(t, Stats{Ops: len(p.List), Bytes: int64(len(raw))}, st)

			var text strings.Builder
			require.NoError(t, Format(&text, p))
			parsed, err := Parse(strings.NewReader(text.String()))
			require.NoError(t, err)
			require.Equal(t, p, parsed)
			require.Equal(t, p, Collect(p))
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	h := NewHeader(device.XDNA)
	for want, tc := range map[string]struct {
		h  Header
		op Op
	}{
		"does not fit the 32 bits of dialect 1.0": {h.Optimised(), DDRPatchOp(0x1D004, 0, 1<<32)},
		"direction 2":                       {h, Op{Code: Sync, Dir: 2, NCols: 1, NRows: 1}},
		"rectangle of 0 x 1 tiles":          {h, Op{Code: Sync, NRows: 1}},
		"no register":                       {h, Op{Code: ReadRegs}},
		"id 65536 does not fit 16 bits":     {h, Op{Code: LoadPDI, Arg: 1 << 16}},
		"no encoding of operation blockset": {h, Op{Code: 2}},
		"dialect 2.0":                       {Header{Major: 2}, NoopOp()},
	} {
		t.Run(want, func(t *testing.T) {
			p := &Program{Head: tc.h, List: []Op{tc.op}}
			_, err := Encode(p)
			require.ErrorContains(t, err, want)
			_, err = Measure(p)
			require.ErrorContains(t, err, want)
			_, err = WriteTo(&bytes.Buffer{}, p)
			require.ErrorContains(t, err, want)
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := Encode(&Program{Head: NewHeader(device.XDNA), List: []Op{
		WriteOp(1, 2), BlockWriteOp(0x1D000, 1, 2, 3), SyncOp(device.Tile{}, device.S2MM, 0, 1, 1),
	}})
	require.NoError(t, err)
	at := map[string]int{"write": 4, "blockwrite": 10, "sync": 17}
	for want, edit := range map[string]func(w []uint32) []uint32{
		"truncated, the header has 4":          func(w []uint32) []uint32 { return w[:3] },
		"is truncated, 80 bytes of 84":         func(w []uint32) []uint32 { return w[:len(w)-1] },
		"size field says 84 bytes":             func(w []uint32) []uint32 { return append(w, 0) },
		"count field says 4 operations":        func(w []uint32) []uint32 { w[2] = 4; return w },
		"count field says 2 operations":        func(w []uint32) []uint32 { w[2] = 2; return w },
		"dialect 7.1":                          func(w []uint32) []uint32 { w[0] |= 7; return w },
		"unknown opcode 0x77":                  func(w []uint32) []uint32 { w[at["write"]] = 0x77; return w },
		"opcode 2 (blockset) is not supported": func(w []uint32) []uint32 { w[at["write"]] = 2; return w },
		"write: size field 20":                 func(w []uint32) []uint32 { w[at["write"]+5] = 20; return w },
		"write: size field 25":                 func(w []uint32) []uint32 { w[at["write"]+5] = 25; return w },
		"blockwrite: size field 4294967292":    func(w []uint32) []uint32 { w[at["blockwrite"]+3] = 0xFFFFFFFC; return w },
		"blockwrite: size field 12":            func(w []uint32) []uint32 { w[at["blockwrite"]+3] = 12; return w },
		"sync: direction 9":                    func(w []uint32) []uint32 { w[at["sync"]+2] = 9; return w },
		"write: register address above 32":     func(w []uint32) []uint32 { w[at["write"]+3] = 1; return w },
		"sync: size field 16 exceeds":          func(w []uint32) []uint32 { w = w[:len(w)-1]; w[3] -= 4; return w },
	} {
		t.Run(want, func(t *testing.T) {
			_, err := Decode(edit(append([]uint32(nil), good...)))
			require.ErrorContains(t, err, want)
		})
	}
	_, err = DecodeBytes(make([]byte, 17))
	require.ErrorContains(t, err, "not whole 32-bit words")
}

// bits returns a random value of n bits, often at the ends.
func bits(r *rand.Rand, n uint) uint32 {
	switch r.IntN(4) {
	case 0:
		return 0
	case 1:
		return uint32(1<<n - 1)
	}
	return uint32(r.Uint64N(1 << n))
}

func randomLock(r *rand.Rand, idBits uint) LockUse {
	return LockUse{r.IntN(2) == 1, uint8(bits(r, idBits)), int8(r.IntN(128) - 64), uint8(bits(r, idBits)), int8(r.IntN(128) - 64)}
}

func randomPacket(r *rand.Rand) PacketUse {
	return PacketUse{r.IntN(2) == 1, uint8(bits(r, 3)), uint8(bits(r, 5)), uint8(bits(r, 6))}
}

func randomShim(r *rand.Rand) ShimBD {
	return ShimBD{
		Length: bits(r, 32), Addr: r.Uint64N(1<<46) * 4, Packet: randomPacket(r), Secure: r.IntN(2) == 1,
		D0Wrap: bits(r, 10), D0Step: bits(r, 20), D1Wrap: bits(r, 10), D1Step: bits(r, 20), D2Step: bits(r, 20),
		Burst: uint8(bits(r, 2)), SMID: uint8(bits(r, 4)), Cache: uint8(bits(r, 4)), QoS: uint8(bits(r, 4)),
		IterCurrent: bits(r, 6), IterWrap: bits(r, 6), IterStep: bits(r, 20), TLASTSuppress: r.IntN(2) == 1,
		NextBD: uint8(bits(r, 4)), UseNext: r.IntN(2) == 1, Valid: r.IntN(2) == 1, Lock: randomLock(r, 4),
	}
}

func randomMem(r *rand.Rand) MemBD {
	d := MemBD{
		Length: bits(r, 17), Base: bits(r, 19), Packet: randomPacket(r), Compression: r.IntN(2) == 1,
		D0Wrap: bits(r, 10), D0Step: bits(r, 17), D1Wrap: bits(r, 10), D1Step: bits(r, 17), D2Wrap: bits(r, 10), D2Step: bits(r, 17), D3Step: bits(r, 17),
		IterCurrent: bits(r, 6), IterWrap: bits(r, 6), IterStep: bits(r, 17), TLASTSuppress: r.IntN(2) == 1,
		NextBD: uint8(bits(r, 6)), UseNext: r.IntN(2) == 1, Valid: r.IntN(2) == 1, Lock: randomLock(r, 8),
	}
	for i, w := range []uint32{d.D0Wrap, d.D1Wrap, d.D2Wrap} {
		d.Before[i] = uint8(bits(r, uint(6-i)))
		if w == 0 {
			break
		}
		d.After[i] = uint8(bits(r, uint(6-i)))
	}
	return d
}

func randomCore(r *rand.Rand) CoreBD {
	return CoreBD{
		Length: bits(r, 14), Base: bits(r, 14), Compression: r.IntN(2) == 1, Packet: randomPacket(r),
		D0Wrap: bits(r, 8), D0Step: bits(r, 13), D1Wrap: bits(r, 8), D1Step: bits(r, 13), D2Step: bits(r, 13),
		IterCurrent: bits(r, 6), IterWrap: bits(r, 6), IterStep: bits(r, 13), TLASTSuppress: r.IntN(2) == 1,
		NextBD: uint8(bits(r, 4)), UseNext: r.IntN(2) == 1, Valid: r.IntN(2) == 1, Lock: randomLock(r, 4),
	}
}

func TestBDRoundTrip(t *testing.T) {
	r := newRand(1)
	for range 5000 {
		s := randomShim(r)
		w, err := s.Encode()
		require.NoError(t, err)
		gotS, err := DecodeShimBD(w[:])
		require.NoError(t, err)
		require.Equal(t, s, gotS)
		m := randomMem(r)
		w, err = m.Encode()
		require.NoError(t, err)
		gotM, err := DecodeMemBD(w[:])
		require.NoError(t, err)
		require.Equal(t, m, gotM)
		c := randomCore(r)
		w6, err := c.Encode()
		require.NoError(t, err)
		gotC, err := DecodeCoreBD(w6[:])
		require.NoError(t, err)
		require.Equal(t, c, gotC)
	}
}

// TestSetIteration: a count and a step in words are stored as one less, in every kind of descriptor; neither can be 0.
func TestSetIteration(t *testing.T) {
	var shim ShimBD
	var mem MemBD
	var core CoreBD
	for _, set := range []func(count, step int) error{shim.SetIteration, mem.SetIteration, core.SetIteration} {
		require.Error(t, set(0, 8))
		require.Error(t, set(3, 0))
		require.NoError(t, set(3, 8))
	}
	for _, got := range [][2]uint32{{shim.IterWrap, shim.IterStep}, {mem.IterWrap, mem.IterStep}, {core.IterWrap, core.IterStep}} {
		require.Equal(t, [2]uint32{2, 7}, got)
	}
}

// TestBDWordsRoundTrip starts from words: every bit that decodes must come back.
func TestBDWordsRoundTrip(t *testing.T) {
	r := newRand(2)
	kept := 0
	for range 20000 {
		w := make([]uint32, 8)
		for i := range w {
			w[i] = r.Uint32() & r.Uint32()
		}
		w[1] &^= 3
		if d, err := DecodeShimBD(w); err == nil {
			got, err := d.Encode()
			require.NoError(t, err)
			require.Equal(t, w, got[:])
			kept++
		}
		if d, err := DecodeMemBD(w); err == nil {
			got, err := d.Encode()
			require.NoError(t, err)
			require.Equal(t, w, got[:])
			kept++
		}
		if d, err := DecodeCoreBD(w[:6]); err == nil {
			got, err := d.Encode()
			require.NoError(t, err)
			require.Equal(t, w[:6], got[:])
			kept++
		}
	}
	require.Greater(t, kept, 1000)
}

func TestBDFieldLimits(t *testing.T) {
	shim := map[string]func(*ShimBD){
		"D0 wrap": func(d *ShimBD) { d.D0Wrap = 1 << 10 }, "D0 step": func(d *ShimBD) { d.D0Step = 1 << 20 },
		"D1 wrap": func(d *ShimBD) { d.D1Wrap = 1 << 10 }, "D1 step": func(d *ShimBD) { d.D1Step = 1 << 20 }, "D2 step": func(d *ShimBD) { d.D2Step = 1 << 20 },
		"burst": func(d *ShimBD) { d.Burst = 4 }, "SMID": func(d *ShimBD) { d.SMID = 16 }, "AxCache": func(d *ShimBD) { d.Cache = 16 }, "AxQoS": func(d *ShimBD) { d.QoS = 16 },
		"iteration current": func(d *ShimBD) { d.IterCurrent = 64 }, "iteration wrap": func(d *ShimBD) { d.IterWrap = 64 }, "iteration step": func(d *ShimBD) { d.IterStep = 1 << 20 },
		"next BD": func(d *ShimBD) { d.NextBD = 16 }, "lock release value": func(d *ShimBD) { d.Lock.RelValue = 64 }, "lock acquire value": func(d *ShimBD) { d.Lock.AcqValue = -65 },
		"lock release id": func(d *ShimBD) { d.Lock.RelID = 16 }, "lock acquire id": func(d *ShimBD) { d.Lock.AcqID = 16 },
		"packet id": func(d *ShimBD) { d.Packet.ID = 32 }, "packet type": func(d *ShimBD) { d.Packet.Type = 8 }, "out-of-order id": func(d *ShimBD) { d.Packet.OOO = 64 },
		"address 0x1000000000000": func(d *ShimBD) { d.Addr = 1 << 48 }, "address 0x2": func(d *ShimBD) { d.Addr = 2 },
	}
	for field, edit := range shim {
		var d ShimBD
		edit(&d)
		_, err := d.Encode()
		require.ErrorContains(t, err, "shim BD: "+field)
	}
	mem := map[string]func(*MemBD){
		"length": func(d *MemBD) { d.Length = 1 << 17 }, "base address": func(d *MemBD) { d.Base = 1 << 19 },
		"D0 wrap": func(d *MemBD) { d.D0Wrap = 1 << 10 }, "D1 wrap": func(d *MemBD) { d.D1Wrap = 1 << 10 }, "D2 wrap": func(d *MemBD) { d.D2Wrap = 1 << 10 },
		"D0 step": func(d *MemBD) { d.D0Step = 1 << 17 }, "D1 step": func(d *MemBD) { d.D1Step = 1 << 17 }, "D2 step": func(d *MemBD) { d.D2Step = 1 << 17 }, "D3 step": func(d *MemBD) { d.D3Step = 1 << 17 },
		"D0 zero-before": func(d *MemBD) { d.Before[0] = 64 }, "D1 zero-before": func(d *MemBD) { d.D0Wrap, d.Before[1] = 1, 32 }, "D2 zero-before": func(d *MemBD) { d.D0Wrap, d.D1Wrap, d.Before[2] = 1, 1, 16 },
		"D0 zero-after": func(d *MemBD) { d.D0Wrap, d.After[0] = 1, 64 }, "D1 zero-after": func(d *MemBD) { d.D1Wrap, d.After[1] = 1, 32 }, "D2 zero-after": func(d *MemBD) { d.D2Wrap, d.After[2] = 1, 16 },
		"iteration current": func(d *MemBD) { d.IterCurrent = 64 }, "iteration wrap": func(d *MemBD) { d.IterWrap = 64 }, "iteration step": func(d *MemBD) { d.IterStep = 1 << 17 },
		"next BD": func(d *MemBD) { d.NextBD = 64 }, "lock acquire value": func(d *MemBD) { d.Lock.AcqValue = 64 }, "lock release value": func(d *MemBD) { d.Lock.RelValue = -65 },
		"packet id": func(d *MemBD) { d.Packet.ID = 32 }, "packet type": func(d *MemBD) { d.Packet.Type = 8 }, "out-of-order id": func(d *MemBD) { d.Packet.OOO = 64 },
	}
	for field, edit := range mem {
		var d MemBD
		edit(&d)
		_, err := d.Encode()
		require.ErrorContains(t, err, "MemTile BD: "+field)
	}
	d := MemBD{After: [3]uint8{1, 0, 0}}
	_, err := d.Encode()
	require.ErrorContains(t, err, "D0 zero-after 1 needs a wrap")
	d = MemBD{D1Wrap: 2, After: [3]uint8{0, 1, 0}}
	_, err = d.Encode()
	require.ErrorContains(t, err, "D1 is padded but a dimension below has wrap 0")
	core := map[string]func(*CoreBD){
		"length": func(d *CoreBD) { d.Length = 1 << 14 }, "base address": func(d *CoreBD) { d.Base = 1 << 14 },
		"D0 wrap": func(d *CoreBD) { d.D0Wrap = 1 << 8 }, "D1 wrap": func(d *CoreBD) { d.D1Wrap = 1 << 8 },
		"D0 step": func(d *CoreBD) { d.D0Step = 1 << 13 }, "D1 step": func(d *CoreBD) { d.D1Step = 1 << 13 }, "D2 step": func(d *CoreBD) { d.D2Step = 1 << 13 },
		"iteration current": func(d *CoreBD) { d.IterCurrent = 64 }, "iteration wrap": func(d *CoreBD) { d.IterWrap = 64 }, "iteration step": func(d *CoreBD) { d.IterStep = 1 << 13 },
		"next BD": func(d *CoreBD) { d.NextBD = 16 }, "lock release value": func(d *CoreBD) { d.Lock.RelValue = 100 }, "lock acquire id": func(d *CoreBD) { d.Lock.AcqID = 16 },
		"packet id": func(d *CoreBD) { d.Packet.ID = 32 }, "packet type": func(d *CoreBD) { d.Packet.Type = 8 }, "out-of-order id": func(d *CoreBD) { d.Packet.OOO = 64 },
	}
	for field, edit := range core {
		var d CoreBD
		edit(&d)
		_, err := d.Encode()
		require.ErrorContains(t, err, "core BD: "+field)
	}
	_, err = Task{BD: 16, Repeat: 1}.Encode(device.XDNA.Tile(device.Shim))
	require.ErrorContains(t, err, "task: BD id 16")
	_, err = Task{Repeat: 257}.Encode(device.XDNA.Tile(device.Mem))
	require.ErrorContains(t, err, "task: repeat 257")
	_, err = DecodeTask(device.XDNA.Tile(device.Core), 1<<24)
	require.ErrorContains(t, err, "reserved bits")
	_, err = DecodeShimBD(make([]uint32, 7))
	require.ErrorContains(t, err, "7 words, want 8")
}

// addresses lists the word addresses of one run of a pattern.
func addresses(p *Pattern, iter int) []int64 {
	var out []int64
	p.Runs(iter, func(addr, n int64) bool {
		for i := range n {
			if addr == Zero {
				out = append(out, Zero)
			} else {
				out = append(out, addr+i)
			}
		}
		return true
	})
	return out
}

// TestMemcpyAddresses: the addresses of a lowered transfer equal those of four nested loops, whatever the sizes and strides.
func TestMemcpyAddresses(t *testing.T) {
	r := newRand(3)
	for range 3000 {
		bits := []int{8, 16, 32, 64}[r.IntN(4)]
		per := int64(max(32/bits, 1))
		m := Memcpy{Dev: device.All()[r.IntN(2)], Dir: device.Dir(r.IntN(2)), Channel: r.IntN(2), BD: r.IntN(16), ElemBits: bits, Arg: uint32(r.IntN(5))}
		m.Sizes = [4]int64{1 + r.Int64N(4), 1 + r.Int64N(5), 1 + r.Int64N(6), (1 + r.Int64N(6)) * per}
		for i := range m.Strides[:3] {
			m.Strides[i] = (1 + r.Int64N(40)) * per
		}
		if r.IntN(3) == 0 { // contiguous inner dimensions lower to a linear descriptor
			m.Strides[2] = m.Sizes[3]
			m.Strides[1] = m.Sizes[3] * m.Sizes[2]
		}
		if r.IntN(3) == 0 {
			m.Strides[0] = 0
		}
		m.Strides[3] = 1
		if bits == 32 && r.IntN(2) == 0 {
			m.Strides[3] = 1 + r.Int64N(5)
		}
		for i := range m.Offsets[:3] {
			m.Offsets[i] = r.Int64N(3)
		}
		m.Offsets[3] = r.Int64N(3) * per
		tr, err := m.Lower()
		require.NoError(t, err, "%+v", m)

		var want []int64 // byte addresses of words
		off := int64(0)
		for i := range m.Offsets {
			off += m.Offsets[i] * m.Strides[i]
		}
		e := int64(bits)
		for i3 := range m.Sizes[0] {
			for i2 := range m.Sizes[1] {
				for i1 := range m.Sizes[2] {
					for i0 := range m.Sizes[3] {
						b := (off + i3*m.Strides[0] + i2*m.Strides[1] + i1*m.Strides[2] + i0*m.Strides[3]) * e / 8
						if b%4 == 0 {
							want = append(want, b)
						}
						if e == 64 {
							want = append(want, b+4)
						}
					}
				}
			}
		}
		p := tr.BD.Pattern()
		var got []int64
		for run := range tr.Task.Repeat {
			for _, a := range addresses(&p, (p.IterCurrent+run)%p.IterCount) {
				got = append(got, int64(tr.Offset)+4*a)
			}
		}
		require.Equal(t, want, got, "%+v\n%+v", m, tr.BD)
	}
}

func TestMemcpyLimits(t *testing.T) {
	base := Memcpy{Dev: device.XDNA, Dir: device.MM2S, ElemBits: 32, Sizes: [4]int64{2, 2, 4, 8}, Strides: [4]int64{4096, 1024, 64, 1}}
	_, err := base.Lower()
	require.NoError(t, err)
	for want, edit := range map[string]func(*Memcpy){
		"D0 wrap 1024 does not fit":              func(m *Memcpy) { m.Sizes[3] = 1024 },
		"D1 wrap 1024 does not fit":              func(m *Memcpy) { m.Sizes[2] = 1024 },
		"D1 step 1048577 does not fit":           func(m *Memcpy) { m.Strides[2] = 1<<20 + 1 },
		"D2 step 1048577 does not fit":           func(m *Memcpy) { m.Strides[1] = 1<<20 + 1 },
		"iteration step 1310720 does not fit":    func(m *Memcpy) { m.Strides[0] = 1310720 },
		"iteration wrap 65 does not fit":         func(m *Memcpy) { m.Sizes[0] = 65 },
		"repeat 257 does not fit":                func(m *Memcpy) { m.Sizes[0], m.Strides[0] = 257, 0 },
		"innermost stride 2 of 16-bit":           func(m *Memcpy) { m.ElemBits, m.Strides[3] = 16, 2 },
		"innermost size of 3 x 16 bits":          func(m *Memcpy) { m.ElemBits, m.Sizes[3] = 16, 3 },
		"D1 stride of 65 x 16 bits":              func(m *Memcpy) { m.ElemBits, m.Strides[2] = 16, 65 },
		"elements of 12 bits":                    func(m *Memcpy) { m.ElemBits = 12 },
		"column 4":                               func(m *Memcpy) { m.Col = 4 },
		"channel 2":                              func(m *Memcpy) { m.Channel = 2 },
		"BD id 16":                               func(m *Memcpy) { m.BD = 16 },
		"size 0 of dimension 1":                  func(m *Memcpy) { m.Sizes[2] = 0 },
		"burst of 512":                           func(m *Memcpy) { m.Burst = 3 },
		"iteration size 65 does not fit":         func(m *Memcpy) { m.Sizes[0], m.IterSize, m.IterStride = 1, 65, 64 },
		"explicit iteration needs":               func(m *Memcpy) { m.IterSize, m.IterStride = 4, 64 },
		"byte offset -32":                        func(m *Memcpy) { m.ViewByte = -32 },
		"byte offset 2":                          func(m *Memcpy) { m.ViewByte = 2 },
		"does not fit 32 bits":                   func(m *Memcpy) { m.Sizes[1], m.Sizes[3] = 1<<30, 1000 },
		"D2 stride -5":                           func(m *Memcpy) { m.Strides[1] = -5 },
		"innermost stride 0, want at least 1":    func(m *Memcpy) { m.Strides[3] = 0 },
		"a repeat count needs an outermost size": func(m *Memcpy) { m.RepeatCount = 3 },
	} {
		t.Run(want, func(t *testing.T) {
			m := base
			edit(&m)
			_, err := m.Lower()
			require.ErrorContains(t, err, want)
		})
	}
}

// TestMemPadding: a padded MemTile pattern against loops over a matrix with zeros around it.
func TestMemPadding(t *testing.T) {
	r := newRand(5)
	for range 500 {
		var d MemBD
		size := [4]int{1 + r.IntN(5), 1 + r.IntN(4), 1 + r.IntN(3), 1 + r.IntN(3)}
		step := [4]int{1 + r.IntN(3), 1 + r.IntN(20), 1 + r.IntN(50), 1 + r.IntN(90)}
		require.NoError(t, d.SetDims(Dim{size[0], step[0]}, Dim{size[1], step[1]}, Dim{size[2], step[2]}, Dim{size[3], step[3]}))
		for i := range 3 {
			d.Before[i], d.After[i] = uint8(r.IntN(3)), uint8(r.IntN(3))
		}
		d.Base = uint32(r.IntN(100))
		var want []int64
		b, a := d.Before, d.After
		for i3 := range size[3] {
			for i2 := -int(b[2]); i2 < size[2]+int(a[2]); i2++ {
				for i1 := -int(b[1]); i1 < size[1]+int(a[1]); i1++ {
					for i0 := -int(b[0]); i0 < size[0]+int(a[0]); i0++ {
						if i0 < 0 || i0 >= size[0] || i1 < 0 || i1 >= size[1] || i2 < 0 || i2 >= size[2] {
							want = append(want, Zero)
							continue
						}
						want = append(want, int64(int(d.Base)+i0*step[0]+i1*step[1]+i2*step[2]+i3*step[3]))
					}
				}
			}
		}
		d.Length = uint32(len(want))
		_, err := d.Encode()
		require.NoError(t, err)
		p := d.Pattern()
		require.Equal(t, want, addresses(&p, 0))
	}
}

func TestParseRefuses(t *testing.T) {
	head := "txn 0.1 devgen=4 rows=6 cols=8 memtile_rows=1\n"
	for text, want := range map[string]string{
		"":                           "no header line",
		"write 1 2":                  "want a header line",
		"txn 0.2 devgen=4":           "dialect",
		"txn 0.1 devgen=4 rows=6":    "is missing",
		"txn 0.1 devgen=4 devgen=4":  "given twice",
		head + "wrote 1 2":           `unknown operation "wrote"`,
		head + "write 1":             "1 operands, want 2",
		head + "write 1 0x100000000": "is not a number of 32 bits",
		head + "write.tile 1 2":      "unknown operation",
		head + "sync col=0":          "is missing",
		head + "sync dir=up":         "want s2mm or mm2s",
		head + "\n# comment\nnoop # fine\nnoop now": "line 5",
		head + "blockwrite":                         "no address",
		head + "ddr_patch":                          "no address",
		head + "preempt level=256":                  "8 bits",
	} {
		_, err := Parse(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

// FuzzDecode: no panic, and what decodes is stable: its encoding decodes to the same and encodes to the same words again.
func FuzzDecode(f *testing.F) {
	for _, h := range []Header{NewHeader(device.XDNA), NewHeader(device.XDNA2).Optimised()} {
		raw, err := EncodeBytes(&Program{Head: h, List: everyOp(h.Major == 1)})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)-8])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := DecodeBytes(raw)
		if err != nil {
			return
		}
		words, err := Encode(p)
		require.NoError(t, err)
		again, err := Decode(words)
		require.NoError(t, err)
		require.Equal(t, p, again)
		var text strings.Builder
		require.NoError(t, Format(&text, p))
		parsed, err := Parse(strings.NewReader(text.String()))
		require.NoError(t, err)
		back, err := Encode(parsed)
		require.NoError(t, err)
		require.Equal(t, words, back)
	})
}

// FuzzParse: no panic, and text that parses round-trips.
func FuzzParse(f *testing.F) {
	f.Add("txn 0.1 devgen=4 rows=6 cols=8 memtile_rows=1\nwrite 1 2\nblockwrite.tile 0x061a0000 1 2\nsync col=0 row=0 dir=s2mm channel=0 cols=1 rows=1\n")
	f.Add("txn 1.0 devgen=3 rows=6 cols=4 memtile_rows=1\nddr_patch 4 arg=1 offset=0x10 # x\nnoop\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		if _, err := Encode(p); err != nil {
			return
		}
		var sb strings.Builder
		require.NoError(t, Format(&sb, p))
		again, err := Parse(strings.NewReader(sb.String()))
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}

func BenchmarkShimBDEncode(b *testing.B) {
	d := randomShim(newRand(1))
	for b.Loop() {
		if _, err := d.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}
