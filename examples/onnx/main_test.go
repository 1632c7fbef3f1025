package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestItRuns(t *testing.T) {
	out, err := exec.Command("go", "run", ".", "-model", "../../models/cnn/digits.onnx").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "input image float[N 1 28 28]\noutput scores float[N 10]\npicture 0: 1\npicture 1: 7\n", string(out))
}
