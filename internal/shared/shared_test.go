package shared

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

type recorder struct{ skipped, failed bool }

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }

func TestRootHoldsGoMod(t *testing.T) {
	_, err := os.Stat(filepath.Join(Root(), "go.mod"))
	require.NoError(t, err)
}

func TestDirFollowsEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TESSERA_SHARED", dir)
	require.Equal(t, dir, Dir(t))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	require.Equal(t, filepath.Join(dir, "x"), File(t, "x"))
}

func TestAbsentSkipsOrFails(t *testing.T) {
	t.Setenv("TESSERA_SHARED", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TESSERA_REQUIRE_SHARED", "")
	var r recorder
	Dir(&r)
	require.True(t, r.skipped)
	require.False(t, r.failed)
	t.Setenv("TESSERA_REQUIRE_SHARED", "1")
	r = recorder{}
	File(&r, "x")
	require.True(t, r.failed)
}
