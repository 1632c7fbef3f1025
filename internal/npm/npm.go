// Package npm finds the models that examples/fetch.sh fetches from npm packages. They are not part of the project: tests that
// need them skip where they are absent, and fail where TESSERA_REQUIRE_NPM_MODELS=1 says that they must be there.
package npm

import (
	"os"
	"path/filepath"

	"github.com/tessera-go/tessera/internal/shared"
)

// Dir returns $TESSERA_NPM_MODELS if set, else bench/.cache/onnx, with whether it has the files.
func Dir(files ...string) (string, bool) {
	dir := os.Getenv("TESSERA_NPM_MODELS")
	if dir == "" {
		dir = filepath.Join(shared.Root(), "bench", ".cache", "onnx")
	}
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return dir, false
		}
	}
	return dir, true
}

// Models returns the folder that has the files, or ends the test.
func Models(t shared.T, files ...string) string {
	t.Helper()
	dir, ok := Dir(files...)
	switch {
	case ok:
	case os.Getenv("TESSERA_REQUIRE_NPM_MODELS") == "1":
		t.Fatalf("%s lacks one of %v: sh examples/fetch.sh %s", dir, files, dir)
	default:
		t.Skipf("%s lacks one of %v: sh examples/fetch.sh %s, or set TESSERA_NPM_MODELS", dir, files, dir)
	}
	return dir
}
