package graph

import (
	"fmt"
	"reflect"

	"github.com/tessera-go/tessera/ops"
)

// commonSubexpressions computes equal ops on equal inputs once. An update in place, and what reads memory that is updated, stays.
func commonSubexpressions(g *Graph, _ *passContext) (int, error) {
	seen := map[string]int{}
	drop := make([]bool, len(g.nodes))
	count := 0
	for i := range g.nodes {
		n := &g.nodes[i]
		if _, updates := n.op.(ops.Updater); updates || g.readsUpdated(n) {
			continue
		}
		key := fmt.Sprintf("%v %#v %v", reflect.TypeOf(n.op), n.op, n.in)
		first, ok := seen[key]
		if !ok {
			seen[key] = i
			continue
		}
		for j, v := range n.out {
			g.redirect(v, g.nodes[first].out[j])
		}
		drop[i] = true
		count++
	}
	g.removeNodes(drop)
	return count, nil
}

// readsUpdated reports whether an input is a value that is changed in place somewhere, before or after the change.
func (g *Graph) readsUpdated(n *node) bool {
	for _, v := range n.in {
		if v < 0 {
			continue
		}
		if g.values[v].replaced {
			return true
		}
		for id := v; ; {
			p := g.values[id].producer
			if p < 0 {
				break
			}
			if _, updates := g.nodes[p].op.(ops.Updater); updates {
				return true
			}
			if _, view := g.nodes[p].op.(ops.Viewer); !view {
				break
			}
			id = g.nodes[p].in[0]
		}
	}
	return false
}
