package backendtest

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/tessera-go/tessera/tensor"
)

// Table returns the support of every operation by backend and type as a Markdown table, with the largest error that the suites have
// seen against the references, which compute in float64 or exact integers. Errors are rounded up to powers of ten, so that the table is
// the same on machines whose last bits differ.
func Table(reports ...*Report) string {
	type cell struct {
		err   float64
		ref   bool
		types []tensor.DType
	}
	seen := map[string]bool{}
	var ops []string
	cells := map[string]map[string]map[string]*cell{} // operation, backend, class of error
	for _, r := range reports {
		for _, l := range r.Lines {
			if !seen[l.Op] {
				seen[l.Op] = true
				ops = append(ops, l.Op)
			}
			if l.Cases == 0 {
				continue
			}
			ref := strings.HasPrefix(l.Reason, "reference")
			class := fmt.Sprint(bracket(l), ref)
			if cells[l.Op] == nil {
				cells[l.Op] = map[string]map[string]*cell{}
			}
			if cells[l.Op][r.Backend] == nil {
				cells[l.Op][r.Backend] = map[string]*cell{}
			}
			c := cells[l.Op][r.Backend][class]
			if c == nil {
				c = &cell{err: bracket(l), ref: ref}
				cells[l.Op][r.Backend][class] = c
			}
			c.types = append(c.types, l.Type)
		}
	}
	sort.Strings(ops)
	var b strings.Builder
	b.WriteString("| operation |")
	for _, r := range reports {
		fmt.Fprintf(&b, " %s |", r.Backend)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(reports)) + "\n")
	for _, op := range ops {
		fmt.Fprintf(&b, "| `%s` |", op)
		for _, r := range reports {
			var classes []*cell
			for _, c := range cells[op][r.Backend] {
				sort.Slice(c.types, func(i, j int) bool { return c.types[i] < c.types[j] })
				classes = append(classes, c)
			}
			sort.Slice(classes, func(i, j int) bool { return classes[i].types[0] < classes[j].types[0] })
			var parts []string
			for _, c := range classes {
				var names []string
				for _, d := range c.types {
					names = append(names, d.String())
				}
				s := strings.Join(names, " ")
				if c.ref {
					s = "*" + s + "*"
				}
				if c.err > 0 {
					s += fmt.Sprintf(" (%.0e)", c.err)
				}
				parts = append(parts, s)
			}
			if len(parts) == 0 {
				parts = []string{"–"}
			}
			fmt.Fprintf(&b, " %s |", strings.Join(parts, "; "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// bracket returns the error of a line rounded up to a power of ten; 0 for exact results.
func bracket(l Line) float64 {
	if l.Error == 0 || math.IsInf(l.Error, 0) {
		return 0
	}
	return math.Pow(10, math.Ceil(math.Log10(l.Error)))
}
