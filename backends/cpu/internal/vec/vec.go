// Package vec decides how rows of float32 are computed: functions over slices, one set for each instruction set, each with a pure Go
// twin that defines it. Sums are taken in a fixed order of lanes that depends on the length alone, so that a result does not depend on
// where data lie or who computes it; between instruction sets results may differ in the last bits.
//
// Accuracy, in units in the last place against float64, for finite inputs with normal results: Exp 2, Tanh 4. NaN stays NaN;
// infinities give the limits. Activations are package gemm's, so that fused and separate ones have the same bits.
package vec

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Funcs is a set of row functions. Slices of one call have the length of the first; a destination may be one of the sources,
// and must not overlap one otherwise.
type Funcs struct {
	ISA cpuinfo.ISA

	Add, Sub, Mul, Div func(dst, a, b []float32)
	Max, Min           func(dst, a, b []float32)                // NaN wins
	Scale              func(dst, a []float32, mul, add float32) // mul a + add, each rounded
	MulRow             func(dst, a, w []float32, s float32)     // a s w
	Axpy               func(dst, a []float32, s float32)        // dst + s a

	Exp, Tanh func(dst, a []float32)

	Dot   func(a, b []float32) float32
	Sum   func(a []float32) float32
	SumSq func(a []float32) float32
	MaxOf func(a []float32) float32 // -Inf for none; NaN wins

	// ExpSub sets dst = exp(a - top) and returns the sum. Where top is -Inf everything is 0.
	ExpSub func(dst, a []float32, top float32) float32

	// Dots sets dst[j] to the product of q with row j of k, rows being stride elements apart.
	Dots func(dst, q, k []float32, stride int)
	// Weigh adds the sum over j of w[j] times row j of v to acc, ascending in j.
	Weigh func(acc, w, v []float32, stride int)
	// DotsF16 and the like do the same with rows of 16-bit elements, whose number is a multiple of Whole. They have the bits that the
	// functions above have for the rows widened.
	DotsF16, DotsBF16   func(dst, q []float32, k []uint16, stride int)
	WeighF16, WeighBF16 func(acc, w []float32, v []uint16, stride int)

	// Rotate turns pairs: (x, y) = (x cos - y sin, x sin + y cos), in place.
	Rotate func(x, y, cos, sin []float32)
	// RotatePairs turns neighbours: elements 2i and 2i+1 of x, in place; cos and sin have half its length.
	RotatePairs func(x, cos, sin []float32)

	FromF16, FromBF16 func(dst []float32, src []uint16)
	ToF16, ToBF16     func(dst []uint16, src []float32) // to nearest even, NaN stays NaN, subnormals kept
	FromQ8_0          func(dst []float32, src []byte)   // whole blocks, as many as dst has room for
	// ToQ8_0 encodes the whole blocks of src and returns how many it did: it stops at one that package quant should look at, as NaN, infinity, and a
	// scale that is zero or odd are among its numbers.
	ToQ8_0 func(dst []byte, src []float32) (blocks int)

	// AddBytes sets dst to the sums of quantized bytes, with the bits that ByteSum says.
	AddBytes func(dst, a, b []byte, s *ByteSum)
	// Quantize sets dst to bytes of numbers, as those of sums that have been added.
	Quantize func(dst []byte, x []float32, s *ByteSum)
	// ByteSums says that AddBytes is faster than a table of all sums, and Quantize than one number after the other.
	ByteSums bool
	// MaxU8 and MaxS8 set dst to the greater of two bytes each, unsigned or signed. dst may be a. Sets without them have nil.
	MaxU8, MaxS8 func(dst, a, b []byte)
	// multiplyBytes, where there is one, is AddBytes with products in place of divisions.
	multiplyBytes func(dst, a, b []byte, p *byteProduct)
}

// ByteSum is ops.ByteSum, which says what it means, in the order in which kernels read its fields. All zero points and limits are those of bytes.
type ByteSum struct {
	ScaleA, ScaleB, ScaleY float32
	ZeroA, ZeroB, ZeroY    int32
	Lo, Hi                 int32
	SignedA, SignedB       bool

	product *byteProduct // not nil: it gives the same bytes, without a division
}

