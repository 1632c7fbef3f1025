package aiecmd

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/aie" // by name, for --mode fast
	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// runResult is the JSON document of `aie run`.
type runResult struct {
	Device           string         `json:"device"`
	DType            string         `json:"dtype"`
	Out              string         `json:"out"`
	Design           string         `json:"design"`
	Mode             string         `json:"mode"`
	Size             map[string]int `json:"size"`
	Tiles            int            `json:"tiles"`
	Ops              float64        `json:"ops"`
	Cycles           float64        `json:"cycles"`
	MACsPerCycle     float64        `json:"macs_per_cycle"`
	Efficiency       float64        `json:"efficiency_percent"`
	Bytes            plan.Bytes     `json:"bytes"`
	HostBytes        float64        `json:"host_bytes,omitempty"`
	Bound            string         `json:"bound"`
	Busy             []array.Use    `json:"busy,omitempty"`
	Kernels          int64          `json:"kernels,omitempty"`
	Words            int            `json:"words,omitempty"`
	Padded           map[string]int `json:"padded"`
	Useful           float64        `json:"useful_percent"`
	SimulatedSeconds float64        `json:"simulated_seconds"`
	SimulatedTOPS    float64        `json:"simulated_tops"`
	PredictedCycles  float64        `json:"predicted_cycles"`
	WallSeconds      float64        `json:"wall_seconds"`
	Checked          int            `json:"checked"`
	MaxError         float64        `json:"max_error"`
	Exact            bool           `json:"exact"`
	Registers        string         `json:"registers,omitempty"`
}

type runFlags struct {
	flags
	mode, registers string
	threads         int
	seed            uint64
	check           int
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run --size MxNxK",
		Example: "  tessera aie run --size 512x768x1000 --dtype int16 --registers program.txt",
		Short:   "Run one product on the emulated array and check it",
		Long: `Run multiplies random matrices on the emulated array, by the descriptors and register writes of its plan, and checks the result: integers
against exact sums, fp32 against the same order of sums, bit for bit. Times of the array are simulated; wall_seconds is the emulation alone. With
--mode fast the CPU's kernels compute the same bits. --registers writes the ordered list of register writes to a file.`,
		Args: cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	cli.WordVar(fl, &f.mode, "mode", "emulate", "emulate or fast")
	fl.StringVar(&f.registers, "registers", "", "write the register program as text to `FILE`")
	fl.IntVar(&f.threads, "threads", 0, "workers of --mode fast and of the check; 0 means all processors")
	fl.Uint64Var(&f.seed, "seed", 1, "of the random operands")
	fl.IntVar(&f.check, "check", 0, "elements of the result to check, spread evenly; 0 means all up to 4e9 multiplications, -1 none")
	return cmd
}

