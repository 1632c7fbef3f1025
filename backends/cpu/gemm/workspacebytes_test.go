package gemm

import (
	"math/rand/v2"
	"testing"
)

// TestWorkspaceBytes compares the size that is foretold with what a new workspace holds after the product.
func TestWorkspaceBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range 300 {
		m, n, k := 1+rng.IntN(150), 1+rng.IntN(300), 1+rng.IntN(300)
		if rng.IntN(3) == 0 {
			m = 1 + rng.IntN(6)
		}
		o := Options{Threads: 1 + rng.IntN(3)}
		c := Of(make([]float32, m*n), m, n)
		a := Of(make([]float32, m*k), m, k)
		b := Of(make([]float32, k*n), k, n)
		switch rng.IntN(4) {
		case 0:
			a = Raw(BF16, make([]byte, 2*m*k), m, k, k, 1)
		case 1: // rows of whole pages
			a = View(make([]float32, m*1024), m, k, 1024, 1)
		case 2:
			a = View(make([]float32, k*m), m, k, 1, m)
		}
		if rng.IntN(3) == 0 {
			b = View(make([]float32, k*n), k, n, 1, k)
		}
		integer := rng.IntN(4) == 0
		if integer {
			a, b, c = Of(make([]uint8, m*k), m, k), Of(make([]int8, k*n), k, n), Of(make([]int32, m*n), m, n)
		} else if a.typ == BF16 {
			b = Raw(BF16, make([]byte, 2*k*n), k, n, n, 1)
		}
		var pb *PackedB
		if rng.IntN(2) == 0 {
			var err error
			if pb, err = PackB(b, &o); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(3) == 0 && !integer {
			c = Raw(BF16, make([]byte, 2*m*n), m, n, n, 1)
		}
		blank := func(x Matrix) Matrix { return Raw(x.typ, nil, x.Rows, x.Cols, x.RowStride, x.ColStride) }
		want, err := WorkspaceBytes(blank(c), blank(a), blank(b), pb, &o)
		if err != nil {
			t.Fatal(err)
		}
		w := &Workspace{}
		o.Workspace = w
		if pb != nil {
			err = MulPacked(c, a, pb, &o)
		} else {
			err = Mul(c, a, b, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if w.Cap() != want {
			t.Errorf("%d x %d x %d, A %v strides %d %d, packed %t: the workspace holds %d bytes, foretold were %d", m, n, k, a.typ, a.RowStride, a.ColStride,
				pb != nil, w.Cap(), want)
		}
		held += w.Cap()
		_ = w.Close()
	}
	if held == 0 {
		t.Error("no product packed anything")
	}
}
