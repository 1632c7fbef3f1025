package conv

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// PoolKind is what a pooling computes of a window.
type PoolKind uint8

// The poolings.
const (
	Max       PoolKind = iota // NaN wins; of padding alone the least number of the type
	Avg                       // over the elements inside the image
	AvgPadded                 // over the window, padding included as zeros, what lies behind the padding not
	Lp                        // (sum |x|^P)^(1/P)
	numPools
)

func (k PoolKind) String() string {
	if k < numPools {
		return [numPools]string{"max_pool", "avg_pool", "avg_pool_padded", "lp_pool"}[k]
	}
	return fmt.Sprintf("PoolKind(%d)", uint8(k))
}

// Pool reduces windows of each channel. A global pooling is one whose window is the image.
type Pool struct {
	Window
	Kind    PoolKind
	Kernel  [MaxSpatial]int
	P       int  // of Lp; 0 means 2
	Ceil    bool // round the output's size up
	Layout  Layout
	Indices bool // of Max: output 1 (i64) is where each maximum lies in the flattened ChannelsFirst input
	Column  bool // indices count spatial dimensions in column-major order
}

// Name is the kind's name.
func (p Pool) Name() string { return p.Kind.String() }

// Infer is the shape rule.
func (p Pool) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(p, in, 1, 1); err != nil {
		return nil, err
	}
	x := in[0]
	spatial, err := spatialOf(p.Layout, x)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name(), err)
	}
	switch d := x.DType; {
	case d.IsFloat(), p.Kind == Max && (d == tensor.I8 || d == tensor.U8):
	default:
		return nil, fmt.Errorf("%s: image %v: a floating-point type is right", p.Name(), x)
	}
	if p.Indices && p.Kind != Max || p.P < 0 || p.Kind >= numPools {
		return nil, fmt.Errorf("%s: indices %v, p %d", p.Name(), p.Indices, p.P)
	}
	for i, n := range spatial {
		if spatial[i], err = p.Out(i, n, p.Kernel[i], p.Ceil); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name(), err)
		}
	}
	out, err := tensor.CheckDims(x.DType, p.Layout.Dims(x.Dims[0], p.Layout.Channels(x), spatial))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name(), err)
	}
	if p.Indices {
		return []tensor.Spec{out, out.With(tensor.I64)}, nil
	}
	return []tensor.Spec{out}, nil
}

// Flops counts one operation for every tap.
func (p Pool) Flops(in []tensor.Spec) float64 {
	out, err := p.Infer(in)
	if err != nil {
		return 0
	}
	k := three(p.Kernel[:in[0].Rank-2])
	return float64(out[0].Elems()) * float64(k[0]*k[1]*k[2])
}

// Reference computes every output by its definition.
func (p Pool) Reference(out, in []tensor.Tensor) error {
	x, err := p.Layout.first(in[0])
	if err != nil {
		return err
	}
	y, err := p.Layout.first(out[0])
	if err != nil {
		return err
	}
	spatial := int(x.Rank) - 2
	window := p.Window.only(spatial)
	is, os, ks := three(x.Shape()[2:]), three(y.Shape()[2:]), three(p.Kernel[:spatial])
	plane := is[0] * is[1] * is[2]
	xv := x.Floats()
	values := make([]float64, 0, y.Elems())
	var where []int64
	least := math.Inf(-1) // what a window of padding alone has
	switch x.DType {
	case tensor.U8:
		least = 0
	case tensor.I8:
		least = math.MinInt8
	}
	degree := float64(p.P)
	if p.P == 0 {
		degree = 2
	}
	for image := range x.Dims[0] * x.Dims[1] {
		from := xv[image*plane:]
		walk3(os, func(o [MaxSpatial]int) {
			sum, best, at, count := 0.0, least, -1, 0
			walk3(ks, func(k [MaxSpatial]int) {
				if p.Kind == AvgPadded && window.inPadded(o, k, is) {
					count++
				}
				i, inside := window.source(o, k, is)
				if !inside {
					return
				}
				v := from[i]
				switch p.Kind {
				case Max:
					if at < 0 || v > best || v != v && best == best {
						best, at = v, i
					}
				case Lp:
					sum += math.Pow(math.Abs(v), degree)
				case Avg:
					count++
					sum += v
				default:
					sum += v
				}
			})
			switch p.Kind {
			case Max:
				sum = best
				if p.Indices {
					if p.Column && at >= 0 {
						at = columnMajor(at, is, spatial)
					}
					where = append(where, int64(image*plane+at))
				}
			case Lp:
				sum = math.Pow(sum, 1/degree)
			default:
				if count > 0 {
					sum /= float64(count)
				}
			}
			values = append(values, sum)
		})
	}
	y.SetFloats(values)
	if p.Indices {
		idx, err := p.Layout.first(out[1])
		if err != nil {
			return err
		}
		idx.SetInts(where)
	}
	return nil
}

// inPadded reports whether tap k of the window at o lies in the image or its padding.
func (w Window) inPadded(o, k, size [MaxSpatial]int) bool {
	for i, n := range size {
		s, d := w.At(i)
		if v := o[i]*s + k[i]*d; v >= w.Before[i]+n+w.After[i] {
			return false
		}
	}
	return true
}

func columnMajor(at int, size [MaxSpatial]int, spatial int) int {
	var idx [MaxSpatial]int
	for i := spatial - 1; i >= 0; i-- {
		idx[i] = at % size[i]
		at /= size[i]
	}
	for i := spatial - 1; i >= 0; i-- {
		at = at*size[i] + idx[i]
	}
	return at
}
