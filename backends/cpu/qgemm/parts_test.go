package qgemm

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorder is an epilogue that adds to each element its row and column.
type recorder struct{}

func (recorder) Apply(c []float32, row, col int) {
	for j := range c {
		c[j] += float32(1000*row + col + j)
	}
}

// A weight that is packed in parts gives the bits of the packed one after each of them, also the earlier parts after later ones; the
// panels are those of Pack, each row is released once, and a product takes no more memory than with the rows.
func TestPartsGiveTheBitsOfPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	ctx := context.Background()
	for _, d := range geometries() {
		const n, k, ld = 203, 768, 210
		data, rowBytes, _ := weights(t, rng, d, n, k)
		rows, err := Rows(d, data, rowBytes, n, k)
		require.NoError(t, err)
		packed, err := rows.Pack(nil)
		require.NoError(t, err)
		var forms []*Parts
		p, err := rows.Parts()
		require.NoError(t, err)
		forms = append(forms, p)
		released := 0
		o := &Options{Threads: 2, Release: func(rows []byte) { released += len(rows) }}
		for _, columns := range []int{0, 1, 16, 40, 100, 100, 192, n} {
			require.Nil(t, p.Whole())
			before := p
			if p = p.Pack(columns, o); p == before {
				continue
			}
			forms = append(forms, p)
			require.Equal(t, min((columns+nr-1)/nr*nr, n)*rowBytes, released, "%v, %d columns", d, columns)
		}
		require.Len(t, forms, 6)
		require.NotNil(t, p.Whole())
		require.Equal(t, packed.data, p.Whole().data, "%v", d)
		for _, m := range []int{0, 1, 3, 20, 70} {
			a := activations(rng, m*k)
			for _, then := range []Epilogue{nil, recorder{}} {
				want, got := make([]float32, m*ld), make([]float32, m*ld)
				require.NoError(t, packed.Mul(ctx, &Run{A: a, LDA: k, C: want, LDC: ld, M: m, Then: then}))
				for i, q := range forms {
					clear(got)
					require.NoError(t, q.Mul(ctx, &Run{A: a, LDA: k, C: got, LDC: ld, M: m, Then: then, Threads: 1 + i%3}))
					if !slices.Equal(want, got) {
						require.Equal(t, want, got, "%v, %d rows, form %d", d, m, i)
					}
				}
			}
			most, err := rows.WorkspaceBytes(&Run{M: m, Threads: 3})
			require.NoError(t, err)
			for _, q := range forms {
				for _, one := range []*Packed{q.head, q.tail} {
					if one == nil {
						continue
					}
					sizes, err := one.WorkspaceBytes(&Run{M: m, Threads: 3})
					require.NoError(t, err)
					for i := range sizes {
						require.LessOrEqual(t, sizes[i], most[i], "%v, %d rows, %d columns, buffer %d", d, m, one.n, i)
					}
				}
			}
		}
		require.NoError(t, p.Close())
		require.ErrorContains(t, forms[2].Mul(ctx, &Run{}), "closed")
		require.NoError(t, packed.Close())
	}
}
