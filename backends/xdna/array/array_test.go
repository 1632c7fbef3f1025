package array

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// mini is a product on one core of one column, with operands that the host has blocked already, so that every descriptor is linear: the mechanics
// of the array without the layout transforms of a design.
type mini struct {
	dev             *device.Device
	r               kernel.Record
	shim, mem, core *device.TileInfo
	config, stream  *txn.Program
	chunks, tiles   int
	a, b, c         []byte
	rawA, rawB      [][]int8 // per chunk and tile, row-major and column-major
}

var shimTile, memTile, coreTile = device.Tile{Col: 0, Row: 0}, device.Tile{Col: 0, Row: 1}, device.Tile{Col: 0, Row: 2}

func newMini(t testing.TB, chunks, tiles int) *mini {
	m := &mini{dev: device.XDNA, chunks: chunks, tiles: tiles}
	m.shim, m.mem, m.core = m.dev.Tile(device.Shim), m.dev.Tile(device.Mem), m.dev.Tile(device.Core)
	m.r = kernel.Record{
		AType: kernel.I8, BType: kernel.I8, CType: kernel.I32, Arith: kernel.Int, M: 8, K: 16, N: 16, R: 4, S: 8, T: 8, Bands: 1, BTransposed: true,
		A: kernel.Buffer{Addr: [2]uint32{0x400, 0x800}, Depth: 2, Free: 0, Full: 1},
		B: kernel.Buffer{Addr: [2]uint32{0xC00, 0x1000}, Depth: 2, Free: 2, Full: 3},
		C: kernel.Buffer{Addr: [2]uint32{0x1400}, Depth: 1, Free: 4, Full: 5}, RTP: 0x10, Barrier: 6,
	}
	m.config = &txn.Program{Head: txn.NewHeader(m.dev)}
	m.stream = &txn.Program{Head: txn.NewHeader(m.dev)}
	route := func(tile device.Tile, info *device.TileInfo, from, to device.Port) {
		s, err := info.SlaveIndex(from)
		require.NoError(t, err)
		d, err := info.MasterIndex(to)
		require.NoError(t, err)
		m.config.Add(txn.WriteOp(tile.Addr(info.SwitchSlave+4*uint32(s)), device.PortEnable),
			txn.WriteOp(tile.Addr(info.SwitchMaster+4*uint32(d)), device.PortEnable|uint32(s)))
	}
	port := func(typ device.PortType, lane int) device.Port { return device.Port{Type: typ, Lane: lane} }
	const dma, north, south = device.PortDMA, device.PortNorth, device.PortSouth
	route(shimTile, m.shim, port(south, 3), port(north, 0))
	route(shimTile, m.shim, port(south, 7), port(north, 1))
	route(memTile, m.mem, port(south, 0), port(dma, 0))
	route(memTile, m.mem, port(south, 1), port(dma, 1))
	route(memTile, m.mem, port(dma, 0), port(north, 0))
	route(memTile, m.mem, port(dma, 1), port(north, 1))
	route(coreTile, m.core, port(south, 0), port(dma, 0))
	route(coreTile, m.core, port(south, 1), port(dma, 1))
	route(coreTile, m.core, port(dma, 0), port(south, 0))
	route(memTile, m.mem, port(north, 0), port(dma, 2))
	route(memTile, m.mem, port(dma, 2), port(south, 0))
	route(shimTile, m.shim, port(north, 0), port(south, 2))
	m.config.Add(txn.WriteOp(shimTile.Addr(device.ShimMux), device.ShimMuxMM2S0|device.ShimMuxMM2S1), txn.WriteOp(shimTile.Addr(device.ShimDemux), device.ShimDemuxS2MM0))

	memBD := func(id int, bd txn.MemBD) {
		w, err := bd.Encode()
		require.NoError(t, err)
		m.config.Add(txn.BlockWriteOp(memTile.Addr(m.mem.BD(id)), w[:]...))
	}
	coreBD := func(id int, bd txn.CoreBD) {
		w, err := bd.Encode()
		require.NoError(t, err)
		m.config.Add(txn.BlockWriteOp(coreTile.Addr(m.core.BD(id)), w[:]...))
	}
	push := func(tile device.Tile, info *device.TileInfo, dir device.Dir, ch, bd int) {
		w, err := (txn.Task{BD: bd, Repeat: 1}).Encode(info)
		require.NoError(t, err)
		m.config.Add(txn.WriteOp(tile.Addr(info.Queue(dir, ch)), w))
	}
	lock := func(tile device.Tile, info *device.TileInfo, id int, v uint32) {
		m.config.Add(txn.WriteOp(tile.Addr(info.Lock(id)), v))
	}
	// MemTile: a ring of two buffers per operand, in on channel ch, out on channel ch. Locks 2ch free, 2ch+1 full.
	for ch, bytes := range []int{m.r.ABytes(), m.r.BBytes(), m.r.CBytes()} {
		first := 0
		if ch == 1 {
			first = 24
		}
		first += 4 * (ch / 2)
		free, full := uint8(64+2*ch), uint8(65+2*ch)
		for i := range 2 {
			base := uint32(0x80000+0x8000*ch+0x4000*i) / 4
			in := txn.MemBD{Length: uint32(bytes / 4), Base: base, UseNext: true, NextBD: uint8(first + 1 - i), Valid: true, Lock: txn.AcquireRelease(free, 1, full, 1)}
			out := in
			out.NextBD, out.Lock = uint8(first+3-i), txn.AcquireRelease(full, 1, free, 1)
			memBD(first+i, in)
			memBD(first+2+i, out)
		}
		lock(memTile, m.mem, 2*ch, 2)
		push(memTile, m.mem, device.S2MM, ch, first)
		push(memTile, m.mem, device.MM2S, ch, first+2)
	}
	// Core: rings into A and B, out of C.
	for ch, b := range []kernel.Buffer{m.r.A, m.r.B} {
		bytes := []int{m.r.ABytes(), m.r.BBytes()}[ch]
		for i := range 2 {
			coreBD(2*ch+i, txn.CoreBD{Length: uint32(bytes / 4), Base: b.Addr[i] / 4, UseNext: true, NextBD: uint8(2*ch + 1 - i), Valid: true, Lock: txn.AcquireRelease(b.Free, 1, b.Full, 1)})
		}
		lock(coreTile, m.core, int(b.Free), 2)
		push(coreTile, m.core, device.S2MM, ch, 2*ch)
	}
	coreBD(4, txn.CoreBD{Length: uint32(m.r.CBytes() / 4), Base: m.r.C.Addr[0] / 4, UseNext: true, NextBD: 4, Valid: true, Lock: txn.AcquireRelease(m.r.C.Full, 1, m.r.C.Free, 1)})
	lock(coreTile, m.core, int(m.r.C.Free), 1)
	push(coreTile, m.core, device.MM2S, 0, 4)
	w, err := m.r.Encode()
	require.NoError(t, err)
	m.config.Add(txn.BlockWriteOp(coreTile.Addr(device.ProgramMemory), w...), txn.WriteOp(coreTile.Addr(device.CoreControl), device.CoreEnable))

	// Run-time stream: parameters, barrier, three transfers, one token.
	m.stream.Add(txn.WriteOp(coreTile.Addr(m.r.RTP), uint32(chunks)), txn.WriteOp(coreTile.Addr(m.r.RTP+4), uint32(tiles)), txn.WriteOp(coreTile.Addr(m.core.Lock(6)), 1))
	n := chunks * tiles
	for i, x := range []struct {
		dir   device.Dir
		ch    int
		bytes int
	}{{device.MM2S, 0, n * m.r.ABytes()}, {device.MM2S, 1, n * m.r.BBytes()}, {device.S2MM, 0, tiles * m.r.CBytes()}} {
		bd := txn.ShimBD{Length: uint32(x.bytes / 4), Burst: 2, Valid: true}
		w, err := bd.Encode()
		require.NoError(t, err)
		q, err := (txn.Task{BD: i, Repeat: 1, Token: x.dir == device.S2MM}).Encode(m.shim)
		require.NoError(t, err)
		m.stream.Add(txn.BlockWriteOp(shimTile.Addr(m.shim.BD(i)), w[:]...), txn.DDRPatchOp(shimTile.Addr(m.shim.BD(i)+4), uint32(i), 0),
			txn.WriteOp(shimTile.Addr(m.shim.Queue(x.dir, x.ch)), q))
	}
	m.stream.Add(txn.SyncOp(shimTile, device.S2MM, 0, 1, 1))

	rng := rand.New(rand.NewPCG(uint64(chunks), uint64(tiles)))
	m.c = make([]byte, tiles*m.r.CBytes())
	for range n {
		a, b := make([]int8, m.r.M*m.r.K), make([]int8, m.r.N*m.r.K)
		for i := range a {
			a[i] = int8(rng.Uint32())
		}
		for i := range b {
			b[i] = int8(rng.Uint32())
		}
		m.rawA, m.rawB = append(m.rawA, a), append(m.rawB, b)
		block := func(v []int8, rows, height int) (out []byte) {
			for i := 0; i < rows; i += height {
				for p := 0; p < m.r.K; p += 8 {
					for ii := range height {
						for q := range 8 {
							out = append(out, byte(v[(i+ii)*m.r.K+p+q]))
						}
					}
				}
			}
			return out
		}
		m.a = append(m.a, block(a, m.r.M, 4)...)
		m.b = append(m.b, block(b, m.r.N, 8)...)
	}
	return m
}

