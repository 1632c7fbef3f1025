package conv

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	opconv "github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func isas() []cpuinfo.ISA {
	var list []cpuinfo.ISA
	for _, n := range cpuinfo.Get().Names() {
		isa, err := cpuinfo.ParseISA(n)
		if err == nil {
			list = append(list, isa)
		}
	}
	return list
}

// The assembly reads the fields at these offsets.
func TestOffsets(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("kernels in assembly exist for 64 bits")
	}
	var a tile
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 100, 104, 108, 112, 120, 124}, []uintptr{unsafe.Offsetof(a.a), unsafe.Offsetof(a.offs),
		unsafe.Offsetof(a.b), unsafe.Offsetof(a.c), unsafe.Offsetof(a.init), unsafe.Offsetof(a.res), unsafe.Offsetof(a.ars), unsafe.Offsetof(a.ldc),
		unsafe.Offsetof(a.ldr), unsafe.Offsetof(a.segs), unsafe.Offsetof(a.k), unsafe.Offsetof(a.cols), unsafe.Offsetof(a.lo), unsafe.Offsetof(a.hi),
		unsafe.Offsetof(a.p), unsafe.Offsetof(a.q), unsafe.Offsetof(a.mode), unsafe.Offsetof(a.s), unsafe.Offsetof(a.t)})
	var r row
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 92, 96, 100, 104, 112, 116}, []uintptr{unsafe.Offsetof(r.x), unsafe.Offsetof(r.w), unsafe.Offsetof(r.c),
		unsafe.Offsetof(r.init), unsafe.Offsetof(r.step), unsafe.Offsetof(r.wstep), unsafe.Offsetof(r.rows), unsafe.Offsetof(r.pixels), unsafe.Offsetof(r.px),
		unsafe.Offsetof(r.ldc), unsafe.Offsetof(r.n), unsafe.Offsetof(r.lo), unsafe.Offsetof(r.hi), unsafe.Offsetof(r.p), unsafe.Offsetof(r.q), unsafe.Offsetof(r.mode),
		unsafe.Offsetof(r.s), unsafe.Offsetof(r.t)})
	var w transform
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40}, []uintptr{unsafe.Offsetof(w.src), unsafe.Offsetof(w.dst), unsafe.Offsetof(w.tmp), unsafe.Offsetof(w.step), unsafe.Offsetof(w.n),
		unsafe.Offsetof(w.ahead)})
	var v inverse
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40, 48, 56, 64, 68, 72, 76, 80, 88, 92}, []uintptr{unsafe.Offsetof(v.src), unsafe.Offsetof(v.dst),
		unsafe.Offsetof(v.res), unsafe.Offsetof(v.init), unsafe.Offsetof(v.tmp), unsafe.Offsetof(v.step), unsafe.Offsetof(v.off), unsafe.Offsetof(v.n),
		unsafe.Offsetof(v.lo), unsafe.Offsetof(v.hi), unsafe.Offsetof(v.p), unsafe.Offsetof(v.q), unsafe.Offsetof(v.mode), unsafe.Offsetof(v.s), unsafe.Offsetof(v.t)})
	var s strip
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 76, 80, 84, 88, 96, 100}, []uintptr{unsafe.Offsetof(s.x), unsafe.Offsetof(s.offs),
		unsafe.Offsetof(s.w), unsafe.Offsetof(s.c), unsafe.Offsetof(s.init), unsafe.Offsetof(s.xs), unsafe.Offsetof(s.ldc), unsafe.Offsetof(s.taps),
		unsafe.Offsetof(s.n), unsafe.Offsetof(s.lo), unsafe.Offsetof(s.hi), unsafe.Offsetof(s.p), unsafe.Offsetof(s.q), unsafe.Offsetof(s.mode), unsafe.Offsetof(s.s), unsafe.Offsetof(s.t)})
}

func randomOf(rng *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.IntN(33)-16) / 8
	}
	return v
}

// shape returns the dimensions of images or results of a convolution.
func shape(s Spec, channels int, size func(Dim) int) []int {
	dims := []int{s.N}
	for _, d := range spatial(s) {
		dims = append(dims, size(d))
	}
	return append(dims, channels)
}

// spatial returns the dimensions that there are.
func spatial(s Spec) []Dim {
	d := s.dims()
	if s.Depth == (Dim{}) {
		return d[1:]
	}
	return d[:]
}

func in(d Dim) int  { return d.In }
func out(d Dim) int { return d.Out }

// sizes returns how many numbers an image and the results have.
func (s Spec) sizes() (x, y int) {
	x, y = 1, 1
	for _, d := range shape(s, s.C, in) {
		x *= d
	}
	for _, d := range shape(s, s.M, out) {
		y *= d
	}
	return x, y
}

// window returns the window of a convolution and its kernel's sizes.
func window(s Spec) (w opconv.Window, kernel []int) {
	for i, d := range spatial(s) {
		kernel = append(kernel, d.Kernel)
		w.Stride[i], w.Dilation[i], w.Before[i] = d.Stride, d.Dilation, d.Before
		if s.Transposed {
			w.After[i] = (d.In-1)*d.Stride + (d.Kernel-1)*d.Dilation + 1 - d.Before - d.Out
		} else {
			w.After[i] = (d.Out-1)*d.Stride + (d.Kernel-1)*d.Dilation + 1 - d.Before - d.In
		}
	}
	return w, kernel
}

