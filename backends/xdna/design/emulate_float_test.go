package design_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/quant/bfp16"
)

// floats is a matrix of vectors along K in one of the types, with the values that its bytes hold.
type floats struct {
	rows, k int
	val     [][]float32
	raw     []byte // rows of K
}

func randomFloats(rng *rand.Rand, rows, k int, typ kernel.Type) *floats {
	f := &floats{rows: rows, k: k, val: make([][]float32, rows)}
	for i := range f.val {
		v := make([]float32, k)
		for j := range v {
			v[j] = math.Float32frombits(math.Float32bits(float32(rng.NormFloat64())) &^ 0xFFFF) // a bf16
		}
		if typ == kernel.BFP16 {
			raw := make([]byte, bfp16.Size(k))
			bfp16.Encode(raw, v, bfp16.NearestEven)
			bfp16.Decode(v, raw)
			f.raw = append(f.raw, raw...)
		} else {
			for _, x := range v {
				f.raw = binary.LittleEndian.AppendUint16(f.raw, uint16(math.Float32bits(x)>>16))
			}
		}
		f.val[i] = v
	}
	return f
}

// padded is a row with zeros up to n.
func padded(v []float32, n int) []float32 {
	return append(append([]float32(nil), v...), make([]float32, n-len(v))...)
}

// TestEmulateFloats: the bf16 and bfp16 designs on the emulator, bit for bit with the definition of their kernels.
func TestEmulateFloats(t *testing.T) {
	for _, tc := range []struct {
		dev    *device.Device
		pair   string
		layout design.Layout
		edit   func(*design.Design)
	}{
		{device.XDNA, "bf16-bf16", design.ColMajor, nil},
		{device.XDNA, "bf16-f32", design.RowMajor, func(d *design.Design) { d.Transposed = true }},
		{device.XDNA, "bf16-bf16", design.Tiled, func(d *design.Design) { d.Bands, d.ResidentB = 2, true }},
		{device.XDNA2, "bf16-bf16", design.ColMajor, func(d *design.Design) { d.Padding = design.PadMemTile }},
		{device.XDNA2, "bf16-bf16", design.RowMajor, func(d *design.Design) { d.Rounding = kernel.Floor }},
		{device.XDNA2, "bf16-bfp16", design.Tiled, nil},
		{device.XDNA2, "bf16-bfp16", design.Tiled, func(d *design.Design) { d.Bands, d.ResidentB = 2, true }},
		{device.XDNA2, "bf16-bfp16-f32", design.Tiled, func(d *design.Design) { d.Transposed, d.Bands = true, 2 }},
		{device.XDNA2, "bfp16-bfp16", design.Tiled, func(d *design.Design) { d.Bands = 2 }},
		{device.XDNA2, "bfp16-bfp16-f32", design.Tiled, func(d *design.Design) { d.Transposed = true }},
	} {
		d := small(t, tc.dev, tc.pair, tc.layout)
		if tc.edit != nil {
			tc.edit(d)
		}
		t.Run(fmt.Sprintf("%v", d), func(t *testing.T) {
			a := configure(t, d)
			rng := rand.New(rand.NewPCG(9, 9))
			for i, size := range []design.Problem{{M: 70, K: 104, N: 150}, {M: 5, K: 8, N: 3}, {M: 130, K: 64, N: 257}} {
				d.Schedule = design.Schedule(i)
				floatProduct(t, a, d, size, rng)
			}
		})
	}
}

