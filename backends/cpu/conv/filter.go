package conv

import (
	"fmt"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
)

// Filter is a packed filter. Any number of goroutines may use it.
type Filter struct {
	k      *kernels
	spec   Spec // of which N, H, W, OH and OW do not matter
	phases []phase
	dw     []float32 // depthwise: [taps, C]
	blocks *Filter   // of a transposed one whose pixels become blocks: see blocks.go
	data   []float32 // steps of 4 bytes
	extra  []int32   // what the sums of each channel take, or nil
	wide   bool      // weights for which Winograd's algorithm in integers has no room: the definition is used

	mapping *mem.Mapping // of data, if it is large
}

// Bytes returns the memory of the packed form.
func (f *Filter) Bytes() int {
	n := 4 * (len(f.dw) + len(f.data) + len(f.extra))
	if f.blocks != nil {
		n += f.blocks.Bytes()
	}
	return n
}

// Close releases the memory of a large filter, which must not be used afterwards.
func (f *Filter) Close() error {
	m := f.mapping
	if m == nil {
		return nil
	}
	f.data, f.mapping = nil, nil
	return m.Close()
}

// alloc makes data: of large filters in memory of their own, in huge pages where the system has them, so that streaming through them does
// not stop at every page.
func (f *Filter) alloc(n int) {
	const large = 256 << 10 // floats
	if n >= large {
		if m, err := mem.Anonymous(n * 4); err == nil {
			f.mapping = m
			f.data = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.Data()))), n)
			return
		}
	}
	f.data = alignedFloats(n)
}

func alignedFloats(n int) []float32 {
	b := mem.Bytes(max(n, 1) * 4)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), max(n, 1))[:n]
}

// Pack packs a filter of floats for the best kernels of an instruction set. The weights are [M, C/Groups, KH, KW] contiguous, of a
// transposed convolution [C, M/Groups, KH, KW]; with a depth, its kernel stands before KH. Scale, if not nil, multiplies the filter of each output channel; with Type BF16 a factor is
// an operand of the run instead.
func Pack(s Spec, w []float32, scale []float32, isa cpuinfo.ISA) (*Filter, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	cg, mg := s.C/s.Groups, s.M/s.Groups
	taps := s.taps()
	if n, ok := mem.Mul(s.C, mg, s.Depth.or(one).Kernel, s.KH, s.KW); !ok || len(w) != n || s.Type == Int8 || s.Type == BF16 && scale != nil {
		return nil, fmt.Errorf("conv: %d weights for %+v", len(w), s)
	}
	f := &Filter{k: kernelsOf(kindF32, isa).forChannels(mg).forLoads(&s), spec: s}
	get := func(o, c, tap int) float32 { // c within the group
		var v float32
		if s.Transposed {
			v = w[((o/mg*cg+c)*mg+o%mg)*taps+tap]
		} else {
			v = w[(o*cg+c)*taps+tap]
		}
		if scale != nil {
			v *= scale[o]
		}
		return v
	}
	if s.Type == BF16 {
		f.k = kernelsOf(kindBF16, isa)
		packBF16(f, get)
		return f, nil
	}
	if s.Tile > 0 {
		packWinograd(f, w, scale)
		return f, nil
	}
	if s.Depthwise() {
		f.dw = alignedFloats(taps * s.C)
		for tap := range taps {
			for c := range s.C {
				f.dw[tap*s.C+c] = get(c, 0, tap)
			}
		}
		return f, nil
	}
	if s.Transposed && s.blocky() {
		var err error
		if f.blocks, err = packBlocks(s, w, scale, isa); err != nil {
			return nil, err
		}
	}
	if s.Transposed {
		f.packTaps(func(p unsafe.Pointer, o, c, tap int) { *(*float32)(p) = get(o, c, tap) })
	} else {
		packChannels(f, w, scale, 32)
	}
	return f, nil
}