func encode(t testing.TB, p *txn.Program) []uint32 {
	w, err := txn.Encode(p)
	require.NoError(t, err)
	return w
}

func (m *mini) run(t testing.TB, a *Array) (*Result, error) {
	if a == nil {
		a = New(m.dev, Options{MaxSteps: 1e6})
	}
	if _, err := a.Configure(context.Background(), encode(t, m.config)); err != nil {
		return nil, err
	}
	return a.Dispatch(context.Background(), encode(t, m.stream), In(m.a), In(m.b), Out(m.c))
}

func (m *mini) check(t testing.TB) {
	for tile := range m.tiles {
		for i := range m.r.M {
			for j := range m.r.N {
				var want int32
				for c := range m.chunks {
					for p := range m.r.K {
						n := tile*m.chunks + c
						want += int32(m.rawA[n][i*m.r.K+p]) * int32(m.rawB[n][j*m.r.K+p])
					}
				}
				at := tile*m.r.M*m.r.N + (i/4*(m.r.N/8)+j/8)*32 + i%4*8 + j%8
				require.Equal(t, want, int32(binary.LittleEndian.Uint32(m.c[4*at:])), "tile %d (%d,%d)", tile, i, j)
			}
		}
	}
}

func TestMiniProduct(t *testing.T) {
	for _, c := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {3, 5}, {7, 2}} {
		m := newMini(t, c[0], c[1])
		res, err := m.run(t, nil)
		require.NoError(t, err)
		m.check(t)
		require.Equal(t, int64(c[0]*c[1]*m.r.M*m.r.K*m.r.N), res.MACs)
		require.Equal(t, int64(len(m.a)+len(m.b)), res.BytesRead)
		require.Equal(t, int64(len(m.c)), res.BytesWritten)
		require.Equal(t, []int64{0, 0, int64(len(m.c))}, res.Written)
		require.Greater(t, res.Cycles, float64(c[0]*c[1]*m.r.M*m.r.K*m.r.N)/256)
	}
}

