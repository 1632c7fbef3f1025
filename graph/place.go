package graph

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
)

// Placement says where a node runs and why.
type Placement struct {
	Name     string        `json:"name"`
	Op       string        `json:"op"`
	Backend  string        `json:"backend"` // "view" for nodes that compute nothing
	Reason   string        `json:"reason"`
	Cost     time.Duration `json:"-"`
	Fallback bool          `json:"fallback"`        // a backend that stands before the chosen one refused
	Flops    float64       `json:"flops,omitempty"` // of a run; 0 where the operation does not say
	Bytes    int64         `json:"bytes,omitempty"` // of operands and results, each counted once
	Fused    []string      `json:"fused,omitempty"` // names of nodes as built that passes made part of this one, which has the name of the last
	refusal  string
}

// place chooses a backend for every node and cuts the nodes into segments of one backend each.
func (x *Executable) place(ctx context.Context, p *plan) error {
	g := x.g
	p.choices = make([]Placement, len(g.nodes))
	for i := range g.nodes {
		p.choices[i] = Placement{Name: g.nodes[i].name, Op: g.nodes[i].op.Name(), Backend: "view", Reason: "a view: nothing is computed", Fused: g.nodes[i].fused}
	}
	whole := &ops.Part{Values: p.values, Nodes: p.nodes}
	chosen := make([]int, len(p.nodes))
	for i := range p.nodes {
		if err := ctx.Err(); err != nil { // a backend may search long before it answers
			return err
		}
		n := &p.nodes[i]
		call := whole.Call(n)
		c, b := x.choose(call)
		c.Name, c.Op = n.Name, n.Op.Name()
		c.Flops, c.Bytes = p.work(n)
		c.Fused = g.nodes[p.source[i]].fused
		p.choices[p.source[i]] = c
		if b < 0 {
			return fmt.Errorf("graph %s: node %q (%s): no backend takes it: %s", g.name, c.Name, ops.Describe(n.Op, call.In), c.Reason)
		}
		if c.Fallback && x.opts.Strict && wanted(n.Op) {
			return fmt.Errorf("graph %s: node %q (%s) falls back to %s: %s", g.name, c.Name, ops.Describe(n.Op, call.In), c.Backend, c.refusal)
		}
		chosen[i] = b
	}
	for i := 0; i < len(p.nodes); {
		j := i + 1
		for j < len(p.nodes) && chosen[j] == chosen[i] {
			j++
		}
		p.segments = append(p.segments, segment{backend: chosen[i], first: i, last: j})
		i = j
	}
	return nil
}

// work returns the arithmetic operations of a node, where its op counts them, and the bytes of its operands and results.
func (p *plan) work(n *ops.Node) (flops float64, bytes int64) {
	in := p.specs(n.In)
	for _, s := range in {
		bytes += int64(s.Bytes())
	}
	for _, v := range n.Out {
		bytes += int64(p.values[v].Spec.Bytes())
	}
	if c, ok := n.Op.(ops.Flopper); ok {
		flops = c.Flops(in)
	}
	return flops, bytes
}

// wanted reports whether a fallback of the op defeats the purpose of an accelerator: products with constant weights are what
// it is there for.
func wanted(op ops.Op) bool { return op.Name() == "matmul" || strings.HasPrefix(op.Name(), "conv") }

// choose returns the number of the backend that runs a call, or -1, and why it does.
func (x *Executable) choose(call ops.Call) (Placement, int) {
	var against []string
	best, bestVerdict := -1, backends.Verdict{}
	fallback := false
	refusal := ""
	for i, b := range x.opts.Backends {
		v := b.Supports(call)
		switch {
		case !v.OK:
			against = append(against, b.Name()+": "+v.Reason)
			if best < 0 {
				fallback = true
				refusal = b.Name() + ": " + v.Reason
			}
		case best < 0:
			best, bestVerdict = i, v
		case v.Cost > 0 && bestVerdict.Cost > v.Cost:
			against = append(against, fmt.Sprintf("%s would take %v: %s", x.opts.Backends[best].Name(), round(bestVerdict.Cost), bestVerdict.Reason))
			best, bestVerdict = i, v
		case v.Cost > 0 && bestVerdict.Cost > 0:
			against = append(against, fmt.Sprintf("%s would take %v", b.Name(), round(v.Cost)))
		}
	}
	if best < 0 {
		return Placement{Reason: strings.Join(against, "; "), Fallback: true}, -1
	}
	reason := bestVerdict.Reason
	if bestVerdict.Cost > 0 {
		reason = strings.TrimPrefix(fmt.Sprintf("%s, %v", reason, round(bestVerdict.Cost)), ", ")
	}
	if reason == "" {
		reason = "supported"
	}
	if len(against) > 0 {
		reason += " (" + strings.Join(against, "; ") + ")"
	}
	return Placement{Backend: x.opts.Backends[best].Name(), Reason: reason, Cost: bestVerdict.Cost, Fallback: fallback, refusal: refusal}, best
}

func round(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	case d > 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond)
	}
	return d
}
