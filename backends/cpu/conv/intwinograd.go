package conv

import (
	"math"
	"unsafe"
)

// Winograd's algorithm in integers, for images of bytes: tiles of 4 x 4 pixels with the points 0, 1, -1, 2, -2 and infinity. Nothing is rounded,
// so that sums have the bits of the definition's.
//
// Pixels less their zero point are from -255 to 255; a transform in one direction makes them at most 10 times as large, so that frequencies
// fit words. The transformed filters are multiplied by what their fractions are parts of, so that they are whole: at most 7 x 7 times the
// weights, which fit words too. Both go into products of words with sums modulo 2^32, and the transform back to pixels makes
//
//	9 x 2^(e_i + e_j) x sum     for the pixel in row i and column j, with e = 3, 2, 1, 1
//
// of them. A product with the inverse of 9 modulo 2^32 and a shift leave the sum, if it is one of 26 bits: intWinogradSum.

// intWinogradSum bounds the sums of an image by a filter.
const intWinogradSum = 1 << 25

// intWinogradInverse times 9 is 1 modulo 2^32.
const intWinogradInverse = 0x38e38e39

var intWinogradShift = [4]int{3, 2, 1, 1}

// fitsIntWinograd reports whether no image can have a sum that has no room.
func (s *Spec) fitsIntWinograd(w []int16) bool {
	lo, hi := -int64(s.XZero), 255-int64(s.XZero) // of pixels
	if s.Signed {
		lo, hi = lo-128, hi-128
	}
	size := len(w) / s.M
	for o := range s.M {
		least, most := int64(0), int64(0)
		for _, v := range w[o*size : (o+1)*size] {
			a, b := lo*int64(v), hi*int64(v)
			least, most = least+min(a, b), most+max(a, b)
		}
		if least < -intWinogradSum || most >= intWinogradSum {
			return false
		}
	}
	return true
}

// packIntWinograd transforms and packs a filter as [panel][frequency][pair of k][channels of a panel].
func packIntWinograd(f *Filter, w []int16) {
	s := &f.spec
	fm, _ := s.form(s.Tile)
	nr, depth, steps := f.k.nr, s.Depth.or(one).Kernel, s.winogradSteps()
	k := depth * s.C
	f.alloc(ceilDiv(s.M, nr) * nr * fm.freqs() * steps)
	for o := range s.M {
		panel, j := o/nr, o%nr
		width := f.k.width(s.M - panel*nr)
		out := f.data[panel*nr*fm.freqs()*steps:]
		for i := range k { // a kernel of a plane
			g := w[(o*k+i)*9:][:9]
			row := i%depth*s.C + i/depth
			at := row/2*width + j
			var columns [3][6]int16
			for x := range columns {
				columns[x] = intFrequencies(g[x], g[3+x], g[6+x])
			}
			for y := range 6 {
				for _, v := range intFrequencies(columns[0][y], columns[1][y], columns[2][y]) {
					(*[2]int16)(unsafe.Pointer(&out[at]))[row%2] = v
					at += steps * width
				}
			}
		}
	}
}

// intFrequencies transforms three taps, each frequency without its fraction.
func intFrequencies(x, y, z int16) [6]int16 {
	return [6]int16{x, x + y + z, x - y + z, x + 2*y + 4*z, x - 2*y + 4*z, z}
}

// intTransform transforms n channels of the 6 x 6 pixels at the pointers of p, as transform does.
func (k *kernels) intTransform(p *transform, signed bool, n int) {
	const block = 16
	f := k.intIn[0]
	if signed {
		f = k.intIn[1]
	}
	if f == nil || n < block {
		for c := range n {
			intInputGo(p, signed, c)
		}
		return
	}
	rest := n % block
	p.n = n - rest
	f(p)
	if rest > 0 {
		last := n - block
		src := unsafe.Slice((*unsafe.Pointer)(p.src), 36)
		for i := range src {
			src[i] = unsafe.Add(src[i], last)
		}
		p.dst, p.n = unsafe.Add(p.dst, 2*last), block
		f(p)
	}
}

// intBlock is how many channels the kernel of the way back takes.
const intBlock = 8

// intEdge is where the pixels of channels go that are no whole block, of which there are as many in the sums, the factors and the bias of a panel.
type intEdge struct {
	dst, res [16]unsafe.Pointer
	y, r     [16][intBlock]float32
}