// Many dispatches on one configuration, of different sizes, give the same results whatever ran before, for any number of helpers.
func TestMiniRepeated(t *testing.T) {
	for _, workers := range []int{-1, 1, 3} {
		a := New(device.XDNA, Options{Workers: workers})
		first := newMini(t, 1, 1)
		_, err := a.Configure(context.Background(), encode(t, first.config))
		require.NoError(t, err)
		var cycles []float64
		for n := range 12 {
			m := newMini(t, 1+n%4, 1+n%3)
			res, err := a.Dispatch(context.Background(), encode(t, m.stream), In(m.a), In(m.b), Out(m.c))
			require.NoError(t, err)
			m.check(t)
			cycles = append(cycles, res.Cycles)
		}
		require.Equal(t, cycles[0], cycles[0])
	}
}

func TestTimeIsDeterministic(t *testing.T) {
	m := newMini(t, 5, 3)
	one, err := m.run(t, New(m.dev, Options{Workers: -1}))
	require.NoError(t, err)
	two, err := m.run(t, New(m.dev, Options{Workers: 3}))
	require.NoError(t, err)
	require.Equal(t, one, two)
}

// edit changes the words of one operation that writes to an address.
func edit(t testing.TB, p *txn.Program, addr uint32, f func(op *txn.Op)) {
	for i := range p.List {
		if p.List[i].Addr == addr && p.List[i].Code != txn.Sync {
			f(&p.List[i])
			return
		}
	}
	require.Fail(t, "no operation", "%#x", addr)
}

func word(i int, set func(w uint32) uint32) func(*txn.Op) {
	return func(op *txn.Op) { op.Data[i] = set(op.Data[i]) }
}

func value(v uint32) func(*txn.Op) { return func(op *txn.Op) { op.Value = v } }

