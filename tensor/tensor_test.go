package tensor_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

func TestDTypes(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range tensor.DTypes() {
		require.False(t, seen[d.String()])
		seen[d.String()] = true
		back, err := tensor.ParseDType(d.String())
		require.NoError(t, err)
		require.Equal(t, d, back)
		require.Positive(t, d.Size())
		require.Equal(t, d.Block() > 1, d.IsBlock())
		kinds := 0
		for _, is := range []bool{d.IsFloat(), d.IsInt(), d.IsBlock(), d == tensor.Bool} {
			if is {
				kinds++
			}
		}
		require.Equal(t, 1, kinds, d)
	}
	// Bytes of a block, from ggml-common.h.
	for d, bytes := range map[tensor.DType]int{tensor.Q4_0: 18, tensor.Q4_1: 20, tensor.Q5_0: 22, tensor.Q5_1: 24, tensor.Q8_0: 34, tensor.Q2_K: 84,
		tensor.Q3_K: 110, tensor.Q4_K: 144, tensor.Q5_K: 176, tensor.Q6_K: 210, tensor.IQ4_NL: 18, tensor.MXFP4: 17} {
		require.Equal(t, bytes, d.Size(), d)
	}
	_, err := tensor.ParseDType("f33")
	require.ErrorContains(t, err, `"f33"`)
	require.Equal(t, "invalid", tensor.DType(200).String())
	require.Zero(t, tensor.DType(200).Size())
}

func TestSpecCheck(t *testing.T) {
	const huge = math.MaxInt / 2
	for _, c := range []struct {
		d    tensor.DType
		dims []int
		want string
	}{
		{tensor.F32, []int{2, -1}, "negative"},
		{tensor.F32, []int{huge, 3}, "overflows"},
		{tensor.I8, []int{math.MaxInt, 2}, "overflows"}, // the product would wrap to -2
		{tensor.F64, []int{1 << (strconvBits - 4), 1}, "overflows"},
		{tensor.Invalid, []int{2}, "invalid element type"},
		{tensor.DType(99), []int{2}, "invalid element type"},
		{tensor.Q4_0, []int{2, 33}, "whole blocks of 32"},
		{tensor.Q4_0, nil, "whole blocks"},
		{tensor.F32, []int{1, 1, 1, 1, 1, 1, 1, 1, 1}, "at most 8"},
	} {
		_, err := tensor.CheckDims(c.d, c.dims)
		require.ErrorContains(t, err, c.want, "%v %v", c.d, c.dims)
		_, err = tensor.NewChecked(c.d, c.dims...)
		require.Error(t, err)
	}
	_, err := tensor.CheckDims(tensor.F32, []int{0, math.MaxInt, math.MaxInt}) // empty, whatever the other sizes
	require.NoError(t, err)
	require.Panics(t, func() { tensor.New(tensor.F32, -1) })
	s := tensor.MakeSpec(tensor.Q8_0, 3, 64)
	require.Equal(t, 3*2*34, s.Bytes())
	require.Equal(t, "q8_0[3 64]", s.String())
	require.Equal(t, 64, s.Dim(-1))
	require.Equal(t, 1, tensor.MakeSpec(tensor.F32).Elems())
}

// strconvBits is the width of an int.
const strconvBits = 32 << (^uint(0) >> 63)

func TestBuffers(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 1000} {
		b := tensor.NewBuffer(n)
		require.Len(t, b.Bytes(), n)
		if n > 0 {
			require.Zero(t, uintptr(unsafe.Pointer(&b.Bytes()[0]))%mem.Align)
		}
		m, err := tensor.MapBuffer(n)
		require.NoError(t, err)
		require.Len(t, m.Bytes(), n)
		require.NoError(t, m.Close())
		require.NoError(t, m.Close(), "twice")
	}
	path := filepath.Join(t.TempDir(), "numbers")
	require.NoError(t, os.WriteFile(path, []byte{1, 2, 3, 4, 5, 6, 7, 8}, 0o600))
	f, err := tensor.OpenBuffer(path)
	require.NoError(t, err)
	require.True(t, f.ReadOnly())
	x, err := tensor.At(f, 4, tensor.MakeSpec(tensor.U8, 2, 2))
	require.NoError(t, err)
	require.Equal(t, []int64{5, 6, 7, 8}, x.Ints())
	y := tensor.New(tensor.U8, 2, 2)
	require.ErrorIs(t, tensor.Copy(x, y), tensor.ErrReadOnly)
	for off, dims := range map[int][]int{5: {2, 2}, -1: {1}, math.MaxInt: {1}} {
		_, err = tensor.At(f, off, tensor.MakeSpec(tensor.U8, dims...))
		require.ErrorContains(t, err, "the buffer has 8")
	}
	require.NoError(t, f.Close())
	for _, read := range []func(){func() { x.Raw() }, func() { x.Floats() }, func() { x.Ints() }, func() { tensor.Data[uint8](x) }, func() { x.Clone() }} {
		require.PanicsWithValue(t, "tensor: u8[2 2] is read after the Close of what its memory belongs to", read)
	}
	big := make([]byte, 3*os.Getpagesize()+5)
	for i := range big {
		big[i] = byte(i % 251)
	}
	require.NoError(t, os.WriteFile(path+"2", big, 0o600))
	f2, err := tensor.OpenBuffer(path + "2")
	require.NoError(t, err)
	view, err := tensor.At(f2, 0, tensor.MakeSpec(tensor.U8, len(big)))
	require.NoError(t, err)
	view.Evict()
	require.Equal(t, big, f2.Bytes())
	require.NoError(t, f2.Close())
	heap := tensor.Of(append([]byte{}, big...), len(big))
	heap.Evict()
	require.Equal(t, big, heap.Raw())
	_, err = tensor.OpenBuffer(filepath.Join(t.TempDir(), "absent"))
	require.Error(t, err)
}

