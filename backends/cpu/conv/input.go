package conv

import "unsafe"

// source returns the address of what the first pixel of a part reads: in the image, or in scratch memory, which is filled.
func (p *Plan) source(sc *scratch, worker int, b *part) unsafe.Pointer {
	w, s := p.cur, &p.s
	switch {
	case w.patches:
		return p.patch(sc, b)
	case w.gathered:
		return p.gather(sc, b)
	case w.copied:
		return p.copyRows(sc, b)
	case p.loads():
		return p.loadRows(sc, worker, b)
	}
	return p.pixels((b.image*s.Depth.or(one).In+b.z+w.dzMin)*s.H*s.W*s.C + b.first*w.rowPitch + b.c0*w.pitch)
}

// copyRows copies the input rows that the rows of a part need, with zeros around them, and returns the first one.
func (p *Plan) copyRows(sc *scratch, b *part) unsafe.Pointer {
	w, s, size := p.cur, &p.s, p.k.kind.size()
	y0 := b.first*w.in.y + w.dyMin
	y1 := (b.last-1)*w.in.y + w.dyMin + w.dyRows
	row, depth := w.width*s.C, s.Depth.or(one).In
	sc.need(&sc.rows, w.dzPlanes*w.high*row*size/4+16)
	left, body := w.padLeft*s.C, min(s.W, w.width-w.padLeft)*s.C
	for i := range w.dzPlanes {
		plane := b.z + w.dzMin + i
		for y := y0; y < y1; y++ {
			dst := unsafe.Add(unsafe.Pointer(&sc.rows[0]), (i*w.high+y-y0)*row*size)
			if plane < 0 || plane >= depth || y < 0 || y >= s.H {
				p.fill(dst, row)
				continue
			}
			p.fill(dst, left)
			p.load(unsafe.Add(dst, left*size), ((b.image*depth+plane)*s.H+y)*s.W*s.C, body)
			p.fill(unsafe.Add(dst, (left+body)*size), row-left-body)
		}
	}
	return unsafe.Pointer(&sc.rows[0])
}

// loadRows converts the input of a part that needs no padding, from one plane, or computes it.
func (p *Plan) loadRows(sc *scratch, worker int, b *part) unsafe.Pointer {
	w, s := p.cur, &p.s
	from, n := 0, 0
	if w.flat {
		from, n = b.c0*s.C, (b.c1-b.c0)*s.C
	} else {
		plane, y := b.image*s.Depth.or(one).In+b.z+w.dzMin, b.first*w.in.y
		from = (plane*s.H + y) * s.W * s.C
		n = min((b.last-1-b.first)*w.in.y+w.dyMin+w.dyRows, s.H-y) * s.W * s.C
	}
	sc.need(&sc.rows, n*p.k.kind.size()/4+16)
	if p.feeder != nil {
		p.feeder.feed(worker, sc.rows[:n], from)
	} else {
		p.load(unsafe.Pointer(&sc.rows[0]), from, n)
	}
	return unsafe.Pointer(&sc.rows[0])
}

// gather copies the pixels that the rows of a part read, in the order in which the taps read them, with zeros for those outside, and returns
// the first one: scratch memory has, for each row and segment, the pixels of the segment for every result of the row.
func (p *Plan) gather(sc *scratch, b *part) unsafe.Pointer {
	w, s, size := p.cur, &p.s, p.k.kind.size()
	depth, run := s.Depth.or(one).In, w.pitch/s.C
	sc.need(&sc.rows, w.block*len(w.ph.segs)*w.line*size/4+16)
	dst := unsafe.Pointer(&sc.rows[0])
	for row := b.first; row < b.last; row++ {
		for _, sg := range w.ph.segs {
			plane, y := b.z+sg.dz, row*w.in.y+sg.dy
			switch {
			case plane < 0 || plane >= depth || y < 0 || y >= s.H:
				p.fill(dst, w.line)
			case w.in.x == 1 && run == 1: // neighbours
				p.copyPixels(dst, (b.image*depth+plane)*s.H+y, sg.dx, w.cols)
			default:
				for col := range w.cols {
					p.copyPixels(unsafe.Add(dst, col*w.pitch*size), (b.image*depth+plane)*s.H+y, col*w.in.x+sg.dx, run)
				}
			}
			dst = unsafe.Add(dst, w.line*size)
		}
	}
	return unsafe.Pointer(&sc.rows[0])
}

// patch copies what the pixels of a part read, in the order in which the taps read it, with zeros for what lies outside, and returns the first.
func (p *Plan) patch(sc *scratch, b *part) unsafe.Pointer {
	w, s, size := p.cur, &p.s, p.k.kind.size()
	depth, run := s.Depth.or(one), w.ph.k*s.Groups
	sc.need(&sc.rows, w.block*w.pitch*size/4+16)
	base := unsafe.Pointer(&sc.rows[0])
	row, x := b.c0/s.OW, b.c0%s.OW
	for i := range b.c1 - b.c0 {
		plane, top := row/s.OH, row%s.OH*s.SH
		image, front := plane/depth.Out, plane%depth.Out*depth.Stride
		dst := unsafe.Add(base, i*w.pitch*size)
		for _, sg := range w.ph.segs {
			if z, y := front+sg.dz, top+sg.dy; z < 0 || z >= depth.In || y < 0 || y >= s.H {
				p.fill(dst, run)
			} else {
				p.copyPixels(dst, (image*depth.In+z)*s.H+y, x*s.SW+sg.dx, run/s.C)
			}
			dst = unsafe.Add(dst, run*size)
		}
		if x++; x == s.OW {
			row, x = row+1, 0
		}
	}
	return base
}

// copyPixels copies n pixels from x on of a row of all images, with zeros for those outside.
func (p *Plan) copyPixels(dst unsafe.Pointer, row, x, n int) {
	s, size := &p.s, p.k.kind.size()
	from := min(max(-x, 0), n)
	to := max(min(s.W-x, n), from)
	p.fill(dst, from*s.C)
	if to > from {
		p.load(unsafe.Add(dst, from*s.C*size), (row*s.W+x+from)*s.C, (to-from)*s.C)
	}
	p.fill(unsafe.Add(dst, to*s.C*size), (n-to)*s.C)
}
