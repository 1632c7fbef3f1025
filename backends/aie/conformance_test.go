package aie

import (
	"strings"
	"testing"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
)

// TestConformance runs the suite that every backend must pass, in every number format, both modes and both designs.
func TestConformance(t *testing.T) {
	for _, options := range []string{
		"precision=int16", "precision=int8", "precision=fp32", "precision=int8,design=paper",
		"precision=int16,mode=emulate", "precision=int8,mode=emulate", "precision=fp32,mode=emulate",
	} {
		t.Run(options, func(t *testing.T) {
			backendtest.Run(t, func() backends.Backend { return openT(t, options) },
				backendtest.Options{Only: []string{"matmul", "conv"}, Quick: strings.Contains(options, "emulate"), Held: held})
		})
	}
}
