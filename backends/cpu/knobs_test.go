package cpu

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/rerun"
)

// TestIllegalThresholdsKeepTheBackendShut: of this package or of one that it uses.
func TestIllegalThresholdsKeepTheBackendShut(t *testing.T) {
	if os.Getenv("CPU_CHILD") != "" {
		b, err := backends.Open("cpu")
		require.NoError(t, err)
		require.Equal(t, 7, thresholds().smallProduct)
		require.NoError(t, b.Close())
		return
	}
	for env, want := range map[string]string{
		"TESSERA_SMALL_PRODUCT=7":     "PASS",
		"TESSERA_SMALL_PRODUCT=-1":    "TESSERA_SMALL_PRODUCT=-1, want a number from 0",
		"TESSERA_KC_MAX=fast":         `TESSERA_KC_MAX="fast", want a number`,
		"TESSERA_KC_MIN=1000":         "kc-min is 1000, more than kc-max",
		"TESSERA_CONV_JOB_MACS=0":     "TESSERA_CONV_JOB_MACS=0",
		"TESSERA_ISA=altivec":         `"altivec" is unknown`,
		"TESSERA_PROFILE=/no/such":    "TESSERA_PROFILE: open /no/such",
		"TESSERA_SPIN_MICROSECONDS=x": "TESSERA_SPIN_MICROSECONDS",
	} {
		cmd := rerun.Self("-test.run", "^TestIllegalThresholdsKeepTheBackendShut$", "-test.v")
		cmd.Env = append(os.Environ(), "CPU_CHILD=1", env)
		out, err := cmd.CombinedOutput()
		require.Equal(t, want == "PASS", err == nil, "%s: %s", env, out)
		require.Contains(t, string(out), want)
	}
}
