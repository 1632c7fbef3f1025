package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// double is a backend that runs references, with a bug planted on purpose. A suite that a double passes is worth nothing.
type double struct {
	bug       bug
	constants map[tensor.Spec]tensor.Tensor
	scratch   []byte
}

// bug changes one thing about how a node is run. Nil fields change nothing.
type bug struct {
	name        string
	only, whole []string // operations and tests of the whole that the suite is limited to, to be quick

	supports func(ops.Call, backends.Verdict) backends.Verdict
	op       func(ops.Op) ops.Op                            // computes another operation
	in       func(d *double, op ops.Op, in []tensor.Tensor) // looks at or replaces operands before
	out      func(d *double, op ops.Op, out, in []tensor.Tensor, old []tensor.Tensor)
	compute  func(op ops.Op, out, in []tensor.Tensor) error // instead of the reference
	program  func(*program)
	deaf     bool // to the context
}

func (d *double) Name() string { return "double" }
func (d *double) Describe() backends.Description {
	return backends.Description{Name: "double", Device: "references"}
}
func (d *double) Stats() backends.Stats { return backends.Stats{} }
func (d *double) Close() error          { return nil }
func (d *double) MatMul() matmul.Engine { return noEngine{} }

type noEngine struct{ matmul.Engine }

func (noEngine) Supports(matmul.Spec, matmul.Shape) error { return errors.ErrUnsupported }

func (d *double) Supports(c ops.Call) backends.Verdict {
	v := backends.Yes("reference")
	if _, err := c.Op.Infer(c.In); err != nil {
		v = backends.No("%v", err)
	}
	if d.bug.supports != nil {
		v = d.bug.supports(c, v)
	}
	return v
}

func (d *double) Compile(_ context.Context, p *ops.Part) (backends.Program, error) {
	return &program{d: d, part: p}, nil
}

type program struct {
	d     *double
	part  *ops.Part
	first []tensor.Tensor // the frame of the first run, for a program that keeps it
	keep  bool
}

func (p *program) Close() error { return nil }

func (p *program) Run(ctx context.Context, frame []tensor.Tensor, first, last int) error {
	b := &p.d.bug
	if b.program != nil {
		b.program(p)
	}
	if p.keep {
		if p.first == nil {
			p.first = slices.Clone(frame)
		}
		frame = p.first
	}
	for i := first; i < last; i++ {
		if err := ctx.Err(); err != nil && !b.deaf {
			return err
		}
		n := &p.part.Nodes[i]
		in, out := make([]tensor.Tensor, len(n.In)), make([]tensor.Tensor, len(n.Out))
		for j, v := range n.In {
			if v >= 0 {
				in[j] = frame[v]
			}
		}
		for j, v := range n.Out {
			out[j] = frame[v]
		}
		op := n.Op
		if b.op != nil {
			op = b.op(op)
		}
		if b.in != nil {
			b.in(p.d, op, in)
		}
		var old []tensor.Tensor
		if b.out != nil {
			for j := range out {
				old = append(old, out[j].Clone())
			}
		}
		compute := op.Reference
		if b.compute != nil {
			compute = func(out, in []tensor.Tensor) error { return b.compute(op, out, in) }
		}
		if err := compute(out, in); err != nil {
			return err
		}
		if b.out != nil {
			b.out(p.d, op, out, in, old)
		}
	}
	return nil
}

// at returns byte i from the first of a tensor's memory.
func at(t *tensor.Tensor, i int) *byte { return &t.Buf.Bytes()[t.Off+i] }

func editFloats(t *tensor.Tensor, f func(v []float64)) {
	if t.DType.IsFloat() {
		v := t.Floats()
		f(v)
		t.SetFloats(v)
	}
}

