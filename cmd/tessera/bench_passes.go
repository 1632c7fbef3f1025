package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/internal/median"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// passRow is what the passes are worth to one kind of work of a model.
type passRow struct {
	Model      string  `json:"model"`
	Work       string  `json:"work"`
	Without    string  `json:"without"` // a pass, or "all"
	Changes    int     `json:"changes"` // that the pass makes
	Seconds    float64 `json:"seconds"` // with all passes, median
	Ratio      float64 `json:"ratio"`   // median without, over median with
	Same       string  `json:"same"`    // how results compare
	Activation int64   `json:"activations"`
	LowerBound int64   `json:"lower_bound"`
}

// work is something that a model does again and again.
type work struct {
	name string
	run  func(context.Context) error
	// results of the last run: tokens, or numbers
	ids    func() []int32
	values func() []float64
}

// subject is a model compiled in one way.
type subject struct {
	works  []work
	note   string // on what was assumed
	images int    // that a run takes: the first dimension of the first input of four; 0 for other models
	exe    func() *graph.Executable
	close  func()
}

func benchPassesCommand() *cobra.Command {
	var (
		o              cli.Options
		models         []string
		shapes         []string
		each           bool
		rounds, tokens int
	)
	cmd := &cobra.Command{
		Use:     "passes",
		Example: "  tessera bench passes --model model.gguf --each",
		Short:   "Measure what the passes over the graph are worth, model by model",
		Long: `Passes runs each model with all passes over its graph and without them, in turn, and prints the ratio of the medians; with
--each also without each pass alone. A language model reads --tokens tokens and then decodes 16, an encoder reads as many, an
ONNX model runs once on random numbers. Results are compared: a language model's tokens, others' numbers. The last columns are
the arena for activations and the least that liveness allows.`,
		Args: cli.NoArgs("a model's file follows --model"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rounds < 1 || tokens < 1 || rounds > 1e6 || tokens > 1<<20 {
				return cli.Usagef("--rounds %d, --tokens %d: 1 to 1000000 and 1 to %d are right", rounds, tokens, 1<<20)
			}
			if err := o.CheckThreads(); err != nil {
				return err
			}
			if len(models) == 0 {
				models = []string{""}
			}
			given, err := shapesOf(models, shapes)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for i, model := range models {
				o.Model = model
				rows, err := measurePasses(cmd.Context(), cmd.ErrOrStderr(), o, given, each, rounds, tokens)
				if err != nil {
					return fmt.Errorf("%s: %w", model, err)
				}
				if i == 0 && !o.JSON {
					fmt.Fprintln(out, "| model | work | passes left out | changes they make | time with all passes | without, times as long | results | activations | lower bound |\n|---|---|---|---|---|---|---|---|---|")
				}
				for _, r := range rows {
					if o.JSON {
						if err := cli.PrintJSON(out, r); err != nil {
							return err
						}
						continue
					}
					fmt.Fprintf(out, "| %s | %s | %s | %d | %v | %.2f | %s | %s | %s |\n", r.Model, r.Work, r.Without, r.Changes,
						time.Duration(r.Seconds*1e9).Round(100*time.Nanosecond), r.Ratio, r.Same, cli.FormatBytes(r.Activation), cli.FormatBytes(r.LowerBound))
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&models, "model", "m", nil, "GGUF or ONNX file (may be repeated); without it the embedded language model")
	f.StringArrayVar(&shapes, "shape", nil, "of an ONNX input whose shape is open, `NAME=AxBxC` (may be repeated)")
	f.BoolVar(&each, "each", false, "also leave out each pass alone")
	f.IntVar(&rounds, "rounds", 25, "alternating rounds")
	f.IntVar(&tokens, "tokens", 64, "tokens that a language model reads")
	o.Backend = "cpu"
	o.AddThreads(cmd)
	return cmd
}

// shapesOf reads the shapes that are given for inputs of the models. Each name must be that of an input of one of them.
func shapesOf(models, shapes []string) (map[string][]int, error) {
	given, err := parseShapes(shapes)
	if err != nil {
		return nil, err
	}
	var inputs []onnx.ValueInfo
	for _, model := range models {
		if model == "" {
			continue
		}
		if !isONNX(model) {
			if _, err := os.Stat(model); err != nil { // said before others are measured
				return nil, err
			}
			continue
		}
		m, err := onnx.Open(model)
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, m.Inputs()...)
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	if len(given) > 0 && len(inputs) == 0 {
		return nil, errNoShape
	}
	return given, checkShapes(inputs, given)
}

// reopen is how often a model is opened anew in each way: where its memory lies may weigh as much as a pass.
const reopen = 5

// measurePasses measures one model.
func measurePasses(ctx context.Context, remarks io.Writer, o cli.Options, shapes map[string][]int, each bool, rounds, tokens int) ([]passRow, error) {
	name := "tolstoy-3m (embedded)"
	if o.Model != "" {
		name = filepath.Base(o.Model)
	}
	// What each pass does here, and which variants are of interest.
	base, err := openSubject(ctx, o, shapes, tokens)
	if err != nil {
		return nil, err
	}
	changes := map[string]int{}
	variants := []string{"", "all"}
	for _, p := range base.exe().Passes() {
		changes[p.Name] = p.Changes
		changes["all"] += p.Changes
		if each && p.Changes > 0 {
			variants = append(variants, p.Name)
		}
	}
	if base.note != "" {
		fmt.Fprintf(remarks, "tessera: %s: %s\n", name, base.note)
	}
	memory := base.exe().Memory()
	base.close()

	rng := rand.New(rand.NewPCG(1, 1))
	var works []string
	times := map[string]map[string][]float64{} // by work and variant
	same := map[string]map[string]string{}
	for range reopen {
		subjects := make([]*subject, len(variants))
		closeAll := func() {
			for _, s := range subjects {
				if s != nil {
					s.close()
				}
			}
		}
		for _, i := range rng.Perm(len(variants)) {
			v := o
			if variants[i] != "" {
				v.NoPasses = []string{variants[i]}
			}
			if subjects[i], err = openSubject(ctx, v, shapes, tokens); err != nil {
				closeAll()
				return nil, err
			}
		}
		works = works[:0]
		for w := range subjects[0].works {
			work := subjects[0].works[w].name
			works = append(works, work)
			if times[work] == nil {
				times[work], same[work] = map[string][]float64{}, map[string]string{}
			}
			for range max(1, rounds/reopen) {
				for _, i := range rng.Perm(len(variants)) {
					t, err := timeOnce(ctx, subjects[i].works[w].run)
					if err != nil {
						closeAll()
						return nil, err
					}
					times[work][variants[i]] = append(times[work][variants[i]], t)
				}
			}
			for i := range subjects {
				same[work][variants[i]] = agreement(&subjects[0].works[w], &subjects[i].works[w])
			}
		}
		closeAll()
	}
	var rows []passRow
	for _, work := range works {
		with := median.Of(times[work][""])
		for _, v := range variants[1:] {
			rows = append(rows, passRow{Model: name, Work: work, Without: v, Changes: changes[v], Seconds: with, Ratio: median.Of(times[work][v]) / with,
				Same: same[work][v], Activation: memory.Activations, LowerBound: memory.LowerBound})
		}
	}
	return rows, nil
}

// timeOnce returns the seconds of a run, measured over at least three milliseconds behind one that warms the caches.
func timeOnce(ctx context.Context, run func(context.Context) error) (float64, error) {
	if err := run(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	for n := 1; ; n++ {
		if err := run(ctx); err != nil {
			return 0, err
		}
		if t := time.Since(start); t > 3*time.Millisecond {
			return t.Seconds() / float64(n), nil
		}
	}
}

func agreement(a, b *work) string {
	if a.ids != nil {
		if slices.Equal(a.ids(), b.ids()) {
			return "same ids"
		}
		return "other ids"
	}
	x, y := a.values(), b.values()
	if len(x) != len(y) {
		return "other shapes"
	}
	most, off := 0.0, 0.0
	for i := range x {
		most = max(most, math.Abs(x[i]))
		off = max(off, math.Abs(x[i]-y[i]))
	}
	if off == 0 {
		return "same bits"
	}
	return fmt.Sprintf("within %.0e", off/max(most, 1e-300))
}

func openSubject(ctx context.Context, o cli.Options, shapes map[string][]int, tokens int) (*subject, error) {
	if isONNX(o.Model) {
		return onnxSubject(ctx, &o, shapes)
	}
	f := llmFlags{Options: o, cache: "f32"}
	m, err := f.open()
	if err != nil {
		return nil, err
	}
	s := &subject{close: m.close, exe: func() *graph.Executable {
		exe, err := m.Executable()
		if err != nil {
			panic(err) // it has run
		}
		return exe
	}}
	rng := rand.New(rand.NewPCG(1, 1))
	ids := make([]int32, min(tokens, m.Context()-decodeTokens))
	if len(ids) < 1 {
		m.close()
		return nil, fmt.Errorf("a context of %d is too short", m.Context())
	}
	for i := range ids {
		ids[i] = int32(rng.IntN(m.Config.Vocab))
	}
	if !m.Config.Causal {
		var vector []float32
		s.works = []work{{name: fmt.Sprintf("encode %d", len(ids)), run: func(ctx context.Context) (err error) {
			vector, err = m.EmbedIDs(ctx, ids, llm.EmbedOptions{})
			return err
		}, values: func() []float64 {
			v := make([]float64, len(vector))
			for i, x := range vector {
				v[i] = float64(x)
			}
			return v
		}}}
		return s, nil
	}
	session, err := m.NewSession()
	if err != nil {
		m.close()
		return nil, err
	}
	s.close = func() {
		_ = session.Close()
		m.close()
	}
	made := make([]int32, decodeTokens)
	s.works = []work{
		{name: fmt.Sprintf("prefill %d", len(ids)), run: func(ctx context.Context) error {
			if err := session.Rewind(0); err != nil {
				return err
			}
			return session.Eval(ctx, ids...)
		}, ids: func() []int32 { return []int32{largest(session.Logits())} }},
		{name: fmt.Sprintf("decode %d", decodeTokens), run: func(ctx context.Context) error {
			if session.Len() > len(ids) {
				if err := session.Rewind(len(ids)); err != nil {
					return err
				}
			}
			next := ids[0]
			for i := range made {
				if err := session.Eval(ctx, next); err != nil {
					return err
				}
				next = largest(session.Logits())
				made[i] = next
			}
			return nil
		}, ids: func() []int32 { return made }},
	}
	return s, nil
}

// decodeTokens is how many tokens one measured run decodes.
const decodeTokens = 16

func largest(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

func onnxSubject(ctx context.Context, o *cli.Options, given map[string][]int) (*subject, error) {
	session, done, err := openONNX(ctx, o, nil)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	in := map[string]onnx.Value{}
	var open []string
	shapes := map[string][]int{}
	for _, v := range session.Inputs() {
		spec, err := inputSpec(v, given[v.Name])
		if err != nil {
			done()
			return nil, err
		}
		t := tensor.New(spec.DType, spec.Shape()...)
		numbers := make([]float64, t.Elems())
		for i := range numbers {
			numbers[i] = rng.NormFloat64()
			if !spec.DType.IsFloat() {
				numbers[i] = float64(rng.IntN(2))
			}
		}
		t.SetFloats(numbers)
		in[v.Name] = onnx.Of(t)
		if shapes[v.Name] = spec.Shape(); given[v.Name] == nil && isOpen(v.Type) {
			open = append(open, v.Name)
		}
	}
	var out map[string]onnx.Value
	run := func(ctx context.Context) (err error) {
		out, err = session.Run(ctx, in)
		return err
	}
	if err := run(ctx); err != nil {
		done()
		return nil, err
	}
	if session.Executable() == nil {
		done()
		return nil, fmt.Errorf("the model does not run as a graph")
	}
	values := func() (all []float64) {
		for _, v := range session.Outputs() {
			t := out[v.Name].Tensor
			if t.DType != tensor.Invalid {
				all = append(all, t.Floats()...)
			}
		}
		return all
	}
	s := &subject{works: []work{{name: "run", run: run, values: values}}, exe: session.Executable, close: done}
	for _, v := range session.Inputs() {
		if shape := shapes[v.Name]; len(shape) == 4 {
			s.images = shape[0]
			break
		}
	}
	if len(open) > 0 {
		s.note = assumed(open, shapes)
	}
	return s, nil
}
