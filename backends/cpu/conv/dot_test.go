package conv

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	opconv "github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/tensor"
)

func dotCases() []Spec {
	var list []Spec
	for _, s := range slices.Concat(cases(), apartCases(), some(deepCases()), some(sparseCases()), patchCases()) {
		if !s.Depthwise() && !s.Transposed {
			list = append(list, s)
		}
	}
	return list
}

// patchCases are convolutions with enough channels for words to be copied pixel by pixel: strides, padding, groups, odd channels and a depth, of one
// image and of several, in rows that are whole tiles and in others.
func patchCases() []Spec {
	var list []Spec
	for i, c := range []int{22, 64, 65, 128, 192} {
		list = append(list,
			Spec{N: 2, H: 9, W: 11, C: c, M: 48 + i, KH: 3, KW: 3, SH: 2, SW: 2, DH: 1, DW: 1, Top: 1, Left: 1, OH: 5, OW: 6, Groups: 1},
			Spec{N: 1, H: 7, W: 7, C: c, M: 64, KH: 1, KW: 1, SH: 2, SW: 2, DH: 1, DW: 1, OH: 4, OW: 4, Groups: 1},
			Spec{N: 1, H: 7, W: 13, C: 2 * c, M: 96, KH: 3, KW: 2, SH: 1, SW: 1, DH: 2, DW: 2, Top: 2, Left: 1, OH: 7, OW: 13, Groups: 2},
			Spec{N: 2, Depth: Dim{In: 3, Out: 2, Kernel: 2, Stride: 2, Dilation: 1, Before: 1}, H: 5, W: 7, C: c, M: 49, KH: 2, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Left: 1, OH: 4, OW: 7, Groups: 1})
	}
	return list
}

// Patches and small filters are what the cases with enough channels run with, and stay within the scratch memory that is told.
func TestPatches(t *testing.T) {
	for _, s := range patchCases() {
		s.Type = Int8
		w, x := make([]int16, s.Weights()), make([]byte, s.N*s.Depth.or(one).In*s.H*s.W*s.C)
		f, err := PackInt(s, w, best())
		require.NoError(t, err)
		if f.k.kind != kindS16 {
			t.Skip("bytes are multiplied as such")
		}
		require.Equal(t, 2, f.k.step)
		w[0] = 200
		wide, err := PackInt(s, w, best())
		require.NoError(t, err)
		require.Equal(t, 2*len(f.data), len(wide.data))
		for _, threads := range []int{1, 3} {
			p, err := NewPlan(f, s, threads)
			require.NoError(t, err)
			require.Equal(t, s.C >= 64 || s.Groups == 1 && s.C*s.KW >= 64, p.works[0].patches, "%+v", s)
			p.Run(&Args{X8: x, Y: make([]float32, s.N*s.Depth.or(one).Out*s.OH*s.OW*s.M), Act: NoAct})
			require.LessOrEqual(t, p.Held(), p.WorkspaceBytes(false, false), "%+v", s)
		}
	}
}

// The kernels of words by bytes in Go, which no processor runs by itself, are the definition of the others.
func TestSmallFilters(t *testing.T) {
	for i, s := range patchCases() {
		s.Type, s.XZero = Int8, 7
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		x, w := make([]byte, s.N*s.Depth.or(one).In*s.H*s.W*s.C), make([]int16, s.Weights())
		for j := range x {
			x[j] = byte(rng.IntN(256))
		}
		for j := range w {
			w[j] = int16(rng.IntN(256) - 128)
		}
		var want []float32
		for _, k := range append([]*kernels{portable[kindS16]}, portable[kindS16].small, kernelsOf(kindS16, best()).small) {
			if k == nil { // of this processor
				continue
			}
			f := &Filter{spec: s, k: k}
			f.packInt(w)
			p, err := NewPlan(f, s, 1)
			require.NoError(t, err)
			y := make([]float32, s.N*s.Depth.or(one).Out*s.OH*s.OW*s.M)
			p.Run(&Args{X8: x, Y: y, Act: NoAct})
			if want == nil {
				want = y
			}
			require.Equal(t, want, y, "%v %+v", k.isa, s)
		}
	}
}

// integerCase is a convolution of bytes with its sums by the definition.
type integerCase struct {
	s    Spec
	x    []byte
	w    []int16
	want []int32
}

