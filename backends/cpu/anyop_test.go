package cpu_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/image"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

var everyOp = []ops.Op{shape.Contiguous{}, shape.Concat{}, shape.Split{}, shape.Pad{}, shape.Tile{}, shape.Reshape{}, shape.Permute{}, shape.Slice{}, shape.Broadcast{},
	shape.Squeeze{}, shape.Unsqueeze{}, shape.GetRows{}, shape.SetRows{}, shape.Gather{}, attention.SDPA{}, attention.Softmax{}, attention.RoPE{}, image.Resize{},
	norm.RMS{}, norm.Layer{}, norm.L2{}, norm.Group{}, norm.Batch{}, conv.Pool{}, conv.Conv{}, conv.Transposed{}, matmul.Op{}, reduce.Reduce{}, reduce.Arg{}, reduce.TopK{},
	reduce.CumSum{}, elementwise.Binary{}, elementwise.Where{}, elementwise.Clamp{}, elementwise.Cast{}, elementwise.GLU{}, elementwise.Unary{}, elementwise.Activate{}, elementwise.Scale{}}

// anything makes attributes, specs and contents at random; wild ones are at the ends of their types.
type anything struct {
	*rand.Rand
	wild bool
}

func pick[T any](g *anything, of ...T) T { return of[g.IntN(len(of))] }

func (g *anything) number() int {
	if g.wild && g.IntN(6) == 0 {
		return pick(g, math.MaxInt, math.MinInt, math.MaxInt-1, math.MaxInt32, math.MinInt32, math.MaxInt/2+1, -1, 1<<20)
	}
	return pick(g, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 16, 17, 32, -1, -1, -2, -3)
}

func (g *anything) numbers(rank int) []int {
	if g.IntN(4) == 0 {
		rank = g.IntN(tensor.MaxRank + 1)
	}
	if g.IntN(3) == 0 {
		return g.Perm(rank)
	}
	l := make([]int, rank)
	for i := range l {
		l[i] = g.number()
	}
	return l
}

