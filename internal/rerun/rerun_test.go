package rerun

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSelf(t *testing.T) {
	if os.Getenv("RERUN_CHILD") != "" {
		return
	}
	cmd := Self("-test.run", "^TestSelf$", "-test.v")
	cmd.Env = append(os.Environ(), "RERUN_CHILD=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PASS: TestSelf")

	t.Setenv("TESSERA_TEST_EXEC", "emulator -cpu max")
	require.Equal(t, []string{"emulator", "-cpu", "max", os.Args[0], "-x"}, Self("-x").Args)
}
