package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	there, other, none := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "none")
	for _, path := range []string{there, other} {
		require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	}
	same := [][2]string{{there, there}, {there, filepath.Join(dir, "x", "..", "a")}, {none, none}, {none, filepath.Join(dir, ".", "none")}, {dir, dir}}
	if err := os.Symlink(there, filepath.Join(dir, "link")); err == nil {
		same = append(same, [2]string{there, filepath.Join(dir, "link")})
		require.NoError(t, os.Symlink(dir, filepath.Join(dir, "folder")))
		same = append(same, [2]string{none, filepath.Join(dir, "folder", "none")})
	}
	for _, s := range same {
		for _, written := range [][2]bool{{true, true}, {true, false}, {false, true}} {
			err := CheckFiles(File{"--c", other, true}, File{"--x", s[0], written[0]}, File{"--none", "", true}, File{"--y", s[1], written[1]})
			require.ErrorContains(t, err, "--x and --y are both", "%v", s)
			require.Equal(t, 2, ExitCode(err))
		}
		require.NoError(t, CheckFiles(File{"--x", s[0], false}, File{"--y", s[1], false}), "both are read")
	}
	for _, s := range [][2]string{{there, other}, {there, none}, {none, filepath.Join(dir, "none2")}, {"", ""}, {os.DevNull, os.DevNull}} {
		require.NoError(t, CheckFiles(File{"--x", s[0], true}, File{"--y", s[1], true}), "%v", s)
	}
}
