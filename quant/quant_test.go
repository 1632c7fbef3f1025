package quant

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/tensor"
)

func blockTypes() []tensor.DType {
	var all []tensor.DType
	for _, d := range tensor.DTypes() {
		if codecs[d] != nil {
			all = append(all, d)
		}
	}
	return all
}

func TestOddBlocks(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, d := range append(blockTypes(), tensor.F16) {
		t.Run(d.String(), func(t *testing.T) {
			n := max(d.Block(), 32)
			encode := func(set func(x []float32)) ([]float32, error) {
				x := make([]float32, 3*n)
				set(x[n : 2*n]) // the middle block
				q := make([]byte, 3*n/d.Block()*d.Size())
				for i := range q {
					q[i] = 0xa5
				}
				if err := EncodeRow(d, q, x); err != nil {
					return nil, err
				}
				require.NoError(t, Validate(d, q))
				y := make([]float32, 3*n)
				require.NoError(t, DecodeRow(d, y, q))
				for i, v := range y {
					require.False(t, math.IsNaN(float64(v)) || math.IsInf(float64(v), 0), "element %d is %v", i, v)
				}
				return y, nil
			}
			zeros := make([]float32, 3*n)
			y, err := encode(func([]float32) {})
			require.NoError(t, err)
			require.Equal(t, zeros, y)

			for _, tiny := range []float32{1e-11, -1e-11, 1e-38, 1e-45, -1e-45} {
				y, err = encode(func(x []float32) { x[5] = tiny })
				require.NoError(t, err)
				for _, v := range y {
					require.LessOrEqual(t, math.Abs(float64(v)), 1.1e-11)
				}
			}
			for _, sign := range []float32{1, -1} { // a scale that is a subnormal half
				y, err = encode(func(x []float32) { x[5] = sign * 1e-5 })
				require.NoError(t, err)
				require.InDelta(t, sign*1e-5, y[n+5], 0.4e-5)
			}

			for _, bad := range []float32{nan, inf, -inf} {
				_, err = encode(func(x []float32) { x[7] = bad })
				var be *BlockError
				require.ErrorAs(t, err, &be)
				require.Equal(t, (n+7)/d.Block(), be.Block)
			}
			_, err = encode(func(x []float32) { x[7] = 3e38; x[8] = -3e38 })
			if d != tensor.MXFP4 { // its scale reaches 2^127
				var be *BlockError
				require.ErrorAs(t, err, &be)
				require.Equal(t, (n+7)/d.Block(), be.Block)
			}
		})
	}
}

// The largest values whose scale still fits half precision.
func TestScaleLimits(t *testing.T) {
	largestBF16 := math.Float32frombits(0x7f7f0000)
	for d, limit := range map[tensor.DType]float32{tensor.Q8_0: 65504 * 127, tensor.Q4_0: 65504 * 8, tensor.F16: 65504, tensor.BF16: largestBF16} {
		x := make([]float32, 32)
		q := make([]byte, len(x)/d.Block()*d.Size())
		x[3] = limit
		require.NoError(t, EncodeRow(d, q, x))
		require.NoError(t, Validate(d, q))
		x[3] = limit * 1.001
		if d == tensor.BF16 {
			x[3] = math.MaxFloat32
		}
		var be *BlockError
		require.ErrorAs(t, EncodeRow(d, q, x), &be, d)
		require.Equal(t, 3/d.Block(), be.Block)
	}
}

// Of zeros with both signs the first is the minimum, as in GGML, whose bytes these are.
func TestSignOfAZeroMinimum(t *testing.T) {
	negative := float32(math.Copysign(0, -1))
	for _, d := range []tensor.DType{tensor.Q4_1, tensor.Q5_1} {
		for _, c := range []struct {
			first, second float32
			want          byte
		}{{0, negative, 0}, {negative, 0, 0x80}} {
			x := make([]float32, 32)
			x[0], x[1], x[2] = c.first, c.second, 0.5
			q := make([]byte, d.Size())
			require.NoError(t, EncodeRow(d, q, x))
			require.Equal(t, []byte{0, c.want}, q[2:4], d)
		}
	}
}

func TestRowSizes(t *testing.T) {
	require.ErrorContains(t, EncodeRow(tensor.Q8_0, make([]byte, 34), make([]float32, 33)), "33 elements are no whole number")
	require.ErrorContains(t, DecodeRow(tensor.Q4_K, make([]float32, 256), make([]byte, 143)), "144 bytes")
	require.ErrorContains(t, DecodeRow(tensor.I8, make([]float32, 1), make([]byte, 1)), "no decoder")
	require.ErrorContains(t, EncodeRow(tensor.BFP16, make([]byte, 9), make([]float32, 8)), "no encoder")
}

