// Command opsdoc writes docs/ops.md: which operations every backend computes, on which types, and how exactly, found by running the
// conformance suite on each. With -check it writes nothing and fails if the file is not current.
//
//	go run ./cmd/tessera/internal/opsdoc -o docs/ops.md
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/aie"
	"github.com/tessera-go/tessera/backends/backendtest"
	_ "github.com/tessera-go/tessera/backends/cpu"
	_ "github.com/tessera-go/tessera/backends/xdna"
)

// section is a table of the file: a column for each backend, by its spec.
type section struct {
	text     string
	backends []string
	only     []string // operations; nil for all
}

// The arrays take products of any height here, so that the suite reaches them.
var sections = []section{
	{"Every backend as it opens.", []string{"cpu", "xdna:rows=1", "xdna2:rows=1", "aie"}, nil},
	{"The arrays' other number formats. `int8` quantizes each row of activations and each output channel of weights; `bfp16` keeps weights in blocks of 8; " +
		"`output=f32` does not round sums to bf16 after each chunk of K.",
		[]string{"xdna:precision=int8,rows=1", "xdna:output=f32,rows=1", "xdna2:precision=int8,rows=1", "xdna2:precision=bfp16,rows=1", "aie:precision=int8", "aie:precision=fp32"},
		[]string{"matmul", "conv"}},
}

const header = `# Operations by backend and type

Made by ` + "`go run ./cmd/tessera/internal/opsdoc -o docs/ops.md`" + `, which runs the conformance suite (package
backends/backendtest) on every backend; a test demands that it is current. A type is that of the first operand. Types in italics
run the operation's reference; the others a kernel. "matmul by q4_0" has weights of another type than the activations. A number in parentheses bounds the largest error seen against the reference in
float64, relative to the result's magnitude, of the types before it (for f16 and bf16 results mostly the rounding of the
result itself; for block types also the rounding of activations to 8 bits); types without a number are exact. "–" means
that the backend refuses with a reason, and the CPU computes.

The arrays compute products of constant weights; they are tested here in their fast mode, with no lower limit on rows. The emulated
mode gives the same bits; the suite runs on it in the tests of backends/xdna and backends/aie. NaN and infinity come out as they do of
a float product also where a number format has none: the host computes the rows and columns that they decide, and counts them.
`

func main() {
	out := flag.String("o", "docs/ops.md", "file to write or check")
	check := flag.Bool("check", false, "fail if the file is not current")
	flag.Parse()
	if err := run(*out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "opsdoc:", err)
		os.Exit(1)
	}
}

func run(path string, check bool) error {
	text, err := document(sections)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(path, []byte(text), 0o644)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := current(string(old), text); err != nil {
		return fmt.Errorf("%s is not current: go run ./cmd/tessera/internal/opsdoc -o %s: %w", path, path, err)
	}
	return nil
}

// slack is how far apart the bounds of two processors may be: kernels of other instruction sets round in other places.
const slack = 10.5

// current compares two documents: the same words and support, and bounds that differ by no more than the processors do.
func current(old, text string) error {
	const mark = "\n| operation"
	a, b := strings.Split(old, mark), strings.Split(text, mark)
	if len(a) != len(b) {
		return fmt.Errorf("%d tables, %d are right", len(a)-1, len(b)-1)
	}
	for i := range a {
		was, is := a[i], b[i]
		if i > 0 {
			was, is = mark+was, mark+is
		}
		if prose(was) != prose(is) {
			return fmt.Errorf("the text around table %d differs", i)
		}
		x, err := backendtest.ParseTable(was)
		if err != nil {
			return err
		}
		y, err := backendtest.ParseTable(is)
		if err != nil {
			return err
		}
		if err := same(x, y); err != nil {
			return err
		}
	}
	return nil
}

// prose is the lines that are not of the table's body.
func prose(s string) string {
	var kept []string
	for _, line := range strings.Split(s, "\n") {
		if !strings.HasPrefix(line, "| `") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

type cells = map[string]map[string]map[string]backendtest.Cell

func same(was, is cells) error {
	for _, pair := range [2][2]cells{{was, is}, {is, was}} {
		for op, byBackend := range pair[0] {
			for backend, byType := range byBackend {
				for d, x := range byType {
					y, ok := pair[1][op][backend][d]
					if !ok || x.Reference != y.Reference || (x.Error == 0) != (y.Error == 0) && max(x.Error, y.Error) > 1e-5 ||
						x.Error > 0 && y.Error > 0 && x.Error > slack*y.Error {
						return fmt.Errorf("%s on %s of %s: %+v and %+v differ", op, backend, d, x, y)
					}
				}
			}
		}
	}
	return nil
}

// document runs the suites and returns the file's text. A suite that fails is an error.
func document(sections []section) (string, error) {
	text := header
	for _, s := range sections {
		var reports []*backendtest.Report
		for _, spec := range s.backends {
			r, err := report(spec, s.only)
			if err != nil {
				return "", err
			}
			r.Backend = strings.NewReplacer(":rows=1", "", ",rows=1", "").Replace(spec)
			reports = append(reports, r)
		}
		text += "\n" + s.text + "\n\n" + backendtest.Table(reports...)
	}
	return text, nil
}

func report(spec string, only []string) (*backendtest.Report, error) {
	b, err := backends.Open(spec)
	if err != nil {
		return nil, err
	}
	if err := b.Close(); err != nil {
		return nil, err
	}
	r := backendtest.Check(func() backends.Backend {
		b, err := backends.Open(spec)
		if err != nil {
			panic(err) // it has opened before
		}
		return b
	}, backendtest.Options{Whole: []string{}, Only: only})
	if len(r.Failures) > 0 {
		return nil, fmt.Errorf("%s: %d failures, the first: %v", spec, len(r.Failures), r.Failures[0])
	}
	return r, nil
}
