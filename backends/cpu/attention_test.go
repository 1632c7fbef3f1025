package cpu

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// unfused is attention as a product, a softmax with a mask, and a product; scores is its M x N tensor.
func unfused(t testing.TB, b *Backend, q, k, v, mask tensor.Tensor) (p *program, frame []tensor.Tensor, scores int) {
	h, m, n, d := q.Dims[0], q.Dims[1], k.Dims[1], q.Dims[2]
	part := &ops.Part{}
	value := func(name string, x tensor.Tensor) int {
		part.Values = append(part.Values, ops.Value{Name: name, Spec: x.Spec})
		frame = append(frame, x)
		return len(frame) - 1
	}
	qi, ki, vi, mi := value("q", q), value("k", k), value("v", v), value("mask", mask)
	s := value("scores", tensor.New(tensor.F32, h, m, n))
	w := value("weights", frame[s]) // in place
	out := value("out", tensor.New(tensor.F32, h, m, v.Dims[2]))
	part.Nodes = []ops.Node{
		{Name: "qk", Op: matmul.Op{TransB: true}, In: []int{qi, ki}, Out: []int{s}},
		{Name: "softmax", Op: attention.Softmax{Axis: -1, Scale: float32(1 / math.Sqrt(float64(d)))}, In: []int{s, mi}, Out: []int{w}},
		{Name: "pv", Op: matmul.Op{}, In: []int{w, vi}, Out: []int{out}},
	}
	c, err := b.Compile(context.Background(), part)
	require.NoError(t, err)
	return c.(*program), frame, frame[s].Bytes()
}

func causalMask(n int) tensor.Tensor {
	mask := tensor.New(tensor.F32, n, n)
	v := tensor.Data[float32](mask)
	for i := range n {
		for j := i + 1; j < n; j++ {
			v[i*n+j] = float32(math.Inf(-1))
		}
	}
	return mask
}

// bytes returns the memory that an attention kernel holds.
func (k *sdpaKernel) bytes() int {
	n := 0
	for _, w := range k.work {
		n += 4*(len(w.q)+len(w.scores)+len(w.acc)+len(w.k)+len(w.v)+len(w.mask)+len(w.top)+len(w.sum)) + 16*len(w.from)
		for _, b := range w.kept {
			if b.k != nil {
				n += b.k.Bytes() + b.v.Bytes()
			}
		}
		if w.space != nil {
			n += w.space.Cap()
		}
	}
	return n
}

// TestFusedAttention: at a context of 4,096 the fused operation gives what the three do, with less than a tenth of their memory.
func TestFusedAttention(t *testing.T) {
	n := 4096
	if testing.Short() {
		n = 2048
	}
	const h, d = 2, 32
	q, k, v, mask := normal(h, n, d), normal(h, n, d), normal(h, n, d), causalMask(n)
	b := newBackend(0, cpuinfo.Get().ISA)
	ctx := context.Background()
	three, frame, scores := unfused(t, b, q, k, v, mask)
	require.NoError(t, three.Run(ctx, frame, 0, 3))
	fused, f := one(t, b, attention.SDPA{Causal: true}, nil, q, k, v)
	require.NoError(t, fused.Run(ctx, f, 0, 1))
	got, want := tensor.Data[float32](f[3]), tensor.Data[float32](frame[6])
	for i := range got {
		require.InDelta(t, want[i], got[i], 2e-5)
	}
	memory := fused.kernels[0].(*sdpaKernel).bytes()
	require.Less(t, memory*10, scores, "%d bytes against %d", memory, scores)
}

// TestAttentionStops: a run ends within a few tiles of its context's end.
func TestAttentionStops(t *testing.T) {
	const n = 8192
	x := normal(8, n, 64)
	p, f := one(t, newBackend(0, cpuinfo.Get().ISA), attention.SDPA{}, nil, x, x, x)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	require.ErrorIs(t, p.Run(ctx, f, 0, 1), context.Canceled)
	out := tensor.Data[float32](f[3])
	require.Equal(t, float32(0), out[len(out)-1], "whole it takes over a second")
}

// BenchmarkAttention compares the fused operation with the three.
func BenchmarkAttention(b *testing.B) {
	for _, n := range []int{512, 4096} {
		const h, d = 4, 64
		q, k, v, mask := normal(h, n, d), normal(h, n, d), normal(h, n, d), causalMask(n)
		be := newBackend(0, cpuinfo.Get().ISA)
		ctx := context.Background()
		three, frame, _ := unfused(b, be, q, k, v, mask)
		fused, f := one(b, be, attention.SDPA{Causal: true}, nil, q, k, v)
		b.Run(fmt.Sprintf("unfused/%d", n), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, three.Run(ctx, frame, 0, 3))
			}
		})
		b.Run(fmt.Sprintf("fused/%d", n), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, fused.Run(ctx, f, 0, 1))
			}
		})
	}
	// One token against a long cache, eight query heads to two key heads.
	for _, n := range []int{256, 4096} {
		q, k := normal(8, 1, 64), normal(2, n, 64)
		p, f := one(b, newBackend(0, cpuinfo.Get().ISA), attention.SDPA{Causal: true}, nil, q, k, k)
		b.Run(fmt.Sprintf("decode/%d", n), func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, p.Run(context.Background(), f, 0, 1))
			}
		})
	}
}

