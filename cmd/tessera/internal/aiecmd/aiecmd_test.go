package aiecmd

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/aie/regs"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/shared"
)

func execute(args ...string) (string, error) {
	cmd := Commands()[0]
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(context.Background())
	return out.String(), err
}

func document(t *testing.T, args ...string) map[string]any {
	t.Helper()
	out, err := execute(append(args, "--json")...)
	require.NoError(t, err, out)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &v), out)
	return v
}

func TestPlan(t *testing.T) {
	v := document(t, "plan", "--size", "4096x4096x290", "--design", "paper")
	p := v["plan"].(map[string]any)["paper"].(map[string]any)
	require.Equal(t, []any{4096.0, 290.0, 4096.0}, []any{p["m_c"], p["k_c"], p["n_c"]})
	require.Equal(t, 75.0, v["registers"].(map[string]any)["vector_percent"])
	require.Equal(t, 100.0, v["registers"].(map[string]any)["accumulator_percent"])
	require.NotEmpty(t, v["reasons"])
	v = document(t, "plan", "--size", "512x1024x2048", "--dtype", "int8")
	require.NotNil(t, v["plan"].(map[string]any)["best"])
	out, err := execute("plan", "--size", "512x1024x2048")
	require.NoError(t, err)
	require.Contains(t, out, "grid of")
}

// The acceptance figures, as a user asks for them.
func TestPredictFigures(t *testing.T) {
	require.Equal(t, 212.0, document(t, "predict", "--kernel", "16x4", "--kc", "64")["cycles"])
	require.Equal(t, 596.0, document(t, "predict", "--kernel", "16x4", "--kc", "256")["cycles"])
	require.InEpsilon(t, 1429, document(t, "predict", "--kernel", "32x4", "--kc", "256")["cycles"], 0.02)
	v := document(t, "predict", "--size", "4096x4096x290", "--design", "paper", "--mc", "4096")
	require.InDelta(t, 83.3, v["efficiency_percent"], 0.5)
	require.InEpsilon(t, v["cycles"], v["emulated"].(map[string]any)["cycles"], 0.001)
	v = document(t, "predict", "--size", "4096x256x290", "--mc", "256", "--tiles", "1")
	require.GreaterOrEqual(t, v["against_paper"].(map[string]any)["speedup"], 1.75)
	require.GreaterOrEqual(t, document(t, "predict", "--size", "4096x4096x4096", "--tiles", "1")["efficiency_percent"], 97.0)
	v = document(t, "predict", "--size", "65536x4096x4096", "--dtype", "int8", "--out", "s8")
	require.GreaterOrEqual(t, v["array_peak_percent"], 60.0)
	require.NotEmpty(t, v["limits"])
	for _, key := range []string{"cycles", "macs_per_cycle", "efficiency_percent", "bytes", "bound", "analytic_tops", "padded", "useful_percent", "ddr_tops"} {
		require.Contains(t, v, key)
	}
	one := document(t, "predict", "--size", "4096x4096x4096", "--dtype", "int8", "--out", "s8", "--tiles", "1")["cycles"].(float64)
	many := document(t, "predict", "--size", "4096x4096x4096", "--dtype", "int8", "--out", "s8", "--tiles", "32")["cycles"].(float64)
	require.GreaterOrEqual(t, one/many/32, 0.94)
	out, err := execute("predict", "--size", "256x256x256")
	require.NoError(t, err)
	require.Contains(t, out, "bound by")
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "program.txt")
	v := document(t, "run", "--size", "100x70x300", "--registers", file)
	require.Equal(t, true, v["exact"])
	require.Equal(t, 7000.0, v["checked"])
	require.Positive(t, v["words"])
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	p, err := regs.Parse(f)
	require.NoError(t, err)
	require.Equal(t, v["words"], float64(p.Words()))
	for _, args := range [][]string{
		{"--dtype", "int8", "--mode", "fast"}, {"--dtype", "fp32"}, {"--dtype", "fp32", "--mode", "fast"}, {"--design", "paper"}, {"--design", "paper", "--out", "s32", "--mode", "fast"},
		{"--dtype", "int8", "--chain", "3", "--tiles", "30"}, {"--dtype", "int8", "--out", "s8", "--stream-weights"},
	} {
		v := document(t, append([]string{"run", "--size", "61x53x701"}, args...)...)
		require.Equal(t, true, v["exact"], args)
	}
	out, err := execute("run", "--size", "16x16x16")
	require.NoError(t, err)
	require.Contains(t, out, "max error 0")
}

func TestTables(t *testing.T) {
	out, err := execute("tables", "--json")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.GreaterOrEqual(t, len(lines), 20)
	for _, l := range lines {
		var p point
		require.NoError(t, json.Unmarshal([]byte(l), &p))
		if strings.HasPrefix(p.Table, "seed") {
			require.InDelta(t, 0, p.Error, 1, "%+v", p)
		}
	}
	out, err = execute("tables")
	require.NoError(t, err)
	require.Contains(t, out, "MaxEVA")
}

// Rates of the whole array are those of predict: with the limit of DDR, or without it where the unit says so.
func TestTablesAgreeWithPredict(t *testing.T) {
	out, err := execute("tables", "--json")
	require.NoError(t, err)
	rows := map[string]int{}
	for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
		var p point
		require.NoError(t, json.Unmarshal([]byte(l), &p))
		field := map[string]string{"TOPS": "analytic_tops", arrayTOPS: "array_tops"}[p.Unit]
		if field == "" {
			continue
		}
		rows[p.Unit]++
		v := document(t, "predict", "--dtype", p.DType, "--out", p.Out, "--size", p.Size)
		require.InEpsilon(t, v[field], p.Analytic, 1e-12, l)
		require.LessOrEqual(t, v["analytic_tops"], v["array_tops"])
		require.InDelta(t, 100*(p.Analytic/p.Published-1), p.Error, 1e-9)
	}
	require.Equal(t, map[string]int{"TOPS": 4, arrayTOPS: 4}, rows)
}

