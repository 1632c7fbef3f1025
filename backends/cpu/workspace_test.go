package cpu_test

import (
	"context"
	"fmt"
	"image"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
	"github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/ops"
)

// keeping is a backend that remembers its programs.
type keeping struct {
	backends.Backend
	programs []backends.Program
}

func (k *keeping) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p, err := k.Backend.Compile(ctx, part)
	if err == nil {
		k.programs = append(k.programs, p)
	}
	return p, err
}

func open(t *testing.T, spec, threads string) *keeping {
	b, err := backends.Open(spec, threads)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &keeping{Backend: b}
}

// atMost is how often the bound of a model's workspace may hold what its runs hold, for each worker: one that was late and got no job holds nothing.
// To it comes, for each, a block of sums of a product whose results the caller may want with gaps: less than L2, rounded to a power of two.
const atMost = 4

// check compares bounds with what programs hold, and that of what they share with the buffers of block products.
func (k *keeping) check(t *testing.T, threads, least int) {
	t.Helper()
	pooled := qgemm.Pooled()
	held := pooled
	var all backends.Workspace
	for _, p := range k.programs {
		own, limit := cpu.Held(p), p.(backends.Sized).Workspace()
		require.GreaterOrEqual(t, limit.Own, int64(own))
		held += own
		all.Add(limit)
	}
	bound := int(all.Bytes())
	t.Logf("%d programs hold %d bytes, the bound is %d", len(k.programs), held, bound)
	require.Greater(t, held, least)
	require.GreaterOrEqual(t, all.Bytes()-all.Own, int64(pooled))
	require.LessOrEqual(t, bound, threads*(atMost*held+2*cpuinfo.Get().L2))
}

func TestWorkspaceOfLanguageModel(t *testing.T) {
	for _, isa := range cpuinfo.Get().Names() { // one row of plain Go takes more scratch memory than many
		for threads := 1; threads <= 2; threads++ {
			qgemm.Trim()
			k := open(t, "cpu:isa="+isa, fmt.Sprintf("threads=%d", threads))
			m, err := llm.Parse(tolstoy.GGUF(), llm.Options{Backends: []backends.Backend{k}})
			require.NoError(t, err)
			s, err := m.NewSession()
			require.NoError(t, err)
			ids := make([]int32, 200)
			for i := range ids {
				ids[i] = int32(3 + i%50)
			}
			require.NoError(t, s.Eval(context.Background(), ids...))
			for range 12 { // also with weights that have been packed meanwhile
				require.NoError(t, s.Eval(context.Background(), 5))
			}
			k.check(t, threads, 1<<12)
			require.NoError(t, m.Close())
		}
	}
}

func TestWorkspaceOfDigits(t *testing.T) {
	for i, spec := range []string{"cpu", "cpu", "cpu:conv=direct"} {
		threads := min(i+1, 2)
		qgemm.Trim()
		k := open(t, spec, fmt.Sprintf("threads=%d", threads))
		c, err := cnn.Digits(context.Background(), cnn.Options{Backends: []backends.Backend{k}, Batch: 16})
		require.NoError(t, err)
		pictures := make([]image.Image, 16)
		for i := range pictures {
			pictures[i] = image.NewGray(image.Rect(0, 0, 28, 28))
		}
		_, err = c.Classify(context.Background(), pictures)
		require.NoError(t, err)
		k.check(t, threads, 1<<12)
		require.NoError(t, c.Close())
	}
}

// measured is a backend whose programs are looked at when they close.
type measured struct {
	backends.Backend
	t     *testing.T
	bytes *atomic.Int64
}

type measuredProgram struct {
	backends.Program
	b    *measured
	name string
}

func (m *measured) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p, err := m.Backend.Compile(ctx, part)
	if err != nil {
		return nil, err
	}
	n := &part.Nodes[0]
	call := part.Call(n)
	return &measuredProgram{p, m, fmt.Sprint(ops.Describe(n.Op, call.In), " gives ", part.Values[n.Out[0]].Spec)}, nil
}

func (p *measuredProgram) Close() error {
	held, bound := cpu.Held(p.Program), p.Program.(backends.Sized).Workspace().Own
	p.b.bytes.Add(int64(held))
	if int64(held) > bound {
		p.b.t.Errorf("%s: holds %d bytes, the bound is %d", p.name, held, bound)
	}
	return p.Program.Close()
}

// TestWorkspaceOfEveryCase holds the bound against every case of the conformance suite.
func TestWorkspaceOfEveryCase(t *testing.T) {
	var bytes atomic.Int64
	backendtest.Run(t, func() backends.Backend {
		b, err := backends.Open("cpu:threads=2")
		require.NoError(t, err)
		return &measured{b, t, &bytes}
	}, backendtest.Options{})
	require.NotZero(t, bytes.Load())
}