func integerCases(t *testing.T) []integerCase {
	rng := rand.New(rand.NewPCG(9, 9))
	var list []integerCase
	for i, s := range dotCases() {
		s.Type, s.Signed = Int8, i%2 == 1
		nx, _ := s.sizes()
		c := integerCase{x: make([]byte, nx), w: make([]int16, s.Weights())}
		s.XZero = []int32{0, 255, 3, 128}[i/2%4]
		if s.Signed {
			s.XZero -= 128
		}
		for j := range c.x {
			c.x[j] = byte(rng.IntN(256))
		}
		wide := i%5 == 4 // more than int8 holds
		for j := range c.w {
			c.w[j] = int16(rng.IntN(256) - 128)
			if wide {
				c.w[j] = int16(rng.IntN(510) - 255)
			}
		}
		x := make([]int8, len(c.x))
		for j, v := range c.x {
			x[j] = int8(v)
		}
		in := []tensor.Tensor{tensor.Of(c.x, shape(s, s.C, func(d Dim) int { return d.In })...), {}}
		if s.Signed {
			in[0] = tensor.Of(x, in[0].Shape()...)
		}
		// Weights beyond bytes are the difference of two filters, which the sums are as well.
		sum := func(part func(v int16) int8) []int64 {
			w := make([]int8, len(c.w))
			for j, v := range c.w {
				w[j] = part(v)
			}
			win, kernel := window(s)
			in[1] = tensor.Of(w, append([]int{s.M, s.C / s.Groups}, kernel...)...)
			op := opconv.Conv{Window: win, Groups: s.Groups, Layout: opconv.ChannelsLast, XZero: s.XZero}
			y := tensor.New(tensor.I32, shape(s, s.M, out)...)
			require.NoError(t, op.Reference([]tensor.Tensor{y}, in))
			return y.Ints()
		}
		a, b := sum(func(v int16) int8 { return int8(v / 2) }), sum(func(v int16) int8 { return int8(v - v/2) })
		for j := range a {
			c.want = append(c.want, int32(a[j]+b[j]))
		}
		c.s = s
		list = append(list, c)
	}
	return list
}

// Integer sums are exact, whatever the zero points, the signs and the kernels; scaled, they are what floats make of them.
func TestIntegers(t *testing.T) {
	for i, c := range integerCases(t) {
		s := c.s
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		scale, bias, res := randomOf(rng, s.M), randomOf(rng, s.M), randomOf(rng, len(c.want))
		for _, isa := range isas() {
			f, err := PackInt(s, c.w, isa)
			require.NoError(t, err)
			for _, threads := range []int{1, 3} {
				p, err := NewPlan(f, s, threads)
				require.NoError(t, err)
				n := len(c.want)
				guarded := make([]float32, n+32)
				y := guarded[16 : 16+n]
				p.Run(&Args{X8: c.x, Y: y, Raw: true})
				for j, v := range c.want {
					if got := int32(math.Float32bits(y[j])); got != v {
						t.Fatalf("%v %+v element %d: %d, want %d", isa, s, j, got, v)
					}
				}
				args := &Args{X8: c.x, Y: y, Scale: scale, Bias: bias, Residual: res, Act: Act{Lo: -100, Hi: 1e6}}
				p.Run(args)
				check := func() {
					t.Helper()
					for j, v := range c.want {
						want := min(max(float64(float32(v))*float64(scale[j%s.M])+float64(bias[j%s.M])+float64(res[j]), -100), 1e6)
						if d := math.Abs(want - float64(y[j])); d > 1e-6*(math.Abs(float64(v))*4+8) {
							t.Fatalf("%v %+v element %d: %v, want %v", isa, s, j, y[j], want)
						}
					}
				}
				check()
				clear(y)
				args.Store = func(i int, row []float32) { copy(y[i:], row) }
				p.Run(args)
				check()
				// Bytes are those that the definition makes of the numbers, at once or by way of Store, and nothing else is written.
				for _, q := range []Quant{{0.01, 3, 0, 255}, {0.003, -5, -128, 127}, {1e4, 0, 0, 255}, {float32(math.NaN()), 7, -128, 127}} {
					guarded := make([]byte, n+64)
					for j := range guarded {
						guarded[j] = 0xa5
					}
					to := guarded[32 : 32+n]
					args.Bytes, args.Quant = to, q
					args.Store = func(i int, row []float32) {
						for j, v := range row {
							to[i+j] = q.of(v)
						}
					}
					p.Run(args)
					for j, v := range y {
						if want := q.of(v); to[j] != want {
							t.Fatalf("%v %+v element %d: byte %d, want %d of %v", isa, s, j, to[j], want, v)
						}
					}
					untouched(t, guarded, 32, 0xa5, s)
				}
				untouched(t, guarded, 16, 0, s)
			}
		}
	}
}

