package array_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// bits is a field of a word.
type bits struct {
	name          string
	word, lo, len int
	always        bool // it counts although its value is 0
}

// Fields of descriptors and kernel records whose value decides what is computed. Not here, because they cannot matter to the result: burst length, AxCache, AxQoS, SMID and secure
// (how DRAM is reached), TLAST suppression (no receiver looks at it), the out-of-order and packet fields, compression and the controller id of tokens (features that no design
// uses), repeat and token of a task that is an endless ring (it never comes to its end), the overflow mode of a kernel with int32 results, the address words of shim descriptors (patched by the next operation), and fields of disabled features: a step whose dimension has one position, an
// iteration of one, the id of a lock that is not acquired, the next descriptor where none follows. The generator skips the latter by skipping zeros.
var (
	shimFields = []bits{{"length", 0, 0, 32, false}, {"d0 wrap", 3, 20, 10, false}, {"d0 step", 3, 0, 20, false}, {"d1 wrap", 4, 20, 10, false}, {"d1 step", 4, 0, 20, false},
		{"d2 step", 5, 0, 20, false}, {"iteration current", 6, 26, 6, false}, {"iteration wrap", 6, 20, 6, false}, {"iteration step", 6, 0, 20, false},
		{"use next", 7, 26, 1, false}, {"valid", 7, 25, 1, false}}
	memFields = []bits{{"length", 0, 0, 17, false}, {"next", 1, 20, 6, false}, {"use next", 1, 19, 1, false}, {"base", 1, 0, 19, true}, {"d0 wrap", 2, 17, 10, false}, {"d0 step", 2, 0, 17, false},
		{"d1 wrap", 3, 17, 10, false}, {"d1 step", 3, 0, 17, false}, {"d2 wrap", 4, 17, 10, false}, {"d2 step", 4, 0, 17, false}, {"d3 step", 5, 0, 17, false},
		{"d0 before", 1, 26, 6, false}, {"d1 before", 3, 27, 5, false}, {"d2 before", 4, 27, 4, false}, {"d0 after", 5, 17, 6, false}, {"d1 after", 5, 23, 5, false}, {"d2 after", 5, 28, 4, false},
		{"iteration current", 6, 23, 6, false}, {"iteration wrap", 6, 17, 6, false}, {"iteration step", 6, 0, 17, false},
		{"valid", 7, 31, 1, false}, {"release value", 7, 24, 7, false}, {"release id", 7, 16, 8, false}, {"acquire enable", 7, 15, 1, false}, {"acquire value", 7, 8, 7, false}, {"acquire id", 7, 0, 8, false}}
	coreFields = []bits{{"base", 0, 14, 14, true}, {"length", 0, 0, 14, false}, {"d1 step", 2, 13, 13, false}, {"d0 step", 2, 0, 13, false}, {"d1 wrap", 3, 21, 8, false}, {"d0 wrap", 3, 13, 8, false},
		{"d2 step", 3, 0, 13, false}, {"iteration wrap", 4, 13, 6, false}, {"iteration step", 4, 0, 13, false},
		{"next", 5, 27, 4, true}, {"use next", 5, 26, 1, false}, {"valid", 5, 25, 1, false}, {"release value", 5, 18, 7, false}, {"release id", 5, 13, 4, true},
		{"acquire enable", 5, 12, 1, false}, {"acquire value", 5, 5, 7, false}, {"acquire id", 5, 0, 4, true}}
	recordFields = []bits{{"A type", 2, 0, 8, true}, {"B type", 2, 8, 8, true}, {"C type", 2, 16, 8, true}, {"arithmetic", 2, 24, 8, true}, {"M", 3, 0, 16, true}, {"K", 3, 16, 16, true}, {"N", 4, 0, 16, true},
		{"bands", 4, 16, 16, true}, {"R", 5, 0, 8, true}, {"S", 5, 8, 8, true}, {"T", 5, 16, 8, true}, {"overflow", 6, 1, 1, true}, {"B transposed", 6, 2, 1, true},
		{"A ping", 7, 0, 16, true}, {"A pong", 7, 16, 16, true}, {"B ping", 8, 0, 16, true}, {"B pong", 8, 16, 16, true}, {"C", 9, 0, 16, true},
		{"A depth", 10, 0, 8, true}, {"B depth", 10, 8, 8, true}, {"C depth", 10, 16, 8, true},
		{"A free", 11, 0, 8, true}, {"A full", 11, 8, 8, true}, {"B free", 11, 16, 8, true}, {"B full", 11, 24, 8, true}, {"C free", 12, 0, 8, true}, {"C full", 12, 8, 8, true}, {"barrier", 12, 16, 8, true},
		{"parameters", 13, 0, 16, true}}
)

// site is a field of a program that a mutant may change.
type site struct {
	what string
	op   int
	get  func(op *txn.Op) uint32
	set  func(op *txn.Op, v uint32)
	len  int
}

