package conv

import (
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
)

// blocks runs a transposed convolution whose kernel is as large as its stride, so that each pixel becomes a block of pixels that no other
// one touches. With few channels a phase would fill a small part of a panel only; here all elements of a block are the
// channels of one 1x1 convolution, whose results are then laid out.
type blocks struct {
	s    Spec
	plan *Plan
	bias []float32
	args *Args
	own  Args
	rows int // of the output, of a job that finishes them
}

// mostBlockChannels is the number of channels up to which blocks are faster than phases, whose stores need no second step.
const mostBlockChannels = 8

func (s *Spec) blocky() bool {
	for _, d := range s.dims() {
		if d.Kernel != d.Stride || d.Dilation != 1 || d.Before != 0 {
			return false
		}
	}
	return s.Transposed && s.Groups == 1 && s.M <= mostBlockChannels && s.taps() > 1
}

// fitBlocks reports whether there are no results beyond the last block.
func (s *Spec) fitBlocks() bool {
	for _, d := range s.dims() {
		if d.Out > d.In*d.Stride {
			return false
		}
	}
	return true
}

// inner is the 1x1 convolution: channel tap M + o.
func (s *Spec) inner() Spec {
	return Spec{N: s.N * s.Depth.or(one).In, H: s.H, W: s.W, C: s.C, M: s.taps() * s.M, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: s.H, OW: s.W, Groups: 1}
}

func packBlocks(s Spec, w, scale []float32, isa cpuinfo.ISA) (*Filter, error) {
	taps := s.taps()
	t := make([]float32, len(w))
	for c := range s.C {
		for o := range s.M {
			for i := range taps {
				v := w[(c*s.M+o)*taps+i]
				if scale != nil {
					v *= scale[o]
				}
				t[(i*s.M+o)*s.C+c] = v
			}
		}
	}
	return Pack(s.inner(), t, nil, isa)
}

func newBlocks(f *Filter, s Spec, threads int, choice *Knobs) (*blocks, error) {
	plan, err := NewPlanWith(f, s.inner(), threads, choice)
	if err != nil {
		return nil, err
	}
	b := &blocks{s: s, plan: plan, bias: make([]float32, s.taps()*s.M)}
	b.own.Store = b.store
	return b, nil
}

func (b *blocks) run(a *Args) {
	b.args = a
	clear(b.bias)
	for i := range b.bias {
		if a.Bias != nil {
			b.bias[i] = a.Bias[i%b.s.M]
		}
	}
	b.own.X, b.own.Load, b.own.Act, b.own.Bias, b.own.Stop = a.X, a.Load, a.Act, b.bias, a.Stop
	b.plan.Run(&b.own)
	if n := b.s.planes() * b.s.OH; a.Post != nil && n > 0 { // along whole rows: those of a job are short
		b.rows = max(b.plan.kn.postFloats/max(b.s.OW*b.s.M, 1), 1)
		par.Run(b.plan.threads, ceilDiv(n, b.rows), b)
	}
	b.own.X, b.own.Load, b.args = nil, nil, nil
}

// Do finishes some rows.
func (b *blocks) Do(_, job int) {
	a, row := b.args, b.s.OW*b.s.M
	if a.Stop != nil && a.Stop() {
		return
	}
	from, to := job*b.rows*row, min((job+1)*b.rows, b.s.planes()*b.s.OH)*row
	if from < to {
		a.Post(from, a.Y[from:to])
	}
}

// store lays out the blocks of neighbouring pixels.
func (b *blocks) store(i int, y []float32) {
	s, a := &b.s, b.args
	size := s.taps() * s.M
	depth := s.Depth.or(one)
	for pixel := i / size; len(y) > 0; {
		x := pixel % s.W
		n := min(s.W-x, len(y)/size) // to the end of the row
		row := pixel / s.W           // of all planes
		plane, top := row/s.H, row%s.H*s.SH
		image, front := plane/depth.In, plane%depth.In*depth.Stride
		run := s.KW * s.M
		for kz := range min(depth.Kernel, depth.Out-front) {
			to := image*depth.Out + front + kz
			for ky := range min(s.KH, s.OH-top) {
				at := ((to*s.OH+top+ky)*s.OW + x*s.SW) * s.M
				end := ((to*s.OH+top+ky)*s.OW + min((x+n)*s.SW, s.OW)) * s.M
				if end > at {
					spread(a.Y[at:end], y[(kz*s.KH+ky)*run:], run, size)
				}
			}
		}
		y = y[n*size:]
		pixel += n
	}
}

// spread fills dst with runs that lie step apart in src; the last may be cut.
func spread(dst, src []float32, run, step int) {
	if run == 2 {
		for len(dst) >= 2 {
			dst[0], dst[1] = src[0], src[1]
			if dst = dst[2:]; len(dst) == 0 {
				return
			}
			src = src[step:]
		}
	}
	for len(dst) > run {
		copy(dst[:run], src)
		dst, src = dst[run:], src[step:]
	}
	copy(dst, src)
}