// byteProduct is a ByteSum for kernels that multiply by 1 / ScaleY, as vectors. Signed bytes are flipped to unsigned ones, and the zero points are
// of those; so is the result, until the end.
type byteProduct struct {
	scaleA, scaleB      [8]float32
	inverse, rest       [8]float32 // of ScaleY, and what the inverse rounds off
	zeroA, zeroB        [8]float32 // beside 2^23
	exponent            [8]uint32  // of 2^23, as the upper half of words
	flipA, flipB, flipY [8]uint32
	zeroY               [8]uint32 // as words
	lo, hi              [8]uint32 // as bytes
}

// Prepare readies a sum that AddBytes is called with often: it lets it multiply where that gives the bytes of the division for every pair of bytes,
// which it tries. The product's error is that of a last bit in a few quotients of a thousand million, so that few scales but the most extreme need the division.
func (f *Funcs) Prepare(s *ByteSum) {
	if s.product = nil; f.multiplyBytes == nil {
		return
	}
	p := new(byteProduct)
	flip := func(signed bool) (mask uint32, shift int32) {
		if signed {
			return 0x80808080, 128
		}
		return 0, 0
	}
	flipA, shiftA := flip(s.SignedA)
	flipB, shiftB := flip(s.SignedB)
	flipY, shiftY := flip(s.Hi <= math.MaxInt8) // any range of 256 numbers that has the limits
	const one = 1 << 23
	inverse := 1 / s.ScaleY
	for i := range 8 {
		p.scaleA[i], p.scaleB[i] = s.ScaleA, s.ScaleB
		p.inverse[i], p.rest[i] = inverse, float32(1/float64(s.ScaleY)-float64(inverse))
		p.zeroA[i], p.zeroB[i] = float32(one+s.ZeroA+shiftA), float32(one+s.ZeroB+shiftB)
		p.exponent[i] = math.Float32bits(one) >> 16 * 0x00010001
		p.flipA[i], p.flipB[i], p.flipY[i] = flipA, flipB, flipY
		p.zeroY[i] = uint32(uint16(s.ZeroY+shiftY)) * 0x00010001
		p.lo[i], p.hi[i] = uint32(uint8(s.Lo+shiftY))*0x01010101, uint32(uint8(s.Hi+shiftY))*0x01010101
	}
	var a, b, want, got [256]byte
	for i := range b {
		b[i] = byte(i)
	}
	for v := range 256 {
		for i := range a {
			a[i] = byte(v)
		}
		f.AddBytes(want[:], a[:], b[:], s)
		if f.multiplyBytes(got[:], a[:], b[:], p); got != want {
			return
		}
	}
	s.product = p
}

// addBytesGo is the definition of AddBytes, and what kernels leave.
func addBytesGo(dst, a, b []byte, s *ByteSum) {
	value := func(v byte, signed bool, zero int32, scale float32) float32 {
		n := int32(v)
		if signed {
			n = int32(int8(v))
		}
		return float32(float32(n-zero) * scale)
	}
	for i := range dst {
		dst[i] = s.quantize(value(a[i], s.SignedA, s.ZeroA, s.ScaleA) + value(b[i], s.SignedB, s.ZeroB, s.ScaleB))
	}
}

// quantize returns the byte of a sum.
func (s *ByteSum) quantize(sum float32) byte {
	x := float64(sum / s.ScaleY)
	const far = 1 << 20
	if !(x < far) {
		x = far
	}
	n := int32(math.RoundToEven(max(x, -far))) + s.ZeroY
	return byte(min(max(n, s.Lo), s.Hi))
}

// quantizeGo is the definition of Quantize, and what kernels leave.
func quantizeGo(dst []byte, x []float32, s *ByteSum) {
	for i, v := range x[:len(dst)] {
		dst[i] = s.quantize(v)
	}
}

// Whole is the number of elements of which rows of 16 bits have a multiple.
const Whole = 16

var sets = map[cpuinfo.ISA]*Funcs{}

// For returns the best set that an instruction set allows.
func For(isa cpuinfo.ISA) *Funcs {
	for i := isa; i > cpuinfo.Portable; i-- {
		if f := sets[i]; f != nil && cpuinfo.Get().Has(i) {
			return f
		}
	}
	return &portable
}

