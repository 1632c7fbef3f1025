package xdna

import (
	"strings"
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
		specs = append(specs, "xdna2:rows=1,output=f32", "xdna:rows=1,output=f32,mode=emulate,layout=row")
	}
	for _, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			backendtest.Run(t, func() backends.Backend {
				b, err := backends.Open(spec)
				require.NoError(t, err)
				return b
			}, backendtest.Options{Only: []string{"matmul"}, Precision: func(ops.Call) float64 {
				if strings.HasPrefix(spec, "xdna2") {
					return 1.0 / 16 // bfp16 keeps 2^-7 of a group's largest value, and the bound is on the mean
				}
				return 1.0 / 128
			}})
		})
	}
}
