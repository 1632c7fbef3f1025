package conv

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Shape rules give the sizes of unbounded integers, or an error: numbers near what an int holds never wrap. Images without elements may have any sizes.
func TestSizesNeverWrap(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	far := []int{math.MaxInt, math.MaxInt - 1, math.MaxInt/2 + 1, math.MaxInt / 2, math.MaxInt / 3, math.MaxInt32, math.MaxInt32 - 1, 1 << 30, 1<<30 + 1, 1 << 29, 65536}
	value := func(near int) int {
		switch rng.IntN(4) {
		case 0:
			return far[rng.IntN(len(far))]
		case 1:
			return far[rng.IntN(len(far))] - rng.IntN(5)
		}
		return rng.IntN(near)
	}
	padding := func() int {
		if v := value(9); rng.IntN(4) > 0 {
			return v
		}
		return -value(9)
	}
	n := func(v int) *big.Int { return big.NewInt(int64(v)) }
	one := n(1)
	accepted := map[string]int{}
	for range 100_000 {
		in := value(40)
		var w Window
		w.Stride[0], w.Dilation[0], w.Before[0], w.After[0] = value(5), value(4), padding(), padding()
		kernel := max(value(6), 1)
		s, d := w.At(0)
		reach := n(0).Mul(n(kernel-1), n(d))
		room := n(0).Add(n(in), n(w.Before[0]))
		front := n(0).Set(room)
		room.Add(room, n(w.After[0])).Sub(room, reach).Sub(room, one)
		windows := func(ceil bool) *big.Int {
			q, rest := n(0).QuoRem(room, n(s), n(0))
			q.Add(q, one)
			if ceil && rest.Sign() != 0 && n(0).Mul(q, n(s)).Cmp(front) < 0 {
				q.Add(q, one)
			}
			return q
		}
		outPad := value(5)
		groups, perGroup := 1, 2
		if rng.IntN(3) == 0 {
			groups, perGroup = value(9), value(9)
		}
		ceil := rng.IntN(2) == 0
		zero := tensor.MakeSpec(tensor.F32, 0, 0, in)
		for _, c := range []struct {
			kind  string
			op    ops.Op
			in    []tensor.Spec
			want  func() *big.Int
			valid bool
		}{
			{"pool", Pool{Window: w, Kernel: [MaxSpatial]int{kernel}, Ceil: ceil}, []tensor.Spec{zero}, func() *big.Int { return windows(ceil) }, room.Sign() >= 0},
			{"conv", Conv{Window: w, Groups: groups}, []tensor.Spec{zero, tensor.MakeSpec(tensor.F32, 0, 0, kernel)}, func() *big.Int { return windows(false) }, room.Sign() >= 0},
			{"transposed", Transposed{Window: w, Groups: groups, OutPad: [MaxSpatial]int{outPad}}, []tensor.Spec{zero, tensor.MakeSpec(tensor.F32, 0, perGroup, kernel)}, func() *big.Int {
				size := n(0).Mul(n(in-1), n(s))
				return size.Add(size, reach).Add(size, one).Sub(size, n(w.Before[0])).Sub(size, n(w.After[0])).Add(size, n(outPad))
			}, true},
		} {
			got, err := c.op.Infer(c.in)
			if err != nil {
				continue
			}
			accepted[c.kind]++
			want := c.want()
			if !c.valid || !want.IsInt64() || want.Int64() != int64(got[0].Dims[2]) {
				t.Fatalf("%+v of %v: %v, %v is right", c.op, c.in, got[0], want)
			}
			if c.kind == "transposed" {
				m := n(0).Mul(n(max(groups, 1)), n(perGroup))
				if !m.IsInt64() || m.Int64() != int64(got[0].Dims[1]) {
					t.Fatalf("%+v of %v: %v, %v channels are right", c.op, c.in, got[0], m)
				}
				continue
			}
			// The places of the last window and of its last tap are ints as well.
			last := n(0).Mul(want.Sub(want, one), n(s))
			if last.Add(last, reach); !last.IsInt64() || last.Int64() > math.MaxInt {
				t.Fatalf("%+v of %v: %v ends at %v", c.op, c.in, got[0], last)
			}
		}
	}
	for _, kind := range []string{"pool", "conv", "transposed"} {
		require.Greater(t, accepted[kind], 1000, kind)
	}
}
