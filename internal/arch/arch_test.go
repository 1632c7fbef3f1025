package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
)

func TestCheck(t *testing.T) {
	m := Module + "/"
	for _, ok := range [][2]string{
		{m + "graph", m + "backends"}, {m + "backends/xdna", m + "backends/cpu/gemm"}, {m + "ops/conv", m + "ops/matmul"},
		{m + "backends/xdna/array", m + "backends/xdna/txn"}, {m + "cmd/tessera", "github.com/spf13/cobra"}, {m + "tensor", "fmt"},
	} {
		require.NoError(t, Check(ok[0], ok[1]))
	}
	for _, bad := range [][2]string{
		{m + "graph", m + "backends/cpu"}, {m + "models/llm", m + "backends/cpu"}, {m + "tensor", m + "quant"}, {m + "backends/xdna", m + "backends/cpu"},
		{m + "ops", m + "backends"}, {m + "graph", "gorgonia.org/tensor"}, {m + "ops", "C"}, {m + "tensor", "github.com/stretchr/testify/require"},
		{m + "nowhere", m + "tensor"},
	} {
		require.Error(t, Check(bad[0], bad[1]), "%v", bad)
	}
}

func TestImportsOfThisModule(t *testing.T) {
	root := shared.Root()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Dir", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	dec := json.NewDecoder(strings.NewReader(string(out)))
	packages := 0
	untested := map[string]bool{} // packages without tests of their own
	testedBy := map[string]bool{} // packages that the tests of their parent folder import
	for {
		var p struct {
			ImportPath, Dir string
			Imports         []string
			TestImports     []string
			XTestImports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		packages++
		for _, to := range p.Imports {
			if err := Check(p.ImportPath, to); err != nil {
				t.Error(err)
			}
		}
		assembly, _ := filepath.Glob(filepath.Join(p.Dir, "*.s"))
		if len(assembly) > 0 && !within(p.ImportPath, "backends/cpu") && !within(p.ImportPath, "internal") {
			t.Errorf("%s holds assembly, which only backends/cpu and internal may", p.ImportPath)
		}
		tests, _ := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if len(tests) == 0 {
			untested[p.ImportPath] = true
		}
		for _, to := range append(p.TestImports, p.XTestImports...) {
			if strings.HasPrefix(to, p.ImportPath+"/") {
				testedBy[to] = true
			}
		}
	}
	for name := range untested {
		if !testedBy[name] {
			t.Errorf("%s has no test, and the tests of its parent do not use it", name)
		}
	}
	require.Greater(t, packages, 10)
	_, err = os.Stat(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
}