// oracle computes with the reference of package ops/conv.
func oracle(s Spec, x, w, bias, res []float32, act ops.Act) ([]float64, error) {
	e := matmul.Epilogue{Bias: bias != nil, Act: act}
	if res != nil {
		e.Residual = matmul.ResidualBefore
	}
	win, kernel := window(s)
	var beyond [3]int // of a transposed one: results behind the last tap
	for i := range kernel {
		if s.Transposed && win.After[i] < 0 {
			beyond[i], win.After[i] = -win.After[i], 0
		}
	}
	filter := append([]int{s.M, s.C / s.Groups}, kernel...)
	var op ops.Op = opconv.Conv{Window: win, Groups: s.Groups, Layout: opconv.ChannelsLast, Epilogue: e}
	if s.Transposed {
		filter[0], filter[1] = s.C, s.M/s.Groups
		op = opconv.Transposed{Window: win, OutPad: beyond, Groups: s.Groups, Layout: opconv.ChannelsLast, Epilogue: e}
	}
	in := []tensor.Tensor{tensor.Of(x, shape(s, s.C, in)...), tensor.Of(w, filter...)}
	results := shape(s, s.M, out)
	if bias != nil {
		in = append(in, tensor.Of(bias, s.M))
	}
	if res != nil {
		in = append(in, tensor.Of(res, results...))
	}
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	out, err := op.Infer(specs)
	if err != nil {
		return nil, fmt.Errorf("%+v: %w", s, err)
	}
	if got := out[0].Shape(); !slices.Equal(got, results) {
		return nil, fmt.Errorf("%+v gives %v", s, got)
	}
	y := tensor.New(tensor.F32, out[0].Shape()...)
	err = op.Reference([]tensor.Tensor{y}, in)
	return y.Floats(), err
}

var actCases = []struct {
	op  ops.Act
	act Act
}{
	{ops.Act{}, NoAct},
	{ops.Act{Kind: ops.ReLU}, Act{Lo: 0, Hi: most}},
	{ops.Act{Kind: ops.Clip, P: -1, Q: 6}, Act{Lo: -1, Hi: 6}},
	{ops.Act{Kind: ops.HardSwish}, Act{Mode: Swish, P: 1.0 / 6, Q: 0.5, Lo: least, Hi: most}},
	{ops.Act{Kind: ops.HardSwishAffine, P: 1.5, Q: -0.25}, Act{Mode: SwishAffine, P: 1.0 / 6, Q: 0.5, S: 1.5, T: -0.25, Lo: least, Hi: most}},
	{ops.Act{Kind: ops.LeakyReLU, P: 0.1}, Act{Mode: Leaky, P: 0.1, Lo: least, Hi: most}},
	{ops.Act{Kind: ops.HardSigmoid, P: 0.2, Q: 0.5}, Act{Mode: Linear, P: 0.2, Q: 0.5, Lo: 0, Hi: 1}},
}

func cases() []Spec {
	var list []Spec
	add := func(n, h, w, c, m, k, stride, dilation, pad, groups int) {
		out := func(in int) int { return (in+2*pad-(k-1)*dilation-1)/stride + 1 }
		list = append(list, Spec{N: n, H: h, W: w, C: c, M: m, KH: k, KW: k, SH: stride, SW: stride, DH: dilation, DW: dilation, Top: pad, Left: pad,
			OH: out(h), OW: out(w), Groups: groups})
	}
	for _, m := range []int{1, 7, 8, 9, 15, 16, 17, 20, 23, 24, 31, 32, 33, 40, 64, 65, 70, 72} {
		add(1, 5, 15, 3, m, 3, 1, 1, 1, 1)
		add(2, 3, 9, 5, m, 1, 1, 1, 0, 1)
	}
	for w := 1; w < 32; w++ {
		add(1, 2, w, 4, 18, 1, 1, 1, 0, 1)
		add(1, 3, w, 2, 5, 3, 1, 1, 1, 1)
	}
	add(1, 9, 11, 4, 6, 3, 2, 1, 1, 1)
	add(1, 9, 11, 4, 6, 1, 2, 1, 0, 1)
	add(1, 9, 11, 4, 6, 3, 1, 2, 2, 1)
	add(1, 9, 11, 4, 6, 3, 1, 1, 0, 1)
	add(2, 9, 11, 8, 6, 3, 1, 1, 1, 2)
	add(1, 9, 11, 6, 12, 3, 2, 1, 1, 3)
	add(1, 4, 4, 3, 2, 5, 1, 1, 2, 1)
	add(1, 1, 1, 40, 70, 1, 1, 1, 0, 1)
	add(1, 2, 2, 2, 3, 3, 1, 1, 4, 1) // padding larger than the image: windows of nothing
	for _, c := range []int{2, 7, 8, 9, 16, 17, 24, 33} {
		add(1, 7, 9, c, c, 3, 1, 1, 1, c)
		add(1, 7, 9, c, c, 3, 2, 1, 1, c)
		add(2, 7, 19, c, c, 5, 1, 1, 2, c)
	}
	for _, c := range []int{3, 16, 40} { // rows long enough for row kernels, whole and with a step that overlaps
		for _, w := range []int{10, 12, 33, 40} {
			for _, k := range []int{3, 5} {
				add(1, 6, w, c, c, k, 1, 1, k/2, c)
				add(1, 7, w, c, c, k, 2, 1, k/2, c)
			}
		}
	}
	add(1, 7, 9, 6, 6, 3, 1, 2, 2, 6)
	add(1, 2, 2, 5, 5, 3, 1, 1, 4, 5)
	return list
}

