package xdna

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu" // for what the array does not take
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/ops"
)

// held returns the bytes that the nodes of a program hold.
func held(p backends.Program) int64 {
	n := 0
	of := func(x *product) {
		s, ok := x.space.Data.(*space)
		if !ok {
			return
		}
		n += cap(s.a) + cap(s.c) + cap(s.tiled) + cap(s.stage) + cap(s.spill) + cap(s.special.mark)
		n += 4 * (cap(s.rowScale) + cap(s.fast.a) + cap(s.fast.c) + cap(s.fast.ints))
		for _, l := range append(s.lines, s.fast.rows...) {
			n += 4 * cap(l)
		}
		n += 16*cap(s.fast.ranges) + cap(s.fast.b)
		for _, c := range s.special.c {
			n += 4 * cap(c)
		}
		if s.out.Buf != nil {
			n += len(s.out.Buf.Bytes())
		}
		if plan, ok := x.plan.(*mmPlan); ok {
			n += 4 * len(plan.words)
		}
	}
	for _, x := range p.(*program).nodes {
		switch x := x.(type) {
		case *product:
			of(x)
		case *convolution:
			of(&x.product)
			n += 4 * (cap(x.cols) + cap(x.turned))
		}
	}
	return int64(n)
}

// keeping is a backend that remembers its programs and the constants of their parts.
type keeping struct {
	backends.Backend
	programs  []backends.Program
	constants map[*ops.Constant]bool
}

func (k *keeping) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p, err := k.Backend.Compile(ctx, part)
	if err == nil {
		k.programs = append(k.programs, p)
		for i := range part.Values {
			if c := part.Values[i].Const; c != nil {
				k.constants[c] = true
			}
		}
	}
	return p, err
}

// The bound of a model covers what its runs hold, and is not far above it; the forms of the weights are known before the first run.
func TestWorkspaceOfLanguageModel(t *testing.T) {
	for _, spec := range []string{
		"xdna:rows=1,threads=1", "xdna2:rows=1,threads=2", "xdna:rows=1,precision=int8", "xdna2:rows=1,precision=bfp16",
		"xdna2:rows=1,mode=emulate,precision=bfp16",
	} {
		if testing.Short() && strings.Contains(spec, "emulate") {
			continue
		}
		t.Run(spec, func(t *testing.T) {
			b, err := backends.Open(spec)
			require.NoError(t, err)
			defer b.Close()
			k := &keeping{Backend: b, constants: map[*ops.Constant]bool{}}
			host, err := backends.Open("cpu")
			require.NoError(t, err)
			m, err := llm.Parse(tolstoy.GGUF(), llm.Options{Backends: []backends.Backend{k, host}, Context: 16})
			require.NoError(t, err)
			defer m.Close()
			s, err := m.NewSession()
			require.NoError(t, err)
			prepared := func() (n int) {
				for c := range k.constants {
					n += c.PreparedBytes()
				}
				return n
			}
			require.NotEmpty(t, k.programs)
			before := prepared()
			require.NoError(t, s.Eval(context.Background(), make([]int32, 14)...))
			total := int64(0)
			var all backends.Workspace
			for _, p := range k.programs {
				own, limit := held(p), p.(backends.Sized).Workspace()
				require.LessOrEqual(t, own, limit.Own)
				total += own
				all.Add(limit)
			}
			bound := all.Bytes()
			t.Logf("%d programs hold %d bytes, the bound is %d; weights take %d bytes", len(k.programs), total, bound, before)
			require.Positive(t, total)
			require.LessOrEqual(t, bound, 3*total+int64(len(k.programs))<<16)
			require.Positive(t, before)
			require.Equal(t, before, prepared())
		})
	}
}