func TestValidate(t *testing.T) {
	for _, d := range append(blockTypes(), tensor.F16, tensor.BF16, tensor.F32) {
		n := max(d.Block(), 32)
		x := make([]float32, 2*n)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		q := make([]byte, len(x)/d.Block()*d.Size())
		require.NoError(t, EncodeRow(d, q, x))
		require.NoError(t, Validate(d, q))
		last := len(q) - d.Size()
		switch d {
		case tensor.MXFP4:
			q[last] = 0xff
		case tensor.F16, tensor.BF16, tensor.F32:
			q[len(q)-1], q[len(q)-2] = 0x7f, 0xff
		default:
			off := codecs[d].scales[len(codecs[d].scales)-1]
			q[last+off], q[last+off+1] = 0, 0x7c
		}
		var be *BlockError
		require.ErrorAs(t, Validate(d, q), &be, d)
		require.Equal(t, len(q)/d.Size()-1, be.Block)
	}
}

func TestTensors(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range append(blockTypes(), tensor.F16, tensor.BF16, tensor.F32) {
		src := tensor.New(tensor.F32, 3, 5, 512)
		for i := range tensor.Data[float32](src) {
			tensor.Data[float32](src)[i] = float32(r.NormFloat64())
		}
		q, err := Encode(d, src)
		require.NoError(t, err)
		require.Equal(t, src.Spec.With(d), q.Spec)
		whole, err := Decode(q)
		require.NoError(t, err)
		want := make([]float32, 512)
		require.NoError(t, DecodeRow(d, want, q.Raw()[7*len(q.Raw())/15:8*len(q.Raw())/15]))
		require.Equal(t, want, tensor.Data[float32](whole)[7*512:8*512], d)

		// A view of rows that lie apart decodes to the same view.
		v, err := q.Slice(1, 1, 4, 2)
		require.NoError(t, err)
		v, err = v.Transpose(0, 1)
		require.NoError(t, err)
		got, err := Decode(v)
		require.NoError(t, err)
		w, err := whole.Slice(1, 1, 4, 2)
		require.NoError(t, err)
		w, err = w.Transpose(0, 1)
		require.NoError(t, err)
		require.Equal(t, w.Floats(), got.Floats(), d)
	}
	_, err := Encode(tensor.Q8_0, tensor.New(tensor.F32, 2, 33))
	require.Error(t, err)
	bad := tensor.New(tensor.F32, 4, 64)
	tensor.Data[float32](bad)[3*64+40] = float32(math.NaN())
	_, err = Encode(tensor.Q8_0, bad)
	require.ErrorContains(t, err, "row 3: q8_0 block 1")
	var be *BlockError
	require.True(t, errors.As(err, &be))
	empty, err := Decode(tensor.New(tensor.Q4_0, 0, 32))
	require.NoError(t, err)
	require.Equal(t, 0, empty.Elems())
}

func TestAffine(t *testing.T) {
	for _, c := range []struct {
		d         tensor.DType
		lo, hi    float32
		symmetric bool
	}{{tensor.I8, -1, 3, false}, {tensor.I8, -1, 3, true}, {tensor.U8, -1, 3, false}, {tensor.U8, -1, 3, true}, {tensor.U8, 0, 6, false},
		{tensor.I8, 2, 5, false}, {tensor.I8, 0, 0, true}, {tensor.U8, 0, 0, false}, {tensor.I8, -1e-45, 1e-45, false}, {tensor.I8, -3e38, 3e38, false}} {
		a, err := ChooseAffine(c.d, c.lo, c.hi, c.symmetric)
		require.NoError(t, err)
		require.Greater(t, a.Scale, float32(0))
		x := []float32{min(c.lo, 0), max(c.hi, 0), 0, (c.lo + c.hi) / 2, float32(math.NaN())}
		y := make([]float32, len(x))
		if c.d == tensor.I8 {
			q := make([]int8, len(x))
			QuantizeAffine(q, x, a)
			DequantizeAffine(y, q, a)
		} else {
			q := make([]uint8, len(x))
			QuantizeAffine(q, x, a)
			DequantizeAffine(y, q, a)
		}
		for i := range 4 {
			require.InDelta(t, x[i], y[i], float64(a.Scale)*1.001, "%+v element %d", c, i)
		}
		require.Zero(t, y[2], "zero is represented exactly")
		require.Zero(t, y[4], "NaN is zero")
	}
	_, err := ChooseAffine(tensor.I8, float32(math.NaN()), 1, true)
	require.Error(t, err)
	_, err = ChooseAffine(tensor.I16, 0, 1, true)
	require.Error(t, err)
	q := make([]int8, 2)
	QuantizeAffine(q, []float32{1e30, -1e30}, Affine{Scale: 0.5, Zero: 3})
	require.Equal(t, []int8{127, -128}, q)
}

