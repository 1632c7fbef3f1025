// Package reference is the backend that runs every operation by its definition, in float64 and element by element. It is slow and
// obviously right: the oracle that other backends and passes are compared with, by a flag as any backend.
package reference

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	backends.Register("reference", func(*backends.Options) (backends.Backend, error) { return New(), nil })
}

// Backend runs references.
type Backend struct{ nodes, products atomic.Int64 }

// New returns the backend.
func New() *Backend { return &Backend{} }

// Name is "reference".
func (*Backend) Name() string { return "reference" }

// Describe says that it is slow.
func (*Backend) Describe() backends.Description {
	return backends.Description{Name: "reference", Device: "float64, one element at a time"}
}

// Supports says yes to everything.
func (*Backend) Supports(ops.Call) backends.Verdict {
	return backends.Yes("every operation has a reference")
}

// MatMul returns nil: products run as operations only.
func (*Backend) MatMul() matmul.Engine { return nil }

// Stats counts nodes.
func (b *Backend) Stats() backends.Stats {
	return backends.Stats{Nodes: b.nodes.Load(), Products: b.products.Load()}
}

// Close does nothing.
func (*Backend) Close() error { return nil }

// Compile returns a program that calls the references.
func (b *Backend) Compile(_ context.Context, part *ops.Part) (backends.Program, error) {
	return &program{b, part}, nil
}

type program struct {
	b    *Backend
	part *ops.Part
}

func (p *program) Run(ctx context.Context, frame []tensor.Tensor, first, last int) error {
	for i := first; i < last; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := &p.part.Nodes[i]
		pick := func(ids []int) []tensor.Tensor {
			out := make([]tensor.Tensor, len(ids))
			for j, v := range ids {
				if v >= 0 {
					out[j] = frame[v]
				}
			}
			return out
		}
		if err := n.Op.Reference(pick(n.Out), pick(n.In)); err != nil {
			return fmt.Errorf("node %q (%s): %w", n.Name, ops.Describe(n.Op, p.part.Call(n).In), err)
		}
		p.b.nodes.Add(1)
		if n.Op.Name() == "matmul" {
			p.b.products.Add(1)
		}
	}
	return nil
}

func (p *program) Close() error { return nil }
