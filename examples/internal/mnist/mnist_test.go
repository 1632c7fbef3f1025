package mnist

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesAreThere(t *testing.T) {
	dir, err := Dir()
	require.NoError(t, err)
	for _, name := range []string{TrainImages, TrainLabels, TestImages, TestLabels} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Positive(t, info.Size())
	}
}