var portable = Funcs{
	ISA: cpuinfo.Portable,
	Add: addGo, Sub: subGo, Mul: mulGo, Div: divGo, Max: maxGo, Min: minGo,
	Scale: scaleGo, MulRow: mulRowGo, Axpy: axpyGo,
	Exp: expGo, Tanh: tanhGo,
	Dot: dotGo, Sum: sumGo, SumSq: sumSqGo, MaxOf: maxOfGo,
	ExpSub: expSubGo, Dots: dotsGo, Weigh: weighGo, Rotate: rotateGo, RotatePairs: rotatePairsGo,
	DotsF16: dotsHalfGo(tensor.F16ToF32), DotsBF16: dotsHalfGo(tensor.BF16ToF32),
	WeighF16: weighHalfGo(tensor.F16ToF32), WeighBF16: weighHalfGo(tensor.BF16ToF32),
	FromF16: tensor.F16sToF32, FromBF16: tensor.BF16sToF32, ToF16: tensor.F32sToF16, ToBF16: tensor.F32sToBF16,
	FromQ8_0: fromQ8_0Go, ToQ8_0: toQ8_0Go, AddBytes: addBytesGo, Quantize: quantizeGo,
}

func fromQ8_0Go(dst []float32, src []byte) {
	n := len(dst) / 32
	if err := quant.DecodeRow(tensor.Q8_0, dst[:32*n], src[:34*n]); err != nil {
		panic(err) // sizes agree
	}
}

func toQ8_0Go(dst []byte, src []float32) int {
	n := len(src) / 32
	dst = dst[:34*n]
	for i := range n {
		if quant.EncodeRow(tensor.Q8_0, dst[34*i:34*i+34], src[32*i:32*i+32]) != nil {
			return i
		}
	}
	return n
}

func addGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func subGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mulGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func divGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

func maxGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

func minGo(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

func scaleGo(dst, a []float32, mul, add float32) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = float32(mul*a[i]) + add
	}
}

func mulRowGo(dst, a, w []float32, s float32) {
	a, w = a[:len(dst)], w[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * s * w[i]
	}
}

func axpyGo(dst, a []float32, s float32) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] += float32(s * a[i])
	}
}

// Constants of exp: x = n ln2 + r with ln2 in two parts, exp(r) = 1 + r + r^2 p(r) (Cephes).
const (
	log2e  = 1.44269504088896341
	ln2hi  = 0.693359375
	ln2lo  = -2.12194440e-4
	expTop = 88.7228390 // above it exp overflows
	expLow = -103.972   // below it exp is less than half of the least subnormal
	expP0  = 1.9875691500e-4
	expP1  = 1.3981999507e-3
	expP2  = 8.3334519073e-3
	expP3  = 4.1665795894e-2
	expP4  = 1.6666665459e-1
	expP5  = 5.0000001201e-1
)

func exp32(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > expTop:
		return float32(math.Inf(1))
	case x < expLow:
		return 0
	}
	n := float32(math.RoundToEven(float64(x * log2e)))
	r := x - float32(n*ln2hi)
	r -= float32(n * ln2lo)
	p := float32(expP0)
	p = float32(p*r) + expP1
	p = float32(p*r) + expP2
	p = float32(p*r) + expP3
	p = float32(p*r) + expP4
	p = float32(p*r) + expP5
	y := float32(float32(p*r)*r) + r + 1
	// Two steps, so that neither factor leaves the range and a subnormal result is rounded once.
	k := int32(n)
	h := k >> 1
	return y * pow2(h) * pow2(k-h)
}

// pow2 is 2^n for -126 <= n <= 127.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

func expGo(dst, a []float32) {
	a = a[:len(dst)]
	for i, x := range a {
		dst[i] = exp32(x)
	}
}

// Constants of tanh for |x| < 0.625 (Cephes); beyond it is 1 - 2/(exp(2|x|) + 1).
const (
	tanhCut = 0.625
	tanhP0  = -5.70498872745e-3
	tanhP1  = 2.06390887954e-2
	tanhP2  = -5.37397155531e-2
	tanhP3  = 1.33314422036e-1
	tanhP4  = -3.33332819422e-1
)

func tanh32(x float32) float32 {
	z := x
	if z < 0 {
		z = -z
	}
	if z < tanhCut {
		s := x * x
		p := float32(tanhP0)
		p = float32(p*s) + tanhP1
		p = float32(p*s) + tanhP2
		p = float32(p*s) + tanhP3
		p = float32(p*s) + tanhP4
		return float32(float32(p*s)*x) + x
	}
	t := 1 - 2/(exp32(z+z)+1)
	if x < 0 {
		return -t
	}
	return t
}

