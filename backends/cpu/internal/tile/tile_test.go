package tile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The layout is that of Intel's manual, volume 2, LDTILECFG: palette, 15 bytes that are 0, bytes of a row and rows of each tile.
func TestConfig(t *testing.T) {
	var c Config
	c.Set(0, 16, 64)
	c.Set(7, 3, 12)
	var want Config
	want[0], want[16], want[30], want[48], want[55] = 1, 64, 12, 16, 3
	require.Equal(t, want, c)
}
