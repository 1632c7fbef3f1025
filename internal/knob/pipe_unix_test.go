//go:build unix && !aix && !solaris

package knob

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/testpipe"
)

func TestProfileOfAPipe(t *testing.T) {
	path := testpipe.New(t)
	_, err := ReadProfile(path)
	require.ErrorContains(t, err, path+": not a regular file")
	require.Error(t, WriteProfile(path, Tuned{}, false))
	require.Error(t, WriteProfile(path, Tuned{}, true))
}
