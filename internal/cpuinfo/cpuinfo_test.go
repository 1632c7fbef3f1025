package cpuinfo

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/rerun"
)

func TestCachesAreSane(t *testing.T) {
	in := Get()
	require.GreaterOrEqual(t, in.L1D, 16<<10)
	require.LessOrEqual(t, in.L1D, 256<<10)
	require.GreaterOrEqual(t, in.L2, 128<<10)
	require.LessOrEqual(t, in.L2, 4<<20)
	require.LessOrEqual(t, in.L3, 32<<20)
	require.Equal(t, Portable, in.ISAs[0])
	require.True(t, in.Has(in.ISA))
}

func TestClamp(t *testing.T) {
	require.Equal(t, 5, clamp(-1, 5, 2, 9))
	require.Equal(t, 9, clamp(260<<20, 5, 2, 9))
	require.Equal(t, 2, clamp(1, 5, 2, 9))
	require.Equal(t, 4, clamp(4, 5, 2, 9))
}

func TestParseISA(t *testing.T) {
	for i := Portable; i < numISA; i++ {
		got, err := ParseISA(i.String())
		require.NoError(t, err)
		require.Equal(t, i, got)
	}
	_, err := ParseISA("mmx")
	require.ErrorContains(t, err, "mmx")
}

// The pin is read once per process, so each case runs this test binary again.
func TestPinFailsLoudly(t *testing.T) {
	if os.Getenv("CPUINFO_CHILD") != "" {
		isa, err := Pinned()
		if err != nil {
			os.Stdout.WriteString("error: " + err.Error())
		} else {
			os.Stdout.WriteString("pinned " + isa.String())
		}
		os.Exit(0)
	}
	for pin, want := range map[string]string{"portable": "pinned portable", "mmx": "error: TESSERA_ISA", "": "pinned " + Get().ISA.String()} {
		cmd := rerun.Self("-test.run=TestPinFailsLoudly")
		cmd.Env = append(os.Environ(), "CPUINFO_CHILD=1", "TESSERA_ISA="+pin)
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("cannot start a process here: %v", err)
		}
		require.Contains(t, string(out), want)
	}
}
