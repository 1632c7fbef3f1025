package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tessera-go/tessera/backends"
)

// A pass rewrites the graph before it is placed. It returns the number of changes, for listings.
type pass struct {
	name string
	what string
	run  func(*Graph, *passContext) (int, error)
}

type passContext struct {
	host backends.Backend // computes constants; the last of the list, which supports everything
}

// passes in the order in which they run.
var passes = []pass{
	{"fold", "operations on constants are computed at compile time", foldConstants},
	{"cse", "equal operations on equal inputs are computed once", commonSubexpressions},
	{"idiom", "activations and normalizations that files write out in pieces become one operation", recognizeIdioms},
	{"filter", "padding, factors and terms of channels become part of a convolution's numbers", foldFilters},
	{"rows", "rows are chosen before what works row by row, where nobody reads the others", selectRowsEarly},
	{"norm", "an RMS norm takes the weight that multiplies it", fuseNorm},
	{"glu", "activation and multiplication become a gated unit", fuseGLU},
	{"epilogue", "what follows a product becomes part of it: scale, bias, activation, residual", fuseEpilogue},
	{"siblings", "products of one input with small weights become one product", joinSiblings},
	{"conv", "what follows a convolution becomes part of it: scale, bias, activation, residual", fuseConv},
	{"layout", "images lie with their channels last between convolutions", channelsLast},
	{"softmax", "a softmax takes the scale and the mask before it", fuseSoftmax},
	{"attention", "products around a softmax become attention without a score matrix", fuseAttention},
	{"dead", "nodes whose results nobody reads are dropped", deadNodes},
}

// PassNames returns the names of all passes, in order.
func PassNames() []string {
	names := make([]string, len(passes))
	for i, p := range passes {
		names[i] = p.name
	}
	return names
}

// PassResult says what a pass did.
type PassResult struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Changes int    `json:"changes"`
	Nodes   int    `json:"nodes"` // afterwards
}

func (g *Graph) runPasses(opts *Options) ([]PassResult, error) {
	for _, name := range opts.DisablePasses {
		if name != "all" && !slices.Contains(PassNames(), name) {
			return nil, fmt.Errorf("unknown pass %q; there are: %s", name, strings.Join(PassNames(), ", "))
		}
	}
	ctx := &passContext{host: opts.Backends[len(opts.Backends)-1]}
	var results []PassResult
	for _, p := range passes {
		if slices.Contains(opts.DisablePasses, p.name) || slices.Contains(opts.DisablePasses, "all") {
			continue
		}
		changes, err := p.run(g, ctx)
		if err != nil {
			return nil, fmt.Errorf("graph %s: pass %s: %w", g.name, p.name, err)
		}
		results = append(results, PassResult{p.name, p.what, changes, len(g.nodes)})
	}
	return results, nil
}

// redirect makes every reader of one value read another.
func (g *Graph) redirect(from, to int) {
	for i := range g.nodes {
		for j, v := range g.nodes[i].in {
			if v == from {
				g.nodes[i].in[j] = to
			}
		}
	}
	for i := range g.outputs {
		if g.outputs[i].value == from {
			g.outputs[i].value = to
		}
	}
}

// removeNodes drops the marked nodes and renumbers the producers.
func (g *Graph) removeNodes(drop []bool) {
	kept := g.nodes[:0]
	for i, n := range g.nodes {
		if drop[i] {
			for _, v := range n.out {
				if g.values[v].producer == i {
					g.values[v].producer = -1
				}
			}
			continue
		}
		for _, v := range n.out {
			g.values[v].producer = len(kept)
		}
		kept = append(kept, n)
	}
	clear(g.nodes[len(kept):])
	g.nodes = kept
}
