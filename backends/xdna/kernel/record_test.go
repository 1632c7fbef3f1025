package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// int16Record is the XDNA2 int8-int16 kernel of the seed's table 3.
func int16Record() *Record {
	return &Record{
		AType: I8, BType: I8, CType: I16, Arith: Int, M: 128, K: 72, N: 112, R: 8, S: 8, T: 8, Bands: 1, BTransposed: true,
		A:   Buffer{Addr: [2]uint32{0x400, 0x400 + 9216}, Depth: 2, Free: 0, Full: 1},
		B:   Buffer{Addr: [2]uint32{0x4C00, 0x4C00 + 8064}, Depth: 2, Free: 2, Full: 3},
		C:   Buffer{Addr: [2]uint32{0x8C00}, Depth: 1, Free: 4, Full: 5},
		RTP: 0x10, Barrier: 6,
	}
}

func TestRecordRoundTrip(t *testing.T) {
	r := int16Record()
	w, err := r.Encode()
	require.NoError(t, err)
	require.Len(t, w, Words)
	got, err := Decode(w)
	require.NoError(t, err)
	require.Equal(t, r, got)
}

func TestRecordRefuses(t *testing.T) {
	for name, edit := range map[string]func(*Record){
		"multiple of its block 8":          func(r *Record) { r.K = 76 },
		"no kernel for":                    func(r *Record) { r.CType = BF16 },
		"overlaps":                         func(r *Record) { r.C.Addr[0] = 0x4000 },
		"ends beyond":                      func(r *Record) { r.C.Addr[0] = 0xF000 },
		"is not aligned":                   func(r *Record) { r.RTP = 2 },
		"is both":                          func(r *Record) { r.Barrier = 0 },
		"a core has 16":                    func(r *Record) { r.Barrier = 16 },
		"does not split into":              func(r *Record) { r.Bands = 3 },
		"has 3 buffers":                    func(r *Record) { r.A.Depth = 3 },
		"has one buffer but a second":      func(r *Record) { r.C.Addr[1] = 8 },
		"groups hold 8 values":             func(r *Record) { *r = bfpRecord(); r.S = 4; r.K = 48 },
		"bfp16 B must be transposed":       func(r *Record) { *r = bfpRecord(); r.BTransposed = false },
		"block of 0 along N, want 1 to 16": func(r *Record) { r.T = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			r := int16Record()
			edit(r)
			_, err := r.Encode()
			require.ErrorContains(t, err, name)
		})
	}
}

func bfpRecord() Record {
	r := *int16Record()
	r.AType, r.BType, r.CType, r.Arith = BF16, BFP16, BF16, BFP
	r.M, r.K, r.N = 48, 48, 64
	return r
}

func FuzzDecode(f *testing.F) {
	w, _ := int16Record().Encode()
	raw := make([]byte, 0, 64)
	for _, v := range w {
		raw = append(raw, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		w := make([]uint32, len(raw)/4)
		for i := range w {
			w[i] = uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24
		}
		r, err := Decode(w)
		if err != nil {
			return
		}
		again, err := r.Encode()
		require.NoError(t, err)
		require.Equal(t, w[:Words], again)
	})
}
