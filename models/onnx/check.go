package onnx

import (
	"errors"
	"fmt"
)

// check verifies what every later step relies on: names are unique, every value that is read exists, nodes are in order. Files
// whose nodes are out of order are sorted; a cycle is an error that names a node on it.
func (m *Model) check() error {
	if err := m.Graph.check(nil); err != nil {
		return at("graph", err)
	}
	seen := map[string]bool{}
	for i, f := range m.Functions {
		where := fmt.Sprintf("functions[%d]", i)
		key := f.Domain + ":" + f.Name
		if f.Name == "" || seen[key] {
			return at(where, fmt.Errorf("name %q of domain %q is empty or there twice", f.Name, f.Domain))
		}
		seen[key] = true
		g := &Graph{Nodes: f.Nodes, inits: map[string]*Tensor{}}
		for _, n := range f.In {
			g.Inputs = append(g.Inputs, ValueInfo{Name: n})
		}
		for _, n := range f.Out {
			g.Outputs = append(g.Outputs, ValueInfo{Name: n})
		}
		if err := g.check(nil); err != nil {
			return at(where, err)
		}
		f.Nodes = g.Nodes
	}
	return nil
}

// scope is the set of names that a graph may read: its own and those of the graphs around it.
type scope struct {
	names map[string]bool
	outer *scope
}

func (s *scope) has(name string) bool {
	for ; s != nil; s = s.outer {
		if s.names[name] {
			return true
		}
	}
	return false
}

func (g *Graph) check(outer *scope) error {
	s := &scope{names: map[string]bool{}, outer: outer}
	for _, t := range g.Inits {
		s.names[t.Name] = true
	}
	inputs := map[string]bool{}
	for i, v := range g.Inputs {
		if v.Name == "" || inputs[v.Name] {
			return at(fmt.Sprintf("input[%d].name", i), fmt.Errorf("%q is empty or there twice", v.Name))
		}
		inputs[v.Name], s.names[v.Name] = true, true
	}
	producer := map[string]int{}
	for i, n := range g.Nodes {
		for _, out := range n.Out {
			if out == "" {
				continue
			}
			if _, twice := producer[out]; twice || s.names[out] {
				return at(fmt.Sprintf("node[%d] %s", i, n.Title()), fmt.Errorf("output %q is produced twice", out))
			}
			producer[out] = i
		}
	}
	order, err := g.order(s, producer)
	if err != nil {
		return err
	}
	nodes := make([]*Node, len(order))
	for i, j := range order {
		n := g.Nodes[j]
		nodes[i] = n
		for a, sub := range n.subgraphs() {
			if err := sub.check(s); err != nil {
				return at(fmt.Sprintf("node[%d] %s.%s", j, n.Title(), a.Name), err)
			}
		}
		for _, out := range n.Out {
			s.names[out] = true
		}
	}
	g.Nodes = nodes
	for i, v := range g.Outputs {
		if !s.has(v.Name) || v.Name == "" {
			return at(fmt.Sprintf("output[%d]", i), fmt.Errorf("%q is produced by no node", v.Name))
		}
	}
	return nil
}

// order sorts the nodes so that values are produced before they are read, keeping the file's order where it is right.
func (g *Graph) order(s *scope, producer map[string]int) ([]int, error) {
	const (
		fresh = iota
		open
		done
	)
	state := make([]byte, len(g.Nodes))
	needs := make([][]int, len(g.Nodes))
	for i, n := range g.Nodes {
		var missing error
		need := func(name string) {
			if name == "" {
				return
			}
			if p, ok := producer[name]; ok {
				needs[i] = append(needs[i], p)
			} else if !s.has(name) && missing == nil {
				missing = at(fmt.Sprintf("node[%d] %s", i, n.Title()), fmt.Errorf("input %q is produced by no node", name))
			}
		}
		for _, in := range n.In {
			need(in)
		}
		for _, sub := range n.subgraphs() {
			sub.free(nil, func(name string) {
				if _, ok := producer[name]; ok {
					need(name)
				}
			}, 0)
		}
		if missing != nil {
			return nil, missing
		}
	}
	var order []int
	// An explicit stack: a chain may be as long as the file.
	type frame struct{ node, next int }
	for root := range g.Nodes {
		if state[root] != fresh {
			continue
		}
		stack := []frame{{node: root}}
		state[root] = open
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.next == len(needs[f.node]) {
				state[f.node] = done
				order = append(order, f.node)
				stack = stack[:len(stack)-1]
				continue
			}
			p := needs[f.node][f.next]
			f.next++
			switch state[p] {
			case open:
				return nil, at(fmt.Sprintf("node[%d] %s", p, g.Nodes[p].Title()), errors.New("needs its own output: the graph is cyclic"))
			case fresh:
				state[p] = open
				stack = append(stack, frame{node: p})
			}
		}
	}
	return order, nil
}

// free calls f for the names that the graph, or a graph inside it, reads from outside.
func (g *Graph) free(outer *scope, f func(string), depth int) {
	s := &scope{names: map[string]bool{}, outer: outer}
	for _, t := range g.Inits {
		s.names[t.Name] = true
	}
	for _, v := range g.Inputs {
		s.names[v.Name] = true
	}
	for _, n := range g.Nodes {
		for _, out := range n.Out {
			s.names[out] = true
		}
	}
	read := func(name string) {
		if name != "" && !s.has(name) {
			f(name)
		}
	}
	for _, n := range g.Nodes {
		for _, in := range n.In {
			read(in)
		}
		for _, sub := range n.subgraphs() {
			if depth < maxDepth {
				sub.free(s, f, depth+1)
			}
		}
	}
	for _, v := range g.Outputs {
		read(v.Name)
	}
}
