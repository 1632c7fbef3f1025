package graph

import "github.com/tessera-go/tessera/ops"

// deadNodes drops nodes from which no output and no in-place update is reached.
func deadNodes(g *Graph, _ *passContext) (int, error) {
	needed := make([]bool, len(g.values))
	for _, o := range g.outputs {
		needed[o.value] = true
	}
	drop := make([]bool, len(g.nodes))
	count := 0
	for i := len(g.nodes) - 1; i >= 0; i-- {
		n := g.nodes[i]
		_, keep := n.op.(ops.Updater) // its effect outlives the run
		for _, v := range n.out {
			keep = keep || needed[v]
		}
		if !keep {
			drop[i] = true
			count++
			continue
		}
		for _, v := range n.in {
			if v >= 0 {
				needed[v] = true
			}
		}
	}
	g.removeNodes(drop)
	return count, nil
}
