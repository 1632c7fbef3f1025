//go:build unix && !aix && !solaris

package mem

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/testpipe"
)

func TestFileOfAPipe(t *testing.T) {
	path := testpipe.New(t)
	_, err := File(path)
	require.ErrorContains(t, err, path+": not a regular file")
}
