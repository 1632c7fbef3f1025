package graph

import (
	"context"
	"fmt"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// foldConstants computes nodes whose inputs are all constants, and whose op has no symbolic size. Views of constants stay views.
func foldConstants(g *Graph, ctx *passContext) (int, error) {
	drop := make([]bool, len(g.nodes))
	count := 0
	for i := range g.nodes {
		n := &g.nodes[i]
		if !g.foldable(n) {
			continue
		}
		in := make([]tensor.Tensor, len(n.in))
		for j, v := range n.in {
			if v >= 0 {
				in[j] = g.values[v].constant.Tensor
			}
		}
		out, err := evaluate(ctx, n, in, g.specs(n.out))
		if err != nil {
			return count, fmt.Errorf("node %q: %w", n.name, err)
		}
		for j, v := range n.out {
			g.values[v].constant = ops.NewConstant(out[j])
			g.values[v].producer = -1
		}
		drop[i] = true
		count++
	}
	g.removeNodes(drop)
	return count, nil
}

func (g *Graph) foldable(n *node) bool {
	if _, updates := n.op.(ops.Updater); updates {
		return false
	}
	if r, ok := n.op.(ops.Resolver); ok {
		if _, err := r.Resolve(ops.Sizes{}); err != nil {
			return false
		}
	}
	for _, v := range n.in {
		if v >= 0 && g.values[v].constant == nil {
			return false
		}
	}
	return true
}

func evaluate(ctx *passContext, n *node, in []tensor.Tensor, specs []tensor.Spec) ([]tensor.Tensor, error) {
	op, err := ops.Resolve(n.op, ops.Sizes{})
	if err != nil {
		return nil, err
	}
	if viewer, ok := op.(ops.Viewer); ok {
		if v, err := viewer.View(in[0]); err == nil {
			return []tensor.Tensor{v}, nil
		}
	}
	part := &ops.Part{Nodes: []ops.Node{{Name: n.name, Op: op}}}
	frame := make([]tensor.Tensor, 0, len(in)+len(specs))
	for _, t := range in {
		if !t.Valid() {
			part.Nodes[0].In = append(part.Nodes[0].In, -1)
			continue
		}
		part.Nodes[0].In = append(part.Nodes[0].In, len(frame))
		part.Inputs = append(part.Inputs, len(frame))
		part.Values = append(part.Values, ops.Value{Spec: t.Spec})
		frame = append(frame, t)
	}
	var out []tensor.Tensor
	for _, s := range specs {
		t, err := tensor.NewChecked(s.DType, s.Shape()...)
		if err != nil {
			return nil, err
		}
		part.Nodes[0].Out = append(part.Nodes[0].Out, len(frame))
		part.Outputs = append(part.Outputs, len(frame))
		part.Values = append(part.Values, ops.Value{Spec: s})
		frame = append(frame, t)
		out = append(out, t)
	}
	program, err := ctx.host.Compile(context.Background(), part)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	return out, program.Run(context.Background(), frame, 0, 1)
}
