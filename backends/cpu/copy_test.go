package cpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/tensor"
)

// Channels go behind the pixels and back for every number of them that has a loop of its own, and its neighbours, in bytes and in words, by one worker
// and by several that meet within an image.
func TestCopyChannels(t *testing.T) {
	for _, threads := range []int{1, 3} {
		for _, d := range []tensor.DType{tensor.U8, tensor.F32} {
			for channels := 1; channels <= 9; channels++ {
				for _, pixels := range []int{7, 8, 33, 70_000} {
					what := fmt.Sprintf("%v, %d channels of %d pixels, %d threads", d, channels, pixels, threads)
					planes := tensor.New(d, 2, channels, pixels)
					raw := planes.Raw()
					for i := range raw {
						raw[i] = byte(i*7 + i>>8)
					}
					from, err := planes.Permute(0, 2, 1)
					require.NoError(t, err)
					to := tensor.New(d, 2, pixels, channels)
					(&copier{}).copy(&env{threads: threads}, &to, &from)
					size, out := d.Size(), to.Raw()
					for image := range 2 {
						for c := range channels {
							for i := 0; i < pixels; i += 1 + pixels/999 {
								p, q := ((image*channels+c)*pixels+i)*size, ((image*pixels+i)*channels+c)*size
								require.Equal(t, raw[p:p+size], out[q:q+size], what)
							}
						}
					}
					back := tensor.New(d, 2, channels, pixels)
					view, err := to.Permute(0, 2, 1)
					require.NoError(t, err)
					(&copier{}).copy(&env{threads: threads}, &back, &view)
					require.Equal(t, raw, back.Raw(), what)
				}
			}
		}
	}
}
