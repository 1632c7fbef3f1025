package design_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/design/check"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// TestCheckerCatches: the checker is only worth something if it refuses streams that break its rules.
func TestCheckerCatches(t *testing.T) {
	d, err := design.Published(device.XDNA2, types(t, "int8-int16"), 1)
	require.NoError(t, err)
	cfg, err := d.Config()
	require.NoError(t, err)
	r, err := d.Run(design.Problem{M: 2100, K: 800, N: 2000})
	require.NoError(t, err)
	good := txn.Collect(r)
	_, err = check.Stream(cfg, good, expect(r))
	require.NoError(t, err)
	// find is the index of the nth operation that matches.
	find := func(p *txn.Program, n int, match func(*txn.Op) bool) int {
		for i := range p.List {
			if match(&p.List[i]) {
				if n == 0 {
					return i
				}
				n--
			}
		}
		require.Fail(t, "no such operation")
		return -1
	}
	bd := func(op *txn.Op) bool { return op.Code == txn.BlockWrite }
	poll := func(op *txn.Op) bool { return op.Code == txn.MaskPoll }
	patch := func(arg uint32) func(*txn.Op) bool {
		return func(op *txn.Op) bool { return op.Code == txn.DDRPatch && op.Arg == arg }
	}
	sync := func(op *txn.Op) bool { return op.Code == txn.Sync }
	cut := func(p *txn.Program, i int) { p.List = append(p.List[:i], p.List[i+1:]...) }
	for want, edit := range map[string]func(*txn.Program){
		"5 tasks may wait in a queue of 4":        func(p *txn.Program) { cut(p, find(p, 3, poll)) },
		"rewritten while it is queued or running": func(p *txn.Program) { cut(p, find(p, 0, sync)) },
		"transfers of C are not waited for":       func(p *txn.Program) { p.List = p.List[:len(p.List)-1] },
		"wait for a token that no queued task":    func(p *txn.Program) { p.Add(p.List[len(p.List)-1]) },
		"C: bytes":                                func(p *txn.Program) { p.List[find(p, 5, patch(2))].Offset += 4 },
		"A: bytes": func(p *txn.Program) { // nobody reads the first row tile
			for i := range p.List {
				if patch(0)(&p.List[i]) && p.List[i].Offset == 0 {
					p.List[i].Offset = 128 * 800
				}
			}
		},
		"of host buffer 1, which has":                           func(p *txn.Program) { p.List[find(p, 5, patch(1))].Offset += 1 << 30 },
		"patch of word 1 of descriptor":                         func(p *txn.Program) { cut(p, find(p, 2, bd)) },
		"output tiles are complete, for which MM2S0 would have": func(p *txn.Program) { setRTP(p, d, 0, 40) },
		"rows 920 bytes apart": func(p *txn.Program) {
			i := find(p, 1, bd)
			p.List[i].Data = append([]uint32(nil), p.List[i].Data...)
			p.List[i].Data[4] += 30
		},
		"output tiles have":                        func(p *txn.Program) { setRTP(p, d, 1, 31) },
		"differ from the first core's":             func(p *txn.Program) { p.List[10].Value++ },
		"the barrier opens before both parameters": func(p *txn.Program) { cut(p, 9) },
		"no size may change":                       func(p *txn.Program) { p.Add(txn.WriteOp(device.Tile{Col: 1, Row: 2}.Addr(0x3F000), 1)) },
		"do not change from size to size": func(p *txn.Program) {
			p.Add(txn.BlockWriteOp(device.Tile{Col: 1, Row: 1}.Addr(0xA0000), make([]uint32, 8)...))
		},
		"outside the array": func(p *txn.Program) { p.Add(txn.WriteOp(device.Tile{Col: 9}.Addr(0x1D204), 1)) },
		"not valid or empty": func(p *txn.Program) {
			i := find(p, 3, bd)
			p.List[i].Data = append([]uint32(nil), p.List[i].Data...)
			p.List[i].Data[7] = 0
		},
	} {
		t.Run(want, func(t *testing.T) {
			p := &txn.Program{Head: good.Head, List: append([]txn.Op(nil), good.List...)}
			edit(p)
			_, err := check.Stream(cfg, p, expect(r))
			require.ErrorContains(t, err, want)
		})
	}
	// Any other length or step of a C descriptor is noticed too.
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		p := &txn.Program{Head: good.Head, List: append([]txn.Op(nil), good.List...)}
		i := find(p, rng.IntN(100), func(op *txn.Op) bool { return op.Code == txn.BlockWrite })
		words := append([]uint32(nil), p.List[i].Data...)
		b, err := txn.DecodeShimBD(words)
		require.NoError(t, err)
		switch rng.IntN(3) {
		case 0:
			b.Length -= 4 * uint32(1+rng.IntN(100))
		case 1:
			if b.D1Wrap == 0 && b.D0Wrap == 0 {
				continue
			}
			b.D1Step += uint32(1 + rng.IntN(50))
		case 2:
			if b.D0Wrap == 0 {
				continue
			}
			b.D0Wrap--
		}
		w, err := b.Encode()
		require.NoError(t, err)
		p.List[i].Data = w[:]
		_, err = check.Stream(cfg, p, expect(r))
		require.Error(t, err, "%+v", b)
	}
}

