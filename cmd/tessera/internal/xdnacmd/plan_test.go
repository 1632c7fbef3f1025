package xdnacmd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/shared"
)

// xdna runs `tessera xdna` with these arguments.
func xdnaRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := Commands()[0]
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Whatever emulates ends with its context: some of these take minutes.
func TestEmulationIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	chart := filepath.Join(t.TempDir(), "o.svg")
	for _, args := range [][]string{
		{"tables"}, {"tables", "--beyond"},
		{"plan", "--device", "xdna2", "--dtype", "int8-int16", "--emulate"},
		{"plan", "--device", "xdna2", "--dtype", "int8-int16", "--design", "best", "--emulate"},
		{"plot", "--kind", "roofline", "--emulate", "9", "-o", chart}, {"plot", "--kind", "kmt", "-o", chart}, {"plot", "--kind", "beyond", "-o", chart},
		{"predict", "--size", "2048x2048x2048"}, {"trace", "--size", "2048x2048x2048", "-o", chart}, {"run", "--size", "2048x2048x2048"},
	} {
		cmd := Commands()[0]
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		require.ErrorIs(t, cmd.ExecuteContext(ctx), context.Canceled, "%v", args)
	}
	require.NoFileExists(t, chart)
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v
}

func TestPlanCommand(t *testing.T) {
	out, err := xdnaRun(t, "plan", "--device", "xdna2", "--dtype", "int8-int8", "--json")
	require.NoError(t, err)
	v := decode(t, out)
	require.Equal(t, map[string]any{"m": 144.0, "k": 72.0, "n": 144.0}, v["tile"], "the paper's own tile")
	require.Equal(t, "paper", v["design"])
	require.EqualValues(t, 62208, v["l1_bytes"])
	require.NotEmpty(t, v["searched"])
	require.Len(t, v["published"], 2)
	require.InEpsilon(t, 37.35, v["predicted_tops"], 0.03)
	require.Equal(t, map[string]any{"m": 576.0, "n": 1152.0, "k": v["k_mt"]}, v["native"])

	out, err = xdnaRun(t, "plan", "--device", "xdna2", "--dtype", "int8-int32", "--design", "best", "--json")
	require.NoError(t, err)
	best := decode(t, out)
	require.Greater(t, best["predicted_tops"], 1.15*24.74)
	require.NotEqual(t, "paper", best["design"])

	// Every search lists what led in turn, and ends with what it chose.
	for _, args := range [][]string{{"xdna2", "bf16-bfp16", "best"}, {"xdna", "int8-int8", "best"}, {"xdna2", "bf16-bfp16", "paper"}} {
		out, err := xdnaRun(t, "plan", "--device", args[0], "--dtype", args[1], "--design", args[2], "--json")
		require.NoError(t, err)
		v := decode(t, out)
		steps := v["searched"].([]any)
		require.NotEmpty(t, steps, "%v", args)
		require.GreaterOrEqual(t, v["considered"].(float64), float64(len(steps)))
		top, chosen := 0.0, map[string]any{}
		for _, x := range steps {
			s := x.(map[string]any)
			rate := s["predicted_tops"].(float64)
			if args[2] == "best" {
				require.Greater(t, rate, top, "%v", args)
			}
			if rate > top {
				top, chosen = rate, s
			}
		}
		for _, field := range []string{"design", "tile", "k_mt", "bands", "resident_b", "predicted_tops"} {
			require.Equal(t, v[field], chosen[field], "%v: %s", args, field)
		}
	}
	out, err = xdnaRun(t, "plan", "--device", "xdna2", "--dtype", "bf16-bfp16", "--design", "best")
	require.NoError(t, err)
	require.Contains(t, out, "designs were rated; these led in turn")

	out, err = xdnaRun(t, "plan", "--device", "xdna", "--dtype", "bf16-bf16", "--design", "best", "--sizes", "512x1024x1024,512x4096x1024", "--json")
	require.NoError(t, err)
	require.EqualValues(t, 1, decode(t, out)["configurations"])

	// In words too: one that serves all, or several and from where on.
	out, err = xdnaRun(t, "plan", "--sizes", "512x512x512,1024x512x256")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^all products on this configuration: [0-9.]+ ms predicted; another beside it would not pay`, out)
	out, err = xdnaRun(t, "plan", "--sizes", strings.Repeat("8192x8192x8192,", 2)+strings.Repeat("48x8192x8192,", 39)+"48x8192x8192")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^all products on this configuration: [0-9.]+ ms predicted; 2 configurations pay: [0-9.]+ ms`, out)
	require.Regexp(t, `(?m)^  from product 1 on: xdna2 int8-int16 [0-9x]+ k_mt`, out)
	require.Regexp(t, `(?m)^  from product 3 on: xdna2 int8-int16 [0-9x]+ k_mt`, out)

	m, c := filepath.Join(t.TempDir(), "m.json"), filepath.Join(t.TempDir(), "c.txt")
	_, err = xdnaRun(t, "plan", "--device", "xdna2", "--dtype", "int8-int8", "--manifest", m, "--config", c)
	require.NoError(t, err)
	file, err := os.Open(m)
	require.NoError(t, err)
	defer file.Close()
	man, err := amdxdna.ReadManifest(file)
	require.NoError(t, err)
	require.Equal(t, amdxdna.Dims{M: 144, K: 72, N: 144}, man.Tile)
	text, err := os.Open(c)
	require.NoError(t, err)
	defer text.Close()
	prog, err := txn.Parse(text)
	require.NoError(t, err)
	require.NotEmpty(t, prog.List)

	out, err = xdnaRun(t, "plan", "--dtype", "int8-int16")
	require.NoError(t, err)
	require.Contains(t, out, "the paper's choices")
	require.Contains(t, out, "predicted")
}

