package gorgonia

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	gt "gorgonia.org/tensor"

	"github.com/tessera-go/tessera/tensor"
)

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.IntN(17) - 8)
	}
	return x
}

func dense(x []float32, dims ...int) *gt.Dense {
	return gt.New(gt.WithShape(dims...), gt.WithBacking(x), gt.WithEngine(Engine{}))
}

func TestMemoryIsShared(t *testing.T) {
	x := []float32{1, 2, 3, 4, 5, 6}
	d := dense(x, 2, 3)
	v, err := From(d)
	require.NoError(t, err)
	require.Equal(t, "f32[2 3]", v.Spec.String())
	tensor.Data[float32](v)[4] = 50
	require.Equal(t, float32(50), x[4])
	back, err := To(v)
	require.NoError(t, err)
	back.Set(0, float32(-1))
	require.Equal(t, float32(-1), x[0])
	require.IsType(t, Engine{}, back.Engine())
}

func TestViewsCross(t *testing.T) {
	x := make([]float32, 12)
	for i := range x {
		x[i] = float32(i)
	}
	d := dense(x, 3, 4)
	columns, err := d.Slice(nil, gt.S(1, 3))
	require.NoError(t, err)
	v, err := From(columns.(*gt.Dense))
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 5, 6, 9, 10}, v.Floats())
	require.NoError(t, d.T())
	v, err = From(d)
	require.NoError(t, err)
	require.Equal(t, []int{4, 3}, v.Shape())
	require.Equal(t, []float64{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, v.Floats())

	// The other way: a strided view of ours keeps its strides there.
	ours := tensor.Of(x, 3, 4)
	part, err := ours.Slice(1, 1, 3, 1)
	require.NoError(t, err)
	theirs, err := To(part)
	require.NoError(t, err)
	require.Equal(t, gt.Shape{3, 2}, theirs.Shape())
	for i := range 3 {
		for j := range 2 {
			got, err := theirs.At(i, j)
			require.NoError(t, err)
			require.Equal(t, x[i*4+j+1], got)
		}
	}
}

func TestAllTypesCross(t *testing.T) {
	for _, backing := range []any{[]float32{1, 2}, []float64{1, 2}, []int8{1, 2}, []uint8{1, 2}, []int16{1, 2}, []uint16{1, 2}, []int32{1, 2}, []uint32{1, 2},
		[]int64{1, 2}, []uint64{1, 2}} {
		d := gt.New(gt.WithShape(2), gt.WithBacking(backing))
		v, err := From(d)
		require.NoError(t, err)
		require.Equal(t, []float64{1, 2}, v.Floats())
		back, err := To(v)
		require.NoError(t, err)
		require.Equal(t, backing, back.Data())
	}
	_, err := From(gt.New(gt.WithShape(1), gt.WithBacking([]complex64{1})))
	require.ErrorContains(t, err, "no counterpart")
	_, err = To(tensor.New(tensor.BF16, 2))
	require.ErrorContains(t, err, "no counterpart")
	_, err = To(tensor.New(tensor.F32, 0))
	require.ErrorContains(t, err, "empty")
	s, err := From(gt.New(gt.FromScalar(float32(3))))
	require.NoError(t, err)
	require.Equal(t, []float64{3}, s.Floats())
}

// Products of every combination of plain, transposed and sliced operands against the definition.
func TestProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const m, k, n = 5, 7, 9
	operand := func(rows, cols int, kind string) *gt.Dense {
		switch kind {
		case "transposed":
			d := dense(random(rng, rows*cols), cols, rows)
			require.NoError(t, d.T())
			return d
		case "columns": // a slice of columns, whose row stride is not its width
			d := dense(random(rng, rows*(cols+3)), rows, cols+3)
			s, err := d.Slice(nil, gt.S(2, 2+cols))
			require.NoError(t, err)
			return s.(*gt.Dense)
		case "rows":
			d := dense(random(rng, (rows+2)*cols), rows+2, cols)
			s, err := d.Slice(gt.S(1, 1+rows))
			require.NoError(t, err)
			return s.(*gt.Dense)
		}
		return dense(random(rng, rows*cols), rows, cols)
	}
	for _, ka := range []string{"plain", "transposed", "columns", "rows"} {
		for _, kb := range []string{"plain", "transposed", "columns", "rows"} {
			a, b := operand(m, k, ka), operand(k, n, kb)
			va, err := From(a)
			require.NoError(t, err)
			vb, err := From(b)
			require.NoError(t, err)
			fa, fb := va.Floats(), vb.Floats()
			c, err := a.MatMul(b)
			require.NoError(t, err)
			got, err := From(c)
			require.NoError(t, err)
			for i := range m {
				for j := range n {
					var sum float64
					for l := range k {
						sum += fa[i*k+l] * fb[l*n+j]
					}
					require.Equal(t, sum, got.Floats()[i*n+j], fmt.Sprint(ka, " x ", kb))
				}
			}
			x := dense(random(rng, k), k)
			y, err := a.MatVecMul(x)
			require.NoError(t, err)
			for i := range m {
				var sum float64
				for l := range k {
					sum += fa[i*k+l] * float64(x.Data().([]float32)[l])
				}
				require.Equal(t, float32(sum), y.Data().([]float32)[i], ka)
			}
		}
	}
}

