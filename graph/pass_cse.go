package graph

import (
	"fmt"
	"reflect"

	"github.com/tessera-go/tessera/ops"
)

// commonSubexpressions computes equal ops on equal inputs once. Updates in place stay. What reads memory before an update may go: the
// builder has seen to it that all readers of a value come before the value is updated.
func commonSubexpressions(g *Graph, _ *passContext) (int, error) {
	seen := map[string]int{}
	drop := make([]bool, len(g.nodes))
	count := 0
	for i := range g.nodes {
		n := &g.nodes[i]
		if _, updates := n.op.(ops.Updater); updates {
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