// apartCases have pixels a multiple of 4 KiB apart, for some type, which high tiles read from copies that lie otherwise.
func apartCases() []Spec {
	var list []Spec
	for i, c := range []int{1024, 2048, 4096} {
		list = append(list,
			Spec{N: 2, H: 3, W: 5, C: c, M: 96 + i, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: 3, OW: 5, Groups: 1},
			Spec{N: 1, H: 7, W: 9, C: c / 2, M: 97, KH: 1, KW: 1, SH: 2, SW: 2, DH: 1, DW: 1, OH: 4, OW: 5, Groups: 1})
	}
	return list
}

// deepCases have a third spatial dimension, which comes first.
func deepCases() []Spec {
	var list []Spec
	rng := rand.New(rand.NewPCG(9, 9))
	for i := 0; len(list) < 120; i++ {
		g := 1 + rng.IntN(3)
		s := Spec{N: 1 + rng.IntN(2), H: 1 + rng.IntN(7), W: 1 + rng.IntN(19), C: g * (1 + rng.IntN(9)), M: g * (1 + rng.IntN(20)), Groups: g,
			KH: 1 + rng.IntN(3), KW: 1 + rng.IntN(3), SH: 1 + rng.IntN(2), SW: 1 + rng.IntN(2), DH: 1 + rng.IntN(2), DW: 1 + rng.IntN(2), Top: rng.IntN(3), Left: rng.IntN(3),
			Depth: Dim{In: 1 + rng.IntN(6), Kernel: 1 + rng.IntN(3), Stride: 1 + rng.IntN(2), Dilation: 1 + rng.IntN(2), Before: rng.IntN(3)}}
		switch i % 5 {
		case 0:
			s.Groups, s.M = s.C, s.C
			s.W += 10 * (i % 2)
		case 1: // the axes of a separable filter
			if i%2 == 0 {
				s.KH, s.KW, s.SH, s.SW, s.Top, s.Left = 1, 1, 1, 1, 0, 0
			} else {
				s.Depth.Kernel, s.Depth.Stride, s.Depth.Before = 1, 1, 0
			}
		case 2:
			s.Transposed = true
			if i%2 == 0 { // blocks
				s.SH, s.SW, s.Depth.Stride, s.DH, s.DW, s.Depth.Dilation, s.Top, s.Left, s.Depth.Before = s.KH, s.KW, s.Depth.Kernel, 1, 1, 1, 0, 0, 0
				s.Groups, s.M = 1, 1+rng.IntN(8)
			}
		}
		size := func(n, k, stride, dilation, before int) int {
			if s.Transposed {
				return (n-1)*stride + (k-1)*dilation + 1 - before - rng.IntN(2) + rng.IntN(2)
			}
			return (n+before+rng.IntN(before+1)-(k-1)*dilation-1)/stride + 1
		}
		d := &s.Depth
		d.Out, s.OH, s.OW = size(d.In, d.Kernel, d.Stride, d.Dilation, d.Before), size(s.H, s.KH, s.SH, s.DH, s.Top), size(s.W, s.KW, s.SW, s.DW, s.Left)
		if i%20 == 4 { // all of the image
			s.Transposed, s.KH, s.KW, d.Kernel, s.OH, s.OW, d.Out, s.Top, s.Left, d.Before, s.DH, s.DW, d.Dilation = false, s.H, s.W, d.In, 1, 1, 1, 0, 0, 0, 1, 1, 1
		}
		if d.Out > 0 && s.OH > 0 && s.OW > 0 {
			list = append(list, s, s.Fold())
		}
	}
	// Deep kernels whose planes take Winograd's algorithm, in several jobs and with channels that fill no vector.
	for _, c := range []int{7, 12, 16, 25} {
		for _, k := range []int{2, 3} {
			for _, w := range []int{5, 18} {
				s := Spec{N: 2, H: 6, W: w, C: c, M: c + 9, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 6, OW: w, Groups: 1,
					Depth: Dim{In: 4, Out: 8 - 2*k + k%2, Kernel: k, Stride: 1, Dilation: k - 1, Before: k - 1}}
				list = append(list, s)
				s.KH, s.OH, s.Top = 1, 6, 0
				list = append(list, s)
			}
		}
	}
	return list
}

