package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/tokenizer"
)

// swapRow is what one model does on one backend.
type swapRow struct {
	Model          string  `json:"model"`
	Backend        string  `json:"backend"`
	Agreement      string  `json:"agreement"`
	OnAccelerator  float64 `json:"products_on_accelerator_percent"`
	Dispatches     int64   `json:"dispatches"`
	Configurations int64   `json:"configurations"`
	Useful         float64 `json:"useful_percent"`
	Simulated      float64 `json:"simulated_seconds"`
}

func benchSwapCommand() *cobra.Command {
	var (
		o                    cli.Options
		text, images, labels string
		models, specs        []string
		limit, context       int
	)
	cmd := &cobra.Command{
		Use:     "swap",
		Example: "  tessera bench swap --text text.txt --backends cpu,xdna2\n  tessera bench swap --text text.txt --limit 20000 --backends cpu --backends xdna2:rows=1,precision=int8",
		Short:   "Run models on every backend and print what changes, as a table",
		Long: `Swap runs the embedded models, and those of --model, on each backend: a language model reads --text (perplexity), a
classifier reads --images and is right or not by --labels, an encoder makes a vector of each of the first lines of --text, which
is compared with the CPU's by the cosine. The table says how well results agree, which share of the products ran on the
accelerator, and what it would have taken there: simulated.`,
		Args: cli.NoArgs("files follow --text, --images and --model"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSwap(&o, text, images, labels, models, specs, limit, context); err != nil {
				return err
			}
			rows := swapTable{w: cmd.OutOrStdout(), json: o.JSON}
			vectors := map[string][][]float32{}
			each := func(takes func(model string) bool, run func() (*swapRow, error)) error {
				for _, model := range append([]string{""}, models...) {
					if !takes(model) {
						continue
					}
					for _, backend := range specs {
						o.Backend, o.Model = backend, model
						row, err := run()
						if err != nil {
							return fmt.Errorf("%s: %w", backend, err)
						}
						if err := rows.print(row); err != nil {
							return err
						}
					}
				}
				return nil
			}
			if text != "" {
				err := each(func(model string) bool { return !isONNX(model) }, func() (*swapRow, error) { return swapText(cmd.Context(), o, text, limit, context, vectors) })
				if err != nil {
					return err
				}
			}
			if images != "" {
				return each(func(model string) bool { return model == "" || isONNX(model) }, func() (*swapRow, error) { return swapImages(cmd.Context(), o, images, labels) })
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&text, "text", "", "text `FILE` that language models read")
	f.IntVar(&limit, "limit", 0, "read so many bytes of the text only; 0 means all")
	f.IntVar(&context, "context", 0, "positions of the context; 0 means what the model was trained for")
	f.StringVar(&images, "images", "", "IDX `FILE` of pictures that classifiers read")
	f.StringVar(&labels, "labels", "", "IDX `FILE` of their labels")
	f.StringArrayVarP(&models, "model", "m", nil, "another model (may be repeated)")
	f.StringSliceVar(&specs, "backends", []string{"cpu", "xdna", "xdna2", "aie"}, "backends to compare; with options, repeat the flag")
	o.AddThreads(cmd)
	return cmd
}

// swapTable prints rows as they come: the work may take many minutes, and what is done should not be lost.
type swapTable struct {
	w     io.Writer
	json  bool
	began bool
}

func (t *swapTable) print(r *swapRow) error {
	if t.json {
		return cli.PrintJSON(t.w, r)
	}
	if !t.began {
		t.began = true
		fmt.Fprintln(t.w, "| model | backend | agreement | products on it | dispatches | configurations | useful work | time, simulated |")
		fmt.Fprintln(t.w, "|---|---|---|---|---|---|---|---|")
	}
	simulated, useful := "", ""
	if r.Simulated > 0 {
		simulated, useful = fmt.Sprintf("%.3f s", r.Simulated), fmt.Sprintf("%.0f %%", r.Useful)
	}
	_, err := fmt.Fprintf(t.w, "| %s | `%s` | %s | %.0f %% | %d | %d | %s | %s |\n", r.Model, r.Backend, r.Agreement, r.OnAccelerator, r.Dispatches, r.Configurations, useful, simulated)
	return err
}

// checkSwap finds what would end the work after minutes.
func checkSwap(o *cli.Options, text, images, labels string, models, specs []string, limit, context int) error {
	switch {
	case text == "" && images == "":
		return cli.Usagef("--text or --images is missing: what the models read")
	case (images == "") != (labels == ""):
		return cli.Usagef("--images and --labels belong together")
	case limit < 0:
		return cli.Usagef("--limit %d: 0, for the whole text, or a number of bytes is right", limit)
	case context == 1:
		return errOneToken
	case len(specs) == 0:
		return cli.Usagef("--backends is empty: one of %s at least is right", strings.Join(backends.Names(), ", "))
	}
	if err := checkContext(context); err != nil {
		return err
	}
	if err := o.CheckThreads(); err != nil {
		return err
	}
	for _, spec := range specs {
		b, err := backends.Open(spec)
		if err != nil {
			return fmt.Errorf("--backends %s: %w", spec, err)
		}
		if err := b.Close(); err != nil {
			return err
		}
	}
	for _, file := range append([]string{text, images, labels}, models...) {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return err
		}
	}
	return nil
}

func (r *swapRow) fill(backend string, report graph.Report) {
	r.Backend = backend
	var all, useful, padded int64
	for _, b := range report.Backends {
		all += b.Products
	}
	b := report.Backends[0]
	useful, padded = b.UsefulMACs, b.PaddedMACs
	if all > 0 {
		r.OnAccelerator = 100 * float64(b.Products) / float64(all)
	}
	if padded > 0 {
		r.Useful = 100 * float64(useful) / float64(padded)
	}
	r.Dispatches, r.Configurations, r.Simulated = b.Dispatches, b.Configurations, b.SimulatedSeconds
}

// swapText runs a language model or an encoder. Vectors keeps what encoders gave on the CPU.
func swapText(ctx context.Context, o cli.Options, file string, limit, window int, vectors map[string][][]float32) (*swapRow, error) {
	text, err := regular.ReadStream(file)
	if err != nil {
		return nil, err
	}
	if limit > 0 && limit < len(text) {
		text = text[:limit]
	}
	f := llmFlags{Options: o, context: window, cache: "f32"}
	m, err := f.open()
	if err != nil {
		return nil, err
	}
	defer m.close()
	if !m.Config.Causal {
		return swapEncoder(ctx, o, m, string(text), vectors)
	}
	p, err := m.Perplexity(ctx, m.Tokenizer.Encode(string(text), tokenizer.Options{}), window, nil)
	if err != nil {
		return nil, err
	}
	exe, err := m.Executable()
	if err != nil {
		return nil, err
	}
	row := &swapRow{Model: m.name, Agreement: fmt.Sprintf("perplexity %.3f", p.Value())}
	row.fill(o.Backend, exe.Report())
	return row, nil
}

// encoderLines is how many lines of the text an encoder reads.
const encoderLines = 32

// swapEncoder compares vectors of lines with those of the CPU.
func swapEncoder(ctx context.Context, o cli.Options, m *languageModel, text string, vectors map[string][][]float32) (*swapRow, error) {
	exact, ok := vectors[o.Model]
	if !ok {
		if o.Backend != "cpu" {
			onCPU := o
			onCPU.Backend = "cpu"
			f := llmFlags{Options: onCPU, cache: "f32"}
			host, err := f.open()
			if err != nil {
				return nil, err
			}
			defer host.close()
			if exact, err = embedLines(ctx, host, text); err != nil {
				return nil, err
			}
			vectors[o.Model] = exact
		}
	}
	got, err := embedLines(ctx, m, text)
	if err != nil {
		return nil, err
	}
	if exact == nil {
		exact = got
		vectors[o.Model] = exact
	}
	least := 1.0
	for i, v := range got {
		least = min(least, cosine(v, exact[i]))
	}
	exe, err := m.Executable()
	if err != nil {
		return nil, err
	}
	row := &swapRow{Model: m.name, Agreement: fmt.Sprintf("cosine %.5f at least, %d lines", least, len(got))}
	row.fill(o.Backend, exe.Report())
	return row, nil
}

// embedLines returns the vectors of the first lines that are not empty, cut to the model's context.
func embedLines(ctx context.Context, m *languageModel, text string) ([][]float32, error) {
	var out [][]float32
	for _, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		ids := m.Tokenizer.Encode(line, tokenizer.Options{Special: true})
		v, err := m.EmbedIDs(ctx, ids[:min(len(ids), m.Config.Context)], llm.EmbedOptions{})
		if err != nil {
			return nil, err
		}
		if out = append(out, v); len(out) == encoderLines {
			break
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the text has no line to encode")
	}
	return out, nil
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return ab / max(math.Sqrt(aa*bb), 1e-300)
}

func swapImages(ctx context.Context, o cli.Options, images, labels string) (*swapRow, error) {
	pictures, err := image.ReadFile(images)
	if err != nil {
		return nil, err
	}
	truth, err := image.ReadLabels(labels)
	if err != nil {
		return nil, err
	}
	if len(truth) != len(pictures) {
		return nil, fmt.Errorf("%d labels for %d pictures", len(truth), len(pictures))
	}
	g, closeAll, err := o.Open()
	if err != nil {
		return nil, err
	}
	defer closeAll()
	options := cnn.Options{Backends: g.Backends, Batch: 250}
	name := "digit CNN (embedded)"
	var c *cnn.Classifier
	if o.Model == "" {
		c, err = cnn.Digits(ctx, options)
	} else {
		name = filepath.Base(o.Model)
		c, err = cnn.Open(ctx, o.Model, options)
	}
	if err != nil {
		return nil, err
	}
	defer c.Close()
	results, err := c.Classify(ctx, pictures)
	if err != nil {
		return nil, err
	}
	right := 0
	for i, r := range results {
		if r.Class == truth[i] {
			right++
		}
	}
	row := &swapRow{Model: name, Agreement: fmt.Sprintf("%d of %d right", right, len(truth))}
	row.fill(o.Backend, c.Session().Report())
	return row, nil
}
