package conv

import "slices"

// bare computes the results of a transposed convolution that no tap reaches, because its strides are larger than its kernel: they are made of bias
// and residual only.
type bare struct {
	p    *Plan
	taps [3][]int // the residues of the strides that have taps, in order
	rows int      // of a job
	jobs int
}

// bareFloats is about how many results a job has.
const bareFloats = 32 << 10

// newBare returns nil where taps reach all results.
func newBare(p *Plan) *bare {
	s := &p.s
	if s.planes() == 0 || s.OH == 0 || s.OW == 0 {
		return nil
	}
	b := &bare{p: p}
	some := false
	for i, d := range s.dims() {
		for _, r := range d.residues() {
			if r.o < d.Out {
				b.taps[i] = append(b.taps[i], r.o)
			}
		}
		some = some || len(b.taps[i]) < min(d.Stride, d.Out)
	}
	if !some {
		return nil
	}
	b.rows = max(bareFloats/product(s.OW, s.M), 1)
	b.jobs = ceilDiv(s.planes()*s.OH, b.rows)
	return b
}

// Do computes those of some rows.
func (b *bare) Do(worker, job int) {
	p := b.p
	s, a := &p.s, p.args
	if a.Stop != nil && a.Stop() {
		return
	}
	sc, d := &p.workers[worker], s.dims()
	if a.Store != nil {
		sc.need(&sc.out, p.k.mr*p.stored()*s.M)
	}
	reached := func(i, o int) bool {
		_, found := slices.BinarySearch(b.taps[i], o%d[i].Stride)
		return found
	}
	for row := job * b.rows; row < min((job+1)*b.rows, s.planes()*s.OH); row++ {
		x := 0
		if reached(0, row/s.OH%d[0].Out) && reached(1, row%s.OH) {
			for from := 0; from < s.OW; from += s.SW {
				for _, o := range b.taps[2] {
					if from+o >= s.OW {
						break
					}
					b.pixels(sc, row*s.OW+x, from+o-x)
					x = from + o + 1
				}
			}
		}
		b.pixels(sc, row*s.OW+x, s.OW-x)
	}
}

// pixels computes n neighbours.
func (b *bare) pixels(sc *scratch, pixel, n int) {
	p := b.p
	a, m := p.args, p.s.M
	for n > 0 {
		h, to := n, a.Y
		if a.Store != nil {
			h, to = min(n, p.k.mr*p.stored()), sc.out
		} else {
			to = to[pixel*m:]
		}
		for i := range h {
			if i > 0 && a.Residual == nil {
				copy(to[i*m:(i+1)*m], to)
				continue
			}
			b.pixel(to[i*m:(i+1)*m], (pixel+i)*m)
		}
		if a.Post != nil || a.Store != nil {
			p.post(sc, h, pixel, 1)
		}
		pixel += h
		n -= h
	}
}

// pixel computes one, whose residual is at some position.
func (b *bare) pixel(dst []float32, at int) {
	p := b.p
	a := p.args
	mg, stride := p.s.M/p.s.Groups, len(p.init)/p.s.Groups
	for ch := range dst {
		x := p.init[ch/mg*stride+ch%mg]
		if a.Residual != nil {
			x += a.Residual[at+ch]
		}
		dst[ch] = finish(x, a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T)
	}
}
