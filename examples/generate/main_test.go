package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
)

func TestItRuns(t *testing.T) {
	out, err := exec.Command("go", "run", ".").Output()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(out), "The prince said that the Emperor was not"), "%q", out)
}

// The README shows this program, word for word.
func TestREADMEShowsIt(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(shared.Root(), "README.md"))
	require.NoError(t, err)
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, code, ok := strings.Cut(string(program), "\n")
	require.True(t, ok)
	require.Contains(t, string(readme), "```go\n"+code+"```")
}