// bugs are the planted ones, each of a kind that has been found in the field.
var bugs = []bug{
	{name: "operands are read as if contiguous", only: []string{"add"}, in: func(_ *double, _ ops.Op, in []tensor.Tensor) {
		for i := range in {
			s := in[i]
			s.Strides = s.Contiguous()
			if s.Off+s.Extent() <= len(s.Buf.Bytes()) {
				in[i] = s
			}
		}
	}},
	{name: "results are written as if contiguous", only: []string{"neg"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		s := out[0]
		s.Strides = s.Contiguous()
		return op.Reference([]tensor.Tensor{s}, in)
	}},
	{name: "the tail of a row is forgotten", only: []string{"mul"}, out: func(_ *double, _ ops.Op, out, _, old []tensor.Tensor) {
		if n := out[0].Elems(); n%8 != 0 {
			was := old[0].Floats()
			editFloats(&out[0], func(v []float64) { v[n-1] = was[n-1] })
		}
	}},
	{name: "the tail of K is forgotten", only: []string{"matmul"}, in: func(_ *double, op ops.Op, in []tensor.Tensor) {
		if _, ok := op.(matmul.Op); ok && in[0].Dim(-1)%16 != 0 && in[0].Dim(-1) > 16 && in[0].DType.IsFloat() {
			in[0] = in[0].Clone()
			k := in[0].Dim(-1)
			editFloats(&in[0], func(v []float64) {
				for i := range v {
					if i%k >= k/16*16 {
						v[i] = 0
					}
				}
			})
		}
	}},
	{name: "zero times NaN is zero", only: []string{"matmul"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		b := in[1]
		if !b.DType.IsBlock() && b.DType.IsFloat() {
			b = b.Clone()
			editFloats(&b, func(v []float64) {
				for i, x := range v {
					if math.IsNaN(x) || math.IsInf(x, 0) {
						v[i] = 0
					}
				}
			})
		}
		return op.Reference(out, append([]tensor.Tensor{in[0], b}, in[2:]...))
	}},
	{name: "NaN leaks from keys that are not visible", only: []string{"sdpa"}, out: func(_ *double, op ops.Op, out, in, _ []tensor.Tensor) {
		for _, x := range in[1].Floats() {
			if math.IsNaN(x) {
				editFloats(&out[0], func(v []float64) { v[0] = math.NaN() })
				return
			}
		}
	}},
	{name: "a byte is written behind the result", only: []string{"add"}, out: func(_ *double, _ ops.Op, out, _, _ []tensor.Tensor) {
		if out[0].Elems() > 0 {
			*at(&out[0], out[0].Extent())++
		}
	}},
	{name: "a byte is written before the result", only: []string{"add"}, out: func(_ *double, _ ops.Op, out, _, _ []tensor.Tensor) {
		if out[0].Elems() > 0 {
			*at(&out[0], -1)++
		}
	}},
	{name: "gaps of a strided result are written", only: []string{"sub"}, out: func(_ *double, _ ops.Op, out, _, _ []tensor.Tensor) {
		if s := out[0].Strides; out[0].Rank == 2 && s[0] > out[0].Dims[1] && out[0].Dims[0] > 1 && s[1] == 1 {
			*at(&out[0], out[0].Dims[1]*out[0].DType.Size())++
		}
	}},
	{name: "an operand is changed", only: []string{"rms_norm"}, out: func(_ *double, _ ops.Op, out, in, _ []tensor.Tensor) {
		if in[0].Elems() > 1 && !out[0].Overlaps(in[0]) {
			*at(&in[0], 0)++
		}
	}},
	{name: "broadcasting repeats the flat operand", only: []string{"add"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		bin, ok := op.(elementwise.Binary)
		if !ok || !out[0].DType.IsFloat() || in[0].Elems() == 0 || in[1].Elems() == 0 {
			return op.Reference(out, in)
		}
		x, y, z := in[0].Floats(), in[1].Floats(), make([]float64, out[0].Elems())
		for i := range z {
			z[i] = bin.F.Apply(x[i%len(x)], y[i%len(y)])
		}
		out[0].SetFloats(z)
		return nil
	}},
	{name: "the bias is forgotten", only: []string{"matmul"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		if m, ok := op.(matmul.Op); ok && m.Epilogue.Bias {
			_, _, bias, _, _ := m.Operands()
			in = slices.Clone(in)
			in[bias] = tensor.New(tensor.F32, in[bias].Shape()...)
		}
		return op.Reference(out, in)
	}},
	{name: "the activation comes after the residual", only: []string{"matmul"}, op: func(op ops.Op) ops.Op {
		if m, ok := op.(matmul.Op); ok && m.Epilogue.Residual == matmul.ResidualAfter {
			m.Epilogue.Residual = matmul.ResidualBefore
			return m
		}
		return op
	}},
	{name: "products are added to what was there", only: []string{"matmul"}, out: func(_ *double, _ ops.Op, out, _, old []tensor.Tensor) {
		was := old[0]
		if out[0].DType.IsFloat() && out[0].Elems() > 0 {
			w := was.Floats()
			editFloats(&out[0], func(v []float64) {
				for i := range v {
					v[i] += w[i]
				}
			})
		}
	}},
	{name: "pairs of 8-bit products are clipped to 16 bits", only: []string{"matmul"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		m, ok := op.(matmul.Op)
		if !ok || in[0].DType.Size() != 1 || in[0].Rank != 2 || out[0].DType != tensor.I32 {
			return op.Reference(out, in)
		}
		b := in[1]
		if m.TransB {
			b, _ = b.Transpose(0, 1)
		}
		a, w, k, n := in[0].Ints(), b.Ints(), in[0].Dim(-1), out[0].Dim(-1)
		c := make([]int64, out[0].Elems())
		for i := range c {
			for l := 0; l < k; l += 2 {
				pair := a[i/n*k+l] * w[l*n+i%n]
				if l+1 < k {
					pair += a[i/n*k+l+1] * w[(l+1)*n+i%n]
				}
				c[i] += min(max(pair, math.MinInt16), math.MaxInt16)
			}
		}
		out[0].SetInts(c)
		return nil
	}},
	{name: "bf16 results are cut off instead of rounded", only: []string{"cast"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		if out[0].DType != tensor.BF16 || in[0].DType != tensor.F32 {
			return op.Reference(out, in)
		}
		v := in[0].Floats()
		for i, x := range v {
			bits := math.Float32bits(float32(x)) >> 16 << 16
			if x == x {
				v[i] = float64(math.Float32frombits(bits))
			}
		}
		out[0].SetFloats(v)
		return nil
	}},
	{name: "bf16 products are cut off instead of rounded", only: []string{"matmul"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		m, ok := op.(matmul.Op)
		if !ok || m.Out != tensor.BF16 {
			return op.Reference(out, in)
		}
		m.Out = tensor.F32
		wide := tensor.New(tensor.F32, out[0].Shape()...)
		if err := m.Reference([]tensor.Tensor{wide}, in); err != nil {
			return err
		}
		editFloats(&wide, func(v []float64) {
			for i, x := range v {
				v[i] = float64(math.Float32frombits(math.Float32bits(float32(x)) >> 16 << 16))
			}
		})
		return tensor.Copy(out[0], wide)
	}},
	{name: "a mask is ignored", only: []string{"softmax"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		return op.Reference(out, in[:1])
	}},
	{name: "a fully masked row is NaN", only: []string{"softmax"}, out: func(_ *double, _ ops.Op, out, _, _ []tensor.Tensor) {
		n := out[0].Dim(-1)
		editFloats(&out[0], func(v []float64) {
			for i := 0; i+n <= len(v); i += n {
				sum := 0.0
				for _, x := range v[i : i+n] {
					sum += x
				}
				if sum == 0 {
					v[i] = math.NaN()
				}
			}
		})
	}},
	{name: "positions are off by one", only: []string{"sdpa"}, op: func(op ops.Op) ops.Op { return op }, in: func(_ *double, _ ops.Op, in []tensor.Tensor) {
		if len(in) > 4 && in[4].Valid() {
			p := in[4].Clone()
			v := p.Ints()
			for i := range v {
				v[i]++
			}
			p.SetInts(v)
			in[4] = p
		}
	}},
	{name: "query heads use the wrong key head", only: []string{"sdpa"}, in: func(_ *double, _ ops.Op, in []tensor.Tensor) {
		if g := in[1].Dim(-3); g == 2 {
			for i := 1; i < 3; i++ {
				x := in[i].Clone()
				axis := int(x.Rank) - 3
				a, _ := in[i].Slice(axis, 0, 1, 1)
				b, _ := in[i].Slice(axis, 1, 2, 1)
				x0, _ := x.Slice(axis, 0, 1, 1)
				x1, _ := x.Slice(axis, 1, 2, 1)
				_ = tensor.Copy(x0, b)
				_ = tensor.Copy(x1, a)
				in[i] = x
			}
		}
	}},
	{name: "rotary pairs are neighbours where halves are asked for", only: []string{"rope"}, op: func(op ops.Op) ops.Op {
		if r, ok := op.(attention.RoPE); ok {
			r.Half = false
			return r
		}
		return op
	}},
	{name: "the first of equal ids wins", only: []string{"set_rows"}, in: func(_ *double, op ops.Op, in []tensor.Tensor) {
		ids := in[2].Ints()
		if s, ok := op.(shape.SetRows); ok && s.Axis == 0 && len(ids) == 4 && ids[0] == ids[3] {
			x := in[1].Clone()
			first, _ := x.Slice(0, 0, 1, 1)
			last, _ := x.Slice(0, 3, 4, 1)
			_ = tensor.Copy(last, first)
			in[1] = x
		}
	}},
	{name: "an empty tensor panics", only: []string{"exp"}, in: func(_ *double, _ ops.Op, in []tensor.Tensor) {
		_ = in[0].Raw()[0]
	}},
	{name: "work in place clears the operand first", only: []string{"softmax"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		if out[0].Elems() > 0 && out[0].Ptr() == in[0].Ptr() {
			editFloats(&out[0], func(v []float64) { clear(v) })
		}
		return op.Reference(out, in)
	}},
	{name: "constants of one shape are taken for each other", whole: []string{"constants"}, in: func(d *double, op ops.Op, in []tensor.Tensor) {
		if _, ok := op.(matmul.Op); !ok {
			return
		}
		if first, ok := d.constants[in[1].Spec]; ok {
			in[1] = first
			return
		}
		d.constants[in[1].Spec] = in[1].Clone()
	}},
	{name: "a program keeps the memory of its first run", whole: []string{"programs"}, program: func(p *program) { p.keep = true }},
	{name: "the context is ignored", whole: []string{"cancellation"}, deaf: true},
	{name: "results depend on the number of processors", whole: []string{"determinism"}, out: func(_ *double, op ops.Op, out, _, _ []tensor.Tensor) {
		if _, ok := op.(matmul.Op); ok && out[0].Elems() > 0 {
			editFloats(&out[0], func(v []float64) { v[0] *= 1 + 3e-7*float64(runtime.GOMAXPROCS(0)) })
		}
	}},
	{name: "programs share scratch memory", whole: []string{"concurrency"}, out: func(d *double, op ops.Op, out, _, _ []tensor.Tensor) {
		if _, ok := op.(matmul.Op); !ok || !out[0].IsContiguous() {
			return
		}
		raw := out[0].Raw()
		if len(raw) > len(d.scratch) {
			return
		}
		copy(d.scratch, raw)
		for range 20 {
			runtime.Gosched()
		}
		copy(raw, d.scratch)
	}},
	{name: "a refusal has no reason", only: []string{"abs"}, supports: func(c ops.Call, v backends.Verdict) backends.Verdict {
		if c.In[0].DType == tensor.I8 {
			return backends.Verdict{}
		}
		return v
	}},
	{name: "operands are rounded to bfloat16 and nothing is said", only: []string{"matmul"}, in: roundOperands},
	{name: "operands share a scale where each is claimed to have its own", only: []string{"matmul"}, supports: func(c ops.Call, v backends.Verdict) backends.Verdict {
		v.Accuracy = backends.Accuracy{Operand: 1.0 / 256}
		return v
	}, in: shareScale},
	{name: "a claim leaves nothing", only: []string{"matmul"}, supports: func(_ ops.Call, v backends.Verdict) backends.Verdict {
		v.Accuracy = backends.Accuracy{Operand: 0.9}
		return v
	}},
	{name: "an infinity spoils what shares its scale", only: []string{"matmul"}, compute: func(op ops.Op, out, in []tensor.Tensor) error {
		a := in[0]
		if _, ok := op.(matmul.Op); ok && a.DType.IsFloat() {
			a = a.Clone()
			editFloats(&a, func(v []float64) {
				for i, x := range v {
					if math.IsInf(x, 0) {
						v[i] = math.NaN()
					}
				}
			})
		}
		return op.Reference(out, append([]tensor.Tensor{a}, in[1:]...))
	}},
	{name: "everything is claimed", whole: []string{"refusal"}, supports: func(ops.Call, backends.Verdict) backends.Verdict {
		return backends.Yes("of course")
	}},
	{name: "runs fail", only: []string{"sign"}, compute: func(ops.Op, []tensor.Tensor, []tensor.Tensor) error { return errors.New("out of order") }},
}