// BenchmarkColdAttention gives the rate at which the attention of one token reads keys and values that are in no cache, 16 bits a number: those of many
// layers take turns.
func BenchmarkColdAttention(b *testing.B) {
	const heads, n, d, layers = 12, 544, 64, 64
	spec := tensor.MakeSpec(tensor.F16, heads, n, d)
	memory, err := tensor.MapBuffer(4 * layers * spec.Bytes()) // as sessions have theirs
	require.NoError(b, err)
	defer memory.Close()
	at := 0
	half := func() tensor.Tensor {
		x, err := tensor.At(memory, at, spec)
		require.NoError(b, err)
		require.NoError(b, tensor.Copy(x, normal(heads, n, d)))
		at += spec.Bytes()
		return x
	}
	for _, threads := range []int{1, 2} {
		var programs []*program
		var frames [][]tensor.Tensor
		for range layers {
			p, f := one(b, newBackend(threads, cpuinfo.Get().ISA), attention.SDPA{Causal: true}, nil, normal(heads, 1, d), half(), half())
			programs, frames = append(programs, p), append(frames, f)
		}
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			b.SetBytes(2 * heads * n * d * 2)
			for i := range b.N {
				require.NoError(b, programs[i%layers].Run(context.Background(), frames[i%layers], 0, 1))
			}
		})
	}
}

// TestAttentionOfHalves: keys and values of 16 bits, which few queries read where they lie and many in packed blocks, give the bits of the same
// numbers in float32; and the queries of one run give what they give one by one, whatever workers and blocks they meet.
func TestAttentionOfHalves(t *testing.T) {
	for _, threads := range []int{1, 3} {
		b := newBackend(threads, cpuinfo.Get().ISA)
		for _, c := range []struct {
			name           string
			op             attention.SDPA
			h, g, m, n, d  int
			filled         int // keys that a token has reached, of n
			differentTypes bool
		}{
			{"one token", attention.SDPA{Causal: true}, 6, 6, 1, 300, 64, 290, false},
			{"one token, shared heads", attention.SDPA{Causal: true}, 6, 3, 1, 300, 64, 299, true},
			{"drafts, shared heads", attention.SDPA{Causal: true}, 8, 2, 3, 200, 32, 150, false},
			{"a prompt", attention.SDPA{Causal: true}, 5, 5, 200, 400, 64, 250, true},
			{"a prompt, shared heads, window", attention.SDPA{Causal: true, Window: 100}, 4, 1, 150, 400, 48, 333, false},
			{"odd heads", attention.SDPA{Causal: true}, 2, 2, 40, 140, 20, 140, false},
			{"all see all", attention.SDPA{}, 3, 3, 70, 140, 16, 140, false},
		} {
			t.Run(fmt.Sprintf("%s/threads=%d", c.name, threads), func(t *testing.T) {
				q, k, v := normal(c.h, c.m, c.d), normal(c.g, c.n, c.d), normal(c.g, c.n, c.d)
				positions := tensor.Tensor{}
				if c.op.Causal {
					positions = tensor.New(tensor.I32, c.m)
					for i := range c.m {
						tensor.Data[int32](positions)[i] = int32(c.filled - c.m + i)
					}
				}
				for _, x := range [][]float32{tensor.Data[float32](k), tensor.Data[float32](v)} { // rows that no token has reached hold anything
					for i := range x {
						if i/c.d%c.n >= c.filled {
							x[i] = float32(math.NaN())
						}
					}
				}
				types := [2]tensor.DType{tensor.F16, tensor.F16}
				if c.differentTypes {
					types[1] = tensor.BF16
				}
				narrow := [2]tensor.Tensor{k, v}
				for i := range narrow {
					wide := []*tensor.Tensor{&k, &v}[i]
					x := tensor.New(types[i], wide.Shape()...)
					require.NoError(t, tensor.Copy(x, *wide))
					require.NoError(t, tensor.Copy(*wide, x))
					narrow[i] = x
				}
				run := func(q, k, v, positions tensor.Tensor) []float32 {
					p, f := one(t, b, c.op, nil, q, k, v, tensor.Tensor{}, positions)
					require.NoError(t, p.Run(context.Background(), f, 0, 1))
					return tensor.Data[float32](f[len(f)-1])
				}
				got := run(q, narrow[0], narrow[1], positions)
				require.Equal(t, run(q, k, v, positions), got)
				if !c.op.Causal || c.m == 1 {
					return
				}
				for i := 0; i < c.m; i += 1 + c.m/5 {
					row, pos := tensor.New(tensor.F32, c.h, 1, c.d), tensor.New(tensor.I32, 1)
					for h := range c.h {
						copy(tensor.Data[float32](row)[h*c.d:][:c.d], tensor.Data[float32](q)[(h*c.m+i)*c.d:][:c.d])
					}
					tensor.Data[int32](pos)[0] = int32(c.filled - c.m + i)
					alone := run(row, narrow[0], narrow[1], pos)
					for h := range c.h {
						for l := range c.d {
							require.InDelta(t, alone[h*c.d+l], got[(h*c.m+i)*c.d+l], 2e-5, "query %d, head %d", i, h)
						}
					}
				}
			})
		}
	}
}
