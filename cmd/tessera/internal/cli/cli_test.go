package cli

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExitCode(t *testing.T) {
	require.Equal(t, 0, ExitCode(nil))
	require.Equal(t, 1, ExitCode(errors.New("x")))
	require.Equal(t, 2, ExitCode(Usagef("x %d", 1)))
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 tokens", 1: "1 token", 2: "2 tokens"} {
		require.Equal(t, want, Count(n, "token"))
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "17": 17, "17B": 17, "1KiB": 1024, "1.5 MiB": 3 << 19, "2GB": 2e9, "3G": 3 << 30, "64K": 64 << 10} {
		got, err := ParseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"x", "-1", "1e30GiB", "NaN", "MiB"} {
		_, err := ParseBytes(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "1.5 MiB", FormatBytes(3<<19))
	require.Equal(t, "12 B", FormatBytes(12))
}

func TestParseSizes(t *testing.T) {
	got, err := ParseSizes("size", "1x2x3, 40x50x60")
	require.NoError(t, err)
	require.Equal(t, []Size{{1, 2, 3}, {40, 50, 60}}, got)
	require.Equal(t, "1x2x3", got[0].String())
	for _, bad := range []string{"", "1x2", "1x2x3x4", "ax2x3", "0x1x1", "1x1x99999999999", "-1x1x1"} {
		_, err := ParseSizes("sizes", bad)
		require.Equal(t, 2, ExitCode(err), bad)
		require.ErrorContains(t, err, "--sizes", bad)
	}
}

func TestPrintJSONIsOneLine(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, PrintJSON(&b, map[string]string{"a": "<b>"}))
	require.Equal(t, "{\"a\":\"<b>\"}\n", b.String())
}
