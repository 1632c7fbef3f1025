package qgemm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Sums of narrow integers are exact where weights and activations are as large as they can be, with one sign and with others.
func TestLargestSums(t *testing.T) {
	const n, m, k = 20, 31, 512
	for _, d := range types() {
		size := k / d.Block() * d.Size()
		data := make([]byte, n*size)
		for i := range n {
			row := make([]float32, k)
			for j := range row {
				row[j] = float32(1 - i%2*2)
				if every := i / 2; every > 0 && j%(4*every) < 2*every {
					row[j] = float32(i%3 - 1) // from one end of the range to the other, or to its middle
				}
			}
			require.NoError(t, quant.EncodeRow(d, data[i*size:][:size], row))
			if d == tensor.Q8_0 && i%4 == 1 { // encoders do not write -128, but files may have it
				for b := 0; b < size; b += d.Size() {
					for j := 2; j < d.Size(); j++ {
						data[i*size+b+j] = 128
					}
				}
			}
		}
		p, err := Pack(d, data, size, n, k, nil)
		require.NoError(t, err)
		a := make([]float32, m*k)
		for i := range a {
			a[i] = 1
			if sign := i / k % 5; sign > 0 && i%(2*sign) < sign || i/k%2 == 1 {
				a[i] = -1
			}
		}
		want := make([]float32, m*n)
		p.mulWith(t, &portable, &Run{A: a, LDA: k, C: want, LDC: n, M: m})
		for name, impl := range implementations() {
			for _, rows := range []int{1, 2, 15, m} {
				c := make([]float32, rows*n)
				p.mulWith(t, impl, &Run{A: a, LDA: k, C: c, LDC: n, M: rows})
				for i := range c {
					if math.Float32bits(want[i]) != math.Float32bits(c[i]) {
						t.Fatalf("%v %s, %d rows, element %d: %v, want %v", d, name, rows, i, c[i], want[i])
					}
				}
			}
		}
	}
}
