package sim

import (
	"encoding/binary"
	"math"
)

// Dim is one dimension of a walk, in 32-bit words.
type Dim struct {
	Size   int // positions; 0 = all the rest (no further dimension counts)
	Step   int // distance between two positions, in words, not negative
	Before int // zero positions emitted before the first (sources only)
	After  int // zero positions emitted after the last (sources only)
}

// Walk is the address sequence of a strided transfer: for the flat index i, i0 = i mod size0, i1 = (i / size0) mod size1 and so on, and the
// word address is base + i0*step0 + i1*step1 + ... The last dimension is as long as the length asks.
// A walk remembers where it stands, so it can be taken in pieces.
type Walk struct {
	base  int // word address
	total int // words, padding included
	left  int

	// The dimensions with unit runs folded in: one position of dims[0] is run words.
	dims  [6]Dim
	index [6]int
	n     int
	run   int // contiguous words in a position of the folded dims
	taken int // words already taken of the current run
	addr  int // word address of the current run's start, ignoring padding
	pad   int // number of dims whose index stands in padding

	lo, hi int64 // bounding box in words, hi exclusive; 64 bits, because a wild pattern reaches far beyond any memory
}

// Start begins a walk of length words. It keeps no reference to dims.
func (w *Walk) Start(base, length int, dims []Dim) {
	*w = Walk{base: base, total: length, left: length, run: 1, addr: base}
	for i, d := range dims {
		last := i == len(dims)-1
		if d.Size == 0 || last {
			d.Size, d.After, last = 0, 0, true
		}
		plain := d.Before|d.After == 0
		switch {
		case plain && w.n == 0 && d.Step == w.run && d.Size > 0:
			w.run *= d.Size
		case plain && w.n == 0 && d.Step == w.run && last:
			w.run = max(length, 1)
			w.dims[0], w.n = Dim{Step: 0}, 1
		case plain && d.Size == 1:
		default:
			w.dims[w.n] = d
			w.n++
		}
		if last {
			break
		}
	}
	if w.n == 0 {
		w.dims[0], w.n = Dim{Step: 0}, 1
	}
	if w.run > length && length > 0 {
		w.run = length
	}
	for i := range w.n {
		if w.dims[i].Before > 0 {
			w.pad++
		}
	}
	w.lo, w.hi = w.box(length)
}

// box computes the smallest and largest word addresses of a walk of length words. Steps are not negative, so the smallest is the base.
func (w *Walk) box(length int) (lo, hi int64) {
	base := int64(w.base)
	if length <= 0 {
		return base, base
	}
	span := [7]int64{int64(w.run)}
	for i := range w.n {
		d := w.dims[i]
		if d.Size == 0 || i == w.n-1 {
			break
		}
		span[i+1] = span[i] * int64(d.Before+d.Size+d.After)
	}
	far := w.reach(w.n, int64(length), &span)
	if far < 0 {
		return base, base
	}
	return base, base + far + 1
}

// reach is the largest address offset among the first length words of dims[:n], or -1 if all of them are padding.
func (w *Walk) reach(n int, length int64, span *[7]int64) int64 {
	if length <= 0 {
		return -1
	}
	if n == 0 {
		return min(length, int64(w.run)) - 1
	}
	d := w.dims[n-1]
	inner, before, step := span[n-1], int64(d.Before), int64(d.Step)
	full, rest := length/inner, length%inner
	size := int64(d.Size)
	if size == 0 {
		size = full + 1
	}
	best := int64(-1)
	if whole := min(full-before, size); whole > 0 {
		if r := w.reach(n-1, inner, span); r >= 0 {
			best = (whole-1)*step + r
		}
	}
	if at := full - before; rest > 0 && at >= 0 && at < size {
		if r := w.reach(n-1, rest, span); r >= 0 {
			best = max(best, at*step+r)
		}
	}
	return best
}

// Left is the number of words not taken yet.
func (w *Walk) Left() int { return w.left }

// Total is the length of the walk in words.
func (w *Walk) Total() int { return w.total }

// Box returns the bounds of the byte addresses touched, hi exclusive and at most the largest int.
func (w *Walk) Box() (lo, hi int) {
	return int(min(4*w.lo, math.MaxInt)), int(min(4*w.hi, math.MaxInt))
}

// Run is the number of bytes that lie in one piece in memory.
func (w *Walk) Run() int { return 4 * w.run }

// step moves to the next position of the folded dims.
func (w *Walk) step() {
	w.taken = 0
	for i := range w.n {
		d := &w.dims[i]
		was := w.outside(i)
		w.index[i]++
		if d.Size == 0 || w.index[i] < d.Before+d.Size+d.After {
			w.pad += w.outside(i) - was
			if w.index[i] > d.Before && w.outside(i) == 0 {
				w.addr += d.Step
			}
			return
		}
		w.index[i] = 0
		w.addr -= (d.Size - 1) * d.Step
		w.pad += w.outside(i) - was
	}
}