func transposedCases() []Spec {
	var list []Spec
	for _, k := range []int{1, 2, 3, 4} {
		for _, stride := range []int{1, 2, 3} {
			for _, pad := range []int{0, 1} {
				for _, g := range []int{1, 2} {
					s := Spec{N: 2, H: 3, W: 5, C: 4, M: 6, KH: k, KW: k, SH: stride, SW: stride, DH: 1, DW: 1 + k%2, Top: pad, Left: pad, Groups: g, Transposed: true}
					s.OH = (s.H-1)*stride + k - 2*pad
					s.OW = (s.W-1)*stride + (k-1)*s.DW + 1 - 2*pad
					if s.OH > 0 && s.OW > 0 {
						list = append(list, s)
					}
				}
			}
		}
	}
	// Blocks: a kernel as large as its stride and few channels, whole, cut and with pixels behind the last block.
	for i, m := range []int{1, 1, 2, 3, 8, 9, 1, 1} {
		s := Spec{N: 2, H: 3, W: 17 + i, C: 5, M: m, KH: 2, KW: 2, SH: 2, SW: 2, DH: 1, DW: 1, Groups: 1, Transposed: true}
		s.KW += i % 2
		s.SW = s.KW
		s.OH, s.OW = 2*s.H-i%3/2, s.KW*s.W-i%3
		if i == 6 {
			s.OH, s.OW = s.OH+1, s.OW+1
		}
		list = append(list, s)
	}
	return list
}

// some are every fourth of the cases where tests are short: under emulation all of them take minutes.
func some(list []Spec) []Spec {
	if !testing.Short() {
		return list
	}
	var few []Spec
	for i := 0; i < len(list); i += 4 {
		few = append(few, list[i])
	}
	return few
}

// sparseCases have strides, dilations or padding far larger than their images, so that taps read little of what lies between the first and the last;
// transposed ones have results, some of them all, that no tap reaches.
func sparseCases() []Spec {
	var list []Spec
	rng := rand.New(rand.NewPCG(11, 11))
	for i := 0; len(list) < 150; i++ {
		g := 1 + rng.IntN(2)
		s := Spec{N: 1 + rng.IntN(2), C: g * (1 + rng.IntN(9)), M: g * (1 + rng.IntN(20)), Groups: g, Transposed: i%3 == 0}
		far := []int{7, 100, 1 << 20, 1 << (bits.UintSize/2 - 2)}[rng.IntN(4)]
		size := func() Dim {
			d := Dim{In: 1 + rng.IntN(5), Kernel: 1 + rng.IntN(3), Stride: 1 + rng.IntN(3), Dilation: 1 + rng.IntN(3), Before: rng.IntN(4)}
			long := far - rng.IntN(4)
			switch {
			case s.Transposed:
				d.Out = 1 + rng.IntN(9)
				if i%2 == 0 {
					d.Stride, d.Before = long, rng.IntN(2)*max(long-rng.IntN(9), 0)
				} else {
					d.Dilation, d.Before = long, rng.IntN(2)*max((d.Kernel-1)*long-rng.IntN(9), 0)
				}
			case i%2 == 0:
				d.Stride, d.Before = long, rng.IntN(2)*long
				d.Out = 1 + rng.IntN(3)
			default:
				d.Dilation, d.Before = long, rng.IntN(2)*long
				d.Out = 1 + rng.IntN(5)
			}
			return d
		}
		d := [3]Dim{one, size(), size()}
		if i%4 == 3 {
			d[0] = size()
			s.Depth = d[0]
		}
		s.H, s.OH, s.KH, s.SH, s.DH, s.Top = d[1].In, d[1].Out, d[1].Kernel, d[1].Stride, d[1].Dilation, d[1].Before
		s.W, s.OW, s.KW, s.SW, s.DW, s.Left = d[2].In, d[2].Out, d[2].Kernel, d[2].Stride, d[2].Dilation, d[2].Before
		if i%7 == 6 && !s.Transposed {
			s.Groups, s.M = s.C, s.C
		}
		valid := true // as the operation sees it: no negative padding of a convolution, and a transposed one covers its results
		win, _ := window(s)
		for j, d := range spatial(s) {
			valid = valid && win.After[j] <= math.MaxInt32 && d.Before <= math.MaxInt32 && (s.Transposed && win.After[j] > -far || win.After[j] >= 0)
		}
		if valid {
			list = append(list, s)
		}
	}
	return list
}

// winogradCases are those of the others that the algorithm takes, with both sizes of tiles, and some whose tiles fill several jobs.
func winogradCases() []Spec {
	var list []Spec
	add := func(s Spec) {
		for _, s.Tile = range []int{2, 4} {
			if _, ok := s.form(s.Tile); ok {
				list = append(list, s)
			}
		}
	}
	for _, s := range slices.Concat(cases(), apartCases(), some(deepCases()), some(sparseCases())) {
		add(s)
	}
	for _, k := range []int{3, 5} { // lines
		for _, w := range []int{5, 8, 30} {
			for _, d := range []int{1, 2} {
				for _, c := range []int{3, 16, 25} {
					s := Spec{N: 2, H: 1 + c%3, W: w, C: c, M: 2*c - 1, KH: 1, KW: k, SH: 1, SW: 1, DH: 1, DW: d, Left: d, Groups: 1}
					if s.OH, s.OW = s.H, w+2*d-(k-1)*d; s.OW > 0 {
						add(s)
					}
				}
			}
		}
	}
	for _, d := range []int{1, 2, 3, 5} {
		for _, c := range []int{7, 16, 24, 40} {
			s := Spec{N: 1 + c%2, H: 8, W: 11, C: c, M: c%16 + 13, KH: 3, KW: 3, SH: 1, SW: 1, DH: d, DW: d%2 + 1, Top: d, Left: 1, Groups: 1}
			s.OH, s.OW = 8, 11+2-2*s.DW
			add(s)
		}
	}
	add(Spec{N: 2, H: 18, W: 14, C: 260, M: 5, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 18, OW: 14, Groups: 1})
	return list
}

