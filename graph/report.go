package graph

import (
	"fmt"
	"io"
	"strings"

	"github.com/tessera-go/tessera/backends"
)

// Report says what ran where: the `report` of the command's JSON.
type Report struct {
	Backends    []BackendReport `json:"backends"`
	Fallbacks   []Fallback      `json:"fallbacks"`
	Conversions int64           `json:"conversions"`
}

// BackendReport counts what one backend did since Compile.
type BackendReport struct {
	Name string `json:"name"`
	backends.Stats
}

// Fallback is a node that an earlier backend refused.
type Fallback struct {
	Node   string `json:"node"`
	Op     string `json:"op"`
	Reason string `json:"reason"`
}

// Report returns the counters since Compile, and the fallbacks among products for the current sizes.
func (x *Executable) Report() Report {
	r := Report{Fallbacks: []Fallback{}}
	for i, b := range x.opts.Backends {
		s := b.Stats().Sub(x.start[i])
		r.Backends = append(r.Backends, BackendReport{b.Name(), s})
		r.Conversions += s.Conversions
	}
	if x.current != nil {
		for i, c := range x.current.choices {
			if c.Fallback && c.Backend != "view" && wanted(x.g.nodes[i].op) {
				r.Fallbacks = append(r.Fallbacks, Fallback{c.Name, c.Op, c.refusal})
			}
		}
	}
	return r
}

// DOT writes the graph as it was built in Graphviz's language.
func (g *Graph) DOT(w io.Writer) error { return g.dot(w, nil) }

// SourceDOT writes the graph before the passes in Graphviz's language.
func (x *Executable) SourceDOT(w io.Writer) error { return x.source.dot(w, nil) }

// DOT writes the graph after the passes in Graphviz's language, a colour a backend.
func (x *Executable) DOT(w io.Writer) error { return x.g.dot(w, x.Placements()) }

func (g *Graph) dot(w io.Writer, placed []Placement) error {
	colours := []string{"#dbeafe", "#dcfce7", "#fef3c7", "#fce7f3", "#ede9fe"}
	colour := map[string]string{"view": "#f3f4f6"}
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=TB; node [shape=box style=\"rounded,filled\" fillcolor=white fontname=Helvetica fontsize=10];\n", g.name)
	for _, i := range g.inputs {
		fmt.Fprintf(&b, "  v%d [label=%q shape=ellipse];\n", i, g.values[i].name+"\n"+g.values[i].spec.String())
	}
	for i, n := range g.nodes {
		fill := "white"
		if placed != nil {
			name := placed[i].Backend
			if colour[name] == "" {
				colour[name] = colours[(len(colour)-1)%len(colours)]
			}
			fill = colour[name]
		}
		label := n.name + "\n" + n.op.Name()
		if len(n.fused) > 0 {
			label += "\nwith " + strings.Join(n.fused, ", ")
		}
		for _, v := range n.out {
			label += "\n" + g.values[v].spec.String()
		}
		fmt.Fprintf(&b, "  n%d [label=%q fillcolor=%q];\n", i, label, fill)
		for _, v := range n.in {
			if v < 0 {
				continue
			}
			switch p := g.values[v].producer; {
			case p >= 0:
				fmt.Fprintf(&b, "  n%d -> n%d;\n", p, i)
			case g.values[v].constant == nil:
				fmt.Fprintf(&b, "  v%d -> n%d;\n", v, i)
			}
		}
	}
	for j, o := range g.outputs {
		fmt.Fprintf(&b, "  o%d [label=%q shape=ellipse];\n", j, o.name)
		if p := g.values[o.value].producer; p >= 0 {
			fmt.Fprintf(&b, "  n%d -> o%d;\n", p, j)
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
