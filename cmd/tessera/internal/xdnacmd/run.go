package xdnacmd

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/xdna"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant/bfp16"
	"github.com/tessera-go/tessera/tensor"
)

var _ = add(runCommand)

type runFlags struct {
	device, dtype, size, mode, layout, schedule, padding, rounding, overflow string
	threads                                                                  int
	seed                                                                     uint64
	check                                                                    int
	json                                                                     bool
}

// runResult is the JSON document of `xdna run`.
type runResult struct {
	Device           string         `json:"device"`
	DType            string         `json:"dtype"`
	Size             map[string]int `json:"size"`
	Mode             string         `json:"mode"`
	Layout           string         `json:"layout"`
	Tile             map[string]int `json:"tile"`
	Ops              float64        `json:"ops"`
	Words            int64          `json:"words"`
	Configurations   int64          `json:"configurations"`
	Dispatches       int64          `json:"dispatches"`
	Bytes            int64          `json:"bytes"`
	StagedBytes      int64          `json:"staged_bytes"`
	Padded           map[string]int `json:"padded"`
	UsefulPercent    float64        `json:"useful_percent"`
	SimulatedSeconds float64        `json:"simulated_seconds"`
	SimulatedTOPS    float64        `json:"simulated_tops"`
	WallSeconds      float64        `json:"wall_seconds"`
	Checked          int            `json:"checked"`
	MaxError         float64        `json:"max_error"`
	Exact            bool           `json:"exact"`
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run --device D --dtype T --size MxNxK",
		Example: "  tessera xdna run --device xdna --dtype int8-int32 --size 512x768x1000",
		Short:   "Run one product on the emulated array and check it",
		Long: `Run multiplies random matrices on the emulated array, from real control code, and checks the result against
the definition of the kernel, element by element. Times of the array are simulated; wall_seconds is the emulation alone.
With --mode fast the CPU computes the same bits without the array.`,
		Args: cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	cli.WordVar(fl, &f.device, "device", "xdna2", "xdna or xdna2")
	cli.WordVar(fl, &f.dtype, "dtype", "int8-int16", "types: int8-int8, int8-int16, int8-int32, bf16-bf16, bf16-f32, bf16-bfp16, bfp16-bfp16")
	fl.StringVar(&f.size, "size", "", "the product, `MxNxK`")
	cli.WordVar(fl, &f.mode, "mode", "emulate", "emulate or fast")
	cli.WordVar(fl, &f.layout, "layout", "col", "layout of B: col or row")
	cli.WordVar(fl, &f.schedule, "schedule", "overlapped", "of the shim's descriptors: overlapped, pingpong, serial")
	cli.WordVar(fl, &f.padding, "padding", "stage", "of ragged edges: stage (host) or memtile (on the fly)")
	cli.WordVar(fl, &f.rounding, "rounding", "even", "even or floor")
	cli.WordVar(fl, &f.overflow, "overflow", "wrap", "wrap or saturate, for int8 and int16 results")
	fl.IntVar(&f.threads, "threads", 0, "host workers; 0 means all processors that Go may use")
	fl.Uint64Var(&f.seed, "seed", 1, "of the random operands")
	fl.IntVar(&f.check, "check", 4096, "elements to check against the definition, edges included; integers are checked in full beside that")
	fl.BoolVar(&f.json, "json", false, "print one JSON document and nothing else")
	return cmd
}

// choice returns the position of a value among those allowed.
func choice(flag, v string, allowed ...string) (int, error) {
	for i, a := range allowed {
		if strings.EqualFold(v, a) {
			return i, nil
		}
	}
	return 0, cli.Usagef("--%s %s: one of %s is right", flag, v, strings.Join(allowed, ", "))
}

// problem returns what the flags say of the product.
func (f *runFlags) problem() (dev *device.Device, types device.Types, size cli.Size, err error) {
	if dev, err = device.Lookup(f.device); err != nil {
		return nil, types, size, cli.Usagef("--device: %w", err)
	}
	if types, err = device.ParseTypes(f.dtype); err != nil {
		return nil, types, size, cli.Usagef("--dtype: %w", err)
	}
	if _, err := dev.Mode(types); err != nil {
		return nil, types, size, cli.Usagef("--dtype: %w", err)
	}
	if f.size == "" {
		return nil, types, size, errNoSize
	}
	sizes, err := cli.ParseSizes("size", f.size)
	if err != nil {
		return nil, types, size, err
	}
	for _, s := range sizes {
		if err := s.CheckMemory(); err != nil {
			return nil, types, size, err
		}
	}
	if len(sizes) != 1 {
		return nil, types, size, cli.Usagef("--size %s: one product is right", f.size)
	}
	return dev, types, sizes[0], nil
}