// intInverse transforms sums of n channels back to pixels, as inverse does.
func (k *kernels) intInverse(p *inverse, e *intEdge, n int) {
	if k.intOut == nil {
		for c := range n {
			intOutputGo(p, 4*c)
		}
		return
	}
	rest := n % intBlock
	whole := n - rest
	if whole > 0 {
		p.n = whole
		k.intOut(p)
	}
	if rest == 0 {
		return
	}
	from := *p
	p.src, p.init, p.scale = unsafe.Add(p.src, 4*whole), unsafe.Add(p.init, 4*whole), unsafe.Add(p.scale, 4*whole)
	for i := range e.dst {
		e.dst[i], e.res[i] = unsafe.Pointer(&e.y[i]), unsafe.Pointer(&e.r[i])
	}
	if p.res != nil {
		for i, from := range unsafe.Slice((*unsafe.Pointer)(p.res), len(e.r)) {
			copy(e.r[i][:rest], unsafe.Slice(at(from, p.off+4*whole), rest))
		}
		p.res = unsafe.Pointer(&e.res)
	}
	p.dst, p.off, p.n = unsafe.Pointer(&e.dst), 0, intBlock
	k.intOut(p)
	*p = from
	for i, to := range unsafe.Slice((*unsafe.Pointer)(p.dst), len(e.y)) {
		copy(unsafe.Slice(at(to, p.off+4*whole), rest), e.y[i][:rest])
	}
}

// intInputGo transforms a channel: the definition of the kernels.
func intInputGo(p *transform, signed bool, channel int) {
	src := unsafe.Slice((*unsafe.Pointer)(p.src), 36)
	var tmp [6][6]int16
	var x [6]int16
	for j := range 6 {
		for i := range x {
			b := (*byte)(unsafe.Add(src[i*6+j], channel))
			if x[i] = int16(*b); signed {
				x[i] = int16(int8(*b))
			}
			x[i] -= int16(p.zero)
		}
		for i, v := range intForward(x) {
			tmp[i][j] = v
		}
	}
	for i, row := range tmp {
		for j, v := range intForward(row) {
			*(*int16)(unsafe.Add(p.dst, (i*6+j)*p.step+2*channel)) = v
		}
	}
}

func intForward(x [6]int16) [6]int16 {
	e, o := x[4]-4*x[2], x[3]-4*x[1]
	g, u := x[4]-x[2], 2*(x[3]-x[1])
	return [6]int16{4*x[0] - 5*x[2] + x[4], e + o, e - o, g + u, g - u, 4*x[1] - 5*x[3] + x[5]}
}

// intOutputGo transforms the channel at some bytes back: the definition of the kernels.
func intOutputGo(p *inverse, off int) {
	dst := unsafe.Slice((*unsafe.Pointer)(p.dst), 16)
	var tmp [4][6]uint32
	var x [6]uint32
	for j := range 6 {
		for i := range x {
			x[i] = *(*uint32)(unsafe.Add(p.src, (i*6+j)*p.step+off))
		}
		for i, v := range intBackward(x) {
			tmp[i][j] = v
		}
	}
	for i, row := range tmp {
		for j, v := range intBackward(row) {
			sum := int32(v*intWinogradInverse) >> (intWinogradShift[i] + intWinogradShift[j])
			to := at(dst[i*4+j], p.off+off)
			if p.mode == raw {
				*to = math.Float32frombits(uint32(sum))
				continue
			}
			y := float32(sum)**at(p.scale, off) + *at(p.init, off)
			if p.res != nil {
				y += *at(unsafe.Slice((*unsafe.Pointer)(p.res), 16)[i*4+j], p.off+off)
			}
			*to = finish(y, p.lo, p.hi, p.p, p.q, p.mode, p.s, p.t)
		}
	}
}

// intBackward transforms frequencies to four values, 3 x 2^e times as large as they are.
func intBackward(x [6]uint32) [4]uint32 {
	sa, da, sb, db := x[1]+x[2], x[1]-x[2], x[3]+x[4], x[3]-x[4]
	return [4]uint32{6*x[0] - 4*sa + sb, db - 2*da, sb - sa, 2*db - da + 6*x[5]}
}
