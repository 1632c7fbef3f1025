package conv

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
)

// TestWorkspaceBytes compares the bound with what the workers of a plan hold after a run. With one worker it is what they hold, but for the places
// of a residual.
func TestWorkspaceBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	all := 0
	for i := range 400 {
		s := Spec{N: 1 + rng.IntN(3), H: 1 + rng.IntN(30), W: 1 + rng.IntN(30), C: 1 + rng.IntN(20), M: 1 + rng.IntN(40), KH: 1 + rng.IntN(3), KW: 1 + rng.IntN(3),
			SH: 1 + rng.IntN(2), SW: 1 + rng.IntN(2), DH: 1 + rng.IntN(2), DW: 1 + rng.IntN(2), Groups: 1}
		if rng.IntN(5) == 0 {
			s.M, s.Groups = s.C, s.C
		}
		if i%3 == 0 {
			s.H, s.W = 1+s.H%9, 1+s.W%9
			d := Dim{In: 1 + rng.IntN(9), Kernel: 1 + rng.IntN(3), Stride: 1 + rng.IntN(2), Dilation: 1}
			d.Before = rng.IntN(d.Kernel)
			if d.Out = floorDiv(d.In+2*d.Before-d.Kernel, d.Stride) + 1; d.Out > 0 {
				s.Depth = d
			}
		}
		s.Top, s.Left = rng.IntN(s.KH), rng.IntN(s.KW)
		s.OH, s.OW = (s.H+2*s.Top-(s.KH-1)*s.DH-1)/s.SH+1, (s.W+2*s.Left-(s.KW-1)*s.DW-1)/s.SW+1
		switch {
		case s.H+2*s.Top <= (s.KH-1)*s.DH || s.W+2*s.Left <= (s.KW-1)*s.DW:
			continue
		case i%4 == 0 && s.Groups == 1:
			s.Transposed, s.OH, s.OW, s.Top, s.Left, s.DH, s.DW = true, s.H*s.SH, s.W*s.SW, 0, 0, 1, 1
			s.Depth.Before, s.Depth.Out = 0, s.Depth.In*s.Depth.Stride
		default:
			s.Tile = s.BestTile(cpuinfo.Get().ISA)
		}
		f, err := Pack(s, make([]float32, s.Weights()), nil, cpuinfo.Get().ISA)
		if err != nil {
			t.Fatal(err)
		}
		threads := 1 + rng.IntN(3)
		p, err := NewPlan(f, s, threads)
		if err != nil {
			t.Fatal(err)
		}
		x, y := s.sizes()
		a := &Args{X: make([]float32, x), Y: make([]float32, y), Act: NoAct}
		load, store := rng.IntN(2) == 0, rng.IntN(2) == 0
		if load {
			a.Load = func(dst []float32, i int) { clear(dst) }
		}
		if store {
			a.Store = func(int, []float32) {}
		}
		p.Run(a)
		held, bound := p.Held(), p.WorkspaceBytes(load, store)
		if held > bound {
			t.Errorf("%+v, %d workers, load %t, store %t: holds %d bytes, the bound is %d", s, threads, load, store, held, bound)
		}
		all += held
		_ = f.Close()
	}
	if all == 0 {
		t.Error("no plan held anything")
	}
}