func roundOperands(_ *double, op ops.Op, in []tensor.Tensor) {
	if _, ok := op.(matmul.Op); ok && in[0].DType == tensor.F32 {
		in[0] = in[0].Clone()
		editFloats(&in[0], func(v []float64) {
			for i, x := range v {
				v[i] = float64(tensor.BF16ToF32(tensor.F32ToBF16(float32(x))))
			}
		})
	}
}

// shareScale keeps 8 bits of each element of a row, at the scale of its largest.
func shareScale(_ *double, op ops.Op, in []tensor.Tensor) {
	if _, ok := op.(matmul.Op); !ok || in[0].DType != tensor.F32 {
		return
	}
	in[0] = in[0].Clone()
	k := in[0].Dim(-1)
	editFloats(&in[0], func(v []float64) {
		for ; k > 0 && len(v) >= k; v = v[k:] {
			most := 0.0
			for _, x := range v[:k] {
				most = max(most, math.Abs(x))
			}
			for i, x := range v[:k] {
				if y := math.RoundToEven(x*127/most) * most / 127; !math.IsNaN(y) && !math.IsInf(y, 0) && !math.IsInf(most, 0) {
					v[i] = y
				}
			}
		}
	})
}

// TestClaimsAreAllowances: what a backend says about its number format is allowed to it.
func TestClaimsAreAllowances(t *testing.T) {
	for _, c := range []struct {
		claim backends.Accuracy
		in    func(*double, ops.Op, []tensor.Tensor)
	}{{backends.Accuracy{Operand: 1.0 / 256}, roundOperands}, {backends.Accuracy{Operand: 0.5 / 127, Shared: -1}, shareScale}} {
		r := check(bug{only: []string{"matmul"}, in: c.in, supports: func(call ops.Call, v backends.Verdict) backends.Verdict {
			if v.OK && call.In[0].DType == tensor.F32 {
				v.Accuracy = c.claim
			}
			return v
		}})
		require.Empty(t, r.Failures)
	}
}

