package conv

import "slices"

// phase is one convolution: of a transposed one there is one for each residue of the stride that has taps.
type phase struct {
	oz, oy, ox int // first output pixel
	segs       []segment
	k          int // numbers of a segment
	steps      int // of 4 bytes of a segment
	b          int // start of the panels in data
	group      int // floats of the panels of one group
}

// segment is a run of k values of A: k = C, or KW C where neighbouring taps touch.
type segment struct{ dz, dy, dx int }

// tap returns which element of the kernel the first tap of a segment is.
func (s *Spec) tap(ph *phase, sg segment) int {
	tap := 0
	at, from := [3]int{sg.dz, sg.dy, sg.dx}, [3]int{ph.oz, ph.oy, ph.ox}
	for i, d := range s.dims() {
		k := (at[i] + d.Before) / d.Dilation
		if s.Transposed {
			k = (from[i] + d.Before - at[i]*d.Stride) / d.Dilation
		}
		tap = tap*d.Kernel + k
	}
	return tap
}

func convPhase(s *Spec, cg int) phase {
	ph := phase{k: cg}
	kx := s.KW
	if s.DW == 1 && s.Groups == 1 {
		ph.k, kx = s.KW*cg, 1
	}
	depth := s.Depth.or(one)
	for z := range depth.Kernel {
		for y := range s.KH {
			for x := range kx {
				ph.segs = append(ph.segs, segment{z*depth.Dilation - depth.Before, y*s.DH - s.Top, x*s.DW - s.Left})
			}
		}
	}
	return ph
}

// residue is what all output positions o of one residue of the stride have in common: the distances, in input positions, of the taps that feed them.
type residue struct {
	o     int
	feeds []int
}

// residues returns the residues of a transposed dimension that have taps, in order: output o is fed by the taps k for which o + Before -
// k Dilation is a multiple of Stride; the quotient is the input position.
func (d Dim) residues() []residue {
	var list []residue
	for k := range d.Kernel {
		o := floorMod(k*d.Dilation-d.Before, d.Stride)
		i, known := slices.BinarySearchFunc(list, o, func(r residue, o int) int { return r.o - o })
		if !known {
			list = slices.Insert(list, i, residue{o: o})
		}
		list[i].feeds = append(list[i].feeds, floorDiv(o+d.Before-k*d.Dilation, d.Stride))
	}
	return list
}

// transposedPhases returns a phase for each residue of the strides that has taps, so never more than there are taps: results without are left to
// bare.
func transposedPhases(s *Spec, cg int) []phase {
	d := s.dims()
	var list []phase
	for _, z := range d[0].residues() {
		for _, y := range d[1].residues() {
			for _, x := range d[2].residues() {
				ph := phase{oz: z.o, oy: y.o, ox: x.o, k: cg}
				for _, dz := range z.feeds {
					for _, dy := range y.feeds {
						for _, dx := range x.feeds {
							ph.segs = append(ph.segs, segment{dz, dy, dx})
						}
					}
				}
				list = append(list, ph)
			}
		}
	}
	return list
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int) int { return a - floorDiv(a, b)*b }