func (f *runFlags) run(ctx context.Context, w io.Writer) error {
	if f.mode != "emulate" && f.mode != "fast" {
		return cli.Usagef("--mode %s: emulate or fast is right", f.mode)
	}
	s, p, err := f.one()
	if err != nil {
		return err
	}
	pr, err := array.Build(p)
	if err != nil {
		return err
	}
	if f.registers != "" {
		if err := cli.WriteFile(f.registers, func(w io.Writer) error { _, err := pr.Regs.WriteTo(w); return err }); err != nil {
			return err
		}
	}
	if f.check < -1 {
		return cli.Usagef("--check %d: -1 for none, 0 for all or a number of elements is right", f.check)
	}
	if err := (&cli.Options{Threads: f.threads}).CheckThreads(); err != nil {
		return err
	}
	x := newOperands(s, p, f.seed)
	m, n, k := p.Padded()
	predicted := p.Predict()
	r := &runResult{Device: p.Device.Name, DType: p.Type.String(), Out: p.Out.String(), Design: p.Design.String(), Mode: f.mode, Size: sizeOf(s), Tiles: p.Tiles, Ops: 2 * p.MACs(),
		Padded: map[string]int{"m": n, "n": m, "k": k}, Useful: 100 * p.Useful(), PredictedCycles: predicted.Cycles, Registers: f.registers}
	if f.mode == "emulate" {
		a, err := array.PackWeights(p, x.weights())
		if err != nil {
			return err
		}
		start := time.Now()
		rep, err := array.Run(ctx, pr, array.Operands{A: a, B: x.activations(), C: x.result()}, array.Options{})
		if err != nil {
			return err
		}
		r.WallSeconds = time.Since(start).Seconds()
		r.Cycles, r.MACsPerCycle, r.Efficiency, r.Bytes, r.Bound = rep.Cycles, rep.MACsPerCycle, rep.Efficiency, rep.Bytes, rep.Bound
		r.HostBytes, r.Busy, r.Kernels, r.Words = rep.HostBytes, rep.Busy, rep.Kernels, rep.ControlWords
		r.SimulatedSeconds, r.SimulatedTOPS = rep.Seconds, rep.TOPS
	} else {
		if p.Out.Bytes() != 4 {
			return cli.Usagef("--mode fast --out %v: s32 (f32 for fp32) is right", p.Out)
		}
		if r.WallSeconds, err = x.fast(ctx, f); err != nil {
			return err
		}
		r.Cycles, r.MACsPerCycle, r.Efficiency, r.Bytes, r.Bound = predicted.Cycles, predicted.MACsPerCycle, predicted.Efficiency, predicted.Bytes, predicted.Bound
		r.SimulatedSeconds, r.SimulatedTOPS = predicted.Seconds, predicted.TOPS
	}
	r.Checked, r.MaxError = x.verify(p, f.check, f.threads)
	r.Exact = r.MaxError == 0
	if f.json {
		err = cli.PrintJSON(w, r)
	} else {
		fmt.Fprintf(w, "%s %v -> %v design=%v on %s (%s): simulated %.0f cycles, %.3f ms, %.3f TOPS, %.1f %% of the tiles' peak, bound by %s\n", s, p.Type, p.Out, p.Design, cli.Count(p.Tiles, "tile"), f.mode,
			r.Cycles, 1e3*r.SimulatedSeconds, r.SimulatedTOPS, r.Efficiency, r.Bound)
		fmt.Fprintf(w, "  moved %.1f MB over DDR, %.1f MB in and out of FPGA RAM, %.1f MB in and out of local memories; %.1f %% useful work\n", r.Bytes.DDR/1e6, r.Bytes.FPGA/1e6, r.Bytes.Local/1e6, r.Useful)
		fmt.Fprintf(w, "  %d elements checked, max error %g; %.2f s of wall time\n", r.Checked, r.MaxError, r.WallSeconds)
	}
	if err == nil && r.Checked > 0 && !r.Exact {
		err = fmt.Errorf("the result differs from the reference by up to %g", r.MaxError)
	}
	return err
}

// operands of a product: activations [M,K], weights [N,K], result [M,N], all row-major.
type operands struct {
	cli.Size
	p       *plan.Plan
	a, w, c []byte
}

func newOperands(s cli.Size, p *plan.Plan, seed uint64) *operands {
	e := p.Type.Bytes()
	x := &operands{Size: s, p: p, a: make([]byte, s.M*s.K*e), w: make([]byte, s.N*s.K*e), c: make([]byte, s.M*s.N*p.Out.Bytes())}
	rng := rand.New(rand.NewPCG(seed, 7))
	for _, b := range [][]byte{x.a, x.w} {
		switch p.Type {
		case core.FP32:
			for i := 0; i < len(b); i += 4 {
				binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(rng.NormFloat64())))
			}
		default:
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
		}
	}
	return x
}

func (x *operands) weights() *array.Matrix {
	return &array.Matrix{Data: x.w, Rows: x.N, Cols: x.K, RowStride: x.K, ColStride: 1, Bytes: x.p.Type.Bytes()}
}

func (x *operands) activations() *array.Matrix {
	return &array.Matrix{Data: x.a, Rows: x.K, Cols: x.M, RowStride: 1, ColStride: x.K, Bytes: x.p.Type.Bytes()}
}

func (x *operands) result() *array.Matrix {
	return &array.Matrix{Data: x.c, Rows: x.N, Cols: x.M, RowStride: 1, ColStride: x.N, Bytes: x.p.Out.Bytes()}
}

