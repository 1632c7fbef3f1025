package xdnacmd

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/backends/xdna/timeline"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

var _ = add(predictCommand)

type predictFlags struct {
	designFlags
	size     string
	analytic bool
	json     bool
}

func predictCommand() *cobra.Command {
	var f predictFlags
	cmd := &cobra.Command{
		Use:     "predict --device D --dtype T --size MxNxK",
		Example: "  tessera xdna predict --device xdna2 --dtype int8-int16 --size 4096x4480x4320",
		Short:   "Predict the time of one product, by the model and by the emulator",
		Long: `Predict says how long one product takes on a design: by the analytic model, and by the emulator's simulated time (the control
code runs, without data), with what the cores waited for. Where the paper has published this product, its figure stands beside.`,
		Args: cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.size, "size", "", "the product, `MxNxK`")
	fl.BoolVar(&f.analytic, "analytic", false, "the model only")
	fl.BoolVar(&f.json, "json", false, "print one JSON document")
	return cmd
}

type predictResult struct {
	Device    string           `json:"device"`
	DType     string           `json:"dtype"`
	Size      map[string]int   `json:"size"`
	Design    map[string]any   `json:"design"`
	Analytic  float64          `json:"analytic_tops"`
	Emulated  *float64         `json:"emulated_tops"` // null with --analytic
	Seconds   float64          `json:"seconds"`       // simulated, or of the model with --analytic
	AnalyticS float64          `json:"analytic_seconds"`
	Bound     string           `json:"bound"`
	Stalls    *timeline.Stalls `json:"stalls,omitempty"`
	Padded    map[string]int   `json:"padded"`
	Useful    float64          `json:"useful_percent"`
	Published float64          `json:"published_tops,omitempty"`
	Labelled  string           `json:"label"`
}

// coresAndShim keeps what a stall report needs.
func coresAndShim(t array.Track) bool {
	return t.Name == "core" || t.Name == "controller" || t.Tile.Row == 0
}

func (f *predictFlags) run(ctx context.Context, w io.Writer) error {
	m, d, err := f.build()
	if err != nil {
		return err
	}
	s, err := oneSize(f.size)
	if err != nil {
		return err
	}
	p := m.Predict(d, s)
	out := predictResult{Device: m.Name, DType: d.Types.String(), Size: sizeJSON(s), Design: designJSON(d), Analytic: p.TOPS, Seconds: p.Seconds, AnalyticS: p.Seconds,
		Bound: p.Bound, Padded: sizeJSON(p.Padded), Useful: 100 * p.Useful, Labelled: "predicted"}
	if !f.analytic {
		dev, err := device.Lookup(m.Name)
		if err != nil {
			return err
		}
		rec := &timeline.Recorder{Dev: dev, Keep: coresAndShim}
		res, err := (&plan.Emulator{Tracer: rec}).Run(ctx, d, s)
		if err != nil {
			return err
		}
		st := rec.Stalls(d.Transposed)
		tops := s.Ops() / res.Seconds / 1e12
		out.Seconds, out.Emulated, out.Stalls, out.Bound = res.Seconds, &tops, &st, st.Bound
	}
	for _, r := range plan.Published().WholeArray {
		if r.Device == m.Name && r.Size() == s && r.Design() == d {
			out.Published = r.TOPS
		}
	}
	if f.json {
		return cli.PrintJSON(w, out)
	}
	fmt.Fprintf(w, "%v\n%v (M x N x K), padded to %v: %.1f %% useful work\n", d, s, p.Padded, 100*p.Useful)
	fmt.Fprintf(w, "predicted by the model: %.2f TOPS, %.3f ms, bound by %s\n", p.TOPS, 1e3*p.Seconds, p.Bound)
	if out.Stalls != nil {
		fmt.Fprintf(w, "emulated: %.2f TOPS, %.3f ms simulated, %v\n", *out.Emulated, 1e3*out.Seconds, *out.Stalls)
	}
	if out.Published > 0 {
		fmt.Fprintf(w, "published (arXiv 2512.13282): %.2f TOPS\n", out.Published)
	}
	return nil
}
