package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/use"
)

func TestCompare(t *testing.T) {
	var out bytes.Buffer
	require.Error(t, compare(&out, t.TempDir(), []string{"a"}))
	from := os.Getenv("TESSERA_USE")
	if from == "" {
		t.Skip("TESSERA_USE names no folder of the published model")
	}
	dir := t.TempDir()
	require.NoError(t, use.Convert(from, dir))
	require.NoError(t, compare(&out, dir, []string{"The cat sits on the mat.", "A cat is sitting on a rug."}))
	require.Contains(t, out.String(), " 0.770  1.000")
}