// of is the definition of the byte of a number.
func (q Quant) of(x float32) byte {
	if x = float32(x * q.Scale); !(x > float32(q.Low-q.Zero)) {
		return byte(q.Low)
	}
	return byte(int32(math.RoundToEven(float64(min(x, float32(q.High-q.Zero))))) + q.Zero)
}

// The products of bfloat16 are exact in float32; the sums are float32's.
func TestBF16(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for i, s := range dotCases() {
		s.Type = BF16
		if !s.CanBF16() {
			require.Error(t, s.Check())
			continue
		}
		ac := actCases[i%len(actCases)]
		nx, ny := s.sizes()
		x, w := randomOf(rng, nx), randomOf(rng, s.Weights())
		bias, res := randomOf(rng, s.M), randomOf(rng, ny)
		half := s
		half.Type = F32
		want, err := oracle(half, x, w, bias, res, ac.op)
		require.NoError(t, err)
		for j := range x { // exact so far
			if exact := tensor.BF16ToF32(tensor.F32ToBF16(x[j])); exact != x[j] {
				t.Fatalf("%v is %v in bfloat16", x[j], exact)
			}
		}
		x16 := make([]uint16, len(x))
		tensor.F32sToBF16(x16, x)
		for _, isa := range isas() {
			f, err := Pack(s, w, nil, isa)
			require.NoError(t, err)
			for _, threads := range []int{1, 3} {
				p, err := NewPlan(f, s, threads)
				require.NoError(t, err)
				y := make([]float32, len(want))
				p.Run(&Args{X16: x16, Y: y, Bias: bias, Residual: res, Act: ac.act})
				near(t, want, y, 1, func(v float64) float64 { return 1e-4 + 1e-5*math.Abs(v) }, s)
			}
		}
	}
}

// All bytes, lengths and zero points, read from before and written to before pages that fault.
func TestWiden(t *testing.T) {
	all := make([]byte, 300)
	for i := range all {
		all[i] = byte(i)
	}
	for _, n := range []int{0, 1, 15, 16, 17, 32, 47, 300} {
		src := atEnd(t, all[:n])
		for _, signed := range []bool{false, true} {
			for _, zero := range []int32{0, 5, 127, -128} {
				for _, isa := range isas() {
					floats, ints := atEnd(t, make([]float32, n)), atEnd(t, make([]int16, n))
					Widen(floats, src, signed, zero, isa)
					WidenInt16(ints, src, signed, int16(zero), isa)
					for i, v := range src {
						want := int32(v) - zero
						if signed {
							want = int32(int8(v)) - zero
						}
						if floats[i] != float32(want) || ints[i] != int16(want) {
							t.Fatalf("%v: byte %d less %d is %v and %v, want %v", isa, v, zero, floats[i], ints[i], want)
						}
					}
				}
			}
		}
	}
}

func TestPackIntErrors(t *testing.T) {
	s := Spec{N: 1, H: 3, W: 3, C: 4, M: 2, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: 3, OW: 3, Groups: 1, Type: Int8}
	_, err := PackInt(s, make([]int16, 8), best())
	require.NoError(t, err)
	_, err = PackInt(s, make([]int16, 7), best())
	require.ErrorContains(t, err, "7 integer weights")
	_, err = PackInt(s, []int16{256, 0, 0, 0, 0, 0, 0, 0}, best())
	require.ErrorContains(t, err, "weight 256")
	for _, bad := range []func(*Spec){
		func(s *Spec) { s.XZero = 256 },
		func(s *Spec) { s.XZero, s.Signed = 128, true },
		func(s *Spec) { s.Transposed = true },
		func(s *Spec) { s.Type = F32; s.Signed = true },
		func(s *Spec) { s.Type = 9 },
		func(s *Spec) { s.Type = BF16; s.C, s.M, s.Groups = 3, 3, 1 },
	} {
		b := s
		bad(&b)
		require.Error(t, b.Check(), "%+v", b)
	}
}

func TestWideningFields(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("kernels in assembly exist for 64 bits")
	}
	var w widening
	require.Equal(t, []uintptr{0, 8, 16, 24}, []uintptr{unsafe.Offsetof(w.dst), unsafe.Offsetof(w.src), unsafe.Offsetof(w.n), unsafe.Offsetof(w.zero)})
}

