package qgemm

import (
	"context"
	"testing"

	"github.com/tessera-go/tessera/tensor"
)

// TestWorkspaceBytes compares the sizes that are foretold with what the pool holds after the product.
func TestWorkspaceBytes(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K, tensor.Q6_K} {
		const n, k = 200, 512
		rows, err := Rows(d, make([]byte, n*k/d.Block()*d.Size()), k/d.Block()*d.Size(), n, k)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := rows.Pack(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range []int{1, 3, 5, 17, 130, 500, 1, 3, 5, 17, 130, 500} {
			p := []*Packed{rows, packed}[i/6]
			Trim()
			r := &Run{A: make([]float32, m*k), LDA: k, C: make([]float32, m*n), LDC: n, M: m, Threads: 2}
			want, err := p.WorkspaceBytes(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Mul(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			if got := Pooled(); got != want[0]+want[1]+want[2] || got == 0 {
				t.Errorf("%v, %d rows: the pool holds %d bytes, foretold were %v", d, m, got, want)
			}
		}
	}
}