// outside is 1 if dimension i stands in its padding.
func (w *Walk) outside(i int) int {
	d := &w.dims[i]
	if x := w.index[i] - d.Before; x < 0 || d.Size > 0 && x >= d.Size {
		return 1
	}
	return 0
}

// fast is the number of whole runs that can be taken by stepping dimension 0 alone, at most n.
func (w *Walk) fast(n int) int {
	d := &w.dims[0]
	if w.taken > 0 || w.pad > 0 || d.Before|d.After != 0 {
		return 0
	}
	if d.Size > 0 {
		n = min(n, d.Size-w.index[0])
	}
	return n
}

// advance moves over n runs of dimension 0, counted by fast.
func (w *Walk) advance(n int) {
	w.index[0] += n - 1
	w.addr += (n - 1) * w.dims[0].Step
	w.left -= n * w.run
	w.step()
}

// Gather reads the next len(dst)/4 words from mem. The caller has checked the box.
func (w *Walk) Gather(dst, mem []byte) {
	for len(dst) > 0 {
		size := 4 * w.run
		if n := w.fast(len(dst) / size); n > 0 {
			at, step := 4*w.addr, 4*w.dims[0].Step
			out := dst[:n*size]
			switch size {
			case 4:
				for ; len(out) >= 4; out, at = out[4:], at+step {
					binary.LittleEndian.PutUint32(out, binary.LittleEndian.Uint32(mem[at:]))
				}
			case 8:
				for ; len(out) >= 8; out, at = out[8:], at+step {
					binary.LittleEndian.PutUint64(out, binary.LittleEndian.Uint64(mem[at:]))
				}
			case 16:
				for ; len(out) >= 16; out, at = out[16:], at+step {
					m := mem[at : at+16]
					binary.LittleEndian.PutUint64(out, binary.LittleEndian.Uint64(m))
					binary.LittleEndian.PutUint64(out[8:], binary.LittleEndian.Uint64(m[8:]))
				}
			default:
				for ; len(out) > 0; out, at = out[size:], at+step {
					copy(out[:size], mem[at:at+size])
				}
			}
			dst = dst[n*size:]
			w.advance(n)
			continue
		}
		n := min(size-4*w.taken, len(dst))
		if w.pad > 0 {
			clear(dst[:n])
		} else {
			at := 4 * (w.addr + w.taken)
			copy(dst[:n], mem[at:at+n])
		}
		dst = dst[n:]
		w.bite(n / 4)
	}
}

// Scatter writes the next len(src)/4 words to mem. The caller has checked the box.
func (w *Walk) Scatter(mem, src []byte) {
	for len(src) > 0 {
		size := 4 * w.run
		if n := w.fast(len(src) / size); n > 0 {
			at, step := 4*w.addr, 4*w.dims[0].Step
			in := src[:n*size]
			switch size {
			case 4:
				for ; len(in) >= 4; in, at = in[4:], at+step {
					binary.LittleEndian.PutUint32(mem[at:], binary.LittleEndian.Uint32(in))
				}
			case 8:
				for ; len(in) >= 8; in, at = in[8:], at+step {
					binary.LittleEndian.PutUint64(mem[at:], binary.LittleEndian.Uint64(in))
				}
			case 16:
				for ; len(in) >= 16; in, at = in[16:], at+step {
					m := mem[at : at+16]
					binary.LittleEndian.PutUint64(m, binary.LittleEndian.Uint64(in))
					binary.LittleEndian.PutUint64(m[8:], binary.LittleEndian.Uint64(in[8:]))
				}
			default:
				for ; len(in) > 0; in, at = in[size:], at+step {
					copy(mem[at:at+size], in[:size])
				}
			}
			src = src[n*size:]
			w.advance(n)
			continue
		}
		n := min(size-4*w.taken, len(src))
		at := 4 * (w.addr + w.taken)
		copy(mem[at:at+n], src[:n])
		src = src[n:]
		w.bite(n / 4)
	}
}

// Skip takes words without looking where they lie. Afterwards only Left, Total, Box and Run mean anything.
func (w *Walk) Skip(words int) { w.left -= words }

// bite takes words of the current run.
func (w *Walk) bite(words int) {
	w.taken += words
	w.left -= words
	if w.taken == w.run {
		w.step()
	}
}

// Visit calls f for the next words words, run by run: the byte addresses lo to hi-1, or lo = -1 for padding. It stops early if f returns false.
func (w *Walk) Visit(words int, f func(lo, hi int) bool) {
	for words > 0 {
		n := min(w.run-w.taken, words)
		lo := 4 * (w.addr + w.taken)
		hi := lo + 4*n
		if w.pad > 0 {
			lo, hi = -1, 4*n-1
		}
		if !f(lo, hi) {
			return
		}
		words -= n
		w.bite(n)
	}
}
