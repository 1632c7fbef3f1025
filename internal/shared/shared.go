// Package shared finds the folder of facts and data that lies beside the checkout. It is not part of the project: tests that
// need it skip where it is absent, and fail where TESSERA_REQUIRE_SHARED=1 says that it must be there.
package shared

import (
	"os"
	"path/filepath"
	"runtime"
)

// T is the part of testing.TB that this package needs, so that importing it does not link the testing package.
type T interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Lookup returns the shared folder: $TESSERA_SHARED if set, else the folder named shared beside the one that holds go.mod.
func Lookup() (string, bool) {
	if dir := os.Getenv("TESSERA_SHARED"); dir != "" {
		return dir, isDir(dir)
	}
	dir := filepath.Join(Root(), "..", "shared")
	return dir, isDir(dir)
}

// Root returns the folder of go.mod, found from this source file, or from the working directory when the binary was built
// with -trimpath.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Dir(file)
	if !filepath.IsAbs(dir) {
		dir, _ = os.Getwd()
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return dir
		}
	}
}

// Dir returns the shared folder or ends the test: skipped, or failed when TESSERA_REQUIRE_SHARED=1.
func Dir(t T) string {
	t.Helper()
	dir, ok := Lookup()
	if !ok {
		absent(t, dir)
	}
	return dir
}

// File returns the path of a file below the shared folder, or ends the test as Dir does.
func File(t T, name string) string {
	t.Helper()
	path := filepath.Join(Dir(t), filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		absent(t, path)
	}
	return path
}

func absent(t T, path string) {
	t.Helper()
	if os.Getenv("TESSERA_REQUIRE_SHARED") == "1" {
		t.Fatalf("shared data required (TESSERA_REQUIRE_SHARED=1) but %s is absent", path)
	}
	t.Skipf("shared data absent: %s (set TESSERA_SHARED to its folder)", path)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