func TestFaults(t *testing.T) {
	or := func(v uint32) func(uint32) uint32 { return func(w uint32) uint32 { return w | v } }
	to := func(v uint32) func(uint32) uint32 { return func(uint32) uint32 { return v } }
	for _, c := range []struct {
		name string
		edit func(t testing.TB, m *mini)
		want string
	}{
		{"descriptor rewritten while queued", func(t testing.TB, m *mini) {
			last := len(m.stream.List) - 1
			sync := m.stream.List[last]
			m.stream.List[last] = m.stream.List[9] // the block write of C's descriptor
			m.stream.Add(sync)
		}, "shim tile (0,0) descriptor 2: descriptor rewritten"},
		{"ring descriptor rewritten", func(t testing.TB, m *mini) {
			m.stream.Add(txn.WriteOp(memTile.Addr(m.mem.BD(1)), 4))
		}, "memtile tile (0,1) descriptor 1: descriptor rewritten"},
		{"queue overflow", func(t testing.TB, m *mini) {
			q := m.stream.List[len(m.stream.List)-2]
			m.stream.List = m.stream.List[:len(m.stream.List)-1]
			for range 8 { // one or two may be done by then
				m.stream.Add(q)
			}
		}, "s2mm0 descriptor 2: queue overflow"},
		{"lock overflow by a channel", func(t testing.TB, m *mini) {
			edit(t, m.config, coreTile.Addr(m.core.BD(0)), word(5, func(w uint32) uint32 { return w&^(0x7F<<18) | 63<<18 }))
		}, "core tile (0,2) s2mm0 descriptor"},
		{"lock set out of range", func(t testing.TB, m *mini) {
			edit(t, m.config, coreTile.Addr(m.core.Lock(0)), value(64))
		}, "core tile (0,2): lock 0 set to 64"},
		{"address outside L1", func(t testing.TB, m *mini) {
			edit(t, m.config, coreTile.Addr(m.core.BD(0)), word(0, func(w uint32) uint32 { return w | 0x3FFF<<14 }))
		}, "core tile (0,2) s2mm0 descriptor 0: addresses 0xfffc to"},
		{"address outside a MemTile window", func(t testing.TB, m *mini) {
			edit(t, m.config, memTile.Addr(m.mem.BD(0)), word(1, func(w uint32) uint32 { return w &^ 0x7FFFF }))
		}, "memtile tile (0,1) s2mm0 descriptor 0: address 0x0 is in no MemTile"},
		{"address outside a host buffer", func(t testing.TB, m *mini) {
			edit(t, m.stream, shimTile.Addr(m.shim.BD(0)), word(0, func(w uint32) uint32 { return w + 1 }))
		}, "shim tile (0,0) mm2s0 descriptor 0: addresses"},
		{"undefined MemTile memory", func(t testing.TB, m *mini) {
			edit(t, m.config, memTile.Addr(m.mem.BD(2)), word(1, func(w uint32) uint32 { return w + 0x400 }))
		}, "memtile tile (0,1) mm2s0 descriptor 2: reads undefined memory"},
		{"undefined host memory", func(t testing.TB, m *mini) {
			edit(t, m.stream, shimTile.Addr(m.shim.BD(0)+4), func(op *txn.Op) { op.Arg = 2 })
			edit(t, m.stream, shimTile.Addr(m.shim.BD(0)), word(0, to(4)))
		}, "shim tile (0,0) mm2s0 descriptor 0: reads undefined memory: host buffer 2"},
		{"undefined runtime parameters", func(t testing.TB, m *mini) {
			m.stream.List = append(m.stream.List[:1], m.stream.List[2:]...)
		}, "core tile (0,2): core reads undefined memory: runtime parameters"},
		{"misaligned host address", func(t testing.TB, m *mini) {
			edit(t, m.stream, shimTile.Addr(m.shim.BD(0)+4), func(op *txn.Op) { op.Offset = 2 })
		}, "not aligned"},
		{"patch beyond the buffer", func(t testing.TB, m *mini) {
			edit(t, m.stream, shimTile.Addr(m.shim.BD(0)+4), func(op *txn.Op) { op.Offset = 1 << 20 })
		}, "address patch with offset"},
		{"patch for a buffer that is not there", func(t testing.TB, m *mini) {
			edit(t, m.stream, shimTile.Addr(m.shim.BD(0)+4), func(op *txn.Op) { op.Arg = 3 })
		}, "host buffer 3"},
		{"reserved bits", func(t testing.TB, m *mini) {
			edit(t, m.config, memTile.Addr(m.mem.BD(0)), word(6, or(1<<31)))
		}, "memtile tile (0,1) s2mm0 descriptor 0"},
		{"not valid", func(t testing.TB, m *mini) {
			edit(t, m.config, memTile.Addr(m.mem.BD(0)), word(7, func(w uint32) uint32 { return w &^ (1 << 31) }))
		}, "descriptor is not valid"},
		{"padding on a writing channel", func(t testing.TB, m *mini) {
			edit(t, m.config, memTile.Addr(m.mem.BD(0)), word(1, or(1<<26)))
		}, "zero padding is for MemTile MM2S"},
		{"descriptor of the wrong half", func(t testing.TB, m *mini) {
			edit(t, m.config, memTile.Addr(m.mem.Queue(device.S2MM, 1)), value(0))
		}, "memtile tile (0,1) s2mm1 descriptor 0: channel 1 uses a descriptor of the other half"},
		{"broken kernel record", func(t testing.TB, m *mini) {
			edit(t, m.config, coreTile.Addr(device.ProgramMemory), word(3, or(1)))
		}, "core tile (0,2): core enabled: kernel record"},
		{"kernel of the other generation", func(t testing.TB, m *mini) {
			r := m.r
			r.R = 8
			w, err := r.Encode()
			require.NoError(t, err)
			edit(t, m.config, coreTile.Addr(device.ProgramMemory), func(op *txn.Op) { op.Data = w })
		}, "in blocks of 4 x 8 x 8"},
		{"route to nowhere", func(t testing.TB, m *mini) {
			i, err := m.core.MasterIndex(device.Port{Type: device.PortDMA, Lane: 0})
			require.NoError(t, err)
			edit(t, m.config, coreTile.Addr(m.core.SwitchMaster+4*uint32(i)), value(0))
		}, "memtile tile (0,1) mm2s0 descriptor 2: its stream leads nowhere"},
		{"disabled slave", func(t testing.TB, m *mini) {
			i, err := m.core.SlaveIndex(device.Port{Type: device.PortSouth, Lane: 0})
			require.NoError(t, err)
			edit(t, m.config, coreTile.Addr(m.core.SwitchSlave+4*uint32(i)), value(0))
		}, "switch of tile (0,2): slave south0 is 0x0"},
		{"mux", func(t testing.TB, m *mini) {
			edit(t, m.config, shimTile.Addr(device.ShimMux), value(device.ShimMuxMM2S1))
		}, "the shim mux selects 0 for south3"},
		{"unknown register", func(t testing.TB, m *mini) {
			m.stream.Add(txn.WriteOp(coreTile.Addr(0x34000), 1))
		}, "core tile (0,2): write to register 0x34000"},
		{"tile outside the array", func(t testing.TB, m *mini) {
			m.stream.Add(txn.WriteOp(device.Tile{Col: 5, Row: 1}.Addr(0), 1))
		}, "addresses tile (5,1)"},
		{"deadlock", func(t testing.TB, m *mini) {
			edit(t, m.stream, coreTile.Addr(m.r.RTP), value(uint32(m.chunks+1)))
		}, "core tile (0,2): waits for a full A buffer (lock 1 holds 0), at chunk 1 of 3 of tile 1 of 2"},
		{"token left over", func(t testing.TB, m *mini) {
			edit(t, m.stream, shimTile.Addr(m.shim.Queue(device.MM2S, 0)), value(1<<31))
		}, "shim tile (0,0) mm2s0: not at rest: 1 tokens"},
		{"words left over", func(t testing.TB, m *mini) {
			edit(t, m.stream, coreTile.Addr(m.r.RTP), value(uint32(m.chunks-1)))
			edit(t, m.stream, coreTile.Addr(m.r.RTP+4), value(uint32(m.tiles)))
		}, "not at rest"},
		{"lock not at rest", func(t testing.TB, m *mini) {
			edit(t, m.stream, coreTile.Addr(m.core.Lock(6)), func(op *txn.Op) { op.Value = 1 })
			m.stream.Add(txn.WriteOp(coreTile.Addr(m.core.Lock(6)), 1))
		}, "not at rest"},
		{"core and channel on one buffer", func(t testing.TB, m *mini) {
			edit(t, m.config, coreTile.Addr(m.core.Lock(0)), value(3))
		}, "without a lock between them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMini(t, 2, 2)
			c.edit(t, m)
			_, err := m.run(t, nil)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestErrorsSayWhere(t *testing.T) {
	m := newMini(t, 2, 2)
	edit(t, m.config, coreTile.Addr(m.core.BD(0)), word(0, func(w uint32) uint32 { return w | 0x3FFF<<14 }))
	a := New(m.dev, Options{})
	_, err := m.run(t, a)
	var e *Error
	require.True(t, errors.As(err, &e))
	require.Equal(t, coreTile, e.Tile)
	require.Equal(t, device.S2MM, e.Dir)
	require.Equal(t, 0, e.BD)
	_, err = a.Dispatch(context.Background(), encode(t, m.stream), In(m.a), In(m.b), Out(m.c))
	require.ErrorContains(t, err, "configure the array again")

	m = newMini(t, 2, 2)
	_, err = m.run(t, a)
	require.NoError(t, err)
	m.check(t)
}

func TestDeadlockNamesWaiters(t *testing.T) {
	m := newMini(t, 2, 2)
	edit(t, m.stream, coreTile.Addr(m.r.RTP+4), value(3))
	edit(t, m.stream, shimTile.Addr(m.shim.BD(2)), word(0, func(w uint32) uint32 { return w * 2 }))
	m.c = append(m.c, m.c...)
	_, err := m.run(t, nil)
	var d *sim.DeadlockError
	require.ErrorAs(t, err, &d)
	require.ErrorContains(t, err, "controller: op 12 waits for tokens of s2mm0")
	require.ErrorContains(t, err, "shim tile (0,0) s2mm0: descriptor 2 waits for")
}

func TestStepLimit(t *testing.T) {
	m := newMini(t, 2, 2)
	edit(t, m.stream, coreTile.Addr(m.r.RTP), value(0)) // tiles without chunks
	edit(t, m.stream, coreTile.Addr(m.r.RTP+4), value(1<<31))
	edit(t, m.config, coreTile.Addr(m.core.BD(4)), word(5, func(w uint32) uint32 { return w }))
	a := New(m.dev, Options{MaxSteps: 5000})
	_, err := m.run(t, a)
	require.Error(t, err)
}

func TestCancel(t *testing.T) {
	m := newMini(t, 2, 2)
	a := New(m.dev, Options{})
	_, err := a.Configure(context.Background(), encode(t, m.config))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = a.Dispatch(ctx, encode(t, m.stream), In(m.a), In(m.b), Out(m.c))
	require.ErrorIs(t, err, context.Canceled)
}

type spans map[Track][][2]float64

func (s spans) Span(track Track, what string, from, to float64) {
	s[track] = append(s[track], [2]float64{from, to})
}

func TestTracer(t *testing.T) {
	m := newMini(t, 2, 2)
	s := spans{}
	res, err := m.run(t, New(m.dev, Options{Tracer: s}))
	require.NoError(t, err)
	require.Contains(t, s, Track{coreTile, "core"})
	require.Contains(t, s, Track{shimTile, "mm2s1"})
	require.Contains(t, s, Track{device.Tile{}, "controller"})
	for track, list := range s {
		for i, x := range list {
			require.Less(t, x[0], x[1]+1e-9, "%v", track)
			if i > 0 {
				require.GreaterOrEqual(t, x[0]+1e-9, list[i-1][1], "%v %d", track, i)
			}
		}
	}
	require.InDelta(t, 4*m.r.M*m.r.K*m.r.N/256, res.Cores[0].Compute, 4*0.29*float64(m.r.M*m.r.N)+1)
}

func FuzzDispatch(f *testing.F) {
	m := newMini(f, 1, 1)
	config, stream := encode(f, m.config), encode(f, m.stream)
	raw := func(w []uint32) (b []byte) {
		for _, v := range w {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return b
	}
	f.Add(raw(config), raw(stream))
	a := New(m.dev, Options{MaxSteps: 3000, Workers: -1})
	f.Fuzz(func(t *testing.T, c, s []byte) {
		words := func(b []byte) []uint32 {
			w := make([]uint32, len(b)/4)
			for i := range w {
				w[i] = binary.LittleEndian.Uint32(b[4*i:])
			}
			if len(w) > 3 { // keep mutants past the header: its counts are not what is fuzzed here
				w[0], w[1] = config[0], config[1]
				w[3] = uint32(4 * len(w))
			}
			return w
		}
		if _, err := a.Configure(context.Background(), words(c)); err != nil {
			return
		}
		_, _ = a.Dispatch(context.Background(), words(s), In(m.a), In(m.b), Out(m.c))
	})
}
