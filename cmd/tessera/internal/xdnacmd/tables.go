package xdnacmd

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

var _ = add(tablesCommand)

type tablesFlags struct{ analytic, fits, beyond, markdown, json bool }

func tablesCommand() *cobra.Command {
	var f tablesFlags
	cmd := &cobra.Command{
		Use:     "tables",
		Example: "  tessera xdna tables --analytic\n  tessera xdna tables --beyond --markdown",
		Short:   "Print every published figure beside the model and the emulator",
		Long: `Tables prints the figures that arXiv 2512.13282 measured on silicon beside the analytic model's prediction and the emulator's simulated
time, with the error of each, and whether the point was used to fit a parameter. --fits lists the parameters, --beyond the designs that the
planner expects to be faster than the published ones (predicted, not measured on silicon).`,
		Args: cli.NoArgs(""),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.analytic, "analytic", false, "the model only: at once instead of a minute")
	fl.BoolVar(&f.fits, "fits", false, "list the fitted parameters instead")
	fl.BoolVar(&f.beyond, "beyond", false, "list the designs beyond the paper instead")
	fl.BoolVar(&f.markdown, "markdown", false, "print Markdown tables")
	fl.BoolVar(&f.json, "json", false, "print one JSON document a line")
	return cmd
}

// table prints aligned text or Markdown.
type table struct {
	w        *tabwriter.Writer
	markdown bool
	rows     int
}

func newTable(w io.Writer, markdown bool) *table {
	t := &table{markdown: markdown}
	if markdown {
		t.w = tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.Debug)
	} else {
		t.w = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	}
	return t
}

func (t *table) row(cells ...any) {
	line := func(cells []any) {
		if t.markdown {
			fmt.Fprint(t.w, "| ")
		}
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(t.w, "\t ")
			}
			fmt.Fprint(t.w, c)
		}
		if t.markdown {
			fmt.Fprint(t.w, " |")
		}
		fmt.Fprintln(t.w)
	}
	line(cells)
	if t.rows++; t.markdown && t.rows == 1 {
		dashes := make([]any, len(cells))
		for i := range dashes {
			dashes[i] = "---"
		}
		line(dashes)
	}
}

func (f *tablesFlags) run(ctx context.Context, w io.Writer) error {
	switch {
	case f.fits:
		return f.printFits(w)
	case f.beyond:
		return f.printBeyond(ctx, w)
	}
	o := plan.TableOptions{Workers: runtime.GOMAXPROCS(0)}
	if !f.analytic {
		o.Emulate = new(plan.Emulators).Measure(ctx)
		bar := cli.NewProgress("emulating")
		defer bar.Done()
		o.Progress = func(done, total int) { bar.Set(int64(done), int64(total)) }
	}
	rows, err := plan.Tables(o)
	if err != nil {
		return err
	}
	if f.json {
		for _, r := range rows {
			if err := cli.PrintJSON(w, r); err != nil {
				return err
			}
		}
		return nil
	}
	t := newTable(w, f.markdown)
	t.row("table", "device", "types", "tile m x k x n", "k_mt", "size M x N x K", "what", "unit", "published", "model", "error", "emulated", "error", "fitted")
	var model, emu []float64
	for _, r := range rows {
		kmt, size, emulated, emuErr, fitted := "", r.Size, "", "", ""
		if r.KMT > 0 {
			kmt = fmt.Sprint(r.KMT)
		}
		unit := " %"
		if r.Unit == "percent" {
			unit = " points"
		}
		if r.Emulated != 0 {
			emulated, emuErr = fmt.Sprintf("%.2f", r.Emulated), fmt.Sprintf("%+.1f%s", r.EmuError, unit)
		}
		if r.Fitted {
			fitted = "yes"
		}
		t.row(r.Table, r.Device, r.DType, r.Tile, kmt, size, r.What, r.Unit, fmt.Sprintf("%.2f", r.Published), fmt.Sprintf("%.2f", r.Analytic),
			fmt.Sprintf("%+.1f%s", r.Error, unit), emulated, emuErr, fitted)
		if (r.Table == "2" || r.Table == "3") && r.Unit == "TOPS" {
			model = append(model, r.Error)
			if r.Emulated != 0 {
				emu = append(emu, r.EmuError)
			}
		}
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\ntables 2 and 3, %d rows: model %s", len(model), spread(model))
	if len(emu) > 0 {
		fmt.Fprintf(w, "; emulator %s", spread(emu))
	}
	fmt.Fprintln(w, " (published values are measured on silicon, ours are predicted)")
	return nil
}

// spread is the root mean square and the worst of errors in percent.
func spread(v []float64) string {
	sum, worst := 0.0, 0.0
	for _, x := range v {
		sum += x * x
		worst = max(worst, math.Abs(x))
	}
	return fmt.Sprintf("rms %.1f %%, worst %.1f %%", math.Sqrt(sum/float64(len(v))), worst)
}

func (f *tablesFlags) printFits(w io.Writer) error {
	t := newTable(w, f.markdown)
	if !f.json {
		t.row("device", "parameter", "value", "unit", "from")
	}
	for _, x := range plan.Fits() {
		if f.json {
			if err := cli.PrintJSON(w, x); err != nil {
				return err
			}
			continue
		}
		t.row(x.Device, x.Parameter, fmt.Sprintf("%.5g", x.Value), x.Unit, x.From)
	}
	return t.w.Flush()
}

func (f *tablesFlags) printBeyond(ctx context.Context, w io.Writer) error {
	o := plan.TableOptions{Workers: runtime.GOMAXPROCS(0)}
	if !f.analytic {
		o.Emulate = new(plan.Emulators).Measure(ctx)
	}
	rows, err := plan.Beyond(o)
	if err != nil {
		return err
	}
	t := newTable(w, f.markdown)
	if !f.json {
		t.row("device", "types", "design", "tile m x k x n", "k_mt", "bands", "size M x N x K", "predicted TOPS", "x paper's", "emulated TOPS", "x paper's", "published on silicon")
	}
	for _, r := range rows {
		if f.json {
			if err := cli.PrintJSON(w, r); err != nil {
				return err
			}
			continue
		}
		emu, gain := "", ""
		if r.Emulated > 0 {
			emu, gain = fmt.Sprintf("%.2f", r.Emulated), fmt.Sprintf("%.2f", r.EmulatedGain)
		}
		if r.Transposed {
			r.Design += ", transposed"
		}
		t.row(r.Device, r.DType, r.Design, r.Tile, r.KMT, r.Bands, r.Size, fmt.Sprintf("%.2f", r.Analytic), fmt.Sprintf("%.2f", r.Gain), emu, gain, r.Published)
	}
	return t.w.Flush()
}