// options returns what the flags say of the way in which it is computed.
func (f *runFlags) options(types device.Types) (xdna.Options, error) {
	opt := xdna.Options{Threads: f.threads}
	if f.check < 0 {
		return opt, cli.Usagef("--check %d: 0 or more elements are right", f.check)
	}
	if err := (&cli.Options{Threads: f.threads}).CheckThreads(); err != nil {
		return opt, err
	}
	for _, c := range []struct {
		flag, v string
		allowed []string
		set     func(i int)
	}{
		{"mode", f.mode, []string{"fast", "emulate"}, func(i int) { opt.Mode = xdna.Mode(i) }},
		{"layout", f.layout, []string{"col", "row"}, func(i int) { opt.RowMajorB = i == 1 }},
		{"schedule", f.schedule, []string{"overlapped", "pingpong", "serial"}, func(i int) { opt.Schedule = design.Schedule(i) }},
		{"padding", f.padding, []string{"stage", "memtile"}, func(i int) { opt.Padding = design.Padding(i) }},
		{"rounding", f.rounding, []string{"even", "floor"}, func(i int) { opt.Rounding = kernel.Rounding(i) }},
		{"overflow", f.overflow, []string{"wrap", "saturate"}, func(i int) { opt.Overflow = kernel.Overflow(i) }},
	} {
		i, err := choice(c.flag, c.v, c.allowed...)
		if err != nil {
			return opt, err
		}
		c.set(i)
	}
	if types.B == kernel.BFP16 && opt.RowMajorB {
		return opt, cli.Usagef("--layout row: bfp16 weights are tiled on the host from column-major blocks")
	}
	return opt, nil
}

func (f *runFlags) run(ctx context.Context, out, remarks io.Writer) error {
	dev, types, size, err := f.problem()
	if err != nil {
		return err
	}
	opt, err := f.options(types)
	if err != nil {
		return err
	}
	m, n, k := size.M, size.N, size.K
	b, err := xdna.New(dev, opt)
	if err != nil {
		return err
	}
	defer b.Close()
	p, err := newProduct(types, m, n, k, opt, f.seed)
	if err != nil {
		return err
	}
	if !f.json {
		fmt.Fprintf(remarks, "%s, %v, %d x %d x %d (M x N x K), mode %v\n", dev.Title, types, m, n, p.spec.K, opt.Mode)
	}
	e := b.Engine()
	w, err := e.Pack(ctx, p.spec, p.b)
	if err != nil {
		return err
	}
	defer w.Close()
	pl, err := e.Plan(p.spec, matmul.Shape{M: m})
	if err != nil {
		return err
	}
	args := matmul.Args{A: p.a, C: p.c}
	var ws matmul.Workspace
	if opt.Mode == xdna.Fast { // once to bring in memory: what is measured is the product
		if err := pl.Run(ctx, w, &args, &ws); err != nil {
			return err
		}
	}
	before := e.Stats()
	start := time.Now()
	if err := pl.Run(ctx, w, &args, &ws); err != nil {
		return err
	}
	wall := time.Since(start).Seconds()
	st := e.Stats()
	d := st.Sub(before)
	if d.Configurations > 0 {
		d.SimulatedSeconds -= float64(d.Configurations) * dev.ReconfigSec // of the product alone
	}
	info, _ := xdna.Info(pl)
	r := runResult{
		Device: dev.Name, DType: types.String(), Size: dims(m, n, p.spec.K), Mode: opt.Mode.String(), Layout: info.Design.BLayout.String(),
		Tile: dims(info.Design.Tile.M, info.Design.Tile.N, info.Design.Tile.K), Ops: 2 * float64(m) * float64(n) * float64(p.spec.K),
		Words: d.ControlWords, Configurations: st.Configurations, Dispatches: d.Dispatches, Bytes: d.Bytes, StagedBytes: d.StagedBytes,
		Padded: dims(info.Run.MPad, info.Run.NPad, info.Run.KPad), UsefulPercent: info.Run.UsefulPercent(),
		SimulatedSeconds: d.SimulatedSeconds, WallSeconds: wall,
	}
	r.SimulatedTOPS = r.Ops / r.SimulatedSeconds / 1e12
	if err := p.verify(info, opt, f.check, &r); err != nil {
		return err
	}
	if f.json {
		err = cli.PrintJSON(out, r)
	} else {
		_, err = fmt.Fprintf(out, `simulated   %.3f ms, %.2f TOPS
control     %d words, %d configuration, %d dispatch
traffic     %s between host memory and the array, %s staged by the host
padded      %d x %d x %d, %.1f %% useful
emulation   %.2f s of wall time
checked     %d elements, largest error %g
`, 1e3*r.SimulatedSeconds, r.SimulatedTOPS, r.Words, r.Configurations, r.Dispatches, cli.FormatBytes(r.Bytes), cli.FormatBytes(r.StagedBytes),
			info.Run.MPad, info.Run.NPad, info.Run.KPad, r.UsefulPercent, r.WallSeconds, r.Checked, r.MaxError)
	}
	if err == nil && !r.Exact {
		err = fmt.Errorf("the result differs from the definition by up to %g", r.MaxError)
	}
	return err
}