func tanhGo(dst, a []float32) {
	a = a[:len(dst)]
	for i, x := range a {
		dst[i] = tanh32(x)
	}
}

func dotGo(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float32(a[i] * b[i])
		s1 += float32(a[i+1] * b[i+1])
		s2 += float32(a[i+2] * b[i+2])
		s3 += float32(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float32(a[i] * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

func sumGo(a []float32) float32 {
	var s float64
	for _, x := range a {
		s += float64(x)
	}
	return float32(s)
}

func sumSqGo(a []float32) float32 {
	var s float64
	for _, x := range a {
		s += float64(float64(x) * float64(x))
	}
	return float32(s)
}

func maxOfGo(a []float32) float32 {
	m := float32(math.Inf(-1))
	for _, x := range a {
		m = max(m, x)
	}
	return m
}

func expSubGo(dst, a []float32, top float32) float32 {
	a = a[:len(dst)]
	if math.IsInf(float64(top), -1) {
		clear(dst)
		return 0
	}
	var s float64
	for i, x := range a {
		e := exp32(x - top)
		dst[i] = e
		s += float64(e)
	}
	return float32(s)
}

// sumChunk is the longest run that is summed in float32 lanes; longer ones are summed in float64 over chunks.
const sumChunk = 4096

func chunked(a []float32, sum func(a *float32, n int) float32) float32 {
	if len(a) <= sumChunk {
		return sum(unsafe.SliceData(a), len(a))
	}
	var s float64
	for len(a) > 0 {
		n := min(len(a), sumChunk)
		s += float64(sum(unsafe.SliceData(a), n))
		a = a[n:]
	}
	return float32(s)
}

// checkRows panics unless n rows of d elements, stride apart, lie in size elements; it reports whether there is anything to do.
func checkRows(n, d, size, stride int) bool {
	if n == 0 || d == 0 {
		return false
	}
	if stride < 0 || (n-1)*stride+d > size {
		panic("vec: rows outside their slice")
	}
	return true
}

func dotsGo(dst, q, k []float32, stride int) {
	if len(q) == 0 {
		clear(dst)
		return
	}
	for j := range dst {
		dst[j] = dotGo(q, k[j*stride:])
	}
}

func weighGo(acc, w, v []float32, stride int) {
	for j, x := range w {
		axpyGo(acc, v[j*stride:], x)
	}
}

// checkHalves is checkRows for rows of 16-bit elements.
func checkHalves(n, d, size, stride int) bool {
	if d%Whole != 0 {
		panic("vec: rows of 16-bit elements have whole vectors")
	}
	return checkRows(n, d, size, stride)
}

func dotsHalfGo(widen func(uint16) float32) func(dst, q []float32, k []uint16, stride int) {
	return func(dst, q []float32, k []uint16, stride int) {
		if !checkHalves(len(dst), len(q), len(k), stride) {
			clear(dst)
			return
		}
		row := make([]float32, len(q))
		for j := range dst {
			for l, h := range k[j*stride:][:len(q)] {
				row[l] = widen(h)
			}
			dst[j] = dotGo(q, row)
		}
	}
}

func weighHalfGo(widen func(uint16) float32) func(acc, w []float32, v []uint16, stride int) {
	return func(acc, w []float32, v []uint16, stride int) {
		if !checkHalves(len(w), len(acc), len(v), stride) {
			return
		}
		row := make([]float32, len(acc))
		for j, x := range w {
			for l, h := range v[j*stride:][:len(acc)] {
				row[l] = widen(h)
			}
			axpyGo(acc, row, x)
		}
	}
}

func rotateGo(x, y, cos, sin []float32) {
	y, cos, sin = y[:len(x)], cos[:len(x)], sin[:len(x)]
	for i := range x {
		a, b := x[i], y[i]
		x[i] = float32(a*cos[i]) - float32(b*sin[i])
		y[i] = float32(a*sin[i]) + float32(b*cos[i])
	}
}

func rotatePairsGo(x, cos, sin []float32) {
	for i := range cos {
		a, b := x[2*i], x[2*i+1]
		x[2*i] = float32(a*cos[i]) - float32(b*sin[i])
		x[2*i+1] = float32(a*sin[i]) + float32(b*cos[i])
	}
}