func TestChannels(t *testing.T) {
	x := tensor.Of([]float32{1, -2, 3, 40, 50, -60, 0.1, 0.2, 0.3, 7, 8, 9}, 2, 2, 3)
	for axis, want := range map[int][]float32{-1: {60}, 0: {60, 9}, 1: {3, 60}, 2: {40, 50, 60}} {
		q, maps, err := Channels(tensor.I8, x, axis, true)
		require.NoError(t, err)
		require.Equal(t, x.Spec.With(tensor.I8), q.Spec)
		for i, m := range maps {
			require.Equal(t, Affine{Scale: want[i] / 127}, m, "axis %d", axis)
		}
	}
	q, _, err := Channels(tensor.I8, x, 1, true)
	require.NoError(t, err)
	require.Equal(t, []int8{42, -85, 127, 85, 106, -127, 4, 8, 13, 15, 17, 19}, tensor.Data[int8](q))
	_, _, err = Channels(tensor.I8, x, 3, true)
	require.Error(t, err)

	// Asymmetric maps use all codes between the ends of each channel, zero among them.
	u, maps, err := Channels(tensor.U8, x, 0, false)
	require.NoError(t, err)
	require.Equal(t, []Affine{{float32(110.0 / 255), 139}, {float32(9.0 / 255), 0}}, maps)
	require.Equal(t, []uint8{141, 134, 146, 232, 255, 0, 3, 6, 8, 198, 227, 255}, tensor.Data[uint8](u))
	tensor.Data[float32](x)[7] = float32(math.NaN())
	_, _, err = Channels(tensor.U8, x, 0, false)
	require.ErrorContains(t, err, "channel 1: quant: range [NaN")
}

func TestRows(t *testing.T) {
	nan := float32(math.NaN())
	src := []float32{1, -2, 4, 0, 0, 0, nan, 1, 2, 1e-45, 0, 0, 1e-3, 0.5e-3, -1e-3}
	dst, scales := make([]int8, len(src)), make([]float32, 5)
	for i := range dst {
		dst[i] = 99
	}
	Rows(dst, scales, src, 3)
	require.Equal(t, []int8{32, -64, 127, 0, 0, 0, 0, 0, 0, 0, 0, 0, 127, 64, -127}, dst)
	require.Equal(t, float32(4.0/127), scales[0])
	require.Zero(t, scales[1])
	require.True(t, scales[2] != scales[2])
	require.Zero(t, scales[3])
}

func FuzzDecodeRow(f *testing.F) {
	for i := range blockTypes() {
		f.Add(uint8(i), []byte{1, 2, 3})
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		all := blockTypes()
		d := all[int(kind)%len(all)]
		n := len(data) / d.Size()
		y := make([]float32, n*d.Block())
		require.NoError(t, DecodeRow(d, y, data[:n*d.Size()]))
		// What decodes to finite numbers of moderate size can be encoded again, in the same or a smaller range.
		for _, v := range y {
			if !(math.Abs(float64(v)) < 60000) {
				return
			}
		}
		require.NoError(t, EncodeRow(d, make([]byte, n*d.Size()), y))
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, d := range blockTypes() {
		b.Run(d.String(), func(b *testing.B) {
			q := randomBlocks(d)
			y := make([]float32, goldenBlocks*d.Block())
			b.SetBytes(int64(len(y) * 4))
			for b.Loop() {
				_ = DecodeRow(d, y, q)
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, d := range blockTypes() {
		b.Run(d.String(), func(b *testing.B) {
			x := randomRow(d)
			q := make([]byte, goldenBlocks*d.Size())
			b.SetBytes(int64(len(x) * 4))
			for b.Loop() {
				_ = EncodeRow(d, q, x)
			}
		})
	}
}
