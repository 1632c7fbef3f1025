package xdna

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
	"github.com/tessera-go/tessera/ops"
)

// The suite that every backend must pass, for products of all heights. Both operands are rounded to bfloat16, by 2^-8 at most each.
func TestConformance(t *testing.T) {
	specs := []string{"xdna:rows=1,output=f32"}
	if slow {
		// Not xdna2, whose bfp16 turns infinities into NaN.
		specs = append(specs, "xdna:rows=1,output=f32,mode=emulate,layout=row")
	}
	for _, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			backendtest.Run(t, func() backends.Backend {
				b, err := backends.Open(spec)
				require.NoError(t, err)
				return b
			}, backendtest.Options{Only: []string{"matmul", "conv"}, Precision: func(ops.Call) float64 { return 1.0 / 128 }})
		})
	}
}
