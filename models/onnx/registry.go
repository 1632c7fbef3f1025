package onnx

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// operator is the definition of an operator of the standard. Each is registered by an init function beside its code.
type operator struct {
	name     string
	versions []int // the opsets in which the definition that is implemented was introduced or changed
	run      func(*call)
}

var registry = map[string]*operator{}

// register adds an operator. Versions lists every opset at which the standard changed it, up to newestOpset; run looks at
// call.version where the changes matter.
func register(name string, versions []int, run func(*call)) {
	if registry[name] != nil || !slices.IsSorted(versions) || len(versions) == 0 {
		panic("onnx: operator " + name)
	}
	registry[name] = &operator{name: name, versions: versions, run: run}
}

// since is a readable list of versions.
func since(v ...int) []int { return v }

// newestOpset is the newest version of the standard's operators that is known.
const newestOpset = 21

// at returns the version of the operator that holds in an opset, 0 if it did not exist.
func (o *operator) at(opset int) int {
	found := 0
	for _, v := range o.versions {
		if v <= opset {
			found = v
		}
	}
	return found
}

// Operator is a row of the table of supported operators.
type Operator struct {
	Name     string
	Versions []int
}

// Operators returns the supported operators, sorted by name.
func Operators() []Operator {
	var list []Operator
	for _, o := range registry {
		list = append(list, Operator{o.name, o.versions})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

// Missing is an operator of a model that is not supported.
type Missing struct {
	Node    string
	Op      string
	Domain  string
	Version int // of the domain's opset that the model imports
	Reason  string
}

// UnsupportedError lists all operators of a model that are not supported.
type UnsupportedError struct{ Missing []Missing }

func (e *UnsupportedError) Error() string {
	var b strings.Builder
	if len(e.Missing) == 1 {
		b.WriteString("onnx: 1 node has an operator that is not supported:")
	} else {
		fmt.Fprintf(&b, "onnx: %d nodes have operators that are not supported:", len(e.Missing))
	}
	for i, m := range e.Missing {
		if i == 20 {
			fmt.Fprintf(&b, " and %d more", len(e.Missing)-i)
			break
		}
		domain := m.Domain
		if domain == "" {
			domain = "ai.onnx"
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s (%s %d) in node %q: %s", m.Op, domain, m.Version, m.Node, m.Reason)
	}
	return b.String()
}

// Unsupported returns an *UnsupportedError that names every node whose operator cannot run, or nil.
func (m *Model) Unsupported() error {
	e := &UnsupportedError{}
	m.missing(m.Graph.Nodes, m.Opsets, e, 0)
	if len(e.Missing) == 0 {
		return nil
	}
	return e
}

func (m *Model) missing(nodes []*Node, opsets map[string]int, e *UnsupportedError, depth int) {
	for _, n := range nodes {
		for _, g := range n.subgraphs() {
			m.missing(g.Nodes, opsets, e, depth)
		}
		if f := m.function(n); f != nil {
			if depth > maxDepth {
				e.add(n, opsets, "functions call each other without end")
				return
			}
			m.missing(f.Nodes, f.Opsets, e, depth+1)
			continue
		}
		if _, _, reason := find(n, opsets); reason != "" {
			e.add(n, opsets, reason)
		}
	}
}

func (e *UnsupportedError) add(n *Node, opsets map[string]int, reason string) {
	name := n.Name
	if name == "" && len(n.Out) > 0 {
		name = n.Out[0]
	}
	e.Missing = append(e.Missing, Missing{name, n.Op, n.Domain, opsets[n.Domain], reason})
}

// function returns the model's own definition of a node's operator.
func (m *Model) function(n *Node) *Function {
	if n.Domain == "" {
		return nil
	}
	for _, f := range m.Functions {
		if f.Name == n.Op && f.Domain == n.Domain {
			return f
		}
	}
	return nil
}

// find returns a node's operator and the version that holds, or the reason why there is none.
func find(n *Node, opsets map[string]int) (*operator, int, string) {
	if n.Domain == innerDomain && inner[n.Op] != nil {
		return inner[n.Op], 1, ""
	}
	if n.Domain != "" {
		return nil, 0, "operators of this domain are not known"
	}
	opset, ok := opsets[""]
	if !ok {
		return nil, 0, "the model imports no opset of the domain"
	}
	o := registry[n.Op]
	switch {
	case o == nil:
		return nil, 0, "unknown operator"
	case opset > newestOpset:
		return nil, 0, fmt.Sprintf("opset %d is newer than %d", opset, newestOpset)
	}
	v := o.at(opset)
	if v == 0 {
		return nil, 0, fmt.Sprintf("the operator came with opset %d", o.versions[0])
	}
	return o, v, ""
}
