package gemm

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// An operand that is packed in parts gives the bits of the packed one after each of them, also the earlier parts after later ones; its memory
// is that of PackB in the end, its columns are released once, and a product takes no more memory than with the operand as it lies.
func TestPartsGiveTheBitsOfPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	shapes := [][2]int{{300, 1531}, {517, 700}, {64, 17}}
	if testing.Short() { // under emulation
		shapes = [][2]int{{130, 331}, {64, 17}}
	}
	for _, typ := range []Type{F32, BF16, F16} {
		for _, shape := range shapes {
			k, n := shape[0], shape[1]
			b := Of(floats(r, n*k), n, k).T()
			switch typ {
			case BF16:
				b = Of(bf16s(r, n*k), n, k).T()
			case F16:
				b = Of(f16s(r, n*k), n, k).T()
			}
			packed, err := PackB(b, nil)
			require.NoError(t, err)
			var forms []*PartsB
			p, err := NewPartsB(b, nil)
			require.NoError(t, err)
			forms = append(forms, p)
			released := 0
			o := &Options{Threads: 2, Release: func(raw []byte) {
				require.Equal(t, b.at(0, released/k/typ.Size()), unsafe.Pointer(&raw[0]))
				released += len(raw)
			}}
			for _, columns := range []int{0, 1, n / 3, n / 3, n / 2, n - 1, n} {
				before := p
				if p = p.Pack(columns, o); p == before {
					continue
				}
				forms = append(forms, p)
				require.Equal(t, p.head.n*k*typ.Size(), released)
				require.GreaterOrEqual(t, p.head.n, columns)
			}
			for _, q := range forms { // one panel of wide vectors holds the narrowest operand
				require.Equal(t, q.head.n == n, q.Whole() != nil)
			}
			require.Equal(t, n, p.head.n)
			require.Equal(t, packed.data, p.Whole().data)
			for _, m := range []int{1, 2, 7, 40} {
				a, residual := operand(r, F32, m, k), Of(make32(operand(r, F32, m, n))[:m*n], m, n)
				want, got := make([]float32, m*(n+3)), make([]float32, m*(n+3))
				for i, e := range []*Epilogue{nil, {Bias: make32(operand(r, F32, 1, n))[:n], Act: SiLU, After: residual}, {ColScale: make32(operand(r, F32, 1, n))[:n], Before: residual, Act: ReLU}} {
					o := &Options{Threads: 1 + i, Epilogue: e}
					c := View(got, m, n, n+3, 1)
					require.NoError(t, MulPacked(View(want, m, n, n+3, 1), a, packed, o))
					most, _, err := StagedBytes(c, a, b, o)
					require.NoError(t, err)
					for j, q := range forms {
						clear(got)
						require.NoError(t, q.Mul(c, a, o))
						equal(t, want, got, "%v %v m=%d epilogue %d form %d", typ, shape, m, i, j)
						if cols := q.head.n; cols > 0 && cols < n {
							head, err := WorkspaceBytes(c.columns(0, cols), a, b.columns(0, cols), &q.head, &Options{Threads: o.Threads})
							require.NoError(t, err)
							tail, _, err := StagedBytes(c.columns(cols, n-cols), a, b.columns(cols, n-cols), &Options{Threads: o.Threads})
							require.NoError(t, err)
							require.LessOrEqual(t, max(head, tail), most, "%v %v m=%d epilogue %d, %d columns", typ, shape, m, i, cols)
						}
					}
				}
			}
			require.NoError(t, p.Close())
			require.NoError(t, packed.Close())
		}
	}
	_, err := NewPartsB(operand(r, S8, 8, 8), nil)
	require.ErrorContains(t, err, "integers")
}
