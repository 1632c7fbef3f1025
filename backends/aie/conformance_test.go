package aie

import (
	"os"
	"testing"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// TestConformance runs the suite that every backend must pass, in every number format and both modes.
func TestConformance(t *testing.T) {
	for options, precision := range map[string]float64{
		"precision=int16":              1.0 / (1 << 12),
		"precision=int8":               1.0 / (1 << 5),
		"precision=fp32":               0,
		"precision=int16,mode=emulate": 1.0 / (1 << 12),
		"precision=int8,design=paper":  1.0 / (1 << 5),
	} {
		if options == "precision=int8,design=paper" && os.Getenv("TESSERA_LONG") == "" {
			continue
		}
		t.Run(options, func(t *testing.T) {
			backendtest.Run(t, func() backends.Backend { return openT(t, options) }, backendtest.Options{Precision: func(c ops.Call) float64 {
				if c.In[0].DType != tensor.F32 {
					return 0 // integers stay integers
				}
				return precision
			}})
		})
	}
}
