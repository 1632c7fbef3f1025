package npm

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

func TestModels(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	t.Setenv("TESSERA_NPM_MODELS", dir)
	t.Setenv("TESSERA_REQUIRE_NPM_MODELS", "")
	r := &recorder{}
	require.Equal(t, dir, Models(r, "a"))
	require.Equal(t, recorder{}, *r)
	Models(r, "a", "b")
	require.Equal(t, recorder{skipped: true}, *r)
	t.Setenv("TESSERA_REQUIRE_NPM_MODELS", "1")
	*r = recorder{}
	Models(r, "b")
	require.Equal(t, recorder{failed: true}, *r)
	t.Setenv("TESSERA_NPM_MODELS", "")
	got, _ := Dir()
	require.Equal(t, "onnx", filepath.Base(got))
}
