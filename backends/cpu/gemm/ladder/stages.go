package ladder

import (
	"context"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
)

// The block sizes of the last two stages. A tile of A, MC x KC, is 128 KiB and stays in L2 while all columns of C use it; a tile
// of B, KC x NR, is 4 KiB and stays in L1 while the whole tile of A uses it; NR columns times the lanes of a few vectors are the
// sums that fit the registers.
const (
	MC = 128
	KC = 256
	NR = 4
)

// callSteps bounds the k of one call of a kernel, so that no call lasts over some tens of microseconds.
const callSteps = 4096

// product is one problem with its memory: A is M x K, B is K x N, C is M x N, dense and column-major.
type product struct {
	m, n, k int
	a, b, c []float32
	call    args // of the kernel at work: kernels are called through variables, so that an argument on the stack would escape
}

func (p *product) atA(i, k int) unsafe.Pointer { return unsafe.Pointer(&p.a[i+k*p.m]) }
func (p *product) atB(k, j int) unsafe.Pointer { return unsafe.Pointer(&p.b[k+j*p.k]) }
func (p *product) atC(i, j int) unsafe.Pointer { return unsafe.Pointer(&p.c[i+j*p.m]) }

// naive sums one dot product an element.
func (p *product) naive(ctx context.Context) error {
	for j := range p.n {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range p.m {
			sum := float32(0)
			for k := range p.k {
				sum += p.a[i+k*p.m] * p.b[k+j*p.k]
			}
			p.c[i+j*p.m] = sum
		}
	}
	return nil
}

// unrolled computes four columns at once, so that four chains of sums run side by side and an element that was read of A serves
// four products, and writes out four steps of k.
func (p *product) unrolled(ctx context.Context) error {
	m := p.m
	j := 0
	for ; j+4 <= p.n; j += 4 {
		if err := ctx.Err(); err != nil {
			return err
		}
		b0, b1 := p.b[j*p.k:][:p.k], p.b[(j+1)*p.k:][:p.k]
		b2, b3 := p.b[(j+2)*p.k:][:p.k], p.b[(j+3)*p.k:][:p.k]
		for i := range m {
			var s0, s1, s2, s3 float32
			k, a := 0, i
			for ; k+4 <= p.k; k += 4 {
				v0, v1, v2, v3 := p.a[a], p.a[a+m], p.a[a+2*m], p.a[a+3*m]
				w0, w1, w2, w3 := (*[4]float32)(b0[k:]), (*[4]float32)(b1[k:]), (*[4]float32)(b2[k:]), (*[4]float32)(b3[k:])
				s0 += v0 * w0[0]
				s1 += v0 * w1[0]
				s2 += v0 * w2[0]
				s3 += v0 * w3[0]
				s0 += v1 * w0[1]
				s1 += v1 * w1[1]
				s2 += v1 * w2[1]
				s3 += v1 * w3[1]
				s0 += v2 * w0[2]
				s1 += v2 * w1[2]
				s2 += v2 * w2[2]
				s3 += v2 * w3[2]
				s0 += v3 * w0[3]
				s1 += v3 * w1[3]
				s2 += v3 * w2[3]
				s3 += v3 * w3[3]
				a += 4 * m
			}
			for ; k < p.k; k++ {
				v := p.a[a]
				s0 += v * b0[k]
				s1 += v * b1[k]
				s2 += v * b2[k]
				s3 += v * b3[k]
				a += m
			}
			p.c[i+j*m], p.c[i+(j+1)*m], p.c[i+(j+2)*m], p.c[i+(j+3)*m] = s0, s1, s2, s3
		}
	}
	rest := product{m: m, n: p.n - j, k: p.k, a: p.a, b: p.b[j*p.k:], c: p.c[j*m:]}
	return rest.naive(ctx)
}

// vectors computes a vector of rows of one column of C at a time, from A and B in place.
func (p *product) vectors(ctx context.Context, l *level) error {
	x := &p.call
	*x = args{lda: 4 * p.m}
	for j := range p.n {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := 0; i < p.m; i += l.lanes {
			x.rows = min(l.lanes, p.m-i)
			x.c, x.add = p.atC(i, j), 0
			for k := 0; k < p.k; k += callSteps {
				x.a, x.b, x.k = p.atA(i, k), p.atB(k, j), min(callSteps, p.k-k)
				if x.rows < l.lanes && !l.predicated {
					columnGo(x, l.lanes)
				} else {
					l.column(x)
				}
				x.add = 1
			}
		}
	}
	return nil
}

// packer copies tiles of the operands and counts how often.
type packer struct {
	*product
	l              *level
	bufA, bufB     []float32
	packsA, packsB int
	edge           []float32 // a tile of C that is not whole, for levels without predicates
}

// packA copies rows i0 to i0+rows, k from k0 on, in panels.
func (p *packer) packA(i0, rows, k0, steps int) {
	p.packsA++
	x := &p.call
	*x = args{lda: 4 * p.m}
	for i := 0; i < rows; i += p.l.lanes {
		x.rows = min(p.l.lanes, rows-i)
		for k := 0; k < steps; k += callSteps {
			x.k = min(callSteps, steps-k)
			x.a, x.c = p.atA(i0+i, k0+k), unsafe.Pointer(&p.bufA[i*steps+k*p.l.lanes])
			if x.rows < p.l.lanes && !p.l.predicated {
				packAGo(x, p.l.lanes)
			} else {
				p.l.packA(x)
			}
		}
	}
}

