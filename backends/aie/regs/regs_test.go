package regs

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomLock(rng *rand.Rand) LockUse {
	b := func() bool { return rng.IntN(2) == 0 }
	return LockUse{rng.IntN(16), b(), b(), rng.IntN(2), b(), b(), rng.IntN(2)}
}

// Each field alone, at its least and most, in the bits that the layout gives it (facts: section 1.4 of the seeds' companion notes).
func TestCoreFieldsBitForBit(t *testing.T) {
	base := CoreBD{X: Dim{1, 1, 0}, Y: Dim{1, 1, 0}, InterleaveCount: 1, Length: 1}
	for _, c := range []struct {
		name string
		set  func(*CoreBD)
		word int
		bits uint32
	}{
		{"lock A id", func(b *CoreBD) { b.LockA.ID = 15 }, 0, 0xF << 22},
		{"lock A release", func(b *CoreBD) { b.LockA.Release = true }, 0, 1 << 21},
		{"lock A release value", func(b *CoreBD) { b.LockA.ReleaseValue = 1 }, 0, 1 << 20},
		{"lock A use release", func(b *CoreBD) { b.LockA.ReleaseUse = true }, 0, 1 << 19},
		{"lock A acquire", func(b *CoreBD) { b.LockA.Acquire = true }, 0, 1 << 18},
		{"lock A acquire value", func(b *CoreBD) { b.LockA.AcquireValue = 1 }, 0, 1 << 17},
		{"lock A use acquire", func(b *CoreBD) { b.LockA.AcquireUse = true }, 0, 1 << 16},
		{"base A", func(b *CoreBD) { b.BaseA = 0x1FFF }, 0, 0x1FFF},
		{"lock B id", func(b *CoreBD) { b.LockB.ID = 9 }, 1, 9 << 22},
		{"base B", func(b *CoreBD) { b.BaseB = 0x1FFF }, 1, 0x1FFF},
		{"X increment", func(b *CoreBD) { b.X.Incr = 256 }, 2, 0xFF << 24},
		{"X wrap", func(b *CoreBD) { b.X.Wrap = 256 }, 2, 0xFF << 16},
		{"X offset", func(b *CoreBD) { b.X.Offset = 0x1FFF }, 2, 0x1FFF},
		{"Y increment", func(b *CoreBD) { b.Y.Incr = 3 }, 3, 2 << 24},
		{"Y wrap", func(b *CoreBD) { b.Y.Wrap = 3 }, 3, 2 << 16},
		{"Y offset", func(b *CoreBD) { b.Y.Offset = 3 }, 3, 3},
		{"packet type", func(b *CoreBD) { b.PacketType = 7 }, 4, 7 << 12},
		{"packet id", func(b *CoreBD) { b.PacketID = 31 }, 4, 31},
		{"state B", func(b *CoreBD) { b.StateB = true }, 5, 1 << 16},
		{"state pointer", func(b *CoreBD) { b.StatePointer = 0x1FFF }, 5, 0x1FFF},
		{"valid", func(b *CoreBD) { b.Valid = true }, 6, 1 << 31},
		{"double buffer", func(b *CoreBD) { b.DoubleBuffer = true }, 6, 1 << 30},
		{"fifo", func(b *CoreBD) { b.FIFO = 3 }, 6, 3 << 28},
		{"packet", func(b *CoreBD) { b.Packet = true }, 6, 1 << 27},
		{"interleave", func(b *CoreBD) { b.Interleave = true }, 6, 1 << 26},
		{"interleave count", func(b *CoreBD) { b.InterleaveCount = 256 }, 6, 0xFF << 18},
		{"use next", func(b *CoreBD) { b.UseNext = true }, 6, 1 << 17},
		{"next", func(b *CoreBD) { b.Next = 15 }, 6, 15 << 13},
		{"length", func(b *CoreBD) { b.Length = 8192 }, 6, 8191},
	} {
		b := base
		c.set(&b)
		w, err := b.Encode()
		require.NoError(t, err, c.name)
		var want [CoreWords]uint32
		want[c.word] = c.bits
		require.Equal(t, want, w, c.name)
		require.Equal(t, b, DecodeCore(w), c.name)
	}
}

