//go:build unix && !aix && !solaris

package image

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/testpipe"
)

func TestPicturesOfAPipe(t *testing.T) {
	path := testpipe.New(t)
	_, err := ReadFile(path)
	require.ErrorContains(t, err, path+": not a regular file")
	_, err = ReadLabels(path)
	require.ErrorContains(t, err, path+": not a regular file")
}