func TestInner(t *testing.T) {
	a, b := dense([]float32{1, 2, 3}, 3), dense([]float32{4, 5, 6}, 3)
	got, err := a.Inner(b)
	require.NoError(t, err)
	require.Equal(t, float32(32), got)
	dot, err := gt.Dot(a, b)
	require.NoError(t, err)
	require.Equal(t, float32(32), dot.Data())
}

// float64 passes through gorgonia's own engine.
func TestFloat64(t *testing.T) {
	a := gt.New(gt.WithShape(2, 2), gt.WithBacking([]float64{1, 2, 3, 4}), gt.WithEngine(Engine{}))
	c, err := a.MatMul(a)
	require.NoError(t, err)
	require.Equal(t, []float64{7, 10, 15, 22}, c.Data())
}

// TestFloat64Slices: products of slices of columns are those of their elements, which the standard engine alone gets wrong.
func TestFloat64Slices(t *testing.T) {
	x := make([]float64, 16)
	for i := range x {
		x[i] = float64(i + 1)
	}
	d := gt.New(gt.WithShape(4, 4), gt.WithBacking(x), gt.WithEngine(Engine{}))
	a, err := d.Slice(gt.S(0, 3), gt.S(0, 3))
	require.NoError(t, err)
	b, err := d.Slice(gt.S(0, 3), gt.S(1, 3))
	require.NoError(t, err)
	c, err := a.(*gt.Dense).MatMul(b)
	require.NoError(t, err)
	require.Equal(t, []float64{44, 50, 116, 134, 188, 218}, c.Data())
	y, err := a.(*gt.Dense).MatVecMul(gt.New(gt.WithShape(3), gt.WithBacking([]float64{1, 0, 2})))
	require.NoError(t, err)
	require.Equal(t, []float64{7, 19, 31}, y.Data())
	require.NoError(t, d.T())
	c, err = d.MatMul(d)
	require.NoError(t, err)
	require.Equal(t, 1.0*1+5*2+9*3+13*4, c.Data().([]float64)[0], "a transposed operand")
}

// TestResultIsOverwritten: what a reused result held does not count, NaN included; views as results keep their surroundings.
func TestResultIsOverwritten(t *testing.T) {
	nan := float32(math.NaN())
	a, b := dense([]float32{1, 2, 3, 4}, 2, 2), dense([]float32{5, 6, 7, 8}, 2, 2)
	c := dense([]float32{nan, nan, nan, nan}, 2, 2)
	_, err := a.MatMul(b, gt.WithReuse(c))
	require.NoError(t, err)
	require.Equal(t, []float32{19, 22, 43, 50}, c.Data())
	wide := []float32{9, nan, nan, 9, 9, nan, nan, 9}
	part, err := dense(wide, 2, 4).Slice(nil, gt.S(1, 3))
	require.NoError(t, err)
	require.NoError(t, Engine{}.MatMul(a, b, part))
	require.Equal(t, []float32{9, 19, 22, 9, 9, 43, 50, 9}, wide)
	fortran := gt.New(gt.WithShape(2, 2), gt.AsFortran([]float32{1, 2, 3, 4}), gt.WithEngine(Engine{}))
	c, err = fortran.MatMul(b)
	require.NoError(t, err)
	for i, want := range []float32{19, 22, 43, 50} {
		got, err := c.At(i/2, i%2)
		require.NoError(t, err)
		require.Equal(t, want, got, "column-major operands")
	}
}

func TestWrongOperandsAreErrors(t *testing.T) {
	a := dense(make([]float32, 6), 2, 3)
	e := Engine{}
	sparse := gt.CSRFromCoord(gt.Shape{3, 2}, []int{0}, []int{0}, []float32{1})
	require.ErrorContains(t, e.MatMul(a, sparse, dense(make([]float32, 4), 2, 2)), "dense tensor is right")
	require.ErrorContains(t, e.MatMul(a, gt.New(gt.WithShape(3, 2), gt.Of(gt.Float64)), dense(make([]float32, 4), 2, 2)), "f32 is right")
	require.Error(t, e.MatMul(a, a, dense(make([]float32, 4), 2, 2)))
	require.Error(t, e.MatMul(a, dense(make([]float32, 6), 3, 2), a), "a result of another shape")
	require.ErrorContains(t, e.MatMul(dense(make([]float32, 3), 3), a, a), "matrix is right")
}