// untouched demands that so many numbers before and after a result still have the value that they had.
func untouched[T float32 | byte](t *testing.T, guarded []T, n int, v T, s Spec) {
	t.Helper()
	for i := range n {
		if before, after := guarded[i], guarded[len(guarded)-1-i]; before != v || after != v {
			t.Fatalf("%+v wrote beside its results: number %d before them or %d after them", s, n-i, n-i)
		}
	}
}

// near compares with a multiple of what is wanted.
func near(t *testing.T, want []float64, got []float32, factor float64, tol func(float64) float64, s Spec) {
	t.Helper()
	for j, v := range want {
		if d := math.Abs(factor*v - float64(got[j])); !(d <= factor*tol(v)) {
			t.Fatalf("%+v element %d: %v, want %v", s, j, got[j], factor*v)
		}
	}
}

// problem is a case with its operands and results.
type problem struct {
	s               Spec
	x, w, bias, res []float32
	act             Act
	want            []float64
}

// problems computes the results of all cases once for all instruction sets.
var problems = sync.OnceValue(func() []problem {
	rng := rand.New(rand.NewPCG(7, 7))
	var list []problem
	for i, s := range slices.Concat(cases(), apartCases(), some(deepCases()), transposedCases(), some(sparseCases()), winogradCases()) {
		ac := actCases[i%len(actCases)]
		nx, ny := s.sizes()
		p := problem{s: s, act: ac.act, x: randomOf(rng, nx), w: randomOf(rng, s.Weights())}
		if i%2 == 0 {
			p.bias = randomOf(rng, s.M)
		}
		if i%3 == 0 && !s.Depthwise() {
			p.res = randomOf(rng, ny)
		}
		var err error
		if p.want, err = oracle(s, p.x, p.w, p.bias, p.res, ac.op); err != nil {
			panic(err)
		}
		list = append(list, p)
	}
	return list
})

// Every kernel, shape, activation and number of workers against the reference; the results of all numbers of workers have the same
// bits, and nothing is written outside.
func TestConv(t *testing.T) {
	for _, isa := range isas() {
		t.Run(isa.String(), func(t *testing.T) {
			for _, c := range problems() {
				s, x, w, bias, res, want := c.s, c.x, c.w, c.bias, c.res, c.want
				tol := func(v float64) float64 { return 1e-4 + 1e-5*math.Abs(v) }
				if s.Tile > 0 { // what is close by counts as well
					most := 0.0
					for _, v := range want {
						most = max(most, math.Abs(v))
					}
					tol = func(float64) float64 { return 1e-5*most + 1e-4 }
				}
				f, err := Pack(s, w, nil, isa)
				require.NoError(t, err)
				var first []float32
				for _, threads := range []int{1, 2, 5} {
					p, err := NewPlan(f, s, threads)
					require.NoError(t, err)
					_, n := s.sizes()
					guarded := make([]float32, n+64)
					for j := range guarded {
						guarded[j] = 12345
					}
					y := guarded[32 : 32+n]
					args := &Args{X: x, Y: y, Bias: bias, Residual: res, Act: c.act}
					p.Run(args)
					near(t, want, y, 1, tol, s)
					untouched(t, guarded, 32, 12345, s)
					if first == nil {
						first = append([]float32{}, y...)
					}
					if !slices.Equal(first, y) {
						require.Equal(t, first, y, "%+v, %d threads", s, threads)
					}
					// By way of Load and Store.
					clear(y)
					args.Load = func(dst []float32, i int) { copy(dst, x[i:]) }
					args.Store = func(i int, row []float32) { copy(y[i:], row) }
					args.Post = func(i int, row []float32) {
						for k := range row {
							row[k] *= 2
						}
					}
					p.Run(args)
					near(t, want, y, 2, tol, s)
				}
			}
		})
	}
}

