// Command opsdoc writes docs/ops.md: which operations every backend computes, on which types, and how exactly, found by running the
// conformance suite on each. With -check it writes nothing and fails if the file is not current.
//
//	go run ./cmd/tessera/internal/opsdoc -o docs/ops.md
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/aie"
	"github.com/tessera-go/tessera/backends/backendtest"
	_ "github.com/tessera-go/tessera/backends/cpu"
	_ "github.com/tessera-go/tessera/backends/xdna"
	"github.com/tessera-go/tessera/ops"
)

// subject is a backend with what the suite has to know about it.
type subject struct {
	spec      string
	precision float64 // to which operands are rounded on their way
}

// subjects take products of any height, so that the suite reaches them.
var subjects = []subject{
	{"cpu", 0},
	{"aie", 1.0 / (1 << 12)},
}

const header = `# Operations by backend and type

Made by ` + "`go run ./cmd/tessera/internal/opsdoc -o docs/ops.md`" + `, which runs the conformance suite (package
backends/backendtest) on every backend. A type is that of the first operand. Types in italics run the operation's
reference; the others a kernel. A number in parentheses bounds the largest error seen against the reference in
float64, relative to the result's magnitude, of the types before it (for f16 and bf16 results mostly the rounding of the
result itself; for block types also the rounding of activations to 8 bits); types without a number are exact. "–" means
that the backend refuses with a reason, and the CPU computes.

The arrays compute products of constant weights; they are tested here in their fast mode, with no lower limit on rows.

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
	text, err := document(subjects)
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
	if string(old) != text {
		return fmt.Errorf("%s is not current: go run ./cmd/tessera/internal/opsdoc -o %s", path, path)
	}
	return nil
}

// document runs the suites and returns the file's text. A suite that fails is an error.
func document(subjects []subject) (string, error) {
	var reports []*backendtest.Report
	for _, s := range subjects {
		b, err := backends.Open(s.spec)
		if err != nil {
			return "", err
		}
		if err := b.Close(); err != nil {
			return "", err
		}
		r := backendtest.Check(func() backends.Backend {
			b, err := backends.Open(s.spec)
			if err != nil {
				panic(err) // it has opened before
			}
			return b
		}, backendtest.Options{Whole: []string{}, Precision: func(ops.Call) float64 { return s.precision }})
		if len(r.Failures) > 0 {
			return "", fmt.Errorf("%s: %d failures, the first: %v", s.spec, len(r.Failures), r.Failures[0])
		}
		reports = append(reports, r)
	}
	return header + backendtest.Table(reports...), nil
}
