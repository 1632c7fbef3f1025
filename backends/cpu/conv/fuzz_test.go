package conv

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// atEnd copies values to the end of a page that is followed by one that faults.
func atEnd[T any](t testing.TB, v []T) []T {
	t.Helper()
	var zero T
	size := int(unsafe.Sizeof(zero))
	b, release, err := mem.Guarded(len(v) * size)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { require.NoError(t, release()) })
	if len(v) == 0 {
		return v
	}
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(v))
	copy(out, v)
	return out
}

// checkSpec runs a convolution of a type in every instruction set with all operands before unmapped pages, and compares with the definition.
func checkSpec(t testing.TB, s Spec, act int, seed uint64, threads int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	ac := actCases[act%len(actCases)]
	nx, ny := s.sizes()
	x, w := randomOf(rng, nx), randomOf(rng, s.Weights())
	if s.Type == Int8 {
		for i := range x {
			x[i] = float32(rng.IntN(256)) - float32(map[bool]int{true: 128}[s.Signed])
		}
		for i := range w {
			w[i] = float32(rng.IntN(256+int(seed%2)*254) - 128 - int(seed%2)*127)
		}
	}
	bias, res := randomOf(rng, s.M), randomOf(rng, ny)
	plain := s
	plain.Type, plain.Signed, plain.XZero, plain.Tile = F32, false, 0, 0
	real := x
	if s.Type == Int8 {
		real = make([]float32, len(x))
		for i, v := range x {
			real[i] = v - float32(s.XZero)
		}
	}
	if s.Depthwise() {
		res = nil
	}
	want, err := oracle(plain, real, w, bias, res, ac.op)
	require.NoError(t, err)
	most := 1.0
	for _, v := range want {
		most = max(most, math.Abs(v))
	}
	args := Args{Y: atEnd(t, make([]float32, len(want))), Bias: atEnd(t, bias), Act: ac.act}
	if res != nil {
		args.Residual = atEnd(t, res)
	}
	switch s.Type {
	case F32:
		args.X = atEnd(t, x)
	case BF16:
		half := make([]uint16, len(x))
		tensor.F32sToBF16(half, x)
		args.X16 = atEnd(t, half)
	default:
		bytes := make([]byte, len(x))
		for i, v := range x {
			bytes[i] = byte(int32(v))
		}
		args.X8 = atEnd(t, bytes)
	}
	for _, isa := range isas() {
		var f *Filter
		if s.Type == Int8 {
			ints := make([]int16, len(w))
			for i, v := range w {
				ints[i] = int16(v)
			}
			f, err = PackInt(s, ints, isa)
		} else {
			f, err = Pack(s, w, nil, isa)
		}
		require.NoError(t, err)
		p, err := NewPlan(f, s, threads)
		require.NoError(t, err)
		p.Run(&args)
		for i, v := range want {
			if d := math.Abs(v - float64(args.Y[i])); !(d <= 1e-5*most+1e-4) {
				t.Fatalf("%v %+v %v: element %d is %v, want %v", isa, s, ac.op.Kind, i, args.Y[i], v)
			}
		}
		if s.Type == Int8 {
			q := Quant{Scale: float32(100 / most), Zero: int32(seed % 7), Low: -128, High: 127}
			to := atEnd(t, make([]byte, len(want)))
			narrow := args
			narrow.Bytes, narrow.Quant, narrow.Store = to, q, func(i int, row []float32) {
				for j, v := range row {
					to[i+j] = q.of(v)
				}
			}
			p.Run(&narrow)
			for i, v := range args.Y {
				if to[i] != q.of(v) {
					t.Fatalf("%v %+v %v: byte %d is %d, want %d of %v", isa, s, ac.op.Kind, i, to[i], q.of(v), v)
				}
			}
		}
		require.NoError(t, f.Close())
	}
}

// specOf makes a spec of some numbers; ok is false where there is no such convolution.
func specOf(n, h, w, c, m, kh, kw, sh, sw, dh, dw, top, left, groups, form, deep uint8) (Spec, bool) {
	g := 1 + int(groups)%3
	s := Spec{N: 1 + int(n)%2, H: 1 + int(h)%12, W: 1 + int(w)%36, C: g * (1 + int(c)%20), M: g * (1 + int(m)%36), KH: 1 + int(kh)%4, KW: 1 + int(kw)%5,
		SH: 1 + int(sh)%3, SW: 1 + int(sw)%3, DH: 1 + int(dh)%2, DW: 1 + int(dw)%2, Top: int(top) % 4, Left: int(left) % 4, Groups: g}
	switch form % 8 {
	case 1:
		s.Groups, s.M = s.C, s.C
	case 2:
		s.Transposed = true
	case 3:
		s.Type, s.Signed, s.XZero = Int8, n%3 == 0, int32(h)/2
		if m%2 == 0 {
			s.KH, s.KW, s.SH, s.SW, s.Groups, s.Tile = 3, 3, 1, 1, 1, 4
		}
	case 4:
		s.Type = BF16
	case 5, 6:
		s.KH, s.KW, s.SH, s.SW, s.Groups, s.Tile = 3, 3, 1, 1, 1, 2*int(form%8-4)
	case 7:
		s.KH, s.KW, s.SH, s.SW, s.Groups, s.Tile = 1, 3+2*(s.KW%2), 1, 1, 1, 4
	}
	out := func(d Dim) int {
		if s.Transposed {
			return (d.In-1)*d.Stride + (d.Kernel-1)*d.Dilation + 1 - d.Before
		}
		return floorDiv(d.In+2*d.Before-(d.Kernel-1)*d.Dilation-1, d.Stride) + 1
	}
	dims := s.dims()
	s.OH, s.OW = out(dims[1]), out(dims[2])
	if deep%4 > 0 {
		s.Depth = Dim{In: 1 + int(deep/4)%5, Kernel: 1 + int(deep/20)%3, Stride: 1 + int(deep)%2, Dilation: 1 + int(deep/2)%2, Before: int(deep/60) % 3}
		if s.Tile > 0 {
			s.Depth.Stride = 1
		}
		s.Depth.Out = out(s.Depth)
	}
	// An input under fuzzing has ten seconds, on a machine that may be busy, in code that is instrumented.
	const most = 1 << 19 // multiply-adds
	planes := s.planes()
	macs := planes * s.OH * s.OW * s.Weights()
	return s, planes > 0 && s.OH > 0 && s.OW > 0 && macs <= most && s.Check() == nil
}

func FuzzConv(f *testing.F) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 300 {
		b := make([]uint8, 17)
		for i := range b {
			b[i] = uint8(rng.IntN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 17 {
			return
		}
		if s, ok := specOf(b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[16]); ok {
			checkSpec(t, s, int(b[15]), uint64(b[15]), 1+int(b[15])%3)
		}
	})
}
