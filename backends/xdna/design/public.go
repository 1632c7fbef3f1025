package design

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Public is the run-time sequence of the public whole-array matrix product (mlir-aie programming_examples/basic/matrix_multiplication/
// whole_array): row-major A, B and C, ping-pong halves of two row blocks. It is reproduced word for word from these numbers, to anchor
// the encoder to streams that ran on silicon, and as the baseline that better schedules are compared with.
type Public struct {
	Dev         *device.Device
	Dialect     txn.Header // as compiled; Cols is the number of columns used
	M, K, N     int
	TileM       int
	TileK       int
	TileN       int
	InBits      int
	OutBits     int
	Prefill     bool // leave byte offsets in the descriptors (older compilers)
	RowsPerHalf int  // row blocks in one half of the descriptors; 0 means 2
	Burst       uint8
	Cache       uint8
}

// Program builds the sequence.
func (p *Public) Program() (*txn.Program, error) {
	cols, rows := int(p.Dialect.Cols), p.Dev.CoreRows
	half := p.RowsPerHalf
	if half == 0 {
		half = 2
	}
	if cols < 1 || cols > p.Dev.Cols {
		return nil, fmt.Errorf("public design: %d columns, %s has 1 to %d", cols, p.Dev.Name, p.Dev.Cols)
	}
	if half < 1 || 1+2*half > 8 {
		return nil, fmt.Errorf("public design: %d row blocks in a half, 8 descriptors hold 1 to 3", half)
	}
	for _, c := range []struct {
		name     string
		v, tiles int
	}{{"M", p.M, p.TileM * rows}, {"K", p.K, p.TileK}, {"N", p.N, p.TileN * cols}} {
		if c.tiles <= 0 || c.v <= 0 || c.v%c.tiles != 0 {
			return nil, fmt.Errorf("public design: %s = %d is not a positive multiple of %d", c.name, c.v, c.tiles)
		}
	}
	// With fewer columns than rows, one shim feeds several rows' A tiles in one wide transfer; with more, every second one feeds.
	tilesPerShim, every := max(rows/cols, 1), max(cols/rows, 1)
	K, N := int64(p.K), int64(p.N)
	m, k, n := int64(p.TileM), int64(p.TileK), int64(p.TileN)
	blocks := p.M / (p.TileM * rows)
	nTiles, kTiles := N/(n*int64(cols)), K/k
	prog := &txn.Program{Head: p.Dialect}
	issue := func(c txn.Memcpy) error {
		c.Dev, c.Burst, c.Cache, c.Prefill = p.Dev, p.Burst, p.Cache, p.Prefill
		t, err := c.Lower()
		if err != nil {
			return err
		}
		ops, err := t.Ops()
		prog.Add(ops...)
		return err
	}
	wait := func() {
		for c := range cols {
			prog.Add(txn.SyncOp(device.Tile{Col: c}, device.S2MM, 0, 1, 1))
		}
	}
	halves := (blocks + half - 1) / half
	for h := range halves {
		base := h % 2 * 8
		first := h * half
		count := min(half, blocks-first)
		for c := range cols {
			if err := issue(txn.Memcpy{
				Col: c, Dir: device.S2MM, BD: base, ElemBits: p.OutBits, Arg: 2, Token: true,
				Offsets: [4]int64{int64(first), 0, 0, int64(c) * n},
				Sizes:   [4]int64{int64(count), nTiles, m * int64(rows), n},
				Strides: [4]int64{m * int64(rows) * N, n * int64(cols), N, 1},
			}); err != nil {
				return nil, err
			}
			for r := range count {
				block := int64(first + r)
				if c%every == 0 && c/every < rows {
					if err := issue(txn.Memcpy{
						Col: c, Dir: device.MM2S, Channel: 0, BD: base + 1 + 2*r, ElemBits: p.InBits, Arg: 0,
						Sizes:    [4]int64{nTiles, kTiles, m * int64(tilesPerShim), k},
						Strides:  [4]int64{0, k, K, 1},
						ViewByte: (block*m*int64(rows) + int64(c/every*tilesPerShim)*m) * K * int64(p.InBits) / 8,
					}); err != nil {
						return nil, err
					}
				}
				if err := issue(txn.Memcpy{
					Col: c, Dir: device.MM2S, Channel: 1, BD: base + 2 + 2*r, ElemBits: p.InBits, Arg: 1,
					Sizes:    [4]int64{nTiles, kTiles, k, n},
					Strides:  [4]int64{n * int64(cols), k * N, N, 1},
					ViewByte: int64(c) * n * int64(p.InBits) / 8,
				}); err != nil {
					return nil, err
				}
			}
		}
		if h > 0 {
			wait()
		}
	}
	wait()
	return prog, nil
}
