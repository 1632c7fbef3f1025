package conv

import (
	"fmt"

	"github.com/tessera-go/tessera/internal/par"
)

// Plan is a convolution of a fixed size. One goroutine at a time runs it; after the first run it allocates nothing.
type Plan struct {
	f       *Filter
	s       Spec
	k       *kernels
	kn      *knobs
	threads int
	args    *Args
	narrow  bool      // kernels store bytes in this run
	init    []float32 // bias, padded to panels, group by group
	scale   []float32 // factors, likewise; of dot kernels
	extra   []int32   // what integer sums take, likewise
	works   []work    // the phases of this size
	bare    *bare     // of a transposed one: what no tap reaches, or nil
	cur     *work
	workers []scratch
	dw      *depthwise
	blocks  *blocks
	win     *winograd
	feeder  *depthwise // computes the image, block by block: see Fed
}

// scratch is what one worker owns.
type scratch struct {
	t    tile
	s    strip
	r    row
	rows []float32 // padded input
	out  []float32 // a tile's pixels, where Y cannot take them
	edge []float32 // a tile of whole panels

	y     []float32 // of depthwise convolutions and poolings: where results go, from position first on
	first int

	_ [64]byte
}

func (sc *scratch) need(v *[]float32, n int) {
	if len(*v) < n {
		*v = alignedFloats(n)
	}
}

// NewPlan prepares a size for a packed filter, with the thresholds that environment, profile or defaults give.
func NewPlan(f *Filter, s Spec, threads int) (*Plan, error) { return NewPlanWith(f, s, threads, nil) }

// NewPlanWith is NewPlan with thresholds that the program chose.
func NewPlanWith(f *Filter, s Spec, threads int, choice *Knobs) (*Plan, error) {
	kn, err := choice.get()
	if err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if f.spec.sized(&s) != s {
		return nil, fmt.Errorf("conv: a filter packed for %+v used for %+v", f.spec, s)
	}
	p := &Plan{f: f, s: s, k: f.k, threads: threads, kn: kn}
	if s.Depthwise() {
		p.dw = newDepthwise(p)
		return p, nil
	}
	if f.blocks != nil && s.fitBlocks() {
		if p.blocks, err = newBlocks(f.blocks, s, threads, choice); err != nil {
			return nil, err
		}
	}
	mg := s.M / s.Groups
	panels := (mg + p.k.nr - 1) / p.k.nr
	p.init = alignedFloats(s.Groups * panels * p.k.nr)
	if p.k.kind != kindF32 {
		p.scale = alignedFloats(len(p.init))
		p.extra = make([]int32, len(p.init))
		for i, v := range f.extra {
			p.extra[i/mg*panels*p.k.nr+i%mg] = v
		}
	}
	if s.Tile > 0 && !f.wide {
		p.win = newWinograd(p)
		return p, nil
	}
	workers := par.Workers(threads, 1<<30)
	for i := range f.phases {
		if w := p.work(&f.phases[i], panels, workers); !w.empty() {
			p.works = append(p.works, w)
		}
	}
	if s.Transposed {
		p.bare = newBare(p)
	}
	return p, nil
}
