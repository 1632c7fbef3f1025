//go:build (amd64 || arm64) && !noasm

package gemm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestRowCallsAreShort: operations on rows of any length are calls on parts of them, which cover each element once.
func TestRowCallsAreShort(t *testing.T) {
	done := 0
	see := func(n int) {
		require.LessOrEqual(t, n, callFloats)
		require.Zero(t, n%8)
		done += n
	}
	act := func(x *float32, n int, _, _ float32) { see(n); *x++ }
	two := func(x, _ *float32, n int) { see(n); *x++ }
	move := func(_, src unsafe.Pointer, n int) { see(n); *(*byte)(src)++ }
	f := rowFuncs{width: 8, fromS32: act, scale: act, mul: two, add: two, bf16: move, f16: move, fromBF16: move, fromF16: move,
		quant: func(_ *uint8, x *float32, n int, _, _, _ float32, _ int32) { see(n); *x++ }}
	f.act[GELU] = act
	v := f.ops()
	const n = 3*callFloats + 40
	for name, call := range map[string]func(x []float32, h []uint16){
		"scale":    func(x []float32, _ []uint16) { v.scale(x, 1) },
		"fromS32":  func(x []float32, _ []uint16) { v.fromS32(x) },
		"GELU":     func(x []float32, _ []uint16) { v.act[GELU](x, 0, 0) },
		"mul":      func(x []float32, _ []uint16) { v.mul(x, make([]float32, n)) },
		"add":      func(x []float32, _ []uint16) { v.add(x, make([]float32, n)) },
		"bf16":     func(x []float32, h []uint16) { v.bf16(h, x) },
		"f16":      func(x []float32, h []uint16) { v.f16(h, x) },
		"fromBF16": func(x []float32, h []uint16) { v.fromHalf(x, unsafe.Pointer(&h[0]), BF16) },
		"fromF16":  func(x []float32, h []uint16) { v.fromHalf(x, unsafe.Pointer(&h[0]), F16) },
		"quant":    func(x []float32, _ []uint16) { v.quant(make([]uint8, n), x, 1, 0, 0, 255) },
	} {
		done = 0
		x, h := make([]float32, n), make([]uint16, n)
		call(x, h)
		require.Equal(t, n, done, name)
		for i := 0; i < n; i += callFloats {
			require.True(t, x[i] != 0 || h[i] != 0, "%s: part at %d", name, i)
		}
	}
}
