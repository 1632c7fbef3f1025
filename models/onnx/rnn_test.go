package onnx_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// A bidirectional layer is a forward and a reverse one side by side; a reverse one is a forward one of the reversed sequence; steps behind a
// sequence's length give zeros and leave its state.
func TestRecurrentDirections(t *testing.T) {
	const steps, batch, in, hidden = 4, 3, 5, 2
	bs, r := cpu(t), rand.New(rand.NewPCG(31, 32))
	lens := []int32{4, 1, 3}
	for op, gates := range map[string]int{"RNN": 1, "GRU": 3, "LSTM": 4} {
		random := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return x
		}
		x, states := random(steps*batch*in), [2][]float32{random(2 * batch * hidden), random(2 * batch * hidden)}
		w, rec, bias := random(2*gates*hidden*in), random(2*gates*hidden*hidden), random(2*2*gates*hidden)
		// run gives Y and Y_h of dirs directions from the first on.
		run := func(direction string, first, dirs int, x []float32, lens []int32) (y, h []float32) {
			part := func(v []float32) []float32 { return v[first*len(v)/2 : (first+dirs)*len(v)/2] }
			inputs := map[string]tensor.Tensor{
				"x": tensor.Of(x, steps, batch, in), "w": tensor.Of(part(w), dirs, gates*hidden, in), "r": tensor.Of(part(rec), dirs, gates*hidden, hidden),
				"b": tensor.Of(part(bias), dirs, 2*gates*hidden), "lens": tensor.Of(lens, batch), "h0": tensor.Of(part(states[0]), dirs, batch, hidden),
			}
			node := &onnx.Node{Op: op, In: []string{"x", "w", "r", "b", "lens", "h0"}, Out: []string{"y", "h"},
				Attrs: []onnx.Attr{onnx.StringAttr("direction", direction), onnx.IntAttr("hidden_size", hidden)}}
			if op == "LSTM" {
				node.In, node.Out = append(node.In, "c0"), append(node.Out, "c")
				inputs["c0"] = tensor.Of(part(states[1]), dirs, batch, hidden)
			}
			out := runNode(t, bs, 14, node, inputs, map[string]bool{"lens": true})
			return tensor.Data[float32](out["y"].Tensor), tensor.Data[float32](out["h"].Tensor)
		}
		const row = batch * hidden
		y, h := run("bidirectional", 0, 2, x, lens)
		require.Len(t, y, steps*2*row)
		for d, direction := range []string{"forward", "reverse"} {
			oneY, oneH := run(direction, d, 1, x, lens)
			for i := range steps {
				require.Equal(t, oneY[i*row:(i+1)*row], y[(2*i+d)*row:(2*i+d+1)*row], "%s %s, step %d", op, direction, i)
				for b, n := range lens {
					if i >= int(n) {
						require.Equal(t, make([]float32, hidden), oneY[i*row+b*hidden:i*row+(b+1)*hidden], "%s %s, step %d of %d", op, direction, i, n)
					}
				}
			}
			require.Equal(t, oneH, h[d*row:(d+1)*row], "%s %s", op, direction)
			for b, n := range lens { // the state after the sequence's own last step
				last := int(n) - 1
				if direction == "reverse" {
					last = 0
				}
				require.Equal(t, oneY[last*row+b*hidden:last*row+(b+1)*hidden], oneH[b*hidden:(b+1)*hidden], "%s %s, sequence %d", op, direction, b)
			}
		}
		whole := []int32{steps, steps, steps}
		var turned []float32
		for i := range steps {
			turned = append(slices.Clone(x[i*batch*in:(i+1)*batch*in]), turned...)
		}
		backY, backH := run("reverse", 1, 1, x, whole)
		y, h = run("forward", 1, 1, turned, whole)
		for i := range steps {
			require.Equal(t, y[i*row:(i+1)*row], backY[(steps-1-i)*row:(steps-i)*row], "%s, step %d", op, i)
		}
		require.Equal(t, h, backH, op)
	}
}
