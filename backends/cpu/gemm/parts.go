package gemm

import "errors"

// PartsB is an operand B that is packed in parts, and serves products meanwhile: columns whose panels have been packed are read from them, the
// others as [MulStaged] reads them, with the bits of either. It is immutable and may be used by several goroutines at once; [PartsB.Pack]
// gives another one with the same memory.
type PartsB struct {
	b     Matrix
	whole *PackedB
	head  PackedB // the panels that are packed: its n columns
}

// NewPartsB returns memory for the packed form of b, K x N, of any float type, with nothing packed. b must stay as it is.
func NewPartsB(b Matrix, o *Options) (*PartsB, error) {
	if err := b.check("B"); err != nil {
		return nil, err
	}
	if b.typ == S8 {
		return nil, errors.New("gemm: PartsB takes no integers")
	}
	f, err := packFormat(b.typ, o)
	if err != nil {
		return nil, err
	}
	whole, _, err := unfilledB(b, f)
	if err != nil {
		return nil, err
	}
	return &PartsB{b: b, whole: whole}, nil
}

// Pack returns the operand with at least so many columns packed, of which those that were already are not packed again. Of the options the threads and
// Release count. Only one call for an operand may run at a time, with the latest of its parts. Products with earlier parts may go on.
func (p *PartsB) Pack(columns int, o *Options) *PartsB {
	w := p.whole
	from, to := ceilDiv(p.head.n, w.f.nr), ceilDiv(min(columns, w.n), w.f.nr)
	if to <= from {
		return p
	}
	w.fill(p.b, from, to, o)
	return &PartsB{b: p.b, whole: w, head: PackedB{f: w.f, n: min(to*w.f.nr, w.n), k: w.k, stride: w.stride, data: w.data[:to*w.stride]}}
}

// Whole returns the packed operand, which has the memory from then on, or nil if a part is missing.
func (p *PartsB) Whole() *PackedB {
	if p.head.n < p.whole.n {
		return nil
	}
	return p.whole
}

// Close releases the memory of all parts of an operand; no product may use one any more.
func (p *PartsB) Close() error { return p.whole.Close() }

// Mul computes what [MulPacked] does once all is packed, bit for bit.
func (p *PartsB) Mul(c, a Matrix, o *Options) error {
	if o == nil {
		o = &Options{}
	}
	if p.head.n == 0 {
		return MulStaged(c, a, p.b, o)
	}
	if whole := p.Whole(); whole != nil {
		return MulPacked(c, a, whole, o)
	}
	if err := (&call{c: c, a: a, b: p.b}).check(o); err != nil {
		return err
	}
	s := takeStaging()
	defer giveStaging(s)
	n := p.head.n
	s.narrow(o, 0, n)
	if err := MulPacked(c.columns(0, n), a, &p.head, &s.opt); err != nil {
		return err
	}
	s.narrow(o, n, p.b.Cols-n)
	return MulStaged(c.columns(n, p.b.Cols-n), a, p.b.columns(n, p.b.Cols-n), &s.opt)
}
