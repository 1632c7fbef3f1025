// Package rerun starts a test binary again, for tests of what a process reads once, such as TESSERA_ISA.
package rerun

import (
	"os"
	"os/exec"
	"strings"
)

// Self returns a command that runs this test binary with the arguments. For an architecture that only an emulator runs,
// TESSERA_TEST_EXEC holds the words that come before the binary, the same that -exec gave to go test.
func Self(args ...string) *exec.Cmd {
	words := append(strings.Fields(os.Getenv("TESSERA_TEST_EXEC")), os.Args[0])
	words = append(words, args...)
	return exec.Command(words[0], words[1:]...)
}
