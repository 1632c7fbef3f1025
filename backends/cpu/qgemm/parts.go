package qgemm

import (
	"context"
	"fmt"
)

// Parts is a weight that is packed in parts, and serves products meanwhile: columns of C whose panels have been packed come from them, the others from
// the rows, with the bits of either. It is immutable and may be used by several goroutines at once; [Parts.Pack] gives another one with
// the same memory.
type Parts struct {
	source     *Packed // the rows of all
	whole      *Packed // panels of all
	made       int     // of the panels
	head, tail *Packed // the panels that are packed and the rows that are not; nil for none
}

// Parts returns memory for the panels of a weight that Rows returned, with nothing packed. The weight stays as it is.
func (p *Packed) Parts() (*Parts, error) {
	whole, err := p.unfilled()
	if err != nil {
		return nil, err
	}
	return &Parts{source: p, whole: whole, tail: p}, nil
}

// Pack returns the weight with at least so many columns of C packed, of which those that were already are not packed again. Only one call for a weight
// may run at a time, with the latest of its parts. Products with earlier parts may go on.
func (p *Parts) Pack(columns int, o *Options) *Parts {
	to := min((columns+nr-1)/nr, p.whole.panels)
	if to <= p.made {
		return p
	}
	if o == nil {
		o = &Options{}
	}
	p.source.fill(p.whole, p.made, to, o)
	q := &Parts{source: p.source, whole: p.whole, made: to}
	if to == p.whole.panels {
		q.head = p.whole
		return q
	}
	s, r := p.source, p.source.rows
	q.head = &Packed{typ: s.typ, n: to * nr, k: s.k, g: s.g, panels: to, data: p.whole.data[:to*s.g.size]}
	q.tail = &Packed{typ: s.typ, n: s.n - to*nr, k: s.k, g: s.g, panels: s.panels - to, rows: rows{r.data[to*nr*r.pitch:], r.pitch, r.size}}
	return q
}

// Whole returns the packed weight, which has the memory from then on, or nil if a part is missing.
func (p *Parts) Whole() *Packed {
	if p.tail != nil {
		return nil
	}
	return p.whole
}

// Close releases the memory of all parts of a weight. None of them must be used afterwards.
func (p *Parts) Close() error { return p.whole.Close() }

// Mul computes a product as [Packed.Mul] does.
func (p *Parts) Mul(ctx context.Context, r *Run) error {
	if p.whole.data == nil {
		return fmt.Errorf("qgemm: the weight is closed")
	}
	if err := r.check(p.source); err != nil || r.M == 0 {
		return err
	}
	if p.head == nil || p.tail == nil {
		one := p.head
		if one == nil {
			one = p.tail
		}
		return one.Mul(ctx, r)
	}
	if err := p.head.Mul(ctx, r); err != nil {
		return err
	}
	rest := *r
	rest.C = r.C[p.head.n:]
	if r.Then != nil {
		rest.Then = shifted{r.Then, p.head.n}
	}
	return p.tail.Mul(ctx, &rest)
}

// shifted is the epilogue of columns from some column on.
type shifted struct {
	Epilogue
	col int
}

// Apply finishes a piece.
func (s shifted) Apply(c []float32, row, col int) { s.Epilogue.Apply(c, row, s.col+col) }