// setRTP changes a runtime parameter of every core.
func setRTP(p *txn.Program, d *design.Design, i int, v uint32) {
	rec, _ := d.Record()
	for j := range p.List {
		tile, off := device.SplitAddr(p.List[j].Addr)
		if p.List[j].Code == txn.Write && tile.Row >= d.Dev.CoreRow && off == rec.RTP+4*uint32(i) {
			p.List[j].Value = v
		}
	}
}

// TestWhatASizeMayChange: the streams of two sizes on one design write the same registers of the cores, and beside them only descriptors, queues and tokens of the
// shims, and, where the design declares them variable, descriptors, locks and queues of its operands' MemTile rings. Routes, kernels and core descriptors are never touched.
func TestWhatASizeMayChange(t *testing.T) {
	for _, dev := range device.All() {
		for _, variable := range []bool{false, true} {
			d := small(t, dev, "int8-int32", design.ColMajor)
			if variable {
				d.Padding = design.PadMemTile
			}
			rec, err := d.Record()
			require.NoError(t, err)
			cores := map[uint32]int{}
			sizes := []design.Problem{{M: 1, K: 1, N: 1}, {M: 640, K: 64, N: 1280}, {M: 333, K: 100, N: 777}}
			for i, p := range sizes {
				r, err := d.Run(p)
				require.NoError(t, err)
				for op := range r.Ops() {
					if op.Code == txn.Sync {
						continue
					}
					tile, off := device.SplitAddr(op.Addr)
					kind, err := dev.KindAt(tile.Row)
					require.NoError(t, err)
					reg := dev.Tile(kind).Register(off)
					switch kind {
					case device.Shim:
						require.Contains(t, []device.RegKind{device.RegBD, device.RegQueue, device.RegCtrl, device.RegStatus}, reg.Kind)
					case device.Mem:
						require.True(t, variable)
						require.Contains(t, []device.RegKind{device.RegBD, device.RegQueue, device.RegLock, device.RegStatus}, reg.Kind)
						if reg.Kind == device.RegQueue {
							require.Less(t, reg.Index, 2, "C's channels do not change")
						}
					case device.Core:
						require.Equal(t, txn.Write, op.Code)
						barrier := reg.Kind == device.RegLock && reg.Index == int(rec.Barrier)
						parameter := reg.Kind == device.RegData && (reg.Index == int(rec.RTP) || reg.Index == int(rec.RTP)+4)
						require.True(t, barrier || parameter, "%v %#x", tile, off)
						cores[op.Addr] |= 1 << i
					}
				}
			}
			require.Len(t, cores, 3*dev.Cols*dev.CoreRows)
			for addr, seen := range cores {
				require.Equal(t, 7, seen, "%#x", addr)
			}
		}
	}
}
