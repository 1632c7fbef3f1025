package design_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

func types(t testing.TB, s string) device.Types {
	t.Helper()
	ty, err := device.ParseTypes(s)
	require.NoError(t, err)
	return ty
}

// intProduct runs an int8 product on the emulator and compares every byte of C, and what lies between its rows, with a naive product.
func intProduct(t testing.TB, a *array.Array, d *design.Design, p design.Problem, rng *rand.Rand) *array.Result {
	t.Helper()
	r, err := d.Run(p)
	require.NoError(t, err, "%v", d)
	p = r.Problem
	e := int64(d.Types.C.Bytes(1))
	bufs := make([][]byte, design.NumArgs)
	for i, n := range r.BufferBytes {
		bufs[i] = make([]byte, n)
	}
	for i := range bufs[design.ArgA] {
		bufs[design.ArgA][i] = byte(rng.Uint32())
	}
	for i := range bufs[design.ArgB] {
		bufs[design.ArgB][i] = byte(rng.Uint32())
	}
	for _, i := range []int{design.ArgC, design.ArgStage, design.ArgSpill} {
		for j := range bufs[i] {
			bufs[i][j] = 0x5A
		}
	}
	logical := bufs
	if d.BLayout == design.Tiled {
		// The logical B is row-major; the host tiles it.
		logical = append([][]byte(nil), bufs...)
		logical[design.ArgB] = make([]byte, p.K*p.N)
		for i := range logical[design.ArgB] {
			logical[design.ArgB][i] = byte(rng.Uint32())
		}
		require.NoError(t, r.TileB(bufs[design.ArgB], logical[design.ArgB], design.RowMajor, int64(p.N)))
	}
	require.NoError(t, r.Prepare(bufs))
	words, err := txn.Encode(r)
	require.NoError(t, err)
	host := make([]array.Buffer, len(bufs))
	for i, b := range bufs {
		host[i] = array.Buffer{Data: b, Input: i == design.ArgA || i == design.ArgB || i == design.ArgStage}
	}
	res, err := a.Dispatch(context.Background(), words, host...)
	require.NoError(t, err, "%v on %v, %+v", d, d.Schedule, p)
	require.NoError(t, r.Finish(bufs))

	A, B, C := bufs[design.ArgA], logical[design.ArgB], bufs[design.ArgC]
	column := func(n int) []int8 {
		out := make([]int8, p.K)
		for k := range out {
			switch d.BLayout {
			case design.ColMajor:
				out[k] = int8(B[int64(n)*p.PitchB+int64(k)])
			case design.RowMajor:
				out[k] = int8(B[int64(k)*p.PitchB+int64(n)])
			case design.Tiled:
				out[k] = int8(B[k*p.N+n])
			}
		}
		return out
	}
	columns := make([][]int8, p.N)
	for n := range columns {
		columns[n] = column(n)
	}
	for m := range p.M {
		row := A[int64(m)*p.PitchA:][:p.K]
		for n := range p.N {
			var sum int32
			for k, b := range columns[n] {
				sum += int32(int8(row[k])) * int32(b)
			}
			at := int64(m)*p.PitchC + int64(n)*e
			var got int32
			switch e {
			case 1:
				got, sum = int32(int8(C[at])), int32(int8(sum))
			case 2:
				got, sum = int32(int16(binary.LittleEndian.Uint16(C[at:]))), int32(int16(sum))
			case 4:
				got = int32(binary.LittleEndian.Uint32(C[at:]))
			}
			if got != sum {
				require.Equal(t, sum, got, "C[%d,%d] of %+v on %v, %v", m, n, p, d, d.Schedule)
			}
		}
		if m < p.M-1 {
			for i := int64(m)*p.PitchC + int64(p.N)*e; i < int64(m+1)*p.PitchC; i++ {
				if C[i] != 0x5A {
					require.Fail(t, "write into a gap", "after row %d of C, %+v on %v", m, p, d)
				}
			}
		}
	}
	return res
}

// small is a design whose native size is small, so that little products have several blocks.
func small(t testing.TB, dev *device.Device, pair string, layout design.Layout) *design.Design {
	return &design.Design{Dev: dev, Types: types(t, pair), Tile: design.Tile{M: 16, K: 16, N: 16}, KMT: 32, BLayout: layout}
}

