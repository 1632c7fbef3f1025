package xdnacmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/cmd/tessera/internal/xdnacmd/chart"
)

var _ = add(plotCommand)

type plotFlags struct {
	designFlags
	kind    string
	output  string
	points  int
	emulate int
	json    bool
}

func plotCommand() *cobra.Command {
	var f plotFlags
	cmd := &cobra.Command{
		Use:     "plot [--kind roofline|kmt|beyond] --device D --dtype T -o FILE",
		Example: "  tessera xdna plot --device xdna2 --dtype int8-int16 -o roofline.svg",
		Short:   "Draw rooflines and sweeps as SVG or PNG",
		Long: `Plot draws what the paper's figures show, from predictions:

  roofline  rate over arithmetic intensity for 420 multiples of the design's native size up to 8K, for both layouts of B
  kmt       rate over k_mt, by the model and by the emulator
  beyond    the best designs beside the paper's, for all type pairs of a device

The file's extension says the format, .svg or .png. --json prints the points, with -o or without. Crosses are products that
the emulator ran (--emulate N); all rates but the published ones are predicted.`,
		Args: cli.NoArgs("the picture's file follows --output"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.Lookup("layout").DefValue = "col,row"
	f.layout = "col,row"
	fl.Lookup("layout").Usage = "layouts of B: col, row or col,row"
	cli.WordVar(fl, &f.kind, "kind", "roofline", "roofline, kmt or beyond")
	fl.StringVarP(&f.output, "output", "o", "", "write the picture to `FILE`, .svg or .png")
	fl.IntVar(&f.points, "points", plan.SweepPoints, "sizes of a roofline, each layout")
	fl.IntVar(&f.emulate, "emulate", 0, "emulate `N` of the sizes of a roofline too")
	fl.BoolVar(&f.json, "json", false, "print the points, a JSON document a line")
	return cmd
}

// sweepPoint is a point of a roofline in JSON.
type sweepPoint struct {
	Device    string         `json:"device"`
	DType     string         `json:"dtype"`
	Layout    string         `json:"layout"`
	Size      map[string]int `json:"size"`
	Intensity float64        `json:"intensity"` // operations a byte, each matrix once
	Analytic  float64        `json:"analytic_tops"`
	Emulated  float64        `json:"emulated_tops,omitempty"`
	Bound     string         `json:"bound"`
}

func (f *plotFlags) run(ctx context.Context, w io.Writer) error {
	if f.output == "" && !f.json {
		return cli.Usagef("--output FILE or --json is needed")
	}
	if f.output != "" {
		if _, err := chart.Format(f.output); err != nil {
			return cli.Usagef("--output: %w", err)
		}
	}
	if f.points < 1 || f.emulate < 0 {
		return cli.Usagef("--points %d, --emulate %d: positive numbers are right", f.points, f.emulate)
	}
	var p chart.Picture
	var err error
	switch f.kind {
	case "roofline":
		p, err = f.roofline(ctx, w)
	case "kmt":
		p, err = f.depth(ctx, w)
	case "beyond":
		p, err = f.beyond(ctx, w)
	default:
		return cli.Usagef("--kind %q: roofline, kmt or beyond is right", f.kind)
	}
	if err != nil || f.output == "" {
		return err
	}
	return chart.Save(p, f.output)
}

func (f *plotFlags) roofline(ctx context.Context, w io.Writer) (chart.Picture, error) {
	layouts := strings.Split(f.layout, ",")
	one := f.designFlags
	var r chart.Roofline
	for _, layout := range layouts {
		one.layout = strings.TrimSpace(layout)
		m, d, err := one.build()
		if err != nil {
			return chart.Picture{}, err
		}
		sizes := plan.SweepSizes(d, f.points)
		emulated := make([]float64, len(sizes))
		if f.emulate > 0 {
			every := max(1, len(sizes)/f.emulate)
			var idx []int
			for i := 0; i < len(sizes) && len(idx) < f.emulate; i += every {
				idx = append(idx, i)
			}
			seconds := new(plan.Emulators).Measure(ctx)
			bar := cli.NewProgress("emulating " + one.layout)
			err := plan.Parallel(runtime.GOMAXPROCS(0), len(idx), func(done, total int) { bar.Set(int64(done), int64(total)) }, func(i int) error {
				s := sizes[idx[i]]
				sec, err := seconds(d, s)
				emulated[idx[i]] = s.Ops() / sec / 1e12
				return err
			})
			bar.Done()
			if err != nil {
				return chart.Picture{}, err
			}
		}
		series := chart.Series{Name: map[string]string{"col": "column-major B, predicted", "row": "row-major B, predicted"}[one.layout]}
		for i, s := range sizes {
			p := m.Predict(d, s)
			x := s.Intensity(d.Types)
			series.Points = append(series.Points, chart.Point{Intensity: x, TOPS: p.TOPS})
			if emulated[i] > 0 {
				r.Emulated.Points = append(r.Emulated.Points, chart.Point{Intensity: x, TOPS: emulated[i]})
			}
			if f.json {
				if err := cli.PrintJSON(w, sweepPoint{m.Name, d.Types.String(), one.layout, sizeJSON(s), x, p.TOPS, emulated[i], p.Bound}); err != nil {
					return chart.Picture{}, err
				}
			}
		}
		if one.layout == "row" {
			r.Row = series
		} else {
			r.Col = series
		}
		r.Emulated.Name = "emulated (simulated time)"
		r.Peak = 2 * m.KernelRate(d) * float64(m.Rows*m.Cols) * m.Clock / 1e12
		r.DRAM = m.DRAM
		r.Title = fmt.Sprintf("%s %s, tile %s, k_mt %d: %d sizes up to 8K, predicted", strings.ToUpper(m.Name), d.Types, d.Tile, d.KMT, len(sizes))
		if d.Family() != "paper" {
			r.Title = fmt.Sprintf("%s %s, %s %s, k_mt %d: %d sizes up to 8K, predicted", strings.ToUpper(m.Name), d.Types, d.Family(), d.Tile, d.KMT, len(sizes))
			continue
		}
		r.PublishedMax = plan.Published().SweepMax[m.Name][d.Types.String()]
		r.Published = nil
		for _, q := range plan.Published().WholeArray {
			if q.Device == m.Name && q.DType() == d.Types.String() && q.Tile() == d.Tile {
				r.Published = append(r.Published, chart.Point{Intensity: q.Size().Intensity(d.Types), TOPS: q.TOPS})
			}
		}
	}
	return r.Draw(), nil
}

// depthPoint is a point of a k_mt sweep in JSON.
type depthPoint struct {
	Device   string         `json:"device"`
	DType    string         `json:"dtype"`
	Tile     map[string]int `json:"tile"`
	KMT      int            `json:"k_mt"`
	Analytic float64        `json:"analytic_tops"`
	Emulated float64        `json:"emulated_tops"`
}

func (f *plotFlags) depth(ctx context.Context, w io.Writer) (chart.Picture, error) {
	one := f.designFlags
	if one.layout == "col,row" {
		one.layout = "col"
	}
	m, base, err := one.build()
	if err != nil {
		return chart.Picture{}, err
	}
	var designs []plan.Design
	for kmt := base.Tile.K; kmt <= 12*base.Tile.K; kmt += base.Tile.K {
		d := base
		d.KMT = kmt
		if d.Check() == nil && plan.Buildable(d) {
			designs = append(designs, d)
		}
	}
	if len(designs) == 0 {
		return chart.Picture{}, errors.New("no k_mt of this tile fits the MemTiles")
	}
	tops := make([]float64, len(designs))
	seconds := new(plan.Emulators).Measure(ctx)
	if err := plan.Parallel(runtime.GOMAXPROCS(0), len(designs), nil, func(i int) error {
		s := designs[i].Near(plan.About)
		sec, err := seconds(designs[i], s)
		tops[i] = s.Ops() / sec / 1e12
		return err
	}); err != nil {
		return chart.Picture{}, err
	}
	out := chart.Depth{Title: fmt.Sprintf("%s %s, tile %s, problem of about 4K: how deep a MemTile block should be", strings.ToUpper(m.Name), base.Types, base.Tile)}
	for i, d := range designs {
		v := m.Predict(d, d.Near(plan.About)).TOPS
		out.Analytic = append(out.Analytic, chart.XY{X: float64(d.KMT), Y: v})
		out.Emulated = append(out.Emulated, chart.XY{X: float64(d.KMT), Y: tops[i]})
		if f.json {
			if err := cli.PrintJSON(w, depthPoint{m.Name, d.Types.String(), tileJSON(d.Tile), d.KMT, v, tops[i]}); err != nil {
				return chart.Picture{}, err
			}
		}
	}
	for _, q := range plan.Published().WholeArray {
		if q.Device == m.Name && q.DType() == base.Types.String() && q.Tile() == base.Tile && q.Rank == 1 {
			out.Chosen = float64(q.KMT)
			out.Published = append(out.Published, chart.XY{X: float64(q.KMT), Y: q.TOPS})
		}
	}
	for _, a := range plan.Ablations() {
		if a.Design.Device == m.Name && a.Design.Types == base.Types && a.Design.Tile == base.Tile && a.Unit == "TOPS" && a.Design.Schedule == plan.Overlapped && !a.Design.DoubleC {
			out.Published = append(out.Published, chart.XY{X: float64(a.Design.KMT), Y: a.Published})
		}
	}
	return out.Draw(), nil
}

func (f *plotFlags) beyond(ctx context.Context, w io.Writer) (chart.Picture, error) {
	m, err := plan.Lookup(f.device)
	if err != nil {
		return chart.Picture{}, cli.Usagef("--device: %w", err)
	}
	bar := cli.NewProgress("emulating")
	rows, err := plan.Beyond(plan.TableOptions{Emulate: new(plan.Emulators).Measure(ctx), Workers: runtime.GOMAXPROCS(0),
		Progress: func(done, total int) { bar.Set(int64(done), int64(total)) }})
	bar.Done()
	if err != nil {
		return chart.Picture{}, err
	}
	nan := math.NaN()
	b := chart.Bars{Title: strings.ToUpper(m.Name) + ": the best designs of the planner beside the paper's, problems of about 4K", Y: "TOPS"}
	sets := []chart.BarSet{{Name: "published, on silicon"}, {Name: "the paper's design, emulated"}, {Name: "best design, emulated"}}
	at := map[string]int{}
	for _, r := range rows {
		if r.Device != m.Name {
			continue
		}
		if f.json {
			if err := cli.PrintJSON(w, r); err != nil {
				return chart.Picture{}, err
			}
		}
		i, ok := at[r.DType]
		if !ok {
			i = len(b.Labels)
			at[r.DType] = i
			b.Labels = append(b.Labels, r.DType)
			for s := range sets {
				sets[s].Values = append(sets[s].Values, nan)
			}
		}
		if r.Design == "published" {
			for _, q := range plan.Published().WholeArray {
				if q.Device == m.Name && q.DType() == r.DType && q.Rank == 1 {
					sets[0].Values[i] = q.TOPS
				}
			}
			sets[1].Values[i] = r.Emulated
			continue
		}
		if best := sets[2].Values[i]; math.IsNaN(best) || r.Emulated > best {
			sets[2].Values[i] = r.Emulated
			b.Labels[i] = fmt.Sprintf("%s\n%s\n%s", r.DType, r.Design, r.Tile)
		}
	}
	b.Sets = sets
	return b.Draw(), nil
}
