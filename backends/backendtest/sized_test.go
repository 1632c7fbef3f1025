package backendtest_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/backendtest"
	"github.com/tessera-go/tessera/ops"
)

// bounded is a double whose programs say that they need so much memory.
type bounded struct {
	*double
	bytes int64
}

type boundedProgram struct {
	backends.Program
	bytes int64
}

func (p boundedProgram) Workspace() backends.Workspace {
	w := backends.Workspace{Own: p.bytes}
	w.Share("of all", backends.Borrowed{Buffers: 1, Bytes: 100}) // covers nothing that a program keeps
	return w
}

func (b *bounded) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p, err := b.double.Compile(ctx, part)
	return boundedProgram{p, b.bytes}, err
}

// With Held the suite wants a bound of every program, and one that covers what it holds.
func TestHeld(t *testing.T) {
	o := backendtest.Options{Only: []string{"transpose", "permute"}, Whole: []string{"constants"}, Held: func(p backends.Program) int64 { return 10 }}
	for _, c := range []struct {
		open func() backends.Backend
		want string
	}{
		{func() backends.Backend { return &bounded{&double{}, 10} }, ""},
		{func() backends.Backend { return &bounded{&double{}, 9} }, "the program holds 10 bytes, its bound is 9"},
		{func() backends.Backend { return &double{} }, "the program bounds no workspace"},
	} {
		r := backendtest.Check(c.open, o)
		require.NotEmpty(t, r.Lines)
		if c.want == "" {
			require.Empty(t, r.Failures)
			continue
		}
		require.NotEmpty(t, r.Failures)
		for _, f := range r.Failures {
			require.Equal(t, c.want, f.What)
		}
	}
}