// TestScratchOfApart: pixels that would collide in L1 are copied within the bound, and no plan that reads copies is fed.
func TestScratchOfApart(t *testing.T) {
	in := cpuinfo.Get()
	for _, s := range apartCases() {
		f, err := Pack(s, make([]float32, s.Weights()), nil, in.ISA)
		if err != nil {
			t.Fatal(err)
		}
		for _, threads := range []int{1, 3} {
			p, err := NewPlan(f, s, threads)
			if err != nil {
				t.Fatal(err)
			}
			w := &p.works[0]
			line, way := 4*w.pitch, in.L1D/in.L1DWays
			if in.Features.Zen4 && p.k.mr > in.L1DWays && line%way == 0 {
				t.Errorf("%+v: pixels lie %d bytes apart", s, line)
			}
			if w.patches && !in.Features.Zen4 {
				t.Errorf("%+v: pixels are copied on a processor where that was not measured", s)
			}
			x, y := s.sizes()
			p.Run(&Args{X: make([]float32, x), Y: make([]float32, y), Act: NoAct})
			if held, bound := p.Held(), p.WorkspaceBytes(false, false); held > bound || w.patches && held == 0 {
				t.Errorf("%+v, %d workers: holds %d bytes, the bound is %d", s, threads, held, bound)
			}
			d := Spec{N: s.N, H: s.OH, W: s.OW, C: s.C, M: s.C, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: s.OH, OW: s.OW, Groups: s.C}
			g, err := Pack(d, make([]float32, d.Weights()), nil, in.ISA)
			if err != nil {
				t.Fatal(err)
			}
			from, err := NewPlan(g, d, threads)
			if err != nil {
				t.Fatal(err)
			}
			if w.patches && p.Feed(from) != nil {
				t.Errorf("%+v is fed", s)
			}
		}
	}
}

// TestScratchOfSparse: what a run holds follows from what taps read and from the results, however far strides, dilations and padding reach.
func TestScratchOfSparse(t *testing.T) {
	for _, s := range sparseCases() {
		f, err := Pack(s, make([]float32, s.Weights()), nil, cpuinfo.Get().ISA)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(f.phases); n > s.taps() {
			t.Errorf("%+v: %d phases for %d taps", s, n, s.taps())
		}
		for _, threads := range []int{1, 3} {
			p, err := NewPlan(f, s, threads)
			if err != nil {
				t.Fatal(err)
			}
			x, y := s.sizes()
			a := &Args{X: make([]float32, x), Y: make([]float32, y), Act: NoAct, Load: func(dst []float32, i int) { clear(dst) }, Store: func(int, []float32) {}}
			p.Run(a)
			held, bound := p.Held(), p.WorkspaceBytes(true, true)
			if held > bound {
				t.Errorf("%+v, %d workers: holds %d bytes, the bound is %d", s, threads, held, bound)
			}
			// All taps of all results, four times, and the pixels and edges of tiles.
			if most := threads * (4*4*(y*s.taps()*s.C+x) + 1<<18); bound > most {
				t.Errorf("%+v, %d workers: the bound is %d bytes, %d are plenty", s, threads, bound, most)
			}
		}
	}
}

// TestSizesDoNotWrap: products of sizes stop at the largest one, and positions that no int holds are refused.
func TestSizesDoNotWrap(t *testing.T) {
	const most, half = math.MaxInt, 1 << (bits.UintSize/2 - 1) // the square of twice this is 0 in an int
	for _, c := range []struct {
		factors []int
		want    int
	}{{[]int{3, 5}, 15}, {[]int{half, half, 2, 4}, mostSize}, {[]int{2 * half, 2 * half}, mostSize}, {[]int{most / 8}, min(most/8, mostSize)}, {[]int{most, 0}, 0}} {
		if got := product(c.factors...); got != c.want {
			t.Errorf("%v: %d, want %d", c.factors, got, c.want)
		}
	}
	for i, d := range []Dim{{Stride: most, Out: 3}, {Dilation: most, Kernel: 3}, {Before: most}, {In: most}, {Out: most}, {Stride: most, In: 3}} {
		s := Spec{N: 1, H: 1, W: max(d.In, 1), C: 1, M: 1, KH: 1, KW: max(d.Kernel, 1), SH: 1, SW: max(d.Stride, 1), DH: 1, DW: max(d.Dilation, 1), Left: d.Before,
			OH: 1, OW: max(d.Out, 1), Groups: 1, Transposed: i%2 > 0}
		if err := s.Check(); !errors.Is(err, mem.ErrOverflow) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