func configure(t testing.TB, d *design.Design) *array.Array {
	t.Helper()
	require.Empty(t, d.Check(), "%v", d)
	cfg, err := d.Config()
	require.NoError(t, err)
	words, err := txn.Encode(cfg)
	require.NoError(t, err)
	a := array.New(d.Dev, array.Options{})
	_, err = a.Configure(context.Background(), words)
	require.NoError(t, err, "%v", d)
	return a
}

// TestEmulate: designs of every kind on the emulator, several sizes on one configuration, exact.
func TestEmulate(t *testing.T) {
	sizes := []design.Problem{
		{M: 64, K: 32, N: 64}, {M: 1, K: 1, N: 1}, {M: 130, K: 100, N: 270}, {M: 200, K: 64, N: 300}, {M: 65, K: 36, N: 129},
		{M: 77, K: 200, N: 36, PitchA: 256, PitchB: 512, PitchC: 2048}, {M: 61, K: 72, N: 125}, {M: 128, K: 4, N: 256},
	}
	for _, dev := range device.All() {
		for _, pair := range []string{"int8-int8", "int8-int16", "int8-int32"} {
			for _, layout := range []design.Layout{design.ColMajor, design.RowMajor, design.Tiled} {
				for name, edit := range map[string]func(*design.Design){
					"paper":      func(*design.Design) {},
					"double C":   func(d *design.Design) { d.CBuffers = 2 },
					"transposed": func(d *design.Design) { d.Transposed = true },
					"bands":      func(d *design.Design) { d.Bands = 2 },
					"memtile":    func(d *design.Design) { d.Padding = design.PadMemTile },
					"resident":   func(d *design.Design) { d.ResidentB = true },
					"resident bands": func(d *design.Design) {
						d.ResidentB, d.Bands, d.Padding = true, 2, design.PadMemTile
					},
				} {
					if pair != "int8-int32" && name != "paper" && name != "transposed" {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%v/%s", dev.Name, pair, layout, name), func(t *testing.T) {
						d := small(t, dev, pair, layout)
						edit(d)
						a := configure(t, d)
						rng := rand.New(rand.NewPCG(1, 2))
						list := sizes
						if pair != "int8-int32" {
							list = sizes[2:4]
						}
						for i, p := range list {
							if layout == design.Tiled {
								p.PitchB = 0
							}
							d.Schedule = design.Schedule(i % 3)
							intProduct(t, a, d, p, rng)
						}
					})
				}
			}
		}
	}
}

// TestEmulateRandom: random small designs with all options mixed, random sizes and pitches.
func TestEmulateRandom(t *testing.T) {
	n := 40
	if v, err := strconv.Atoi(os.Getenv("TESSERA_DESIGN_CASES")); err == nil {
		n = v
	}
	for seed := range n {
		rng := rand.New(rand.NewPCG(uint64(seed), 77))
		d := &design.Design{
			Dev: device.All()[rng.IntN(2)], Types: types(t, []string{"int8-int8", "int8-int16", "int8-int32"}[rng.IntN(3)]),
			Tile:    design.Tile{M: 16 * (1 + rng.IntN(3)), K: 8 * (1 + rng.IntN(6)), N: 16 * (1 + rng.IntN(3))},
			BLayout: design.Layout(rng.IntN(3)), Schedule: design.Schedule(rng.IntN(3)), CBuffers: 1 + rng.IntN(2), Bands: 1 + rng.IntN(2),
			Padding: design.Padding(rng.IntN(2)), Transposed: rng.IntN(3) == 0,
		}
		d.KMT = d.Tile.K * (1 + rng.IntN(5))
		d.ResidentB = !d.Transposed && rng.IntN(3) == 0
		a := configure(t, d)
		for range 3 {
			p := design.Problem{M: logUniform(rng, 400), K: logUniform(rng, 700), N: logUniform(rng, 500)}
			if rng.IntN(2) == 0 { // pitches that keep operands in place
				p.PitchA, p.PitchC = int64(p.K+3)&^3, int64(d.Types.C.Bytes(p.N)+3)&^3
				p.PitchB = map[design.Layout]int64{design.RowMajor: int64(p.N+7) &^ 3, design.ColMajor: int64(p.K+7) &^ 3}[d.BLayout]
			}
			d.Schedule = design.Schedule(rng.IntN(3))
			intProduct(t, a, d, p, rng)
		}
	}
}
