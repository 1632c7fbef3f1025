package backendtest

import (
	"context"
	"fmt"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
)

// sized is a backend whose programs are held against their own bounds when they close.
type sized struct {
	backends.Backend
	s *suite
}

type sizedProgram struct {
	backends.Program
	s    *suite
	name string
}

func (b *sized) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p, err := b.Backend.Compile(ctx, part)
	if err != nil {
		return nil, err
	}
	name := "an empty part"
	if len(part.Nodes) > 0 {
		n := &part.Nodes[0]
		name = fmt.Sprintf("%s gives %v", ops.Describe(n.Op, part.Call(n).In), part.Values[n.Out[0]].Spec)
	}
	return &sizedProgram{p, b.s, name}, nil
}

func (p *sizedProgram) Close() error {
	w, ok := p.Program.(backends.Sized)
	if !ok {
		p.s.fail(p.name, "the program bounds no workspace")
	} else if held, bound := p.s.o.Held(p.Program), w.Workspace().Own; held > bound {
		p.s.fail(p.name, "the program holds %d bytes, its bound is %d", held, bound)
	}
	return p.Program.Close()
}
