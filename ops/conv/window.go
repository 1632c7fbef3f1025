package conv

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// MaxSpatial is the largest number of spatial dimensions.
const MaxSpatial = 3

// Layout is the order of an image's dimensions.
type Layout uint8

// The layouts.
const (
	ChannelsFirst Layout = iota // [N, C, spatial...]
	ChannelsLast                // [N, spatial..., C]
)

func (l Layout) String() string {
	switch l {
	case ChannelsFirst:
		return "nchw"
	case ChannelsLast:
		return "nhwc"
	}
	return fmt.Sprintf("Layout(%d)", uint8(l))
}

// Channels returns the number of channels of an image.
func (l Layout) Channels(s tensor.Spec) int {
	if l == ChannelsLast {
		return s.Dim(-1)
	}
	return s.Dim(1)
}

// Spatial returns size i of the spatial dimensions of an image.
func (l Layout) Spatial(s tensor.Spec, i int) int {
	if l == ChannelsLast {
		return s.Dims[1+i]
	}
	return s.Dims[2+i]
}

// Dims puts an image's dimensions together.
func (l Layout) Dims(n, channels int, spatial []int) []int {
	dims := []int{n}
	if l == ChannelsFirst {
		dims = append(dims, channels)
	}
	dims = append(dims, spatial...)
	if l == ChannelsLast {
		dims = append(dims, channels)
	}
	return dims
}

// first returns the ChannelsFirst view of an image.
func (l Layout) first(t tensor.Tensor) (tensor.Tensor, error) {
	if l == ChannelsFirst {
		return t, nil
	}
	order := []int{0, int(t.Rank) - 1}
	for i := 1; i < int(t.Rank)-1; i++ {
		order = append(order, i)
	}
	return t.Permute(order...)
}

// Window says how a window moves over an image. Only the first entries, one a spatial dimension, count. A stride or dilation of 0
// means 1.
type Window struct {
	Stride, Dilation [MaxSpatial]int
	Before, After    [MaxSpatial]int // padding at the beginning and at the end of each dimension
}

// At returns stride and dilation of dimension i.
func (w Window) At(i int) (stride, dilation int) { return max(w.Stride[i], 1), max(w.Dilation[i], 1) }

// Out returns the output size of dimension i, of in elements, for a kernel of k. With ceil a last window that starts inside the
// image or its front padding counts although it ends behind the back padding.
func (w Window) Out(i, in, k int, ceil bool) (int, error) {
	s, d := w.At(i)
	if w.Stride[i] < 0 || w.Dilation[i] < 0 || k < 1 {
		return 0, fmt.Errorf("dimension %d: kernel %d, stride %d, dilation %d: positive numbers are right", i, k, w.Stride[i], w.Dilation[i])
	}
	reach, ok := mem.Mul(k-1, d)
	if !ok || int64(reach) > math.MaxInt32*1024 || w.Before[i] > math.MaxInt32 || w.After[i] > math.MaxInt32 || w.Before[i] < -in || w.After[i] < -in {
		return 0, fmt.Errorf("dimension %d: kernel %d, dilation %d, padding %d and %d are out of range", i, k, d, w.Before[i], w.After[i])
	}
	if int64(in) > math.MaxInt64-2*math.MaxInt32 {
		return 0, fmt.Errorf("dimension %d: %w", i, mem.ErrOverflow)
	}
	front := int64(in) + int64(w.Before[i])
	room := front + int64(w.After[i]) - int64(reach) - 1
	if room < 0 {
		return 0, fmt.Errorf("dimension %d: %d elements padded by %d and %d are fewer than the window of %d", i, in, w.Before[i], w.After[i], int64(reach)+1)
	}
	last := room - room%int64(s) // where the last window starts
	if ceil && last < room && int64(s) < front-last {
		last += int64(s)
	}
	n := last/int64(s) + 1
	if last > math.MaxInt-int64(reach) || n > math.MaxInt { // places of taps are ints
		return 0, fmt.Errorf("dimension %d: %w", i, mem.ErrOverflow)
	}
	return int(n), nil
}

// Same sets the padding of dimension i so that the output has ceil(in / stride) elements; the odd element of padding goes to the
// end, or to the beginning if lower is set.
func (w *Window) Same(i, in, k int, lower bool) {
	s, d := w.At(i)
	out := (in + s - 1) / s
	total := max((out-1)*s+(k-1)*d+1-in, 0)
	w.Before[i] = total / 2
	if lower {
		w.Before[i] = (total + 1) / 2
	}
	w.After[i] = total - w.Before[i]
}

// only returns the window without the entries beyond the first dims, which do not count.
func (w Window) only(dims int) Window {
	for i := dims; i < MaxSpatial; i++ {
		w.Stride[i], w.Dilation[i], w.Before[i], w.After[i] = 0, 0, 0, 0
	}
	return w
}

// spatialOf checks the rank of an image and returns its spatial sizes.
func spatialOf(l Layout, s tensor.Spec) ([]int, error) {
	if l > ChannelsLast {
		return nil, fmt.Errorf("unknown layout %v", l)
	}
	n := int(s.Rank) - 2
	if n < 1 || n > MaxSpatial {
		return nil, fmt.Errorf("image %v has %d dimensions, 3 to %d are right", s, s.Rank, MaxSpatial+2)
	}
	out := make([]int, n)
	for i := range out {
		out[i] = l.Spatial(s, i)
	}
	return out, nil
}

// walk3 calls f for every position of up to three dimensions.
func walk3(dims [MaxSpatial]int, f func(p [MaxSpatial]int)) {
	var p [MaxSpatial]int
	for p[0] = 0; p[0] < dims[0]; p[0]++ {
		for p[1] = 0; p[1] < dims[1]; p[1]++ {
			for p[2] = 0; p[2] < dims[2]; p[2]++ {
				f(p)
			}
		}
	}
}

// three extends spatial sizes to three by ones.
func three(v []int) [MaxSpatial]int {
	out := [MaxSpatial]int{1, 1, 1}
	copy(out[:], v)
	return out
}