// attributes sets the fields of an op.
func (g *anything) attributes(v reflect.Value, rank int) {
	switch x := v.Addr().Interface().(type) {
	case *ops.Ints:
		*x = ops.MakeInts(g.numbers(rank)...)
		return
	case *ops.SizeList:
		*x = ops.ConstSizes(g.numbers(rank)...)
		return
	case *ops.Size:
		*x = ops.Const(g.number())
		return
	case *tensor.DType:
		*x = pick(g, tensor.Invalid, tensor.Invalid, tensor.DType(g.IntN(16)), tensor.DType(g.IntN(256)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && g.IntN(3) > 0 {
				g.attributes(v.Field(i), rank)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			if g.IntN(3) > 0 {
				g.attributes(v.Index(i), rank)
			}
		}
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.Uint8:
		n := pick(g, g.IntN(4), g.IntN(48))
		if g.wild {
			n = pick(g, n, g.IntN(256))
		}
		v.SetUint(uint64(n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(pick(g, 0, 1, 1, 1, 0.5, 2, -1, 3, 1e-5, math.NaN(), math.Inf(1), math.Inf(-1), 1e30, -1e30, 1e-40, 0.25, math.Copysign(0, -1), 1e300, 127, 300.5))
	default:
		v.SetInt(int64(g.number()))
	}
}

func (g *anything) spec() tensor.Spec {
	s := tensor.Spec{Rank: uint8(pick(g, 0, 1, 2, 3, 4, g.IntN(tensor.MaxRank+1))), DType: pick(g, tensor.F32, tensor.F32, tensor.F32, tensor.F32, tensor.F16, tensor.BF16,
		tensor.F64, tensor.I8, tensor.U8, tensor.I32, tensor.I64, tensor.Bool, tensor.U64, tensor.I16, tensor.U32, tensor.Q8_0, tensor.Q4_K)}
	for i := range int(s.Rank) {
		s.Dims[i] = pick(g, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 16, 17, 32, 33)
	}
	if b := s.DType.Block(); b > 1 {
		s.Rank = max(s.Rank, 1)
		s.Dims[s.Rank-1] = b * g.IntN(3)
	}
	return s
}

// inputs makes specs that have something to do with one another.
func (g *anything) inputs(op ops.Op) []tensor.Spec {
	n := 1 + g.IntN(3)
	switch op.(type) {
	case matmul.Op, conv.Conv, conv.Transposed:
		n = 2 + g.IntN(4)
	case norm.Batch:
		n = 5
	case attention.SDPA:
		n = 3 + g.IntN(3)
	case elementwise.Where, shape.SetRows:
		n = 3
	}
	in := []tensor.Spec{g.spec()}
	for len(in) < n {
		s := in[g.IntN(len(in))]
		rank := int(s.Rank)
		switch g.IntN(8) {
		case 0, 1:
		case 2:
			s = g.spec()
		case 3:
			s.DType = pick(g, tensor.F32, tensor.I32, tensor.I64, tensor.Bool, tensor.F16, tensor.I8, tensor.U8)
		default:
			if rank == 0 {
				break
			}
			i, j := g.IntN(rank), g.IntN(rank)
			switch g.IntN(4) {
			case 0:
				s = tensor.MakeSpec(s.DType, s.Dims[i])
			case 1:
				s.Dims[i], s.Dims[j] = s.Dims[j], s.Dims[i]
			case 2:
				s.Dims[i] = 1 + g.IntN(5)
			case 3:
				s = tensor.MakeSpec(s.DType, s.Shape()[:rank-1]...)
			}
		}
		if s.Check() != nil {
			s = in[0]
		}
		if g.IntN(20) == 0 {
			s = tensor.Spec{}
		}
		in = append(in, s)
	}
	return in
}

func (g *anything) tensor(s tensor.Spec, indices int) tensor.Tensor {
	t := tensor.New(s.DType, s.Shape()...)
	if s.DType.IsBlock() {
		for i, raw := 0, t.Raw(); i < len(raw); i++ {
			raw[i] = byte(g.Uint32())
		}
		return t
	}
	v := make([]float64, s.Elems())
	for i := range v {
		v[i] = float64(g.IntN(200)-100) / 16
		switch {
		case s.DType.IsInt():
			v[i] = pick(g, float64(g.IntN(indices+1)), float64(g.IntN(indices+1)), float64(g.IntN(10)-3))
		case g.IntN(24) == 0:
			v[i] = pick(g, math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 1e-40, 1e38, 3e9, 1e19)
		}
	}
	t.SetFloats(v)
	return t
}

// TestAnyAttributes: whatever the attributes of an op and the specs of its inputs are, the shape rule refuses or gives specs that are possible, and then the
// reference and the backend compute without a panic, and agree on whether there is an error.
func TestAnyAttributes(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	n := uint64(120_000)
	if testing.Short() {
		n = 12_000
	}
	computed := map[reflect.Type]int{}
	for seed := range n {
		g := &anything{rand.New(rand.NewPCG(seed, 1)), seed%3 == 0}
		v := reflect.New(reflect.TypeOf(everyOp[seed%uint64(len(everyOp))])).Elem()
		in := g.inputs(v.Interface().(ops.Op))
		g.attributes(v, int(in[0].Rank))
		op := v.Interface().(ops.Op)
		if anyOp(t, g, b, op, in) {
			computed[v.Type()]++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %T%+v on %v", seed, op, op, in)
		}
	}
	require.Greater(t, len(computed), len(everyOp)*3/4, "%v", computed)
}

func anyOp(t *testing.T, g *anything, b backends.Backend, op ops.Op, in []tensor.Spec) (computed bool) {
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	out, err := op.Infer(in)
	if err != nil {
		return false
	}
	work := 0.0
	for _, s := range append(append([]tensor.Spec{}, in...), out...) {
		elems := 1.0
		for _, d := range s.Shape() {
			if d > 1<<16 { // may be beside an empty dimension
				return false
			}
			elems *= float64(d)
		}
		work += elems
	}
	for _, s := range out {
		if err := s.Check(); err != nil {
			t.Errorf("an impossible output: %v", err)
		}
	}
	if f, ok := op.(ops.Flopper); ok {
		work = max(work, f.Flops(in)/100)
	}
	if !(work < 1<<12) {
		return false
	}
	given, own, want := make([]tensor.Tensor, len(in)), make([]tensor.Tensor, len(in)), make([]tensor.Tensor, len(out))
	for i, s := range in {
		if s.DType != tensor.Invalid {
			given[i] = g.tensor(s, max(in[0].Dims[0], 1))
			own[i] = given[i].Clone() // which an op may change
		}
	}
	for i, s := range out {
		want[i] = tensor.New(s.DType, s.Shape()...)
	}
	errWant := op.Reference(want, own)
	_, updates := op.(ops.Updater)
	_, err = onBackend(b, op, given, g.IntN(2) == 0 && !updates)
	if (err == nil) != (errWant == nil) {
		t.Errorf("the reference says %v, the backend %v", errWant, err)
	}
	return true
}

// onBackend runs an op on a backend, all inputs but the first being constants or not.
func onBackend(b backends.Backend, op ops.Op, in []tensor.Tensor, constants bool) ([]tensor.Tensor, error) {
	g := graph.New("g")
	defer g.Close()
	values := make([]graph.Value, len(in))
	for i, t := range in {
		if !t.Valid() {
			continue
		}
		if name := fmt.Sprint(i); constants && i > 0 {
			values[i] = g.Constant(name, t)
		} else {
			var dims []ops.Size
			for _, d := range t.Shape() {
				dims = append(dims, ops.Const(d))
			}
			values[i] = g.Input(name, t.DType, dims...)
		}
	}
	outs := g.ApplyAll("op", op, values...)
	for i, o := range outs {
		g.Output(fmt.Sprint(i), o)
	}
	x, err := g.Compile(context.Background(), graph.Options{Backends: []backends.Backend{b}})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	for i, t := range in {
		if t.Valid() && !(constants && i > 0) {
			if err := x.Bind(values[i], t); err != nil {
				return nil, err
			}
		}
	}
	if err := x.Run(context.Background()); err != nil {
		return nil, err
	}
	results := make([]tensor.Tensor, len(outs))
	for i, o := range outs {
		r := x.Output(o)
		results[i] = r.Clone()
	}
	return results, nil
}

// TestRowsNearZero: a row is normalized by its length where squares of its elements are no float32 any more.
func TestRowsNearZero(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	w := tensor.Of([]float32{1, -2, 0.5, 3, 1, 1, 1, 1, 2}, 9)
	for _, scale := range []float64{1e-18, 1e-22, 1e-25, 1e-30, 1e-38, 1e-40} {
		x := tensor.New(tensor.F32, 2, 9)
		x.SetFloats([]float64{3 * scale, 0, 4 * scale, -scale, scale, 0, 0, 2 * scale, 7 * scale, 0, 0, 0, 0, 0, 0, 0, -scale, 0})
		for _, c := range []struct {
			op ops.Op
			in []tensor.Tensor
		}{{norm.L2{}, []tensor.Tensor{x}}, {norm.RMS{}, []tensor.Tensor{x}}, {norm.RMS{}, []tensor.Tensor{x, w}}, {norm.Layer{}, []tensor.Tensor{x, w, w}}, {norm.Layer{}, []tensor.Tensor{x}}} {
			want := tensor.New(tensor.F32, 2, 9)
			require.NoError(t, c.op.Reference([]tensor.Tensor{want}, c.in))
			got, err := onBackend(b, c.op, c.in, false)
			require.NoError(t, err)
			tol := 1e-5
			if scale < 1e-37 { // elements are subnormal
				tol = 1e-3
			}
			require.InDeltaSlice(t, want.Floats(), got[0].Floats(), tol, "%T of about %g", c.op, scale)
		}
	}
}

// TestChannelsNearZero: without an epsilon the factor of a group, or of a channel, may be more than float32 holds; what it scales is not.
func TestChannelsNearZero(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	w, bias := tensor.Of([]float32{1, -2, 1e20}, 3), tensor.Of([]float32{0, 1, -3}, 3)
	for _, scale := range []float64{1e-18, 1e-25, 1e-37, 1e-39, 1e-40} {
		x := tensor.New(tensor.F32, 2, 3, 3)
		x.SetFloats([]float64{3 * scale, 0, 4 * scale, -scale, scale, 0, 0, 2 * scale, 7 * scale, scale, 0, 0, 0, scale, 0, 0, -scale, 0})
		mean, variance := tensor.New(tensor.F32, 3), tensor.New(tensor.F32, 3)
		mean.SetFloats([]float64{scale, 0, -scale})
		variance.SetFloats([]float64{1, scale, 4 * scale})
		for _, c := range []struct {
			op ops.Op
			in []tensor.Tensor
		}{{norm.Group{Groups: 1}, []tensor.Tensor{x}}, {norm.Group{Groups: 3}, []tensor.Tensor{x}}, {norm.Group{Groups: 3}, []tensor.Tensor{x, w, bias}}, {norm.Batch{}, []tensor.Tensor{x, w, bias, mean, variance}}} {
			want := tensor.New(tensor.F32, 2, 3, 3)
			require.NoError(t, c.op.Reference([]tensor.Tensor{want}, c.in))
			got, err := onBackend(b, c.op, c.in, false)
			require.NoError(t, err)
			for i, v := range want.Floats() {
				tol := 1e-5
				if scale < 1e-37 { // elements are subnormal
					tol = 1e-3
				}
				require.InDelta(t, v, got[0].Floats()[i], tol*max(1, math.Abs(v)), "%T of about %g, element %d", c.op, scale, i)
			}
		}
	}
}

// TestScoresBeyondFloat32: a row of finite numbers has a softmax, although its scale, or a mask, takes the scores out of float32's range.
func TestScoresBeyondFloat32(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	inf := float32(math.Inf(-1))
	x := tensor.Of([]float32{3e30, 1, -2e30, 3e30, -1e30, -1e30, -3e30, -2e30, 0.25, 0, 0.5, 1}, 3, 4)
	added := tensor.Of([]float32{inf, 0, 3e38, 0, 0, 0, 0, 0, inf, inf, inf, inf}, 3, 4)
	huge := tensor.Of([]float32{3e38, 3e38, 0, 1, -3e38, -3e38, -3e38, -3e38, 1, 2, 3, 4}, 3, 4)
	chosen := tensor.Of([]bool{false, true, true, true, false, true, true, true, false, false, false, false}, 3, 4)
	for _, in := range [][]tensor.Tensor{{x}, {x, added}, {x, chosen}, {huge, huge}} {
		for _, scale := range []float32{0, 1, 1e9, -1e9, 3e38} {
			for _, log := range []bool{false, true} {
				for _, axis := range []int{0, -1} {
					op := attention.Softmax{Axis: axis, Scale: scale, Log: log}
					want := tensor.New(tensor.F32, 3, 4)
					require.NoError(t, op.Reference([]tensor.Tensor{want}, in))
					got, err := onBackend(b, op, in, false)
					require.NoError(t, err)
					for i, v := range want.Floats() {
						g := got[0].Floats()[i]
						if v == g { // infinities of the logarithm too
							continue
						}
						require.InDelta(t, v, g, 1e-6*max(1, math.Abs(v)), "%+v of %v, element %d", op, in, i)
					}
				}
			}
		}
	}
}

// TestQueryBeyondFloat32: a query whose scores do not fit float32 leaves the others alone.
func TestQueryBeyondFloat32(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	const m, n, d = 7, 33, 8
	rng := rand.New(rand.NewPCG(5, 6))
	q, k, v := tensor.New(tensor.F32, 2, m, d), tensor.New(tensor.F32, 2, n, d), tensor.New(tensor.F32, 2, n, d)
	for _, x := range []tensor.Tensor{q, k, v} {
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = float32(rng.NormFloat64())
		}
	}
	for _, bad := range []int{0, 3, m - 1} {
		broken := q.Clone()
		for i := range d {
			tensor.Data[float32](broken)[bad*d+i] *= 1e38 // of head 0
		}
		for _, op := range []attention.SDPA{{}, {Scale: 4}, {Causal: true}} {
			want := tensor.New(tensor.F32, 2, m, d)
			require.NoError(t, op.Reference([]tensor.Tensor{want}, []tensor.Tensor{q, k, v}))
			got, err := onBackend(b, op, []tensor.Tensor{broken, k, v}, false)
			require.NoError(t, err)
			for row := range 2 * m {
				if row != bad {
					require.InDeltaSlice(t, want.Floats()[row*d:][:d], got[0].Floats()[row*d:][:d], 1e-5, "%+v, query %d beyond, query %d", op, bad, row)
				}
			}
		}
	}
}

// TestNoProducts: of a batch of none nothing is computed, whatever the type.
func TestNoProducts(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.I8, tensor.I16, tensor.F64} {
		for _, dims := range [][]int{{0, 2, 2}, {4, 0, 2, 2}, {2, 0, 2}, {2, 2, 0}, {0, 0, 0}} {
			for _, constants := range []bool{false, true} {
				x := tensor.New(d, dims...)
				got, err := onBackend(b, matmul.Op{TransB: true}, []tensor.Tensor{x, x}, constants)
				require.NoError(t, err, "%v %v", d, dims)
				require.Equal(t, make([]float64, got[0].Elems()), got[0].Floats())
			}
		}
	}
}
