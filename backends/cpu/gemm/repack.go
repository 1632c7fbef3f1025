package gemm

import "fmt"

// Repack packs another B into the memory of p: of the same type, float32, bf16 or f16, and no larger in K and N than p was made for. It is
// for operands that live for some products only, such as a block of keys that several tiles of queries meet.
func (p *PackedB) Repack(b Matrix) error {
	if err := b.check("B"); err != nil {
		return err
	}
	if b.typ != p.f.elem || p.sums != nil {
		return fmt.Errorf("gemm: repacking %v as %v", b.typ, p.f.elem)
	}
	q := PackedB{f: p.f, n: b.Cols, k: b.Rows}
	panels, total, ok := q.layout()
	if !ok || total > len(p.data) {
		return fmt.Errorf("gemm: repacking B of %d x %d into %d bytes", q.k, q.n, len(p.data))
	}
	p.n, p.k, p.stride = q.n, q.k, q.stride
	if p.k > 0 {
		for panel := range panels {
			packPanelB(p.addr(panel, 0), &b, p.f, panel*p.f.nr, 0, p.k)
		}
	}
	return nil
}

// Corner returns a view of the first k rows and n columns, which lives as long as p. It needs no Close.
func (p *PackedB) Corner(k, n int) (PackedB, error) {
	if k < 0 || n < 0 || k > p.k || n > p.n || p.sums != nil || k%p.f.kr != 0 && k != p.k {
		return PackedB{}, fmt.Errorf("gemm: corner of %d x %d of a packed B of %d x %d", k, n, p.k, p.n)
	}
	return PackedB{f: p.f, n: n, k: k, stride: p.stride, data: p.data}, nil
}