func TestShimFieldsBitForBit(t *testing.T) {
	for _, c := range []struct {
		name string
		b    ShimBD
		want [ShimWords]uint32
	}{
		{"address low", ShimBD{Address: 0xFFFFFFFC}, [5]uint32{0xFFFFFFFC}},
		{"address high", ShimBD{Address: 0xABCD << 32}, [5]uint32{2: 0xABCD << 16}},
		{"length", ShimBD{Length: 0xFFFFFFFF}, [5]uint32{1: 0xFFFFFFFF}},
		{"use next", ShimBD{UseNext: true}, [5]uint32{2: 1 << 15}},
		{"next", ShimBD{Next: 15}, [5]uint32{2: 15 << 11}},
		{"lock id", ShimBD{Lock: LockUse{ID: 15}}, [5]uint32{2: 15 << 7}},
		{"release", ShimBD{Lock: LockUse{Release: true}}, [5]uint32{2: 1 << 6}},
		{"release value", ShimBD{Lock: LockUse{ReleaseValue: 1}}, [5]uint32{2: 1 << 5}},
		{"use release", ShimBD{Lock: LockUse{ReleaseUse: true}}, [5]uint32{2: 1 << 4}},
		{"acquire", ShimBD{Lock: LockUse{Acquire: true}}, [5]uint32{2: 1 << 3}},
		{"acquire value", ShimBD{Lock: LockUse{AcquireValue: 1}}, [5]uint32{2: 1 << 2}},
		{"use acquire", ShimBD{Lock: LockUse{AcquireUse: true}}, [5]uint32{2: 1 << 1}},
		{"valid", ShimBD{Valid: true}, [5]uint32{2: 1}},
		{"smid", ShimBD{SMID: 15}, [5]uint32{3: 15 << 28}},
		{"burst", ShimBD{Burst: 3}, [5]uint32{3: 3 << 9}},
		{"qos", ShimBD{QoS: 15}, [5]uint32{3: 15 << 5}},
		{"secure", ShimBD{Secure: true}, [5]uint32{3: 1 << 4}},
		{"cache", ShimBD{Cache: 15}, [5]uint32{3: 15}},
		{"packet", ShimBD{Packet: true}, [5]uint32{4: 1 << 31}},
		{"packet type", ShimBD{PacketType: 7}, [5]uint32{4: 7 << 12}},
		{"packet id", ShimBD{PacketID: 31}, [5]uint32{4: 31}},
	} {
		w, err := c.b.Encode()
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, w, c.name)
		require.Equal(t, c.b, DecodeShim(w), c.name)
	}
}

func TestDescriptorsRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	flag := func() bool { return rng.IntN(2) == 0 }
	for range 5000 {
		b := CoreBD{LockA: randomLock(rng), LockB: randomLock(rng), BaseA: rng.IntN(8192), BaseB: rng.IntN(8192),
			X: Dim{1 + rng.IntN(256), 1 + rng.IntN(256), rng.IntN(8192)}, Y: Dim{1 + rng.IntN(256), 1 + rng.IntN(256), rng.IntN(8192)},
			PacketType: rng.IntN(8), PacketID: rng.IntN(32), StateB: flag(), StatePointer: rng.IntN(8192), Valid: flag(), DoubleBuffer: flag(), FIFO: rng.IntN(4),
			Packet: flag(), Interleave: flag(), InterleaveCount: 1 + rng.IntN(256), UseNext: flag(), Next: rng.IntN(16), Length: 1 + rng.IntN(8192)}
		w, err := b.Encode()
		require.NoError(t, err)
		require.Equal(t, b, DecodeCore(w))
		// Decoding any words and encoding them again keeps every bit that the layout knows.
		var any, again [CoreWords]uint32
		for i := range any {
			any[i] = rng.Uint32()
		}
		again, err = DecodeCore(any).Encode()
		require.NoError(t, err)
		for i, m := range [CoreWords]uint32{0x03FF1FFF, 0x03FF1FFF, 0xFFFF1FFF, 0xFFFF1FFF, 0x0000701F, 0x00011FFF, 0xFFFFFFFF} {
			require.Equal(t, any[i]&m, again[i], "word %d", i)
		}

		s := ShimBD{Address: rng.Int64N(1<<46) * 4, Length: rng.Int64N(1 << 32), Lock: randomLock(rng), UseNext: flag(), Next: rng.IntN(16), Valid: flag(),
			SMID: rng.IntN(16), Burst: rng.IntN(4), QoS: rng.IntN(16), Secure: flag(), Cache: rng.IntN(16), Packet: flag(), PacketType: rng.IntN(8), PacketID: rng.IntN(32)}
		ws, err := s.Encode()
		require.NoError(t, err)
		require.Equal(t, s, DecodeShim(ws))
	}
}