// packPanelB copies up to NR columns from j on, k from k0 on, to a place in the buffer of B.
func (p *packer) packPanelB(to, k0, steps, j int) {
	x := &p.call
	*x = args{lda: 4 * p.k, cols: min(NR, p.n-j)}
	for k := 0; k < steps; k += x.k {
		x.k = min(callSteps, steps-k)
		x.b, x.c = p.atB(k0+k, j), unsafe.Pointer(&p.bufB[to+k*NR])
		if x.cols == NR && x.k >= p.l.group {
			x.k -= x.k % p.l.group
			p.l.packB(x)
		} else {
			packBGo(x)
		}
	}
}

// multiply computes rows i0 to i0+rows of up to NR columns from j on; both operands lie packed, steps of k.
func (p *packer) multiply(i0, rows, steps, fromB, j int, add bool) {
	l := p.l
	x := &p.call
	*x = args{ldc: 4 * p.m, lda: 4 * l.lanes * steps, cols: min(NR, p.n-j)}
	for k := 0; k < steps; k += callSteps {
		x.k = min(callSteps, steps-k)
		x.b = unsafe.Pointer(&p.bufB[fromB+k*NR])
		x.add = 0
		if add || k > 0 {
			x.add = 1
		}
		for i := 0; i < rows; {
			x.a, x.c = unsafe.Pointer(&p.bufA[i*steps+k*l.lanes]), p.atC(i0+i, j)
			if i+l.panels*l.lanes <= rows {
				x.rows = l.lanes
				l.wide(x)
				i += l.panels * l.lanes
				continue
			}
			x.rows = min(l.lanes, rows-i)
			if x.rows < l.lanes && !l.predicated {
				p.corner()
			} else {
				l.tile(x)
			}
			i += l.lanes
		}
	}
}

// corner computes a tile with fewer rows than lanes by way of a whole one.
func (p *packer) corner() {
	x := p.call
	p.call.c, p.call.ldc, p.call.rows, p.call.add = unsafe.Pointer(&p.edge[0]), 4*p.l.lanes, p.l.lanes, 0
	p.l.tile(&p.call)
	for j := range x.cols {
		for i := range x.rows {
			c := at(x.c, j*x.ldc+4*i)
			v := p.edge[j*p.l.lanes+i]
			if x.add != 0 {
				v += *c
			}
			*c = v
		}
	}
	p.call = x
}

// packed packs both operands whole, then computes NR columns at a time.
func (p *packer) packed(ctx context.Context) error {
	p.packA(0, p.m, 0, p.k)
	p.packsB++
	for j := 0; j < p.n; j += NR {
		p.packPanelB(j*p.k, 0, p.k, j)
	}
	for j := 0; j < p.n; j += NR {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.multiply(0, p.m, p.k, j*p.k, j, false)
	}
	return nil
}

// tiled packs MC x KC of A and KC x NR of B at a time. The loops run over ib, kb, jb: a tile of A is packed once and serves all
// columns; the tile of B, which is 32 times smaller, is the one that is packed again for every ib.
func (p *packer) tiled(ctx context.Context) error {
	mc := p.tileRows()
	for ib := 0; ib < p.m; ib += mc {
		rows := min(mc, p.m-ib)
		for kb := 0; kb < p.k; kb += KC {
			if err := ctx.Err(); err != nil {
				return err
			}
			steps := min(KC, p.k-kb)
			p.packA(ib, rows, kb, steps)
			for jb := 0; jb < p.n; jb += NR {
				p.packsB++
				p.packPanelB(0, kb, steps, jb)
				p.multiply(ib, rows, steps, 0, jb, kb > 0)
			}
		}
	}
	return nil
}

// tiledColumnsFirst is tiled with the loops over jb, kb, ib: the order that packs A again for every NR columns. It shows what
// the order of tiled avoids.
func (p *packer) tiledColumnsFirst(ctx context.Context) error {
	mc := p.tileRows()
	for jb := 0; jb < p.n; jb += NR {
		if err := ctx.Err(); err != nil {
			return err
		}
		for kb := 0; kb < p.k; kb += KC {
			steps := min(KC, p.k-kb)
			p.packsB++
			p.packPanelB(0, kb, steps, jb)
			for ib := 0; ib < p.m; ib += mc {
				rows := min(mc, p.m-ib)
				p.packA(ib, rows, kb, steps)
				p.multiply(ib, rows, steps, 0, jb, kb > 0)
			}
		}
	}
	return nil
}

// tileRows is MC in whole panels.
func (p *packer) tileRows() int { return max(MC/p.l.lanes, 1) * p.l.lanes }

// wholeBytes returns the bytes that packed copies of both operands take.
func wholeBytes(l *level, m, n, k int) (a, b int, ok bool) {
	rows, ok1 := mem.RoundUp(m, l.lanes)
	cols, ok2 := mem.RoundUp(n, NR)
	a, ok3 := mem.Mul(rows, k, 4)
	b, ok4 := mem.Mul(cols, k, 4)
	return a, b, ok1 && ok2 && ok3 && ok4
}