// fast runs the product through the backend's engine.
func (x *operands) fast(ctx context.Context, f *runFlags) (seconds float64, err error) {
	b, err := backends.Open(fmt.Sprintf("aie:mode=fast,precision=%v,design=%v,threads=%d", x.p.Type, x.p.Design, f.threads))
	if err != nil {
		return 0, err
	}
	defer b.Close()
	d, c := map[core.Type]tensor.DType{core.Int16: tensor.I16, core.Int8: tensor.I8, core.FP32: tensor.F32}[x.p.Type], tensor.I32
	if x.p.Type == core.FP32 {
		c = tensor.F32
	}
	spec := matmul.Spec{N: x.N, K: x.K, A: d, B: d, C: c, BLayout: matmul.ColMajor}
	at := func(buf []byte, d tensor.DType, dims ...int) (tensor.Tensor, error) {
		return tensor.At(tensor.WrapBytes(buf), 0, tensor.MakeSpec(d, dims...))
	}
	w, err := at(x.w, d, x.N, x.K)
	if err != nil {
		return 0, err
	}
	e := b.MatMul()
	packed, err := e.Pack(ctx, spec, w)
	if err != nil {
		return 0, err
	}
	defer packed.Close()
	pl, err := e.Plan(spec, matmul.Shape{M: x.M})
	if err != nil {
		return 0, err
	}
	var args matmul.Args
	if args.A, err = at(x.a, d, x.M, x.K); err != nil {
		return 0, err
	}
	if args.C, err = at(x.c, c, x.M, x.N); err != nil {
		return 0, err
	}
	var ws matmul.Workspace
	start := time.Now()
	err = pl.Run(ctx, packed, &args, &ws)
	return time.Since(start).Seconds(), err
}

// verify compares elements of the result with their definition and returns how many, and the largest difference.
func (x *operands) verify(p *plan.Plan, count, threads int) (checked int, maxError float64) {
	total := x.M * x.N
	if count < 0 {
		return 0, 0
	}
	if count == 0 {
		count = total
		if most := int(int64(4e9) / int64(max(x.K, 1))); count > most {
			count = most
		}
	}
	count = min(count, total)
	j := &verifyJob{x: x, count: count, worst: make([]float64, par.Workers(threads, verifyParts))}
	j.chunk = 0
	if p.Design == plan.Paper && p.Out != core.S32 {
		j.chunk = p.KC // narrowed on the way
	}
	par.Run(threads, verifyParts, j)
	for _, w := range j.worst {
		maxError = max(maxError, w)
	}
	return count, maxError
}

const verifyParts = 64

type verifyJob struct {
	x            *operands
	count, chunk int
	worst        []float64
}

func (j *verifyJob) Do(worker, job int) {
	x, e := j.x, j.x.p.Type.Bytes()
	total := x.M * x.N
	for t := job * j.count / verifyParts; t < (job+1)*j.count/verifyParts; t++ {
		at := int(float64(t) / float64(j.count) * float64(total))
		if j.count == total {
			at = t
		}
		a, w := x.a[at/x.N*x.K*e:][:x.K*e], x.w[at%x.N*x.K*e:][:x.K*e]
		d := 0.0
		if x.p.Type == core.FP32 {
			var s float32
			for i := 0; i < len(a); i += 4 {
				s += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[i:])) * math.Float32frombits(binary.LittleEndian.Uint32(w[i:])))
			}
			got := math.Float32frombits(binary.LittleEndian.Uint32(x.c[4*at:]))
			if d = math.Abs(float64(got) - float64(s)); got != s && !(d > 0) {
				d = math.Inf(1)
			}
		} else {
			d = math.Abs(float64(core.Unpack(x.p.Out, x.c[at*x.p.Out.Bytes():], 1)[0] - j.sum(a, w)))
		}
		j.worst[worker] = max(j.worst[worker], d)
	}
}

// sum is an integer element by its definition.
func (j *verifyJob) sum(a, w []byte) int64 {
	out := j.x.p.Out
	width := uint(8 * out.Bytes())
	s := int64(0)
	for k := range j.x.K {
		if j.x.p.Type == core.Int16 {
			s += int64(int16(binary.LittleEndian.Uint16(a[2*k:]))) * int64(int16(binary.LittleEndian.Uint16(w[2*k:])))
		} else {
			s += int64(int8(a[k])) * int64(int8(w[k]))
		}
		if j.chunk > 0 && (k+1)%j.chunk == 0 {
			s = core.SRS(core.Wrap48(s), 0, core.Floor, false, width)
		}
	}
	return core.SRS(core.Wrap48(s), 0, core.Floor, false, width)
}
