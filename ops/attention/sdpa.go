package attention

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// SDPA is scaled dot-product attention: softmax(cap(Scale Q K^T) + mask) V, where cap(x) = Softcap tanh(x / Softcap).
//
// Inputs are Q [..., H, M, D], K [..., G, N, D], V [..., G, N, DV] (K and V may be of a block type), with equal leading dimensions and H a multiple of G: query head h uses
// key head h / (H/G) (grouped-query attention). Then, both optional: a mask that broadcasts to [..., H, M, N], added if of a
// floating-point type, excluding where false if Bool; and positions (i32 or i64) that broadcast to [..., M]. With Causal, key j is
// visible to query i only if j <= position[i]; without positions, position[i] is i + N - M, as for the last M of N tokens. With Window
// above 0, also only if j > position[i] - Window. So a key cache may be longer than what is filled: rows beyond the positions are not
// read. The output is [..., H, M, DV]; a query that sees no key gives zeros.
//
// Scores are float32 on backends: a query of which Scale Q, or a score, does not fit gives NaN or numbers without meaning, the others their results.
type SDPA struct {
	Scale   float32 // 0 means 1/sqrt(D)
	Softcap float32 // 0 means none
	Causal  bool
	Window  int // 0 means all
}

// Name is "sdpa".
func (SDPA) Name() string { return "sdpa" }

// Infer is the shape rule.
func (s SDPA) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(s, in, 3, 5); err != nil {
		return nil, err
	}
	q, k, v := in[0], in[1], in[2]
	for i := range 3 {
		if i > 0 && quant.CanDecode(in[i].DType) {
			continue
		}
		if err := ref.Float(s, in, i); err != nil {
			return nil, err
		}
	}
	r := int(q.Rank)
	if r < 3 || int(k.Rank) != r || int(v.Rank) != r {
		return nil, fmt.Errorf("sdpa: Q %v, K %v, V %v: three or more dimensions each, equally many, are right", q, k, v)
	}
	for i := range r - 3 {
		if q.Dims[i] != k.Dims[i] || q.Dims[i] != v.Dims[i] {
			return nil, fmt.Errorf("sdpa: Q %v, K %v, V %v differ in dimension %d", q, k, v, i)
		}
	}
	switch {
	case k.Dim(-3) != v.Dim(-3) || k.Dim(-2) != v.Dim(-2):
		return nil, fmt.Errorf("sdpa: K %v and V %v differ in heads or length", k, v)
	case k.Dim(-3) == 0 && q.Dim(-3) != 0 || k.Dim(-3) > 0 && q.Dim(-3)%k.Dim(-3) != 0:
		return nil, fmt.Errorf("sdpa: %d query heads of Q %v are not a multiple of the %d heads of K %v", q.Dim(-3), q, k.Dim(-3), k)
	case q.Dim(-1) != k.Dim(-1):
		return nil, fmt.Errorf("sdpa: Q %v and K %v differ in the size of a head", q, k)
	case s.Window < 0 || s.Window > 0 && !s.Causal:
		return nil, fmt.Errorf("sdpa: window %d; 0, or with causal a positive number, is right", s.Window)
	}
	scores := q.Shape()
	scores[r-1] = k.Dim(-2)
	if ref.Has(in, 3) {
		if err := checkMask(s, in[3], scores); err != nil {
			return nil, err
		}
	}
	if ref.Has(in, 4) {
		if err := ref.Index(s, in, 4); err != nil {
			return nil, err
		}
		want := append(q.Shape()[:r-3], q.Dim(-2))
		if _, err := (tensor.Tensor{Spec: in[4]}).Broadcast(want...); err != nil {
			return nil, fmt.Errorf("sdpa: positions are %v, %v (or what broadcasts to it) is right", in[4], want)
		}
	}
	out := q
	out.Dims[r-1] = v.Dim(-1)
	return ref.Checked(s, out.DType, out.Shape())
}

// Factor returns what scores are multiplied by, for heads of d.
func (s SDPA) Factor(d int) float64 {
	if s.Scale != 0 {
		return float64(s.Scale)
	}
	return 1 / math.Sqrt(float64(d))
}

// Visible returns the keys that the query at a position may see: from (inclusive) to (exclusive) of n.
func (s SDPA) Visible(pos, n int) (from, to int) {
	if !s.Causal {
		return 0, n
	}
	to = min(max(pos, -1), n-1) + 1
	if s.Window > 0 {
		from = min(max(pos-s.Window+1, 0), to)
	}
	return from, to
}

// Reference computes query by query.
func (s SDPA) Reference(out, in []tensor.Tensor) error {
	if out[0].Elems() == 0 { // of heads without values there may be any number
		return nil
	}
	q := in[0].Floats()
	k, err := ref.Floats(in[1])
	if err != nil {
		return err
	}
	v, err := ref.Floats(in[2])
	if err != nil {
		return err
	}
	r := int(in[0].Rank)
	batch := 1
	for i := range r - 3 {
		batch *= in[0].Dims[i]
	}
	h, m, d := in[0].Dim(-3), in[0].Dim(-2), in[0].Dim(-1)
	g, n, dv := in[1].Dim(-3), in[1].Dim(-2), in[2].Dim(-1)
	var mask, pos []float64
	if ref.Present(in, 3) {
		dims := in[0].Shape()
		dims[r-1] = n
		if mask, err = maskValues(in[3], dims); err != nil {
			return err
		}
	}
	if ref.Present(in, 4) {
		if pos, err = ref.Spread(in[4], append(in[0].Shape()[:r-3], m)); err != nil {
			return err
		}
	}
	result := make([]float64, out[0].Elems())
	row := make([]float64, n)
	for b := range batch {
		for head := range h {
			group := b*g + head/(h/max(g, 1))
			for i := range m {
				p := i + n - m
				if pos != nil {
					p = int(pos[b*m+i])
				}
				from, to := s.Visible(p, n)
				query := q[((b*h+head)*m+i)*d:][:d]
				for j := range row {
					row[j] = math.Inf(-1)
					if j < from || j >= to {
						continue
					}
					x := 0.0
					for l, y := range query {
						x += y * k[(group*n+j)*d+l]
					}
					x *= s.Factor(d)
					if s.Softcap != 0 {
						x = float64(s.Softcap) * math.Tanh(x/float64(s.Softcap))
					}
					if mask != nil {
						x = masked(x, mask[((b*h+head)*m+i)*n+j])
					}
					row[j] = x
				}
				softmax(row, false)
				dst := result[((b*h+head)*m+i)*dv:][:dv]
				for j := from; j < to; j++ {
					if row[j] == 0 { // masked out, or too small to matter: its value is not looked at
						continue
					}
					for l := range dst {
						dst[l] += row[j] * v[(group*n+j)*dv+l]
					}
				}
			}
		}
	}
	out[0].SetFloats(result)
	return nil
}

// Flops counts both products over all keys.
func (s SDPA) Flops(in []tensor.Spec) float64 {
	q := float64(in[0].Elems())
	n := float64(in[1].Dim(-2))
	return 2 * n * (q + q/float64(max(in[0].Dim(-1), 1))*float64(in[2].Dim(-1)))
}
