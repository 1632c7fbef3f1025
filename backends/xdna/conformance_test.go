package xdna

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
)

// The suite that every backend must pass, for products of all heights, in every number format and both modes.
func TestConformance(t *testing.T) {
	for _, spec := range []string{
		"xdna:rows=1", "xdna:rows=1,output=f32", "xdna:rows=1,precision=int8", "xdna:rows=1,rounding=floor,layout=row",
		"xdna2:rows=1", "xdna2:rows=1,output=f32", "xdna2:rows=1,precision=int8", "xdna2:rows=1,precision=bfp16", "xdna2:rows=1,rounding=floor,layout=row",
		"xdna:rows=1,mode=emulate", "xdna:rows=1,mode=emulate,precision=int8",
		"xdna2:rows=1,mode=emulate", "xdna2:rows=1,mode=emulate,precision=int8", "xdna2:rows=1,mode=emulate,precision=bfp16,output=f32",
	} {
		t.Run(spec, func(t *testing.T) {
			backendtest.Run(t, func() backends.Backend {
				b, err := backends.Open(spec)
				require.NoError(t, err)
				return b
			}, backendtest.Options{Only: []string{"matmul", "conv"}, Quick: strings.Contains(spec, "emulate") && !slow, Held: held})
		})
	}
}
