//go:build !noasm

package cpuinfo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCachesOfLinux(t *testing.T) {
	dir := t.TempDir()
	for index, files := range []map[string]string{
		{"level": "1\n", "type": "Instruction\n", "size": "128K\n"},
		{"level": "1\n", "type": "Data\n", "size": "64K\n"},
		{"level": "2\n", "type": "Unified\n", "size": "2M\n"},
		{"level": "3\n", "type": "Unified\n", "size": "huge\n"},
		{},
	} {
		path := filepath.Join(dir, "index"+string(rune('0'+index)))
		require.NoError(t, os.Mkdir(path, 0o700))
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte(text), 0o600))
		}
	}
	l1d, l2 := cachesIn(dir)
	require.Equal(t, []int{64 << 10, 2 << 20}, []int{l1d, l2})
	l1d, l2 = cachesIn(filepath.Join(dir, "absent"))
	require.Equal(t, []int{0, 0}, []int{l1d, l2})
}