func TestTileFields(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("kernels in assembly exist for 64 bits")
	}
	var a tile
	require.EqualValues(t, 128, unsafe.Offsetof(a.scale))
	require.EqualValues(t, 136, unsafe.Offsetof(a.extra))
	require.EqualValues(t, 144, unsafe.Offsetof(a.ahead))
	require.EqualValues(t, 152, unsafe.Offsetof(a.count))
	require.EqualValues(t, 160, unsafe.Offsetof(a.stepA))
	require.EqualValues(t, 168, unsafe.Offsetof(a.stepC))
	require.EqualValues(t, 176, unsafe.Offsetof(a.stepR))
	require.EqualValues(t, 184, unsafe.Offsetof(a.narrow))
	require.EqualValues(t, 192, unsafe.Offsetof(a.qscale))
	require.EqualValues(t, 196, unsafe.Offsetof(a.qlo))
	require.EqualValues(t, 200, unsafe.Offsetof(a.qhi))
	require.EqualValues(t, 204, unsafe.Offsetof(a.qzero))
}

func BenchmarkTypes(b *testing.B) {
	for _, s := range []Spec{
		{N: 1, H: 56, W: 56, C: 64, M: 64, KH: 3, KW: 3},
		{N: 1, H: 28, W: 28, C: 128, M: 512, KH: 1, KW: 1},
	} {
		s.SH, s.SW, s.DH, s.DW, s.OH, s.OW, s.Groups, s.Top, s.Left = 1, 1, 1, 1, s.H, s.W, 1, s.KH/2, s.KW/2
		run := func(name string, s Spec, f *Filter, args *Args) {
			b.Run(name, func(b *testing.B) {
				p, err := NewPlan(f, s, 1)
				require.NoError(b, err)
				args.Act, args.Y = NoAct, make([]float32, s.OH*s.OW*s.M)
				p.Run(args)
				b.ResetTimer()
				for range b.N {
					p.Run(args)
				}
				b.ReportMetric(2*float64(s.OH*s.OW*s.M)*float64(s.C*s.KH*s.KW)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
			})
		}
		rng := rand.New(rand.NewPCG(1, 1))
		w := randomOf(rng, s.M*s.C*s.KH*s.KW)
		wi := make([]int16, len(w))
		for i := range wi {
			wi[i] = int16(rng.IntN(255) - 127)
		}
		f, err := Pack(s, w, nil, best())
		require.NoError(b, err)
		name := map[int]string{1: "1x1", 3: "3x3"}[s.KH]
		run("f32_"+name, s, f, &Args{X: randomOf(rng, s.H*s.W*s.C)})
		s.Type = BF16
		f, err = Pack(s, w, nil, best())
		require.NoError(b, err)
		run("bf16_"+name, s, f, &Args{X16: make([]uint16, s.H*s.W*s.C)})
		s.Type = Int8
		f, err = PackInt(s, wi, best())
		require.NoError(b, err)
		run("u8_"+name, s, f, &Args{X8: make([]byte, s.H*s.W*s.C)})
		s.Signed = true
		f, err = PackInt(s, wi, best())
		require.NoError(b, err)
		run("s8_"+name, s, f, &Args{X8: make([]byte, s.H*s.W*s.C)})
		wi[0] = 200
		f, err = PackInt(s, wi, best())
		require.NoError(b, err)
		run("s16_"+name, s, f, &Args{X8: make([]byte, s.H*s.W*s.C)})
	}
}

// TestStackGrowth: a stack that grows, and so moves, between a call and its kernel changes no result.
func TestStackGrowth(t *testing.T) {
	src := make([]byte, 21)
	for i := range src {
		src[i] = byte(i)
	}
	done := make(chan []float32)
	for depth := range 2000 {
		go func() {
			dst := make([]float32, len(src))
			deep(depth, func() { Widen(dst, src, false, 1, best()) })
			done <- dst
		}()
		for i, v := range <-done {
			if v != float32(i-1) {
				t.Fatalf("%d calls deep: number %d is %v", depth, i, v)
			}
		}
	}
}

// deep calls f after so many calls.
//
//go:noinline
func deep(n int, f func()) byte {
	var frame [16]byte
	frame[n%16] = 1
	if n == 0 {
		f()
		return frame[0]
	}
	return deep(n-1, f) + frame[1]
}
