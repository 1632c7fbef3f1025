package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

// TestConformance runs the suite on every instruction set of this processor; on all but the best one, on the types whose kernels differ.
func TestConformance(t *testing.T) {
	in := cpuinfo.Get()
	for _, isa := range in.ISAs {
		t.Run(isa.String(), func(t *testing.T) {
			var o backendtest.Options
			switch isa {
			case in.ISA:
			case cpuinfo.AVXVNNI: // differs from AVX2 in products of 8 bits
				o.Types = []tensor.DType{tensor.I8, tensor.U8, tensor.Q8_0}
			default:
				o.Types = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I8, tensor.U8, tensor.Q8_0, tensor.Q4_K}
			}
			backendtest.Run(t, func() backends.Backend {
				b, err := backends.Open("cpu:isa=" + isa.String())
				require.NoError(t, err)
				return b
			}, o)
		})
	}
}

func TestOpen(t *testing.T) {
	for spec, want := range map[string]string{
		"cpu:isa=mmx": "isa=mmx", "cpu:threads=-1": "threads=-1", "cpu:speed=9": `unknown option "speed"`, "cpu:threads": "not key=value",
	} {
		_, err := backends.Open(spec)
		require.ErrorContains(t, err, want)
	}
	b, err := backends.Open("cpu:threads=3,isa=portable")
	require.NoError(t, err)
	d := b.Describe()
	require.Contains(t, d.Device, "3 threads, portable")
	require.False(t, d.Simulated)
	require.NotEmpty(t, d.Options)
	require.NoError(t, b.Close())
}
