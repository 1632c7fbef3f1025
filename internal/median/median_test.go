package median

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{8, 1, 4, 2}, 3},
	} {
		require.Equal(t, c.want, Of(c.v), "%v", c.v)
	}
	v := []float64{3, 1, 2}
	Of(v)
	require.Equal(t, []float64{3, 1, 2}, v)
}
