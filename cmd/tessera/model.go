package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/tensor"
)

// languageModel is an open model with what must be closed with it.
type languageModel struct {
	*llm.Model
	name    string
	backend string
	options *cli.Options
	opened  llm.Options
	// loadTime is that of the model and of its draft.
	loadTime time.Duration
	close    func()
}

// llmFlags are the flags of sub-commands that open a language model.
type llmFlags struct {
	cli.Options
	context int
	cache   string // type of keys and values
	packed  string // file
	cmd     *cobra.Command
}

// besideModel is what --cache without a file means.
const besideModel = "auto"

func (f *llmFlags) add(cmd *cobra.Command) {
	f.AddModel(cmd, "GGUF file or folder of safetensors; without it the embedded model answers")
	cmd.Flags().IntVar(&f.context, "context", 0, "positions of the context; 0 means what the model was trained for")
	cli.WordVar(cmd.Flags(), &f.cache, "cache-type", "f32", "number format of keys and values: f32, f16, bf16, q8_0")
	cmd.Flags().StringVar(&f.packed, "cache", "", "keep the packed weights in `FILE`, which the next start maps; --cache alone: beside the model")
	cmd.Flags().Lookup("cache").NoOptDefVal = besideModel
	f.cmd = cmd
}

// files returns what the flags read and write, for cli.CheckFiles.
func (f *llmFlags) files() []cli.File {
	cache := f.packed
	if cache == besideModel {
		cache = llm.WeightCachePath(f.Model)
	}
	return []cli.File{{Flag: "--model", Path: f.Model}, {Flag: "--cache", Path: cache, Written: true}, {Flag: "--trace", Path: f.Trace, Written: true}}
}

// maxContext bounds --context.
const maxContext = 1 << 24

// checkContext returns an error for a number of positions that makes no sense.
func checkContext(n int) error {
	if n < 0 || n > maxContext {
		return cli.Usagef("--context %d: a number from 0 to %d is right", n, maxContext)
	}
	return nil
}