func dims(m, n, k int) map[string]int { return map[string]int{"m": m, "n": n, "k": k} }

// product is a problem with random operands.
type product struct {
	types   device.Types
	spec    matmul.Spec
	m       int
	a, b, c tensor.Tensor
}

var dtypes = map[kernel.Type]tensor.DType{
	kernel.I8: tensor.I8, kernel.I16: tensor.I16, kernel.I32: tensor.I32, kernel.BF16: tensor.BF16, kernel.F32: tensor.F32, kernel.BFP16: tensor.BFP16,
}

func newProduct(types device.Types, m, n, k int, opt xdna.Options, seed uint64) (*product, error) {
	p := &product{types: types, m: m}
	p.spec = matmul.Spec{N: n, K: k, A: dtypes[types.A], B: dtypes[types.B], C: dtypes[types.C], BLayout: matmul.ColMajor}
	if opt.RowMajorB {
		p.spec.BLayout = matmul.RowMajor
	}
	if types.B == kernel.BFP16 && k%bfp16.Values != 0 {
		return nil, cli.Usagef("K = %d: bfp16 blocks hold 8 values along K, a multiple of 8 is right", k)
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	operand := func(d tensor.DType, rows, cols int) (tensor.Tensor, error) {
		t, err := tensor.NewChecked(d, rows, cols)
		if err != nil {
			return t, err
		}
		raw := t.Raw()
		switch d {
		case tensor.I8:
			for i := 0; i < len(raw); i += 8 {
				var w [8]byte
				binary.LittleEndian.PutUint64(w[:], rng.Uint64())
				copy(raw[i:], w[:])
			}
		case tensor.BF16:
			for i := 0; i < len(raw); i += 2 {
				binary.LittleEndian.PutUint16(raw[i:], tensor.F32ToBF16(float32(rng.NormFloat64())))
			}
		case tensor.BFP16:
			var v [bfp16.Values]float32
			for i := 0; i < len(raw); i += bfp16.Bytes {
				for j := range v {
					v[j] = float32(rng.NormFloat64())
				}
				bfp16.Encode(raw[i:i+bfp16.Bytes], v[:], bfp16.Rounding(opt.Rounding))
			}
		}
		return t, nil
	}
	var err error
	if p.a, err = operand(p.spec.A, m, k); err != nil {
		return nil, err
	}
	rows, cols := n, k
	if opt.RowMajorB {
		rows, cols = k, n
	}
	if p.b, err = operand(p.spec.B, rows, cols); err != nil {
		return nil, err
	}
	p.c, err = tensor.NewChecked(p.spec.C, m, n)
	return p, err
}

// verify compares elements with the kernel's definition: the corners, and as many others as asked for, drawn at random.
func (p *product) verify(info xdna.PlanInfo, opt xdna.Options, count int, r *runResult) error {
	kPad := info.Run.KPad
	m, n := p.m, p.spec.N
	rng := rand.New(rand.NewPCG(2, 3))
	a, b := make([]float32, kPad), make([]float32, kPad)
	ia, ib := make([]int8, kPad), make([]int8, kPad)
	one := func(i, j int) {
		var want float64
		if p.types.A == kernel.I8 {
			p.ints(ia, &p.a, i, true)
			p.ints(ib, &p.b, j, p.spec.BLayout == matmul.ColMajor)
			want = float64(kernel.ReferenceInt(ia, ib, info.Design.Tile.K, p.types.C, opt.Overflow))
		} else {
			p.floats(a, &p.a, i, true)
			p.floats(b, &p.b, j, p.spec.BLayout == matmul.ColMajor)
			if mode, _ := info.Design.Dev.Mode(p.types); mode.Arith == kernel.FMA {
				want = float64(kernel.ReferenceFMA(a, b, info.Design.Tile.K, p.types.C, opt.Rounding))
			} else {
				want = float64(kernel.ReferenceBFP(a, b, p.types.A, p.types.B, info.Design.Tile.K, p.types.C, opt.Rounding))
			}
		}
		r.Checked++
		if diff := math.Abs(want - p.at(i, j)); !(diff <= r.MaxError) {
			r.MaxError = diff
		}
	}
	for _, i := range []int{0, m - 1} {
		for _, j := range []int{0, n - 1} {
			one(i, j)
		}
	}
	for range max(0, count-4) {
		one(rng.IntN(m), rng.IntN(n))
	}
	if p.types.A == kernel.I8 && opt.Overflow == kernel.Wrap {
		if err := p.verifyAll(r); err != nil {
			return err
		}
	}
	r.Exact = r.MaxError == 0
	return nil
}

// verifyAll compares every element of a wrapping integer product with the CPU engine's exact one.
func (p *product) verifyAll(r *runResult) error {
	m, n, k := p.m, p.spec.N, p.spec.K
	b := gemm.Raw(gemm.S8, p.b.Raw(), k, n, n, 1)
	if p.spec.BLayout == matmul.ColMajor {
		b = gemm.Raw(gemm.S8, p.b.Raw(), k, n, 1, k)
	}
	want := make([]int32, m*n)
	if err := gemm.Mul(gemm.Of(want, m, n), gemm.Raw(gemm.S8, p.a.Raw(), m, k, k, 1), b, nil); err != nil {
		return err
	}
	for i := range m {
		for j, v := range want[i*n : (i+1)*n] {
			switch p.types.C {
			case kernel.I8:
				v = int32(int8(v))
			case kernel.I16:
				v = int32(int16(v))
			}
			r.MaxError = max(r.MaxError, math.Abs(float64(v)-p.at(i, j)))
		}
	}
	r.Checked = m * n
	return nil
}

// at is an element of C.
func (p *product) at(i, j int) float64 {
	raw := p.c.Raw()
	at := i*p.spec.N + j
	switch p.types.C {
	case kernel.I8:
		return float64(int8(raw[at]))
	case kernel.I16:
		return float64(int16(binary.LittleEndian.Uint16(raw[2*at:])))
	case kernel.I32:
		return float64(int32(binary.LittleEndian.Uint32(raw[4*at:])))
	case kernel.BF16:
		return float64(tensor.BF16ToF32(binary.LittleEndian.Uint16(raw[2*at:])))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*at:])))
}

// ints reads row i of a matrix, or column i if it is not stored by rows of K.
func (p *product) ints(dst []int8, t *tensor.Tensor, i int, byK bool) {
	clear(dst)
	raw := t.Raw()
	for q := range p.spec.K {
		if byK {
			dst[q] = int8(raw[i*p.spec.K+q])
		} else {
			dst[q] = int8(raw[q*t.Dims[1]+i])
		}
	}
}

func (p *product) floats(dst []float32, t *tensor.Tensor, i int, byK bool) {
	clear(dst)
	raw := t.Raw()
	if t.DType == tensor.BFP16 {
		line := p.spec.K / bfp16.Values * bfp16.Bytes
		bfp16.Decode(dst[:p.spec.K], raw[i*line:(i+1)*line])
		return
	}
	for q := range p.spec.K {
		at := q*t.Dims[1] + i
		if byK {
			at = i*p.spec.K + q
		}
		dst[q] = tensor.BF16ToF32(binary.LittleEndian.Uint16(raw[2*at:]))
	}
}
