package backendtest

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/tessera-go/tessera/tensor"
)

// Table returns the support of every operation by backend and type as a Markdown table, with the largest error that the suites have
// seen against the references, which compute in float64 or exact integers, rounded up to 1, 2 or 5 times a power of ten. ParseTable reads it back.
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

// Cell is what a table says about an operation on a type.
type Cell struct {
	Reference bool    // the operation's reference runs, not a kernel
	Error     float64 // bound of the largest error seen; 0 for exact results
}

// ParseTable reads what Table writes: cells by operation, backend and type. Lines around the table are passed over.
func ParseTable(text string) (map[string]map[string]map[string]Cell, error) {
	out := map[string]map[string]map[string]Cell{}
	var columns []string
	for _, line := range strings.Split(text, "\n") {
		fields := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
		switch {
		case !strings.HasPrefix(line, "| "):
			continue
		case columns == nil:
			columns = fields
			continue
		case len(fields) != len(columns):
			return nil, fmt.Errorf("%q has %d columns, %d are right", line, len(fields), len(columns))
		}
		op := strings.Trim(fields[0], "`")
		out[op] = map[string]map[string]Cell{}
		for i, field := range fields[1:] {
			cells := map[string]Cell{}
			out[op][columns[i+1]] = cells
			if field == "–" {
				continue
			}
			for _, class := range strings.Split(field, "; ") {
				var c Cell
				if at := strings.LastIndex(class, " ("); at >= 0 {
					if _, err := fmt.Sscanf(class[at:], " (%g)", &c.Error); err != nil {
						return nil, fmt.Errorf("%s: error %q: %w", op, class, err)
					}
					class = class[:at]
				}
				c.Reference = strings.HasPrefix(class, "*")
				for _, name := range strings.Fields(strings.Trim(class, "*")) {
					cells[name] = c
				}
			}
		}
	}
	return out, nil
}

// bracket returns the error of a line rounded up to 1, 2 or 5 times a power of ten; 0 for exact results.
func bracket(l Line) float64 {
	if l.Error == 0 || math.IsInf(l.Error, 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(l.Error)))
	for _, m := range []float64{1, 2, 5} {
		if l.Error <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}