// sites lists the fields of a program.
func sites(dev *device.Device, p *txn.Program) []site {
	var out []site
	data := func(i int, what string, fields []bits, words []uint32) {
		for _, f := range fields {
			mask := uint32(1)<<f.len - 1
			if f.len == 32 {
				mask = ^uint32(0)
			}
			if old := words[f.word] >> f.lo & mask; old == 0 && !f.always {
				continue
			}
			out = append(out, site{what: what + " " + f.name, op: i, len: f.len,
				get: func(op *txn.Op) uint32 { return op.Data[f.word] >> f.lo & mask },
				set: func(op *txn.Op, v uint32) {
					op.Data = append([]uint32(nil), op.Data...)
					op.Data[f.word] = op.Data[f.word]&^(mask<<f.lo) | v<<f.lo
				}})
		}
	}
	value := func(i int, what string, lo, n int) {
		mask := uint32(1)<<n - 1
		if n == 32 {
			mask = ^uint32(0)
		}
		out = append(out, site{what: what, op: i, len: n,
			get: func(op *txn.Op) uint32 { return op.Value >> lo & mask },
			set: func(op *txn.Op, v uint32) { op.Value = op.Value&^(mask<<lo) | v<<lo }})
	}
	for i := range p.List {
		op := &p.List[i]
		pos, off := device.SplitAddr(op.Addr)
		switch op.Code {
		case txn.BlockWrite:
			kind, _ := dev.KindAt(pos.Row)
			reg := dev.Tile(kind).Register(off)
			switch {
			case reg.Kind == device.RegProgram:
				data(i, "record", slices.DeleteFunc(slices.Clone(recordFields), func(f bits) bool {
					return f.name == "overflow" && kernel.Type(op.Data[2]>>16) == kernel.I32
				}), op.Data)
			case kind == device.Shim:
				data(i, "shim bd", shimFields, op.Data)
			case kind == device.Mem:
				data(i, "mem bd", memFields, op.Data)
			default:
				data(i, "core bd", coreFields, op.Data)
			}
		case txn.Write:
			kind, _ := dev.KindAt(pos.Row)
			ti := dev.Tile(kind)
			reg := ti.Register(off)
			switch reg.Kind {
			case device.RegMaster:
				value(i, kind.String()+" master slave", 0, 5)
				value(i, kind.String()+" master enable", 31, 1)
			case device.RegSlave:
				value(i, kind.String()+" slave enable", 31, 1)
			case device.RegShimMux:
				value(i, "shim mux", 10, 6)
			case device.RegShimDemux:
				value(i, "shim demux", 4, 2)
			case device.RegLock:
				value(i, kind.String()+" lock", 0, 6)
			case device.RegQueue:
				value(i, kind.String()+" queue bd", 0, map[device.Kind]int{device.Shim: 4, device.Mem: 6, device.Core: 4}[kind])
				if kind == device.Shim { // the other tiles' tasks here are endless rings
					value(i, kind.String()+" queue repeat", 16, 8)
					value(i, kind.String()+" queue token", 31, 1)
				}
			case device.RegData:
				value(i, "parameter", 0, 32)
			case device.RegCoreCtrl:
				value(i, "core enable", 0, 1)
			}
		case txn.DDRPatch:
			out = append(out,
				site{what: "patch buffer", op: i, len: 2, get: func(op *txn.Op) uint32 { return op.Arg }, set: func(op *txn.Op, v uint32) { op.Arg = v }},
				site{what: "patch offset", op: i, len: 20, get: func(op *txn.Op) uint32 { return uint32(op.Offset / 4) }, set: func(op *txn.Op, v uint32) { op.Offset = uint64(v) * 4 }})
		case txn.Sync:
			out = append(out,
				site{what: "sync column", op: i, len: 3, get: func(op *txn.Op) uint32 { return uint32(op.Col) }, set: func(op *txn.Op, v uint32) { op.Col = uint8(v) }},
				site{what: "sync channel", op: i, len: 1, get: func(op *txn.Op) uint32 { return uint32(op.Channel) }, set: func(op *txn.Op, v uint32) { op.Channel = uint8(v) }},
				site{what: "sync direction", op: i, len: 1, get: func(op *txn.Op) uint32 { return uint32(op.Dir) }, set: func(op *txn.Op, v uint32) { op.Dir = device.Dir(v) }},
				site{what: "sync columns", op: i, len: 3, get: func(op *txn.Op) uint32 { return uint32(op.NCols) }, set: func(op *txn.Op, v uint32) { op.NCols = uint8(v) }})
		case txn.MaskPoll:
			out = append(out,
				site{what: "poll address", op: i, len: 8, get: func(op *txn.Op) uint32 { return op.Addr & 0xFF }, set: func(op *txn.Op, v uint32) { op.Addr = op.Addr&^0xFF | v }})
		}
	}
	return out
}

// bench is a small product whose mutants are run.
type bench struct {
	name           string
	d              *design.Design
	config, stream *txn.Program
	run            *design.Run
	bufs           [][]byte
	want           []byte
	inputs         [][]byte
}