func floatProduct(t testing.TB, a *array.Array, d *design.Design, p design.Problem, rng *rand.Rand) {
	t.Helper()
	r, err := d.Run(p)
	require.NoError(t, err)
	p = r.Problem
	A, B := randomFloats(rng, p.M, p.K, d.Types.A), randomFloats(rng, p.N, p.K, d.Types.B)
	bufs := make([][]byte, design.NumArgs)
	host := make([]array.Buffer, design.NumArgs)
	for i, n := range r.BufferBytes {
		bufs[i] = make([]byte, n)
		host[i] = array.Buffer{Data: bufs[i], Input: i == design.ArgA || i == design.ArgB || i == design.ArgStage}
	}
	if d.Types.A == kernel.BFP16 {
		require.NoError(t, r.TileA(bufs[design.ArgA], A.raw, int64(bfp16.Size(p.K))))
	} else {
		copy(bufs[design.ArgA], A.raw)
	}
	switch d.BLayout {
	case design.ColMajor:
		copy(bufs[design.ArgB], B.raw)
	case design.RowMajor:
		for n := range p.N {
			for k := range p.K {
				copy(bufs[design.ArgB][int64(k)*p.PitchB+int64(2*n):][:2], B.raw[2*(n*p.K+k):])
			}
		}
	case design.Tiled:
		require.NoError(t, r.TileB(bufs[design.ArgB], B.raw, design.ColMajor, int64(len(B.raw)/p.N)))
	}
	require.NoError(t, r.Prepare(bufs))
	words, err := txn.Encode(r)
	require.NoError(t, err)
	_, err = a.Dispatch(context.Background(), words, host...)
	require.NoError(t, err)
	require.NoError(t, r.Finish(bufs))
	mode, err := d.Dev.Mode(d.Types)
	require.NoError(t, err)
	C := bufs[design.ArgC]
	for m := range p.M {
		if m%4 != 0 && m < p.M-3 {
			continue // the definition is slow: some rows of every tile, and the last ones
		}
		x := padded(A.val[m], r.KPad)
		for n := range p.N {
			y := padded(B.val[n], r.KPad)
			var want, got float32
			if mode.Arith == kernel.FMA {
				want = kernel.ReferenceFMA(x, y, d.Tile.K, d.Types.C, d.Rounding)
			} else {
				want = kernel.ReferenceBFP(x, y, d.Types.A, d.Types.B, d.Tile.K, d.Types.C, d.Rounding)
			}
			if d.Types.C == kernel.F32 {
				got = math.Float32frombits(binary.LittleEndian.Uint32(C[int64(m)*p.PitchC+int64(4*n):]))
			} else {
				got = math.Float32frombits(uint32(binary.LittleEndian.Uint16(C[int64(m)*p.PitchC+int64(2*n):])) << 16)
			}
			if math.Float32bits(got) != math.Float32bits(want) {
				require.Equal(t, want, got, "C[%d,%d] of %+v on %v", m, n, p, d)
			}
		}
	}
}

// TestEmulateLong: what only long dimensions reach: groups of many output tiles, more row blocks than one fill of a resident B serves, more turns of a
// MemTile's ring than its queue holds at once.
func TestEmulateLong(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*design.Design)
		p    design.Problem
	}{
		{"ping-pong groups", func(d *design.Design) { d.Schedule = design.PingPong }, design.Problem{M: 130, K: 32, N: 5003}},
		{"ping-pong groups, transposed", func(d *design.Design) { d.Schedule, d.Transposed = design.PingPong, true }, design.Problem{M: 70, K: 32, N: 5000}},
		{"ping-pong groups, counted rings", func(d *design.Design) { d.Schedule, d.Padding = design.PingPong, design.PadMemTile }, design.Problem{M: 64, K: 32, N: 5000}},
		{"resident in three phases", func(d *design.Design) { d.ResidentB = true }, design.Problem{M: 130*64 + 5, K: 32, N: 70}},
		{"too long to stay", func(d *design.Design) { d.ResidentB = true }, design.Problem{M: 200, K: 12*32 + 5, N: 70}},
		{"long rings", func(d *design.Design) { d.Padding = design.PadMemTile }, design.Problem{M: 3, K: 1277 * 32, N: 5}},
		{"long rings, row-major", func(d *design.Design) { d.Padding, d.BLayout = design.PadMemTile, design.RowMajor }, design.Problem{M: 3, K: 1277 * 32, N: 5}},
		{"long rings, serial", func(d *design.Design) { d.Padding, d.Schedule = design.PadMemTile, design.Serial }, design.Problem{M: 65, K: 1277 * 16, N: 70}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := small(t, device.XDNA, "int8-int32", design.ColMajor)
			tc.edit(d)
			intProduct(t, configure(t, d), d, tc.p, rand.New(rand.NewPCG(5, 5)))
		})
	}
}
