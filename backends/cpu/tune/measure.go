package tune

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/knob"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Clock measures on this processor. It keeps the operands of the last case, and serves one goroutine.
type Clock struct {
	Least   time.Duration // of one measurement: short products run several times in it; 0 means two milliseconds
	Workers int           // for cases on all processors; 0 means GOMAXPROCS

	now  Case
	run  func(knobs map[string]int) (func() error, error)
	free func() error
}

// Time runs a case, once to warm up and then for as long as Least says, and returns the time of one run.
func (t *Clock) Time(ctx context.Context, c Case, knobs map[string]int) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if t.run == nil || t.now != c {
		if err := t.Close(); err != nil {
			return 0, err
		}
		if err := t.prepare(c); err != nil {
			return 0, err
		}
		t.now = c
	}
	run, err := t.run(knobs)
	if err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	least := t.Least
	if least == 0 {
		least = 2 * time.Millisecond
	}
	start := time.Now()
	for n := 1; ; n++ {
		if err := run(); err != nil {
			return 0, err
		}
		if d := time.Since(start); d >= least {
			return max(d/time.Duration(n), 1), nil
		}
	}
}

// Close releases the operands.
func (t *Clock) Close() error {
	free := t.free
	t.run, t.free = nil, nil
	if free == nil {
		return nil
	}
	return free()
}

// only returns the values that belong to a package.
func only(room string, knobs map[string]int) map[string]int {
	some := map[string]int{}
	for _, d := range knob.All() {
		if v, ok := knobs[d.Name]; ok && d.Room == room {
			some[d.Name] = v
		}
	}
	return some
}

func (t *Clock) prepare(c Case) error {
	rng := rand.New(rand.NewPCG(1, 2))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = rng.Float32()*2 - 1
		}
		return x
	}
	threads := 1
	if c.All {
		threads = t.Workers
	}
	switch {
	case c.Kind == Q4:
		return t.prepareBlocks(c, threads, floats)
	case c.Kind == Conv:
		return t.prepareImage(c, threads, floats)
	case c.Batch > 1:
		return t.prepareBatch(c, threads, floats)
	}
	fa, fb := floats(c.M*c.K), floats(c.K*c.N)
	a, b, out := gemm.Of(fa, c.M, c.K), gemm.Of(fb, c.K, c.N), gemm.Of(make([]float32, c.M*c.N), c.M, c.N)
	if c.ColA {
		a = gemm.View(fa, c.M, c.K, 1, c.M)
	}
	switch c.Kind {
	case F32:
	case BF16:
		half := make([]uint16, len(fb))
		tensor.F32sToBF16(half, fb)
		b = gemm.Raw(gemm.BF16, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(half))), 2*len(half)), c.K, c.N, c.N, 1)
	case S8:
		a, b, out = gemm.Of(bytes(fa), c.M, c.K), gemm.Of(bytes(fb), c.K, c.N), gemm.Of(make([]int32, c.M*c.N), c.M, c.N)
	default:
		return errors.New("no products of " + string(c.Kind))
	}
	var packed *gemm.PackedB
	if !c.Plain {
		var err error
		if packed, err = gemm.PackB(b, nil); err != nil {
			return err
		}
		t.free = packed.Close
	}
	t.run = func(knobs map[string]int) (func() error, error) {
		kn, err := gemm.NewKnobs(only("backends/cpu/gemm", knobs))
		if err != nil {
			return nil, err
		}
		o := &gemm.Options{Threads: threads, Knobs: kn}
		if c.Plain {
			return func() error { return gemm.Mul(out, a, b, o) }, nil
		}
		return func() error { return gemm.MulPacked(out, a, packed, o) }, nil
	}
	return nil
}

// bytes returns numbers of -1 to 1 as signed bytes.
func bytes(x []float32) []int8 {
	y := make([]int8, len(x))
	for i, v := range x {
		y[i] = int8(v * 127)
	}
	return y
}

func (t *Clock) prepareBlocks(c Case, threads int, floats func(int) []float32) error {
	d := tensor.Q4_0
	row := c.K / d.Block() * d.Size()
	data := make([]byte, c.N*row)
	for i := range c.N {
		if i >= 16 { // encoding is slow, and speed does not depend on the values
			copy(data[i*row:][:row], data[(i-16)*row:])
			continue
		}
		if err := quant.EncodeRow(d, data[i*row:][:row], floats(c.K)); err != nil {
			return err
		}
	}
	packed, err := qgemm.Pack(d, data, row, c.N, c.K, nil)
	if err != nil {
		return err
	}
	t.free = packed.Close
	a, out := floats(c.M*c.K), make([]float32, c.M*c.N)
	t.run = func(knobs map[string]int) (func() error, error) {
		kn, err := qgemm.NewKnobs(only("backends/cpu/qgemm", knobs))
		if err != nil {
			return nil, err
		}
		r := &qgemm.Run{A: a, LDA: c.K, C: out, LDC: c.N, M: c.M, Threads: threads, Knobs: kn}
		return func() error { return packed.Mul(context.Background(), r) }, nil
	}
	return nil
}

func (t *Clock) prepareImage(c Case, threads int, floats func(int) []float32) error {
	s := c.Image
	if err := s.Check(); err != nil {
		return err
	}
	isa, err := cpuinfo.Pinned()
	if err != nil {
		return err
	}
	f, err := conv.Pack(s, floats(s.M*s.C/s.Groups*s.KH*s.KW), nil, isa)
	if err != nil {
		return err
	}
	args := &conv.Args{X: floats(s.N * s.H * s.W * s.C), Y: make([]float32, s.N*s.OH*s.OW*s.M)}
	t.run = func(knobs map[string]int) (func() error, error) {
		kn, err := conv.NewKnobs(only("backends/cpu/conv", knobs))
		if err != nil {
			return nil, err
		}
		p, err := conv.NewPlanWith(f, s, threads, kn)
		if err != nil {
			return nil, err
		}
		return func() error { p.Run(args); return nil }, nil
	}
	return nil
}

func (t *Clock) prepareBatch(c Case, threads int, floats func(int) []float32) error {
	a, b, out := floats(c.Batch*c.M*c.K), floats(c.Batch*c.K*c.N), make([]float32, c.Batch*c.M*c.N)
	batch := gemm.Batch{Dims: [3]int{1, 1, c.Batch}, A: [3]int{0, 0, c.M * c.K}, B: [3]int{0, 0, c.K * c.N}, C: [3]int{0, 0, c.M * c.N}}
	t.run = func(knobs map[string]int) (func() error, error) {
		kn, err := gemm.NewKnobs(only("backends/cpu/gemm", knobs))
		if err != nil {
			return nil, err
		}
		o := &gemm.Options{Threads: threads, Knobs: kn}
		return func() error {
			return gemm.MulBatch(gemm.Of(out, c.M, c.N), gemm.Of(a, c.M, c.K), gemm.Of(b, c.K, c.N), batch, o)
		}, nil
	}
	return nil
}