func TestFieldErrors(t *testing.T) {
	ok := CoreBD{X: LinearX, Y: LinearY, Length: 1}
	for want, mutate := range map[string]func(*CoreBD){
		"length = 8193, 1 to 8192 fits":        func(b *CoreBD) { b.Length = 8193 },
		"length = 0, 1 to 8192 fits":           func(b *CoreBD) { b.Length = 0 },
		"X wrap = 257, 1 to 256 fits":          func(b *CoreBD) { b.X.Wrap = 257 },
		"base A = 8192, 0 to 8191 fits":        func(b *CoreBD) { b.BaseA = 8192 },
		"lock id = 16, 0 to 15 fits":           func(b *CoreBD) { b.LockB.ID = 16 },
		"next descriptor = -1, 0 to 15 fits":   func(b *CoreBD) { b.Next = -1 },
		"lock acquire value = 2, 0 to 1 fits":  func(b *CoreBD) { b.LockA.AcquireValue = 2 },
		"interleave count = 300, 1 to 256 fit": func(b *CoreBD) { b.InterleaveCount = 300 },
	} {
		b := ok
		mutate(&b)
		_, err := b.Encode()
		require.ErrorContains(t, err, want)
		var f *FieldError
		require.ErrorAs(t, err, &f)
	}
	_, err := ShimBD{Address: 2}.Encode()
	require.ErrorContains(t, err, "multiple of 4")
	_, err = ShimBD{Address: 1 << 48}.Encode()
	require.Error(t, err)
	_, err = ShimBD{Length: 1 << 32}.Encode()
	require.ErrorContains(t, err, "length")
}

func TestAddressing(t *testing.T) {
	b := CoreBD{BaseA: 100, X: LinearX, Y: LinearY, Length: 8192}
	require.True(t, b.Linear())
	for i := range 8192 {
		require.Equal(t, 100+i, b.Word(i))
	}
	// Rows of 4 words, 10 apart, each twice.
	b = CoreBD{X: Dim{1, 4, 1}, Y: Dim{8, 3, 10}, Length: 24}
	require.False(t, b.Linear())
	require.Equal(t, []int{0, 3, 0, 10, 23}, []int{b.Word(0), b.Word(3), b.Word(4), b.Word(8), b.Word(23)})
}

func sample() *Program {
	p := &Program{Device: "vc1902"}
	p.Host(3, "pack B")
	p.Block(0x0041D000, []uint32{1, 2, 3, 4, 5}, "shim(0,0) bd 0")
	p.Write(0x41D154, 7, "")
	p.Poll(0x41D164, 0, 0xF, "wait")
	return p
}

func TestTextRoundTrip(t *testing.T) {
	var b bytes.Buffer
	p := sample()
	n, err := p.WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, int64(b.Len()), n)
	require.Contains(t, b.String(), "block 0x0041d000 5 0x00000001 0x00000002 0x00000003 0x00000004 0x00000005 # shim(0,0) bd 0\n")
	q, err := Parse(&b)
	require.NoError(t, err)
	require.Equal(t, p, q)
	require.Equal(t, 6, p.Words())
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "empty register program",
		"hello":                                 "starts with",
		header + "x\nfrob 1":                    `line 2: unknown operation "frob"`,
		header + "x\nwrite 1":                   "line 2: write needs more words",
		header + "x\nwrite 1 2 3":               "line 2: write has 3 words, 2 are right",
		header + "x\nwrite 1 0x1FFFFFFFF":       "is no 32-bit number",
		header + "x\n\nblock 0 3 1 2":           "line 3: block of 3 words has 2",
		header + "x\npoll 1 2 3 4 # many words": "line 2: poll has 4 words",
	} {
		_, err := Parse(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParse(f *testing.F) {
	var b bytes.Buffer
	_, _ = sample().WriteTo(&b)
	f.Add(b.String())
	f.Add(header + "x\nblock 0 4000000000")
	f.Add(header)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		var out bytes.Buffer
		_, err = p.WriteTo(&out)
		require.NoError(t, err)
		q, err := Parse(bytes.NewReader(out.Bytes()))
		require.NoError(t, err)
		require.Equal(t, p.Ops, q.Ops)
	})
}
