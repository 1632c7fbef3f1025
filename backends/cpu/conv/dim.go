package conv

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/internal/mem"
)

// Dim is a spatial dimension of a convolution or a pooling.
type Dim struct {
	In, Out          int
	Kernel           int
	Stride, Dilation int
	Before           int // padding; what is needed behind follows from Out
	After            int // padding behind, which counts for a mean that counts padding only
}

// one is a dimension that is not there.
var one = Dim{In: 1, Out: 1, Kernel: 1, Stride: 1, Dilation: 1}

func (d Dim) check() error {
	if d.In < 0 || d.Out < 0 || d.Kernel < 1 || d.Stride < 1 || d.Dilation < 1 || d.Before < 0 {
		return fmt.Errorf("conv: dimension %+v", d)
	}
	// Positions of taps and of results, with their padding, are computed as ints.
	reach, ok1 := mem.Mul(d.Kernel, d.Dilation)
	results, ok2 := mem.Mul(max(d.Out-1, 0), d.Stride)
	images, ok3 := mem.Mul(max(d.In-1, 0), d.Stride)
	if !ok1 || !ok2 || !ok3 {
		return fmt.Errorf("conv: dimension %+v: %w", d, mem.ErrOverflow)
	}
	if n, ok := mem.Add(d.In, d.Out, d.Before, reach, max(results, images), d.Stride); !ok || n > math.MaxInt/4 {
		return fmt.Errorf("conv: dimension %+v: %w", d, mem.ErrOverflow)
	}
	return nil
}

// or returns the dimension, or one that is not there.
func (d Dim) or(absent Dim) Dim {
	if d == (Dim{}) {
		return absent
	}
	return d
}

// single reports whether there is one element and one result.
func (d Dim) single() bool { return d.In == 1 && d.Out == 1 && d.Kernel == 1 && d.Before == 0 }

// still reports whether every result is made of the element at its place.
func (d Dim) still() bool {
	return d.Kernel == 1 && d.Before == 0 && d.Out == d.In && (d.Stride == 1 || d.In == 1)
}

// whole reports whether there is one result, made of all elements.
func (d Dim) whole() bool {
	return d.Kernel == d.In && d.Before == 0 && d.Out == 1 && (d.Dilation == 1 || d.In == 1)
}

// fold returns n images of three dimensions as images of fewer whose elements, taps and results have the same order: kernels are made for rows
// of pixels, and Winograd's algorithm for planes. Planes are left as they are, but for columns, which become rows.
func fold(n int, d [3]Dim, transposed bool) (int, [3]Dim) {
	if d[0].still() {
		n, d[0] = n*d[0].In, one
	}
	for i := 1; i >= 0 && d[0] != one; i-- { // neighbours become one
		a, b := d[i], d[i+1]
		size := a.In * b.In
		switch {
		case a.still() && b.still():
			b = Dim{In: size, Out: size, Kernel: 1, Stride: 1, Dilation: 1}
		case a.whole() && b.whole() && !transposed:
			b = Dim{In: size, Out: 1, Kernel: size, Stride: 1, Dilation: 1}
		default:
			continue
		}
		if d[i+1] = b; i == 1 {
			d[1] = d[0]
		}
		d[0] = one
	}
	for d[2].single() && !(d[0].single() && d[1].single()) {
		d = [3]Dim{one, d[0], d[1]}
	}
	return n, d
}
