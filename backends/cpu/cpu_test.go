package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestConformance runs the suite on every instruction set of this processor.
func TestConformance(t *testing.T) {
	for _, isa := range cpuinfo.Get().Names() {
		t.Run(isa, func(t *testing.T) {
			backendtest.Run(t, func() backends.Backend {
				b, err := backends.Open("cpu:isa=" + isa)
				require.NoError(t, err)
				return b
			})
		})
	}
}
