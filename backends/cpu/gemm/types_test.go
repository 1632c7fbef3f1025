package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/fma"
)

// edgeShapes returns shapes around the tiles of all kernels; the longer list is for runs without -short... kept small because
// each is run for every type and level.
func edgeShapes(r *rand.Rand, n int) [][3]int {
	ms := []int{1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 27, 28, 29, 33, 57}
	ns := []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 127, 128, 129, 160, 200}
	ks := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 131}
	var s [][3]int
	for range n {
		s = append(s, [3]int{ms[r.IntN(len(ms))], ns[r.IntN(len(ns))], ks[r.IntN(len(ks))]})
	}
	return s
}

func bf16s(r *rand.Rand, n int) []BFloat16 {
	v := make([]BFloat16, n)
	for i := range v {
		v[i] = BFloat16(toBF16(r.Float32()*2 - 1))
	}
	return v
}

func f16s(r *rand.Rand, n int) []Float16 {
	v := make([]Float16, n)
	for i := range v {
		v[i] = Float16(toF16(r.Float32()*2 - 1))
	}
	return v
}

func ints8(r *rand.Rand, n int) []int8 {
	v := make([]int8, n)
	for i := range v {
		v[i] = int8(r.IntN(256) - 128)
		if r.IntN(8) == 0 {
			v[i] = [...]int8{-128, 127}[r.IntN(2)]
		}
	}
	return v
}

func uints8(r *rand.Rand, n int) []uint8 {
	v := make([]uint8, n)
	for i := range v {
		v[i] = uint8(r.IntN(256))
		if r.IntN(8) == 0 {
			v[i] = 255
		}
	}
	return v
}

// operand makes a random matrix of a type with a random layout.
func operand(r *rand.Rand, t Type, rows, cols int) Matrix {
	rs, cs := cols+r.IntN(3), 1
	switch r.IntN(4) {
	case 0:
		rs, cs = 1, rows+r.IntN(3)
	case 1:
		cs = 2 + r.IntN(2)
		rs = cols*cs + r.IntN(3)
	}
	n := (rows-1)*rs + (cols-1)*cs + 1
	off := r.IntN(4)
	switch t {
	case F32:
		return View(floats(r, n+off)[off:], rows, cols, rs, cs)
	case BF16:
		return View(bf16s(r, n+off)[off:], rows, cols, rs, cs)
	case F16:
		return View(f16s(r, n+off)[off:], rows, cols, rs, cs)
	case S8:
		return View(ints8(r, n+off)[off:], rows, cols, rs, cs)
	case U8:
		return View(uints8(r, n+off)[off:], rows, cols, rs, cs)
	}
	panic(t)
}

// value reads an element as float32; integers of the types are exact in it.
func (m Matrix) value(i, j int) float32 {
	p := m.at(i, j)
	switch m.typ {
	case F32:
		return *(*float32)(p)
	case BF16:
		return fromBF16(*(*uint16)(p))
	case F16:
		return fromF16(*(*uint16)(p))
	case S8:
		return float32(*(*int8)(p))
	case U8:
		return float32(*(*uint8)(p))
	}
	return float32(*(*int32)(p))
}

// values returns the elements row by row, less a zero point, as numbers that hold them exactly.
func values[T int32 | float32 | float64](m Matrix, zero T) []T {
	v := make([]T, 0, m.Rows*m.Cols)
	for i := range m.Rows {
		for j := range m.Cols {
			v = append(v, T(m.value(i, j))-zero)
		}
	}
	return v
}

// define calls add for every product of the sums of a row of C, which is in its place, in the order of k. The operands are read once: taking each element as
// often as it is used would take longer than all else.
func define[T, S any](m, n, k int, a, b []T, c []S, add func(sums []S, x T, row []T)) {
	for i := range m {
		for q := range k {
			add(c[i*n:(i+1)*n], a[i*k+q], b[q*n:(q+1)*n])
		}
	}
}

// chains adds the products of float types to sums, one fused chain an element.
func chains(a, b Matrix, c []float32) {
	define(a.Rows, b.Cols, a.Cols, values[float32](a, 0), values[float32](b, 0), c, func(sums []float32, x float32, row []float32) {
		for j, y := range row {
			sums[j] = fma.F32(x, y, sums[j])
		}
	})
}

// refFloat is the definition of products of float types.
func refFloat(a, b Matrix) []float32 {
	c := make([]float32, a.Rows*b.Cols)
	chains(a, b, c)
	return c
}

// refInt is the definition of products of integers: exact sums modulo 2^32.
func refInt(a, b Matrix, zero int32) []int32 {
	c := make([]int32, a.Rows*b.Cols)
	define(a.Rows, b.Cols, a.Cols, values(a, zero), values[int32](b, 0), c, func(sums []int32, x int32, row []int32) {
		for j, y := range row {
			sums[j] += x * y
		}
	})
	return c
}

// sums64 returns the sums in float64, and how far float32 may be from each: (8 + 2 sqrt K) eps sum|a||b|.
func sums64(a, b Matrix) (sums, bounds []float64) {
	sums, bounds = make([]float64, a.Rows*b.Cols), make([]float64, a.Rows*b.Cols)
	x, y := values[float64](a, 0), values[float64](b, 0)
	define(a.Rows, b.Cols, a.Cols, x, y, sums, func(sums []float64, x float64, row []float64) {
		for j, y := range row {
			sums[j] += x * y
		}
	})
	define(a.Rows, b.Cols, a.Cols, x, y, bounds, func(sums []float64, x float64, row []float64) {
		for j, y := range row {
			sums[j] += math.Abs(x * y)
		}
	})
	for i := range bounds {
		bounds[i] *= (8 + 2*math.Sqrt(float64(a.Cols))) / (1 << 24)
	}
	return sums, bounds
}

func TestFloatTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, isa := range isas() {
		for _, types := range [][2]Type{{F32, F32}, {F32, BF16}, {F32, F16}, {BF16, BF16}, {F16, F16}, {BF16, F32}} {
			for _, s := range edgeShapes(r, 40) {
				m, n, k := s[0], s[1], s[2]
				a, b := operand(r, types[0], m, k), operand(r, types[1], k, n)
				want := refFloat(a, b)
				o := &Options{ISA: isa, Threads: 1 + r.IntN(3), BF16: Widen}
				name := fmt.Sprintf("%v %v %dx%dx%d", isa, types, m, n, k)
				c := make([]float32, m*n)
				require.NoError(t, Mul(Of(c, m, n), a, b, o))
				equal(t, want, c, "plain %s", name)
				p, err := PackB(b, o)
				require.NoError(t, err)
				c = make([]float32, m*n)
				require.NoError(t, MulPacked(Of(c, m, n), a, p, o))
				equal(t, want, c, "packed B %s", name)
				pa, err := PackA(a, types[1], o)
				require.NoError(t, err)
				c = make([]float32, m*n)
				require.NoError(t, MulPackedA(Of(c, m, n), pa, b, o))
				equal(t, want, c, "packed A %s", name)
				c = make([]float32, m*n)
				require.NoError(t, MulPackedAB(Of(c, m, n), pa, p, o))
				equal(t, want, c, "both packed %s", name)
				ct := make([]float32, m*n)
				require.NoError(t, Mul(View(ct, m, n, 1, m), a, b, o))
				for i := range m {
					for j := range n {
						if ct[j*m+i] != want[i*n+j] {
							t.Fatalf("column-major C %s: element %d, %d is %v, want %v", name, i, j, ct[j*m+i], want[i*n+j])
						}
					}
				}
			}
		}
	}
}

func TestIntTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, isa := range isas() {
		for _, at := range []Type{S8, U8} {
			for _, s := range edgeShapes(r, 60) {
				m, n, k := s[0], s[1], s[2]
				a, b := operand(r, at, m, k), operand(r, S8, k, n)
				zero := int32(0)
				if r.IntN(2) == 0 {
					zero = int32(r.IntN(100)) - 20
				}
				want := refInt(a, b, zero)
				o := &Options{ISA: isa, Threads: 1 + r.IntN(3), AZero: zero}
				name := fmt.Sprintf("%v %v %dx%dx%d zero %d", isa, at, m, n, k, zero)
				c := make([]int32, m*n)
				require.NoError(t, Mul(Of(c, m, n), a, b, o))
				equal(t, want, c, "plain %s", name)
				p, err := PackB(b, o)
				require.NoError(t, err)
				c = make([]int32, m*n)
				require.NoError(t, MulPacked(Of(c, m, n), a, p, o))
				equal(t, want, c, "packed B %s", name)
				o.Accumulate = true
				require.NoError(t, MulPacked(Of(c, m, n), a, p, o))
				for i := range want {
					if c[i] != 2*want[i] {
						t.Fatalf("accumulate %s: element %d is %d, want %d", name, i, c[i], 2*want[i])
					}
				}
				o.Accumulate = false
				pa, err := PackA(a, S8, o)
				require.NoError(t, err)
				require.NoError(t, MulPackedA(Of(c, m, n), pa, b, o))
				equal(t, want, c, "packed A %s", name)
			}
		}
	}
}

// Values at which saturating pairs go wrong (oneDNN issue 518, onnxruntime pull request 12088).
func TestIntExtremes(t *testing.T) {
	for _, isa := range isas() {
		for _, k := range []int{1, 2, 3, 4, 64, 65, 4096} {
			a, s, b, w := make([]uint8, k), make([]int8, k), make([]int8, k), make([]int8, k)
			for i := range a {
				a[i], s[i], b[i], w[i] = 255, -128, 127, -128
			}
			var c [1]int32
			o := &Options{ISA: isa}
			require.NoError(t, Mul(Of(c[:], 1, 1), Of(a, 1, k), Of(b, k, 1), o))
			require.EqualValues(t, 255*127*k, c[0])
			require.NoError(t, Mul(Of(c[:], 1, 1), Of(s, 1, k), Of(w, k, 1), o))
			require.EqualValues(t, 128*128*k, c[0])
			require.NoError(t, Mul(Of(c[:], 1, 1), Of(b, 1, k), Of(b, k, 1), o))
			require.EqualValues(t, 127*127*k, c[0])
		}
	}
}

func TestDotBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, isa := range isas() {
		for _, s := range edgeShapes(r, 30) {
			m, n, k := s[0], s[1], s[2]
			a, b := operand(r, BF16, m, k), operand(r, BF16, k, n)
			c := make([]float32, m*n)
			want, bounds := sums64(a, b)
			p, err := PackB(b, &Options{ISA: isa})
			require.NoError(t, err)
			require.NoError(t, MulPacked(Of(c, m, n), a, p, &Options{ISA: isa, BF16: Dot}))
			for i := range m {
				for j := range n {
					if got, sum, bound := float64(c[i*n+j]), want[i*n+j], bounds[i*n+j]; !(math.Abs(got-sum) <= bound) {
						t.Fatalf("%v %v: element %d, %d is %v, want %v within %v", isa, s, i, j, got, sum, bound)
					}
				}
			}
		}
	}
}
