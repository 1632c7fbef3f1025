package gemm

import "unsafe"

// Products of few rows. They are bound by reading B, so B is read once, in an order that memory likes, and never written
// anywhere but to caches.

// axpyStretch bounds what one call of axpy does of a row, so that C stays in L1 and a call stays short.
const axpyStretch = 4096

// computeAxpy does the columns of one block for a single row of A. B is row-major: it is read along its rows, eight at a time.
// The chain of each element of C goes on in ascending k from stretch to stretch.
func (p *product) computeAxpy(worker, job int) {
	nr := p.kern.b.nr
	c0 := p.bl.panelsOf(p.panels, p.gn, job%p.gn) * nr
	c1 := min(p.bl.panelsOf(p.panels, p.gn, job%p.gn+1)*nr, p.np)
	dst := p.c.at(0, c0)
	if p.scratch {
		dst = unsafe.Add(p.private, worker*p.privateStep+p.widenBytes+p.stripBytes)
	}
	args := &p.workers[worker].args
	args.a, args.ars, args.acs = p.a.at(0, 0), 0, p.a.ColStride*4
	args.ldc = 0
	whole := (c1 - c0) / nr * nr
	stretch := axpyStretch / nr * nr
	keep := p.acc && !p.scratch
	a := &p.workers[worker].lead // not on the stack: kernels are called through variables, and it would escape
	for j := 0; j < whole; j += stretch {
		n := min(stretch, whole-j)
		c := unsafe.Add(dst, j*4)
		t := 0
		for ; t+8 <= p.k; t += 8 {
			for i := range a {
				a[i] = *(*float32)(p.a.at(0, t+i))
			}
			fresh := 0
			if t == 0 && !keep {
				fresh = 1
			}
			p.kern.axpy(c, unsafe.Pointer(a), p.b.at(t, c0+j), p.b.RowStride*4, n, fresh)
		}
		if t < p.k { // the last rows of B by the kernel of one row
			*args = kargs{a: p.a.at(0, t), acs: args.acs, b: p.b.at(t, c0+j), bks: p.b.RowStride * 4, bps: nr * 4, c: c, k: p.k - t, acc: 1}
			if t == 0 && !keep {
				args.acc = 0
			}
			p.kern.run(args, 1, n/nr, nr, p.kn.callBytes)
		}
	}
	if whole < c1-c0 { // the last columns, from their packed panel where kernels read whole panels
		*args = kargs{a: p.a.at(0, 0), acs: args.acs, b: p.bPacked, bks: p.kern.b.step(), c: unsafe.Add(dst, whole*4), k: p.k}
		if p.kern.exactB {
			args.b, args.bks = p.b.at(0, c0+whole), p.b.RowStride*4
		}
		if keep {
			args.acc = 1
		}
		p.kern.run(args, 1, 1, c1-c0-whole, p.kn.callBytes)
	}
	if p.scratch || p.epi != nil {
		p.finish(dst, 0, 1, 0, 0, c0, c1-c0)
	}
}