// packChannels is packTaps for a convolution that is not transposed, whose weights become T: block channels at a time, which stay in L1 while all
// rows of a panel are written. Scale, if not nil, multiplies the filter of each output channel.
func packChannels[T, W int8 | int16 | float32](f *Filter, w []W, scale []T, block int) {
	f.layOut()
	s := &f.spec
	cg, mg, taps := s.C/s.Groups, s.M/s.Groups, s.taps()
	nr, line, group := f.k.nr, f.k.line(), f.k.kind.group()
	ph := &f.phases[0]
	inSegment := ph.k / cg // taps
	for g := range s.Groups {
		for p := range ceilDiv(mg, nr) {
			panel := f.data[g*ph.group+p*line*ph.steps*len(ph.segs):][:line*ph.steps*len(ph.segs)]
			out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(panel))), len(panel)*nr/line*group)
			width := f.k.width(mg - p*nr)
			for c0 := 0; c0 < cg; c0 += block {
				c1 := min(c0+block, cg)
				for j := range min(mg-p*nr, nr) {
					o := g*mg + p*nr + j
					factor := T(1)
					if scale != nil {
						factor = scale[o]
					}
					src := w[(o*cg+c0)*taps : (o*cg+c1)*taps]
					for t := range taps { // segments follow one another in the order of the taps
						row := t%inSegment*cg + c0
						lane := row % group
						at := ((t/inSegment*ph.steps+row/group)*width+j)*group + lane
						if group == 1 {
							for i := t; i < len(src); i += taps {
								out[at] = T(src[i]) * factor
								at += width
							}
							continue
						}
						for i := t; i < len(src); i += taps {
							out[at] = T(src[i]) * factor
							at++
							if lane++; lane == group { // to the same channel in the next step
								at, lane = at+(width-1)*group, 0
							}
						}
					}
				}
			}
		}
	}
}

// packTaps packs the panels of all phases; put writes one weight.
func (f *Filter) packTaps(put func(p unsafe.Pointer, o, c, tap int)) {
	f.layOut()
	s := &f.spec
	cg, mg := s.C/s.Groups, s.M/s.Groups
	nr, line, group := f.k.nr, f.k.line(), f.k.kind.group()
	step := 4 * line / nr // bytes
	panels := (mg + nr - 1) / nr
	for i := range f.phases {
		ph := &f.phases[i]
		taps := ph.k / cg // of a segment
		for g := range s.Groups {
			for p := range panels {
				out := f.data[ph.b+g*ph.group+p*line*ph.steps*len(ph.segs):]
				// A last panel of half the width is packed as such: its rows are nr/2 long.
				width := f.k.width(mg - p*nr)
				for si, sg := range ph.segs {
					row := 0
					for t := range taps {
						tap := s.tap(ph, sg) + t
						for c := range cg {
							at := unsafe.Pointer(&out[(si*ph.steps+row/group)*width*step/4])
							for j := range min(mg-p*nr, nr) {
								put(unsafe.Add(at, j*step+row%group*(step/group)), g*mg+p*nr+j, c, tap)
							}
							row++
						}
					}
				}
			}
		}
	}
}

// layOut decides where the panels of all phases lie.
func (f *Filter) layOut() {
	s := &f.spec
	cg, mg := s.C/s.Groups, s.M/s.Groups
	if !s.Transposed {
		f.phases = []phase{convPhase(s, cg)}
	} else {
		f.phases = transposedPhases(s, cg)
	}
	nr, line, group := f.k.nr, f.k.line(), f.k.kind.group()
	panels := (mg + nr - 1) / nr
	total := 0
	for i := range f.phases {
		ph := &f.phases[i]
		ph.b, ph.steps = total, ceilDiv(ph.k, group)
		ph.group = panels * line * ph.steps * len(ph.segs)
		total += ph.group * s.Groups
	}
	f.alloc(total)
}

// width returns the channels of a panel of which live remain.
func (k *kernels) width(live int) int {
	if k.half != nil && live <= k.nr/2 {
		return k.nr / 2
	}
	return k.nr
}