func TestPredictCommand(t *testing.T) {
	out, err := xdnaRun(t, "predict", "--device", "xdna", "--dtype", "int8-int8", "--size", "4032x4032x4032", "--json")
	require.NoError(t, err)
	v := decode(t, out)
	require.InEpsilon(t, 6.52, v["analytic_tops"], 0.03)
	require.InEpsilon(t, 6.52, v["emulated_tops"], 0.05)
	require.EqualValues(t, 6.52, v["published_tops"])
	require.EqualValues(t, 100, v["useful_percent"])
	require.Equal(t, "compute", v["bound"])
	require.NotNil(t, v["stalls"])

	serial, err := xdnaRun(t, "predict", "--device", "xdna", "--dtype", "int8-int8", "--size", "4032x4032x4032", "--serial", "--json")
	require.NoError(t, err)
	require.Less(t, decode(t, serial)["emulated_tops"], 0.9*v["emulated_tops"].(float64))

	// One row costs as much as a row block, and the share of useful work says why.
	out, err = xdnaRun(t, "predict", "--device", "xdna2", "--dtype", "bf16-bf16", "--size", "1x768x384", "--analytic", "--json")
	require.NoError(t, err)
	require.InDelta(t, 100.0/448, decode(t, out)["useful_percent"], 1e-9)
	emulated, has := decode(t, out)["emulated_tops"]
	require.True(t, has)
	require.Nil(t, emulated)

	out, err = xdnaRun(t, "predict", "--tile", "64,64,64", "--kmt", "256", "--size", "1000x1000x1000", "--double-c", "--layout", "row")
	require.NoError(t, err)
	require.Contains(t, out, "simulated")
}

func TestTablesCommand(t *testing.T) {
	out, err := xdnaRun(t, "tables", "--analytic", "--json")
	require.NoError(t, err)
	sc := bufio.NewScanner(strings.NewReader(out))
	n := 0
	for ; sc.Scan(); n++ {
		v := decode(t, sc.Text())
		for _, key := range []string{"table", "device", "dtype", "published", "analytic", "fitted", "error_percent"} {
			require.Contains(t, v, key)
		}
	}
	require.Greater(t, n, 50)
	out, err = xdnaRun(t, "tables", "--analytic")
	require.NoError(t, err)
	require.Contains(t, out, "tables 2 and 3, 16 rows: model rms 1.8 %")
	out, err = xdnaRun(t, "tables", "--fits", "--markdown")
	require.NoError(t, err)
	require.Contains(t, out, "DRAM read bandwidth")
	out, err = xdnaRun(t, "tables", "--beyond", "--analytic", "--json")
	require.NoError(t, err)
	require.Contains(t, out, `"label":"predicted"`)
}

func TestPlotCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "r.png")
	out, err := xdnaRun(t, "plot", "--device", "xdna", "--dtype", "int8-int8", "-o", file, "--json", "--emulate", "2", "--points", "60")
	require.NoError(t, err)
	require.Equal(t, 120, strings.Count(out, "\n"), "a line a point, both layouts")
	require.Equal(t, 4, strings.Count(out, "emulated_tops"))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), 1000)

	file = filepath.Join(dir, "r.svg")
	_, err = xdnaRun(t, "plot", "--device", "xdna2", "--dtype", "bf16-bf16", "-o", file)
	require.NoError(t, err)
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(svg), "<svg")
	require.Contains(t, string(svg), "published maximum 14.71")

	file = filepath.Join(dir, "k.svg")
	out, err = xdnaRun(t, "plot", "--kind", "kmt", "--device", "xdna", "--dtype", "int8-int32", "--json", "-o", file)
	require.NoError(t, err)
	require.Contains(t, out, `"k_mt":352`)

	// 400 and more points of each layout by default.
	out, err = xdnaRun(t, "plot", "--device", "xdna2", "--dtype", "int8-int16", "--json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, strings.Count(out, `"layout":"col"`), 400)
	require.GreaterOrEqual(t, strings.Count(out, `"layout":"row"`), 400)
}

func TestTraceCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.json")
	out, err := xdnaRun(t, "trace", "--device", "xdna", "--dtype", "int8-int8", "--size", "500x500x900", "-o", file, "--json")
	require.NoError(t, err)
	v := decode(t, out)
	require.Greater(t, v["spans"], 500.0)
	st := v["stalls"].(map[string]any)
	sum := 0.0
	for k, x := range st {
		if k != "bound" {
			sum += x.(float64)
		}
	}
	require.InDelta(t, 100, sum, 1e-6)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	doc := decode(t, string(text))
	require.NotEmpty(t, doc["traceEvents"])
	require.Contains(t, string(text), `"MemTile 3: B to the column"`)
	require.Contains(t, string(text), `"core 3,3: kernel"`)

	file = filepath.Join(dir, "t.svg")
	_, err = xdnaRun(t, "trace", "--device", "xdna2", "--dtype", "int8-int16", "--size", "1024x1792x864", "-o", file)
	require.NoError(t, err)
	svg, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(svg), "controller and column 0")
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"plan --device npu9", "unknown device"},
		{"plan --dtype int4-int4", "unknown type pair"},
		{"plan --device xdna --dtype bf16-bfp16", "no model"},
		{"plan --design good", "paper or best"},
		{"plan --layout diagonal", "col or row"},
		{"plan --sizes 3x4", "MxNxK is right"},
		{"predict --size 1x2x3,4x5x6", "one size"},
		{"predict --size 64x64x64 --tile 1,2", "m,k,n is right"},
		{"predict --size 64x64x64 --tile 64,64,64", "needs --kmt"},
		{"predict --size 64x64x64 --bands -1", "--bands -1"},
		{"predict --size 64x64x64 --kmt -8", "--kmt -8"},
		{"predict --size 64x64x64 --tile 128,128,128 --kmt 128", "of L1"},
		{"predict --size 64x64x64 --schedule later", "overlapped, pingpong or serial"},
		{"plot --dtype int8-int8", "--output FILE or --json"},
		{"plot -o x.gif", "want an extension of .svg, .png"},
		{"plot --kind pie --json", "roofline, kmt or beyond"},
		{"trace --size 64x64x64 -o x.pdf", ".json, .svg or .png"},
	} {
		_, err := xdnaRun(t, strings.Fields(c.args)...)
		require.ErrorContains(t, err, c.want, c.args)
		require.Equal(t, 2, cli.ExitCode(err), c.args)
	}
	_, err := xdnaRun(t, "predict", "--device", "xdna", "--dtype", "int8-int32", "--resident", "--layout", "row", "--size", "100x100x600")
	require.ErrorContains(t, err, "resident B needs a column-major B")
}

// What docs/xdna.md quotes of `tessera xdna tables` is what it prints: the fitted parameters whole, and of the other tables all that needs
// no emulation.
func TestDocsQuoteTables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(shared.Root(), "docs", "xdna.md"))
	require.NoError(t, err)
	cells := func(line string) []string {
		list := strings.Split(strings.Trim(line, "| "), "|")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return list
	}
	for _, c := range []struct {
		args  []string
		first string // cell of the heading
		upTo  int    // columns that are compared; 0 means all
		rows  int
	}{
		{[]string{"--fits"}, "device parameter value unit from", 0, 15},
		{[]string{"--analytic"}, "table device types", 10, 40},
		{[]string{"--analytic", "--beyond"}, "device types design", 9, 35},
	} {
		out, err := xdnaRun(t, append([]string{"tables", "--markdown"}, c.args...)...)
		require.NoError(t, err)
		printed := map[string]bool{}
		key := func(line string) string {
			list := cells(line)
			if c.upTo > 0 {
				list = list[:c.upTo]
			}
			return strings.Join(list, " | ")
		}
		for _, line := range strings.Split(out, "\n") {
			if strings.HasPrefix(line, "|") {
				printed[key(line)] = true
			}
		}
		rows, inside := 0, false
		for _, line := range strings.Split(string(page), "\n") {
			switch {
			case !strings.HasPrefix(line, "|"):
				inside = false
			case strings.HasPrefix(strings.Join(cells(line), " "), c.first):
				inside = true
			case inside && !strings.HasPrefix(line, "| ---"):
				require.True(t, printed[key(line)], "%v prints no line %s", c.args, key(line))
				rows++
			}
		}
		require.GreaterOrEqual(t, rows, c.rows, "%v", c.args)
	}
}