func check(b bug) *backendtest.Report {
	d := &double{bug: b, constants: map[tensor.Spec]tensor.Tensor{}, scratch: make([]byte, 1<<16)}
	return backendtest.Check(func() backends.Backend { return d }, backendtest.Options{Only: append([]string{}, b.only...), Whole: append([]string{}, b.whole...)})
}

// TestPlantedBugsAreFound: the suite fails each time, and says something about it.
func TestPlantedBugsAreFound(t *testing.T) {
	require.GreaterOrEqual(t, len(bugs), 10)
	for _, b := range bugs {
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			r := check(b)
			require.NotEmpty(t, r.Failures)
			t.Log(r.Failures[0])
		})
	}
}

// TestHealthyDoublePasses: without a bug the double passes everything that bugs are looked for in.
func TestHealthyDoublePasses(t *testing.T) {
	var only, whole []string
	for _, b := range bugs {
		only, whole = append(only, b.only...), append(whole, b.whole...)
	}
	r := check(bug{only: only, whole: append(whole, "description")})
	require.Empty(t, r.Failures, fmt.Sprint(len(r.Failures), " failures"))
	require.NotEmpty(t, r.Lines)
	for _, l := range r.Lines {
		require.Positive(t, l.Cases, l.Op)
	}
	require.Contains(t, only, "matmul")
	require.Contains(t, whole, "concurrency")
}

// TestReportSaysWhatIsRefused: a refused type is a line with its reason.
func TestReportSaysWhatIsRefused(t *testing.T) {
	r := check(bug{only: []string{"abs"}, supports: func(c ops.Call, v backends.Verdict) backends.Verdict {
		if c.In[0].DType != tensor.F32 {
			return backends.No("floats of 32 bits only")
		}
		return v
	}})
	require.Empty(t, r.Failures)
	refused := 0
	for _, l := range r.Lines {
		if l.Refused > 0 {
			require.Equal(t, "floats of 32 bits only", l.Reason)
			refused++
		}
	}
	require.Greater(t, refused, 5)
}