func TestOfAndBits(t *testing.T) {
	data := []float32{1, 2, 3, 4, 5, 6}
	x := tensor.Of(data, 2, 3)
	data[4] = 50
	require.Equal(t, []float64{1, 2, 3, 4, 50, 6}, x.Floats(), "the caller's memory")
	require.Equal(t, tensor.U16, tensor.Of([]uint16{1}, 1).DType)
	require.Equal(t, tensor.Bool, tensor.Of([]bool{true}, 1).DType)
	h := tensor.Bits(tensor.F16, []uint16{0x3c00, 0xc000}, 2)
	require.Equal(t, []float64{1, -2}, h.Floats())
	require.Panics(t, func() { tensor.Of(data, 7) })
	require.Panics(t, func() { tensor.Bits(tensor.F16, data, 6) })
	require.Panics(t, func() { tensor.Data[uint16](x) })
	require.Zero(t, tensor.Of([]float32{}, 0, 3).Elems())
}

// TestValuesOfEveryType writes and reads the ends of each type.
func TestValuesOfEveryType(t *testing.T) {
	for d, v := range map[tensor.DType][]int64{
		tensor.I8: {-128, 127}, tensor.U8: {0, 255}, tensor.I16: {-32768, 32767}, tensor.U16: {0, 65535}, tensor.I32: {math.MinInt32, math.MaxInt32},
		tensor.U32: {0, math.MaxUint32}, tensor.I64: {math.MinInt64, math.MaxInt64, 1<<53 + 1}, tensor.U64: {0, -1, 1<<53 + 1}, tensor.Bool: {0, 1},
	} {
		x := tensor.New(d, len(v))
		x.SetInts(v)
		require.Equal(t, v, x.Ints(), d)
		y := tensor.New(d, len(v))
		require.NoError(t, tensor.Copy(y, x))
		require.Equal(t, v, y.Ints(), d)
	}
	x := tensor.New(tensor.I8, 4)
	x.SetInts([]int64{128, -129, 300, 1 << 40})
	require.Equal(t, []int64{-128, 127, 44, 0}, x.Ints(), "narrower types wrap")
	u := tensor.New(tensor.U32, 1)
	u.SetInts([]int64{1<<60 + 12345})
	require.Equal(t, []int64{12345}, u.Ints(), "low bits of large numbers are kept")
	x.SetFloats([]float64{1.9, -1.9, math.NaN(), 127})
	require.Equal(t, []int64{1, -1, 0, 127}, x.Ints())
	i := tensor.New(tensor.I64, 3)
	i.SetFloats([]float64{math.Inf(1), math.Inf(-1), 1e30})
	require.Equal(t, []int64{math.MaxInt64, math.MinInt64, math.MaxInt64}, i.Ints())
	f := tensor.New(tensor.F64, 1)
	f.SetFloats([]float64{0.1})
	require.Equal(t, []float64{0.1}, f.Floats())
	require.Panics(t, func() { f.SetFloats(nil) })
	require.Panics(t, func() { f.SetInts(nil) })
	q := tensor.New(tensor.Q8_0, 32)
	require.Panics(t, func() { q.Floats() })
	require.Panics(t, func() { q.SetFloats(make([]float64, 32)) })
}

func TestCopyErrorsAndTypes(t *testing.T) {
	x := tensor.Of([]float32{1.5, -2, 3}, 3)
	y := tensor.New(tensor.F32, 1, 3)
	require.ErrorContains(t, tensor.Copy(y, x), "shapes differ")
	q := tensor.New(tensor.Q8_0, 32)
	f := tensor.New(tensor.F32, 32)
	require.ErrorContains(t, tensor.Copy(f, q), "quant")
	for _, d := range []tensor.DType{tensor.F16, tensor.BF16, tensor.F64, tensor.I8, tensor.I64} {
		z, back := tensor.New(d, 3), tensor.New(tensor.F32, 3)
		require.NoError(t, tensor.Copy(z, x))
		require.NoError(t, tensor.Copy(back, z))
		want := []float64{1.5, -2, 3}
		if d.IsInt() {
			want[0] = 1
		}
		require.Equal(t, want, back.Floats(), d)
	}
	big := tensor.Of([]int64{1<<53 + 1}, 1)
	u := tensor.New(tensor.U64, 1)
	require.NoError(t, tensor.Copy(u, big))
	require.Equal(t, []int64{1<<53 + 1}, u.Ints(), "between integers nothing passes through float64")
}

func ExampleTensor_Slice() {
	x := tensor.Of([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 3, 4)
	column, _ := x.Slice(1, 1, 2, 1)
	tensor.Data[float32](x)[5] = 50 // views share memory
	fmt.Println(column, column.Floats())
	// Output: f32[3 1] strides [4 1] [1 50 9]
}