func TestPool(t *testing.T) {
	for _, isa := range isas() {
		rng := rand.New(rand.NewPCG(8, 8))
		for i := range 400 {
			s := PoolSpec{N: 1 + i%2, H: 1 + rng.IntN(9), W: 1 + rng.IntN(20), C: 1 + rng.IntN(35), KH: 1 + rng.IntN(3), KW: 1 + rng.IntN(3),
				SH: 1 + rng.IntN(2), SW: 1 + rng.IntN(2), DH: 1 + rng.IntN(2), DW: 1, Top: rng.IntN(2), Left: rng.IntN(2), Bottom: rng.IntN(2), Right: rng.IntN(2),
				Max: i%3 == 0, Counted: i%3 == 1}
			d := &s.Depth
			if i >= 200 {
				*d = Dim{In: 1 + rng.IntN(6), Kernel: 1 + rng.IntN(3), Stride: 1 + rng.IntN(2), Dilation: 1 + rng.IntN(2), Before: rng.IntN(2), After: rng.IntN(2)}
				s.H, s.W = 1+s.H%6, 1+s.W%9
			}
			if i%5 == 0 { // the whole image, of up to some blocks of channels
				s.KH, s.KW, s.DH, s.Top, s.Left, s.Bottom, s.Right, s.C = s.H, s.W, 1, 0, 0, 0, 0, 1+rng.IntN(150)
				if i >= 200 && i%2 == 0 {
					d.Kernel, d.Dilation, d.Before, d.After = d.In, 1, 0, 0
				}
			}
			kind := opconv.Avg
			if s.Max {
				kind = opconv.Max
			} else if s.Counted {
				kind = opconv.AvgPadded
			}
			op := opconv.Pool{Kind: kind, Layout: opconv.ChannelsLast, Ceil: i%2 == 0}
			dims := []Dim{*d, {In: s.H, Kernel: s.KH, Stride: s.SH, Dilation: s.DH, Before: s.Top, After: s.Bottom},
				{In: s.W, Kernel: s.KW, Stride: s.SW, Dilation: s.DW, Before: s.Left, After: s.Right}}
			if i < 200 {
				dims = dims[1:]
			}
			image := []int{s.N}
			for j, d := range dims {
				image = append(image, d.In)
				op.Kernel[j], op.Stride[j], op.Dilation[j], op.Before[j], op.After[j] = d.Kernel, d.Stride, d.Dilation, d.Before, d.After
			}
			x := tensor.New(tensor.F32, append(image, s.C)...)
			copy(tensor.Data[float32](x), randomOf(rng, x.Elems()))
			if s.Max && i%4 == 0 {
				tensor.Data[float32](x)[rng.IntN(x.Elems())] = float32(math.NaN())
			}
			out, err := op.Infer([]tensor.Spec{x.Spec})
			if err != nil {
				continue
			}
			y := tensor.New(tensor.F32, out[0].Shape()...)
			require.NoError(t, op.Reference([]tensor.Tensor{y}, []tensor.Tensor{x}))
			s.OH, s.OW = out[0].Dims[len(dims)-1], out[0].Dims[len(dims)]
			if i >= 200 {
				d.Out = out[0].Dims[1]
			}
			got := make([]float32, y.Elems())
			p := NewPool(s, isa, 1+i%3)
			check := func() {
				t.Helper()
				for j, v := range y.Floats() {
					if math.IsNaN(v) || math.IsInf(v, 0) {
						require.Equal(t, fmt.Sprint(v), fmt.Sprint(got[j]), "%v %+v", isa, s)
						continue
					}
					if !(math.Abs(v-float64(got[j])) <= 1e-5) {
						t.Fatalf("%v %+v element %d: %v, want %v", isa, s, j, got[j], v)
					}
				}
			}
			p.Run(&Args{X: tensor.Data[float32](x), Y: got, Act: NoAct})
			check()
			clear(got)
			p.Run(&Args{Load: func(dst []float32, at int) { copy(dst, tensor.Data[float32](x)[at:]) }, Store: func(at int, row []float32) { copy(got[at:], row) }, Act: NoAct})
			check()
			require.LessOrEqual(t, p.Held(), p.WorkspaceBytes(true, true), "%+v", s)
		}
	}
}

// Windows and sums so large that they take several calls.
func TestLong(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, isa := range isas() {
		h, c := 64, 1100
		x := randomOf(rng, h*h*c)
		y := make([]float32, c)
		NewPool(PoolSpec{N: 1, H: h, W: h, C: c, KH: h, KW: h, SH: 1, SW: 1, DH: 1, DW: 1, OH: 1, OW: 1}, isa, 1).Run(&Args{X: x, Y: y, Act: NoAct})
		for j, got := range y {
			sum := 0.0
			for i := range h * h {
				sum += float64(x[i*c+j])
			}
			require.InDelta(t, sum/float64(h*h), got, 1e-4)
		}
		s := Spec{N: 1, H: 1, W: 20, C: 40_000, M: 3, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: 1, OW: 20, Groups: 1}
		x, w := randomOf(rng, 20*s.C), randomOf(rng, 3*s.C)
		f, err := Pack(s, w, nil, isa)
		require.NoError(t, err)
		p, err := NewPlan(f, s, 1)
		require.NoError(t, err)
		require.Less(t, p.works[0].mr, 9)
		y = make([]float32, 60)
		p.Run(&Args{X: x, Y: y, Act: NoAct})
		for i := range y {
			sum := 0.0
			for j := range s.C {
				sum += float64(x[i/3*s.C+j]) * float64(w[i%3*s.C+j])
			}
			require.InDelta(t, sum, y[i], 0.05)
		}
	}
}