func cacheTypes() string {
	var names []string
	for _, t := range llm.CacheTypes() {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

// open opens the model that the flags name.
func (f *llmFlags) open() (*languageModel, error) {
	if err := checkContext(f.context); err != nil {
		return nil, err
	}
	if f.packed == besideModel && f.Model == "" {
		return nil, cli.Usagef("--cache: the embedded model has no file to keep it beside; --cache=FILE is right")
	}
	cache, err := tensor.ParseDType(f.cache)
	if err != nil || !slices.Contains(llm.CacheTypes(), cache) {
		return nil, cli.Usagef("--cache-type %s: one of %s is right", f.cache, cacheTypes())
	}
	options, closeAll, err := f.Open()
	if err != nil {
		return nil, err
	}
	o := llm.Options{Backends: options.Backends, Context: f.context, CacheType: cache, WeightCache: f.packed,
		Strict: options.Strict, MaxMemory: options.MaxMemory, DisablePasses: options.DisablePasses, Profile: options.Profile}
	if f.packed == besideModel {
		o.WeightCache = llm.WeightCachePath(f.Model)
	}
	m := &languageModel{name: "tolstoy-3m (embedded)", backend: options.Backends[0].Name(), options: &f.Options, opened: o}
	if f.Model != "" {
		m.name = filepath.Base(f.Model)
	}
	if m.Model, err = f.load(f.Model, o); err != nil {
		closeAll()
		return nil, err
	}
	m.loadTime = m.LoadTime
	if reach := m.Config.Reach(); f.context > reach && f.cmd != nil && f.cmd.Flags().Changed("context") {
		fmt.Fprintf(f.cmd.ErrOrStderr(), "tessera: --context %d: %s was trained for %d positions; what it says behind them may make no sense\n", f.context, printable(m.name), reach)
	}
	m.close = func() {
		_ = m.Model.Close()
		closeAll()
	}
	return m, nil
}

// load loads the model of a file or folder, or the embedded one where path is empty.
func (f *llmFlags) load(path string, o llm.Options) (m *llm.Model, err error) {
	bar := cli.NewProgress("load")
	o.Progress = bar.Set
	if path == "" {
		m, err = llm.Parse(tolstoy.GGUF(), o)
	} else {
		m, err = llm.Open(path, o)
	}
	bar.Done()
	if err != nil {
		if path != "" && !strings.Contains(err.Error(), path) {
			err = fmt.Errorf("%s: %w", path, err)
		}
		if isONNX(path) && !errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; tessera run and tessera classify run ONNX models", err)
		}
		return nil, err
	}
	if info := m.WeightCache(); info.Err != nil && info.Bytes == 0 {
		fmt.Fprintln(f.cmd.ErrOrStderr(), "tessera:", printable(info.Err.Error()))
	}
	return m, nil
}

// leastText is how long a text may always be: what the bytes become, the model decides, and white space and words that it does not know may become little.
const leastText = 1 << 20

// mostText returns how many bytes of a text are read at most: as many as the context holds if each of its tokens is the longest.
func (m *languageModel) mostText() int {
	longest := 1
	for id := range m.Tokenizer.Size() {
		longest = max(longest, len(m.Tokenizer.Text(int32(id))))
	}
	return int(max(leastText, min(int64(longest)*int64(m.Context()), 1<<30)))
}

// report returns what ran where, and writes the profile and the trace that were asked for.
func (m *languageModel) report(stderr io.Writer) (graph.Report, error) {
	exe, err := m.Executable()
	if err != nil {
		return graph.Report{}, err
	}
	return exe.Report(), writeProfile(m.options, exe, stderr)
}

// offloaded says how many products ran on the accelerator that was asked for, and where to look for why the others did not; nothing
// for backends whose time is not simulated.
func offloaded(r graph.Report, why string) string {
	if len(r.Backends) == 0 {
		return ""
	}
	b := r.Backends[0]
	if b.Name == "cpu" || b.Name == "reference" {
		return ""
	}
	var all int64
	for _, x := range r.Backends {
		all += x.Products
	}
	line := fmt.Sprintf("%s: %d of %d products", b.Name, b.Products, all)
	if left := all - b.Products; left > 0 {
		line += fmt.Sprintf(", %d left to the CPU (%s says why)", left, why)
	}
	return fmt.Sprintf("%s; simulated %.3g s", line, b.SimulatedSeconds)
}

func writeProfile(o *cli.Options, exe *graph.Executable, stderr io.Writer) error {
	if o.Profile {
		printProfile(stderr, exe.Profile())
	}
	if o.Trace == "" {
		return nil
	}
	return cli.WriteFile(o.Trace, exe.WriteTrace)
}

// printProfile prints the sums by operation and by layer, and the longest nodes.
func printProfile(w io.Writer, nodes []graph.NodeProfile) {
	var total float64
	for i := range nodes {
		total += nodes[i].Time.Seconds()
	}
	peak := cpuPeak()
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	simulated := slices.ContainsFunc(nodes, func(n graph.NodeProfile) bool { return n.Simulated > 0 })
	table := func(title string, rows []graph.NodeProfile) {
		fmt.Fprintf(tw, "%s\tcalls\tms\tshare %%\tGFLOP/s\t%% of peak\tMB\tGB/s\t", title)
		if simulated {
			fmt.Fprint(tw, "simulated ms\t")
		}
		fmt.Fprintln(tw)
		for i := range rows {
			r := &rows[i]
			of := ""
			if peak > 0 && r.Flops > 0 {
				of = fmt.Sprintf("%.0f", 100*r.GFLOPS()/peak)
			}
			fmt.Fprintf(tw, "%s\t%d\t%.2f\t%.1f\t%.1f\t%s\t%.1f\t%.1f\t", r.Name, r.Calls, r.Time.Seconds()*1e3, 100*r.Time.Seconds()/max(total, 1e-12),
				r.GFLOPS(), of, r.Bytes/1e6, r.GBps())
			if simulated {
				fmt.Fprintf(tw, "%.2f\t", r.Simulated*1e3)
			}
			fmt.Fprintln(tw)
		}
		fmt.Fprintln(tw)
	}
	table("operation", sumBy(nodes, func(n *graph.NodeProfile) string { return n.Op }))
	table("layer", sumBy(nodes, func(n *graph.NodeProfile) string { return layer(n.Name) }))
	table("node", nodes[:min(len(nodes), 20)])
	_ = tw.Flush()
}

// sumBy adds the nodes up by a key, in the order of first appearance.
func sumBy(nodes []graph.NodeProfile, key func(*graph.NodeProfile) string) []graph.NodeProfile {
	var sums []graph.NodeProfile
	at := map[string]int{}
	for i := range nodes {
		k := key(&nodes[i])
		j, ok := at[k]
		if !ok {
			j = len(sums)
			at[k] = j
			sums = append(sums, graph.NodeProfile{Name: k})
		}
		s := &sums[j]
		s.Calls += nodes[i].Calls
		s.Time += nodes[i].Time
		s.Flops += nodes[i].Flops
		s.Bytes += nodes[i].Bytes
		s.Simulated += nodes[i].Simulated
	}
	slices.SortStableFunc(sums, func(a, b graph.NodeProfile) int { return cmp.Compare(b.Time, a.Time) })
	return sums
}

// layer returns what of a node's name says in which layer it is: "blk.3" of "blk.3.attn_q"; names without a number are a layer each.
func layer(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '/' })
	for i, p := range parts {
		if _, err := strconv.Atoi(p); err == nil {
			return strings.Join(parts[:i+1], ".")
		}
	}
	return name
}

// peakRSS returns the largest resident memory of this process in bytes, 0 where the system does not say.
func peakRSS() int64 {
	if runtime.GOOS != "linux" {
		return 0
	}
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(data), "\n") {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}