func TestTrace(t *testing.T) {
	dir := t.TempDir()
	chrome, svg := filepath.Join(dir, "t.json"), filepath.Join(dir, "t.svg")
	v := document(t, "trace", "--size", "64x64x256", "--tiles", "4", "-o", chrome)
	require.Positive(t, v["spans"])
	raw, err := os.ReadFile(chrome)
	require.NoError(t, err)
	require.True(t, json.Valid(raw))
	_, err = execute("trace", "--size", "64x64x256", "--design", "paper", "-o", svg)
	require.NoError(t, err)
	raw, err = os.ReadFile(svg)
	require.NoError(t, err)
	require.Contains(t, string(raw), "<svg")
}

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"plan"}, "--size is missing", true},
		{[]string{"plan", "--size", "3x4"}, "MxNxK is right", true},
		{[]string{"plan", "--size", "3x4x5", "--dtype", "int4"}, "one of int16, int8, fp32", true},
		{[]string{"plan", "--size", "3x4x5", "--design", "gold"}, "one of best, paper", true},
		{[]string{"plan", "--size", "3x4x5", "--out", "u8"}, "one of s32", true},
		{[]string{"plan", "--size", "3x4x5", "--dtype", "fp32", "--out", "s8"}, "f32 is right", true},
		{[]string{"plan", "--size", "300x400x5000", "--design", "paper", "--kc", "4500"}, "of local memory", true},
		{[]string{"plan", "--size", "64x64x64", "--mb", "128", "--nb", "128"}, "do not fit 8 banks", true},
		{[]string{"predict", "--size", "3x4x5", "--tiles", "500"}, "vc1902 has 400", true},
		{[]string{"predict", "--kernel", "7x7"}, "is right", true},
		{[]string{"run", "--size", "3x4x5,6x7x8"}, "one size is right", true},
		{[]string{"run", "--size", "3x4x5", "--mode", "real"}, "emulate or fast", true},
		{[]string{"run", "--size", "3x4x5", "--mode", "fast", "--out", "s8"}, "s32", true},
		{[]string{"run", "--size", "3x4x5", "--check", "-2"}, "-1 for none", true},
		{[]string{"run", "--size", "3x4x5", "--threads", "-1"}, "0 to 1024", true},
		{[]string{"run", "--size", "3x4x5", "--mode", "fast", "--threads", "-1"}, "0 to 1024", true},
		{[]string{"trace", "--size", "3x4x5"}, "--output is missing", true},
		{[]string{"trace", "--size", "3x4x5", "-o", "/nonexistent/x.json"}, "/nonexistent/x.json", false},
	} {
		_, err := execute(c.args...)
		require.ErrorContains(t, err, c.want, c.args)
		require.Equal(t, c.usage, cli.ExitCode(err) == 2, "%v: %v", c.args, err)
	}
}

// Columns stand under their headings, however long an entry is: those of words begin there, those of numbers end there.
func TestColumnsStandUnderHeadings(t *testing.T) {
	for _, c := range []struct {
		args        []string
		left, right []string
	}{
		{[]string{"tables"}, []string{"dtype", "tile", "size", "unit"}, []string{"published", "analytic", "emulated"}},
		{[]string{"predict", "--size", "512x512x512"}, []string{"limit", "what"}, []string{"time", "asked for", "gives"}},
	} {
		out, err := execute(c.args...)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, c.left[0]) && strings.Contains(line, c.right[0]) })
		require.GreaterOrEqual(t, at, 0, "%v", c.args)
		heading, rows := lines[at], lines[at+1:]
		require.NotEmpty(t, rows)
		for _, row := range rows {
			for _, word := range c.left {
				i := strings.Index(heading, word)
				require.Equal(t, byte(' '), row[i-1], "%s: %s", word, row)
				require.NotEqual(t, byte(' '), row[i], "%s: %s", word, row)
			}
			for _, word := range c.right {
				end := strings.Index(heading, word) + len(word)
				if strings.TrimSpace(row[end-len(word):end]) == "" { // nothing to say
					continue
				}
				require.NotEqual(t, byte(' '), row[end-1], "%s: %s", word, row)
				require.Equal(t, byte(' '), row[end], "%s: %s", word, row)
			}
		}
	}
}

// The register writes that docs/aie.md shows are those of the commands that it names.
func TestDocsShowRegisterPrograms(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(shared.Root(), "docs", "aie.md"))
	require.NoError(t, err)
	_, page, found := bytes.Cut(page, []byte("## Register programs"))
	require.True(t, found)
	program, shown, programs := "", 0, 0
	for _, line := range strings.Split(string(page), "\n") {
		if quoted, ok := strings.CutPrefix(line, "    "); ok {
			require.Contains(t, program, "\n"+quoted+"\n")
			shown++
		} else if _, command, ok := strings.Cut(line, "rom `aie run "); ok {
			file := filepath.Join(t.TempDir(), "program.txt")
			command, _, _ = strings.Cut(command, " --registers")
			document(t, append([]string{"run", "--check", "-1", "--registers", file}, strings.Fields(command)...)...)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			program = "\n" + string(text)
			programs++
		}
	}
	require.Equal(t, 2, programs)
	require.Greater(t, shown, 6)
}
