package backendtest

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// rng is the generator of a case.
type rng = rand.Rand

// fill puts values into a contiguous tensor.
type fill func(r *rand.Rand, t *tensor.Tensor)

// random returns the generator of a case: the same for the same name.
func random(name string) (*rand.Rand, uint64) {
	h := fnv.New64a()
	h.Write([]byte(name))
	seed := h.Sum64()
	return rand.New(rand.NewPCG(seed, 1)), seed
}

func floats(f func(r *rand.Rand, i int) float64) fill {
	return func(r *rand.Rand, t *tensor.Tensor) {
		v := make([]float64, t.Elems())
		for i := range v {
			v[i] = f(r, i)
		}
		if !t.DType.IsBlock() {
			t.SetFloats(v)
			return
		}
		w := tensor.New(tensor.F32, t.Shape()...)
		w.SetFloats(v)
		q, err := quant.Encode(t.DType, w)
		if err != nil {
			panic(err)
		}
		if err := tensor.Copy(*t, q); err != nil {
			panic(err)
		}
	}
}

// normal fills with a normal distribution; integers with what fits them.
func normal(r *rand.Rand, t *tensor.Tensor) {
	switch {
	case t.DType.IsInt():
		anyInt(r, t)
	case t.DType == tensor.Bool:
		flags(r, t)
	default:
		floats(func(r *rand.Rand, _ int) float64 { return r.NormFloat64() })(r, t)
	}
}

func scaled(mean, sigma float64) fill {
	return floats(func(r *rand.Rand, _ int) float64 { return mean + sigma*r.NormFloat64() })
}

func positive(r *rand.Rand, t *tensor.Tensor) {
	floats(func(r *rand.Rand, _ int) float64 { return math.Exp(r.NormFloat64()) })(r, t)
}

// anyInt fills with all bits of the type, the extremes included.
func anyInt(r *rand.Rand, t *tensor.Tensor) {
	v := make([]int64, t.Elems())
	for i := range v {
		v[i] = int64(r.Uint64())
		if i%7 == 3 {
			v[i] = []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 127, -128, 255, 32767, -32768}[r.IntN(10)]
		}
	}
	if t.DType != tensor.I64 && t.DType != tensor.U64 {
		for i := range v {
			v[i] = int64(int32(v[i]))
		}
	}
	t.SetInts(v)
}

func smallInt(n int) fill {
	return func(r *rand.Rand, t *tensor.Tensor) {
		v := make([]int64, t.Elems())
		for i := range v {
			v[i] = int64(r.IntN(n))
		}
		t.SetInts(v)
	}
}

func flags(r *rand.Rand, t *tensor.Tensor) {
	v := make([]int64, t.Elems())
	for i := range v {
		v[i] = int64(r.IntN(2))
	}
	t.SetInts(v)
}

// distinct fills with distinct numbers below n in random order.
func distinct(n int) fill {
	return func(r *rand.Rand, t *tensor.Tensor) {
		p := r.Perm(n)
		v := make([]int64, t.Elems())
		for i := range v {
			v[i] = int64(p[i])
		}
		t.SetInts(v)
	}
}

// special mixes NaN, infinities, zeros of both signs, subnormals and large numbers into a normal distribution.
func special(r *rand.Rand, t *tensor.Tensor) {
	floats(func(r *rand.Rand, i int) float64 {
		if r.IntN(4) != 0 {
			return r.NormFloat64()
		}
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-41, -1e-44, 3e37, -3e37, 88.7, -104, 1e-38}[r.IntN(12)]
	})(r, t)
}

// unbounded mixes NaN and infinities into a normal distribution: for sums, whose order decides where large numbers overflow.
func unbounded(r *rand.Rand, t *tensor.Tensor) {
	floats(func(r *rand.Rand, i int) float64 {
		if r.IntN(6) != 0 {
			return r.NormFloat64()
		}
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1)}[r.IntN(5)]
	})(r, t)
}

// mask fills with 0 and -Inf; some rows are masked whole.
func mask(r *rand.Rand, t *tensor.Tensor) {
	n := max(t.Dim(-1), 1)
	whole := false
	floats(func(r *rand.Rand, i int) float64 {
		if i%n == 0 {
			whole = r.IntN(4) == 0
		}
		if whole || r.IntN(3) == 0 {
			return math.Inf(-1)
		}
		return 0
	})(r, t)
}

// maskFlags fills with booleans of which some rows are all false.
func maskFlags(r *rand.Rand, t *tensor.Tensor) {
	f := tensor.New(tensor.F32, t.Shape()...)
	mask(r, &f)
	v := f.Floats()
	for i := range v {
		v[i] = map[bool]float64{true: 1, false: 0}[v[i] == 0]
	}
	t.SetFloats(v)
}

// values fills with the given numbers, in order and again.
func values(v ...float64) fill {
	return floats(func(_ *rand.Rand, i int) float64 { return v[i%len(v)] })
}