func newBench(t testing.TB, name string, d *design.Design, p design.Problem) *bench {
	require.NoError(t, d.Validate())
	b := &bench{name: name, d: d}
	var err error
	b.config, err = d.Config()
	require.NoError(t, err)
	b.run, err = d.Run(p)
	require.NoError(t, err)
	b.stream = txn.Collect(b.run)
	rng := rand.New(rand.NewPCG(9, 9))
	b.bufs = make([][]byte, design.NumArgs)
	for i, n := range b.run.BufferBytes {
		b.bufs[i] = make([]byte, n)
	}
	for _, i := range []int{design.ArgA, design.ArgB} {
		copy(b.bufs[i], randomBytes(rng, len(b.bufs[i])))
	}
	require.NoError(t, b.run.Prepare(b.bufs))
	for _, i := range []int{design.ArgA, design.ArgB, design.ArgStage} {
		b.inputs = append(b.inputs, b.bufs[i], bytes.Clone(b.bufs[i]))
	}
	require.NoError(t, b.execute(array.New(d.Dev, array.Options{Workers: -1}), b.config, b.stream))
	b.want = bytes.Clone(b.bufs[design.ArgC])
	checkInts(t, d, p.M, p.K, p.N, b.bufs[design.ArgA], b.bufs[design.ArgB], b.want, rng)
	return b
}

// execute configures and runs, into C full of a pattern.
func (b *bench) execute(a *array.Array, config, stream *txn.Program) error {
	cw, err := txn.Encode(config)
	if err != nil {
		return err
	}
	sw, err := txn.Encode(stream)
	if err != nil {
		return err
	}
	for i := range b.bufs[design.ArgC] {
		b.bufs[design.ArgC][i] = 0xA5
	}
	if _, err := a.Configure(context.Background(), cw); err != nil {
		return err
	}
	args := make([]array.Buffer, len(b.bufs))
	for i, x := range b.bufs {
		args[i] = array.Buffer{Data: x, Input: i != design.ArgC && i != design.ArgSpill}
	}
	if _, err := a.Dispatch(context.Background(), sw, args...); err != nil {
		return err
	}
	return b.run.Finish(b.bufs)
}

// TestMutants changes one field at a time to another value that fits its bits and demands that the result is wrong or an error is reported.
func TestMutants(t *testing.T) {
	small := func(dev *device.Device, c kernel.Type, layout design.Layout, tile design.Tile, kmt int) *design.Design {
		return &design.Design{Dev: dev, Types: device.Types{A: kernel.I8, B: kernel.I8, C: c}, Tile: tile, KMT: kmt, BLayout: layout}
	}
	benches := []*bench{
		newBench(t, "xdna col", small(device.XDNA, kernel.I32, design.ColMajor, design.Tile{M: 16, K: 16, N: 16}, 48), design.Problem{M: 128, K: 288, N: 192}),
		newBench(t, "xdna row", small(device.XDNA, kernel.I16, design.RowMajor, design.Tile{M: 16, K: 24, N: 32}, 48), design.Problem{M: 190, K: 240, N: 256}),
		newBench(t, "xdna2 col", small(device.XDNA2, kernel.I8, design.ColMajor, design.Tile{M: 16, K: 16, N: 16}, 48), design.Problem{M: 128, K: 280, N: 250}),
	}
	n := 500
	if testing.Short() {
		n = 150
	}
	rng := rand.New(rand.NewPCG(2026, 1))
	var missed []string
	for i := range n {
		b := benches[i%len(benches)]
		a := array.New(b.d.Dev, array.Options{Workers: -1, MaxSteps: 400000})
		config, stream := *b.config, *b.stream
		p := &config
		if rng.IntN(2) == 0 {
			p = &stream
		}
		all := sites(b.d.Dev, p)
		// A kind of field first, so that the many descriptors do not crowd out the rest.
		kinds := map[string][]site{}
		var names []string
		for _, s := range all {
			if kinds[s.what] == nil {
				names = append(names, s.what)
			}
			kinds[s.what] = append(kinds[s.what], s)
		}
		slices.Sort(names)
		list := kinds[names[rng.IntN(len(names))]]
		s := list[rng.IntN(len(list))]
		p.List = append([]txn.Op(nil), p.List...)
		op := &p.List[s.op]
		old := s.get(op)
		v := old
		for v == old {
			switch rng.IntN(3) {
			case 0:
				v = old + 1
			case 1:
				v = old - 1
			default:
				v = rng.Uint32()
			}
			if s.len < 32 {
				v &= 1<<s.len - 1
			}
		}
		s.set(op, v)
		err := b.execute(a, &config, &stream)
		same := bytes.Equal(b.want, b.bufs[design.ArgC])
		for i := 0; i < len(b.inputs); i += 2 { // writing into an operand is a wrong result, too
			same = same && bytes.Equal(b.inputs[i], b.inputs[i+1])
			copy(b.inputs[i], b.inputs[i+1])
		}
		if err == nil && same {
			pos, off := device.SplitAddr(op.Addr)
			missed = append(missed, fmt.Sprintf("%s: %s of op %d (%v %v %#x): %d -> %d", b.name, s.what, s.op, op.Code, pos, off, old, v))
		}
	}
	for _, m := range missed {
		t.Log(m)
	}
	require.LessOrEqual(t, len(missed), n/100, "%d of %d changes were not noticed", len(missed), n)
}
