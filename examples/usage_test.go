// Package examples holds programs that use the library as a stranger would, a folder each.
package examples

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Programs that need arguments say which, and what their flags mean, with exit status 2 where they are missing and 0 where one asks by -h. What they
// lack is an error that says where it comes from.
func TestUsage(t *testing.T) {
	if testing.Short() {
		t.Skip("links all examples")
	}
	dir := t.TempDir()
	names := []string{"classify", "faces", "filetype", "ocr", "sentences"} // generate, onnx and train-mnist need none
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(dir, name)
			if runtime.GOOS == "windows" {
				program += ".exe"
			}
			said, err := exec.Command(program).CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 2, exit.ExitCode())
			require.Regexp(t, "^usage: "+name+" ", string(said))

			asked, err := exec.Command(program, "-h").CombinedOutput()
			require.NoError(t, err)
			require.Equal(t, string(said), string(asked))
		})
	}
	for name, args := range map[string][]string{"faces": {"classify/3.png"}, "filetype": {"usage_test.go"}, "ocr": {"classify/3.png"}, "sentences": {"no-folder", "a sentence"}} {
		said, err := exec.Command(filepath.Join(dir, name), args...).CombinedOutput()
		require.Error(t, err, name)
		require.Contains(t, string(said), "examples/"+name+"/README.md", name)
	}
}