// NaN and infinity come through every activation as the definition has it.
func TestSpecial(t *testing.T) {
	for _, isa := range isas() {
		for _, depthwise := range []bool{false, true} {
			for _, ac := range actCases {
				c := 8
				s := Spec{N: 1, H: 1, W: 3, C: c, M: c, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: 1, OW: 3, Groups: 1}
				w := make([]float32, c*c)
				for i := range c {
					w[i*c+i] = 1
				}
				x := make([]float32, 3*c)
				if depthwise {
					s.Groups = c
					w = make([]float32, c)
					for i := range w {
						w[i] = 1
					}
				}
				for i := range x {
					x[i] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[i/c]
				}
				if !depthwise { // keep infinities apart: a product with zero would make them NaN
					for i := range x {
						if i%c != 0 {
							x[i] = 0
						}
					}
					for i := range c {
						w[i*c] = 1
					}
				}
				f, err := Pack(s, w, nil, isa)
				require.NoError(t, err)
				p, err := NewPlan(f, s, 1)
				require.NoError(t, err)
				y := make([]float32, 3*c)
				p.Run(&Args{X: x, Y: y, Act: ac.act})
				for i := range 3 {
					want := float32(ac.op.Apply(float64(x[i*c])))
					require.Equal(t, fmt.Sprint(want), fmt.Sprint(y[i*c]), "%v %v", isa, ac.op.Kind)
				}
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	base := Spec{N: 1, H: 20, W: 20, C: 24, M: 40, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 20, OW: 20, Groups: 1}
	none := func(p interface{ Run(*Args) }, args *Args, what any) {
		t.Helper()
		p.Run(args)
		require.Zero(t, testing.AllocsPerRun(10, func() { p.Run(args) }), "%+v", what)
	}
	for _, change := range []func(*Spec){
		func(*Spec) {},
		func(s *Spec) { s.Tile = 2 },
		func(s *Spec) { s.Tile = 4 },
		func(s *Spec) { s.Groups, s.M = s.C, s.C },
		func(s *Spec) { s.Type = BF16 },
		func(s *Spec) { s.Type = Int8; s.Signed = true },
		func(s *Spec) {
			s.Transposed, s.KH, s.KW, s.SH, s.SW, s.Top, s.Left, s.OH, s.OW, s.M = true, 2, 2, 2, 2, 0, 0, 40, 40, 2
		},
	} {
		s := base
		change(&s)
		var f *Filter
		var err error
		if s.Type == Int8 {
			f, err = PackInt(s, make([]int16, s.M*s.C*s.KH*s.KW), best())
		} else {
			f, err = Pack(s, randomOf(rng, s.C*s.M/s.Groups*s.KH*s.KW), nil, best())
		}
		require.NoError(t, err)
		p, err := NewPlan(f, s, 2)
		require.NoError(t, err)
		n := s.H * s.W * s.C
		none(p, &Args{X: randomOf(rng, n), X16: make([]uint16, n), X8: make([]byte, n), Y: make([]float32, s.OH*s.OW*s.M), Act: NoAct}, s)
	}
	none(NewPool(PoolSpec{N: 1, H: 20, W: 20, C: 24, KH: 2, KW: 2, SH: 2, SW: 2, DH: 1, DW: 1, OH: 10, OW: 10, Max: true}, best(), 2),
		&Args{X: randomOf(rng, 20*20*24), Y: make([]float32, 100*24), Act: NoAct}, "pool")
}

func BenchmarkConv(b *testing.B) {
	for _, s := range []Spec{
		{N: 1, H: 1, W: 256, C: 512, M: 512, KH: 1, KW: 5},
		{N: 1, H: 1, W: 256, C: 512, M: 512, KH: 1, KW: 5, Tile: 4},
		{N: 8, H: 1, W: 256, C: 512, M: 512, KH: 1, KW: 5, Tile: 4},
		{N: 1, H: 1, W: 256, C: 512, M: 512, KH: 1, KW: 3, Tile: 4},
		{N: 1, H: 160, W: 160, C: 64, M: 64, KH: 3, KW: 3, Tile: 2},
		{N: 1, H: 160, W: 160, C: 64, M: 64, KH: 3, KW: 3, Tile: 4},
		{N: 1, H: 160, W: 160, C: 128, M: 128, KH: 3, KW: 3},
		{N: 1, H: 160, W: 160, C: 128, M: 128, KH: 3, KW: 3, Tile: 4},
		{N: 1, H: 160, W: 160, C: 96, M: 24, KH: 3, KW: 3},
		{N: 1, H: 160, W: 160, C: 96, M: 24, KH: 3, KW: 3, Tile: 2},
		{N: 1, H: 160, W: 160, C: 96, M: 24, KH: 3, KW: 3, Tile: 4},
		{N: 1, H: 56, W: 56, C: 64, M: 64, KH: 3, KW: 3, Tile: 4},
		{N: 1, H: 28, W: 28, C: 128, M: 128, KH: 3, KW: 3, Tile: 2},
		{N: 1, H: 28, W: 28, C: 128, M: 128, KH: 3, KW: 3, Tile: 4},
		{N: 1, H: 14, W: 14, C: 256, M: 256, KH: 3, KW: 3, Tile: 2},
		{N: 1, H: 14, W: 14, C: 256, M: 256, KH: 3, KW: 3, Tile: 4},
		{N: 1, H: 7, W: 7, C: 512, M: 512, KH: 3, KW: 3, Tile: 2},
		{N: 1, H: 7, W: 7, C: 512, M: 512, KH: 3, KW: 3, Tile: 4},
		{N: 8, H: 14, W: 14, C: 256, M: 256, KH: 3, KW: 3, Tile: 2},
		{N: 8, H: 14, W: 14, C: 256, M: 256, KH: 3, KW: 3, Tile: 4},
		{N: 8, H: 7, W: 7, C: 512, M: 512, KH: 3, KW: 3},
		{N: 8, H: 7, W: 7, C: 512, M: 512, KH: 3, KW: 3, Tile: 2},
		{N: 8, H: 7, W: 7, C: 512, M: 512, KH: 3, KW: 3, Tile: 4},
		{N: 1, H: 160, W: 160, C: 64, M: 64, KH: 3, KW: 3},
		{N: 1, H: 56, W: 56, C: 64, M: 64, KH: 3, KW: 3},
		{N: 1, H: 56, W: 56, C: 64, M: 256, KH: 1, KW: 1},
		{N: 1, H: 14, W: 14, C: 1024, M: 256, KH: 1, KW: 1},
		{N: 8, H: 14, W: 14, C: 1024, M: 256, KH: 1, KW: 1},
		{N: 8, H: 28, W: 28, C: 512, M: 128, KH: 1, KW: 1},
		{N: 8, H: 28, W: 28, C: 128, M: 512, KH: 1, KW: 1},
		{N: 8, H: 7, W: 7, C: 2048, M: 512, KH: 1, KW: 1},
		{N: 1, H: 28, W: 28, C: 128, M: 128, KH: 3, KW: 3},
		{N: 1, H: 14, W: 14, C: 256, M: 256, KH: 3, KW: 3},
		{N: 1, H: 7, W: 7, C: 512, M: 512, KH: 3, KW: 3},
		{N: 1, H: 112, W: 112, C: 96, M: 24, KH: 1, KW: 1},
		{N: 1, H: 112, W: 112, C: 16, M: 96, KH: 1, KW: 1},
		{N: 1, H: 112, W: 112, C: 96, M: 96, KH: 3, KW: 3, Groups: 96},
		{N: 1, H: 40, W: 40, C: 192, M: 192, KH: 5, KW: 5, Groups: 192},
	} {
		s.SH, s.SW, s.DH, s.DW, s.OH, s.OW, s.Groups = 1, 1, 1, 1, s.H, s.W, max(s.Groups, 1)
		s.Top, s.Left = s.KH/2, s.KW/2
		b.Run(fmt.Sprintf("n%d_%dx%dx%d_m%d_k%d_g%d_w%d", s.N, s.H, s.W, s.C, s.M, s.KH, s.Groups, s.Tile), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			f, err := Pack(s, randomOf(rng, s.M*s.C/s.Groups*s.KH*s.KW), nil, best())
			require.NoError(b, err)
			for _, threads := range []int{1, runtime.GOMAXPROCS(0)} {
				b.Run(fmt.Sprintf("t%d", threads), func(b *testing.B) {
					p, err := NewPlan(f, s, threads)
					require.NoError(b, err)
					args := &Args{X: randomOf(rng, s.N*s.H*s.W*s.C), Y: make([]float32, s.N*s.OH*s.OW*s.M), Act: Act{Lo: 0, Hi: 6}}
					p.Run(args)
					b.ResetTimer()
					for range b.N {
						p.Run(args)
					}
					flops := 2 * float64(s.N*s.OH*s.OW*s.M) * float64(s.C/s.Groups*s.KH*s.KW)
					b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		})
	}
}

// BenchmarkDepth runs convolutions of three dimensions; the first ones are those of r3d_18, the last is small enough for the definition.
func BenchmarkDepth(b *testing.B) {
	for _, c := range []struct{ depth, size, in, out, kernel, groups, tile int }{
		{8, 56, 64, 64, 3, 1, 0}, {8, 56, 64, 64, 3, 1, 4}, {4, 28, 128, 128, 3, 1, 0}, {4, 28, 128, 128, 3, 1, 4}, {2, 14, 256, 256, 3, 1, 0}, {2, 14, 256, 256, 3, 1, 4},
		{8, 56, 64, 64, 3, 64, 0}, {4, 14, 32, 32, 3, 1, 0}, {4, 14, 32, 32, 3, 1, 4},
	} {
		s := Spec{N: 1, H: c.size, W: c.size, C: c.in, M: c.out, KH: c.kernel, KW: c.kernel, SH: 1, SW: 1, DH: 1, DW: 1, Top: c.kernel / 2, Left: c.kernel / 2, OH: c.size, OW: c.size,
			Groups: c.groups, Tile: c.tile, Depth: Dim{In: c.depth, Out: c.depth, Kernel: c.kernel, Stride: 1, Dilation: 1, Before: c.kernel / 2}}
		rng := rand.New(rand.NewPCG(1, 1))
		nx, ny := s.sizes()
		x, w := randomOf(rng, nx), randomOf(rng, s.Weights())
		run := func(name string, f func()) {
			b.Run(fmt.Sprintf("%dx%dx%dx%d_m%d_k%d_g%d_w%d/%s", c.depth, c.size, c.size, c.in, c.out, c.kernel, c.groups, c.tile, name), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(2*float64(ny/s.M)*float64(s.Weights())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
		f, err := Pack(s, w, nil, best())
		require.NoError(b, err)
		p, err := NewPlan(f, s, 1)
		require.NoError(b, err)
		args := &Args{X: x, Y: make([]float32, ny), Act: NoAct}
		p.Run(args)
		run("engine", func() { p.Run(args) })
		if c.size < 20 && c.in < 100 {
			run("reference", func() {
				_, err := oracle(s, x, w, nil, nil, ops.Act{})
				require.NoError(b, err)
			})
		}
	}
}

func best() cpuinfo.ISA {
	isa, err := cpuinfo.Pinned()
	if err != nil {
		panic(err)
	}
	return isa
}
