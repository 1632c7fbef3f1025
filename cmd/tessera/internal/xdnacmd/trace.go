package xdnacmd

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/backends/xdna/timeline"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/cmd/tessera/internal/xdnacmd/chart"
)

var _ = add(traceCommand)

type traceFlags struct {
	designFlags
	size   string
	output string
	from   float64
	length float64
	json   bool
}

func traceCommand() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:     "trace --device D --dtype T --size MxNxK -o FILE",
		Example: "  tessera xdna trace --size 1024x1024x1024 -o timeline.json",
		Short:   "Write the emulated timeline of one product",
		Long: `Trace emulates one product and writes when each DMA channel, core and the controller did what: as a Chrome trace (FILE.json, which
Perfetto opens), or as one page of the steady state (FILE.svg or FILE.png). It also says what the cores waited for. Times are simulated.`,
		Args: cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.size, "size", "", "the product, `MxNxK`")
	fl.StringVarP(&f.output, "output", "o", "", "write to `FILE`: .json, .svg or .png")
	fl.Float64Var(&f.from, "from", -1, "start of a page's window in microseconds; -1 means the middle of the run")
	fl.Float64Var(&f.length, "length", 0, "length of a page's window in microseconds; 0 means one and a half output tiles")
	fl.BoolVar(&f.json, "json", false, "print what the cores waited for as one JSON document")
	return cmd
}

type traceResult struct {
	File             string          `json:"file"`
	Device           string          `json:"device"`
	DType            string          `json:"dtype"`
	Size             map[string]int  `json:"size"`
	SimulatedSeconds float64         `json:"simulated_seconds"`
	SimulatedTOPS    float64         `json:"simulated_tops"`
	Spans            int             `json:"spans"`
	Stalls           timeline.Stalls `json:"stalls"`
}

func (f *traceFlags) run(ctx context.Context, w io.Writer) error {
	m, d, err := f.build()
	if err != nil {
		return err
	}
	s, err := oneSize(f.size)
	if err != nil {
		return err
	}
	if f.output == "" {
		return cli.Usagef("--output is missing: a file that ends in .json, .svg or .png")
	}
	ext := strings.ToLower(filepath.Ext(f.output))
	chrome := ext == ".json"
	if !chrome {
		if _, err := chart.Format(f.output); err != nil {
			return cli.Usagef("--output %s: .json, .svg or .png is right", f.output)
		}
	}
	const most = 1e12 // microseconds
	if !(f.from == -1 || f.from >= 0 && f.from <= most) || !(f.length >= 0 && f.length <= most) {
		return cli.Usagef("--from %g, --length %g: numbers from 0 to %g, and --from -1 for the middle, are right", f.from, f.length, most)
	}
	dev, err := device.Lookup(m.Name)
	if err != nil {
		return err
	}
	rec := &timeline.Recorder{Dev: dev}
	if !chrome { // a page shows one column; the report needs the cores and the shim
		rec.Keep = func(t array.Track) bool { return coresAndShim(t) || t.Tile.Col == 0 }
	}
	e := &plan.Emulator{Tracer: rec}
	res, err := e.Run(ctx, d, s)
	if err != nil {
		return err
	}
	st := rec.Stalls(d.Transposed)
	out := traceResult{File: f.output, Device: m.Name, DType: d.Types.String(), Size: sizeJSON(s), SimulatedSeconds: res.Seconds, SimulatedTOPS: s.Ops() / res.Seconds / 1e12, Stalls: st}
	for _, l := range rec.Lanes() {
		out.Spans += len(l.Spans)
	}
	if chrome {
		err = cli.WriteFile(f.output, rec.WriteChrome)
	} else {
		err = chart.Save(f.page(m, d, s, rec, st).Draw(), f.output)
	}
	if err != nil {
		return err
	}
	if f.json {
		return cli.PrintJSON(w, out)
	}
	fmt.Fprintf(w, "%s: %d spans, %.3f ms simulated, %.2f TOPS\n%v\n", f.output, out.Spans, 1e3*res.Seconds, out.SimulatedTOPS, st)
	return nil
}

// page is the window of a run that one page shows: the controller and column 0.
func (f *traceFlags) page(m *plan.Machine, d plan.Design, s plan.Size, rec *timeline.Recorder, st timeline.Stalls) chart.Timeline {
	from, to := rec.Range()
	n := d.Native()
	p := m.Predict(d, s)
	tiles := float64(p.Padded.M/n.M) * float64(p.Padded.N/n.N)
	length := f.length * 1e-6 * m.Clock
	if length <= 0 {
		length = min(1.5*(to-from)/tiles, to-from)
	}
	start := from + f.from*1e-6*m.Clock
	if f.from < 0 {
		start = from + max(0, (to-from-length)/2)
	}
	var lanes []timeline.Lane
	for _, l := range rec.Lanes() {
		if l.Name == "controller" || l.Tile.Col == 0 {
			lanes = append(lanes, l)
		}
	}
	return chart.Timeline{
		Title: fmt.Sprintf("%s %s %s, %v (M x N x K): controller and column 0, %.0f us of %.2f ms, emulated", strings.ToUpper(m.Name), d.Types, d.Tile, s,
			length/m.Clock*1e6, (to-from)/m.Clock*1e3),
		Note: "All cores, whole run: " + st.String() + ". Times are simulated.", Lanes: lanes, From: start, To: start + length, Clock: m.Clock,
	}
}
