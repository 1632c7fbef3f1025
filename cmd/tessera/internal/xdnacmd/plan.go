package xdnacmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/xdna"
	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

var _ = add(planCommand)

type planFlags struct {
	designFlags
	sizes    string
	emulate  bool
	manifest string
	config   string
	json     bool
}

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:     "plan --device D --dtype T",
		Example: "  tessera xdna plan --device xdna2 --dtype bf16-bf16\n  tessera xdna plan --design best --sizes 512x1024x1024,512x4096x1024",
		Short:   "Search the tile that runs a type pair fastest",
		Long: `Plan runs the paper's search (arXiv 2512.13282): k_ct falls step by step, m_ct n_ct is as large as L1 allows, until the predicted
rate falls. With --design best it rates all tiles, also with A in bands, B resident in the MemTiles and bfp16 weights, and lists those that
led in turn. With --sizes it chooses for a
program's products, in order, and says whether a second configuration pays. All rates are predicted; --emulate measures with the
emulator's simulated time instead of the model.`,
		Args: cli.NoArgs("products follow --sizes"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	fl := cmd.Flags()
	cli.WordVar(fl, &f.device, "device", "xdna2", "xdna or xdna2")
	cli.WordVar(fl, &f.dtype, "dtype", "int8-int16", dtypeHelp)
	cli.WordVar(fl, &f.layout, "layout", "col", "layout of B: col or row")
	cli.WordVar(fl, &f.design, "design", "paper", "paper: designs of the paper's kind; best: all that the planner knows")
	fl.StringVar(&f.sizes, "sizes", "", "products of a program, `MxNxK[,...]` in order: choose for their total time")
	fl.BoolVar(&f.emulate, "emulate", false, "measure by the emulator instead of the model")
	fl.StringVar(&f.manifest, "manifest", "", "write the manifest that an xclbin for this design needs to `FILE`")
	fl.StringVar(&f.config, "config", "", "write the design's configuration, as control code in text, to `FILE`")
	fl.BoolVar(&f.json, "json", false, "print one JSON document")
	return cmd
}

// searched is a step of the search in JSON.
type searched struct {
	Design     string         `json:"design"`
	Tile       map[string]int `json:"tile"`
	KMT        int            `json:"k_mt"`
	Bands      int            `json:"bands"`
	Resident   bool           `json:"resident_b"`
	Transposed bool           `json:"transposed"`
	TOPS       float64        `json:"predicted_tops"`
	Rate       float64        `json:"macs_per_cycle"`
	Bound      string         `json:"bound"`
}

// searchJSON lists a search's steps.
func searchJSON(s plan.Search) []searched {
	list := []searched{}
	for _, x := range s.Steps {
		d := x.Design
		list = append(list, searched{d.Family(), tileJSON(d.Tile), d.KMT, max(d.Bands, 1), d.ResidentB, d.Transposed, x.TOPS, x.Rate, x.Bound})
	}
	return list
}

// published is a row of the paper beside the model's value for it.
type publishedRow struct {
	Rank      int            `json:"rank"`
	Tile      map[string]int `json:"tile"`
	KMT       int            `json:"k_mt"`
	Size      map[string]int `json:"size"`
	TOPS      float64        `json:"published_tops"`
	Predicted float64        `json:"predicted_tops"`
}

type legJSON struct {
	First   int            `json:"first"`
	Seconds float64        `json:"seconds"`
	Design  map[string]any `json:"design"`
}

type planResult struct {
	Device     string         `json:"device"`
	DType      string         `json:"dtype"`
	Layout     string         `json:"layout"`
	Tile       map[string]int `json:"tile"`
	KMT        int            `json:"k_mt"`
	Native     map[string]int `json:"native"`
	L1         int            `json:"l1_bytes"`
	L2         int            `json:"l2_bytes"`
	TOPS       float64        `json:"predicted_tops"`
	Design     string         `json:"design"`
	Bands      int            `json:"bands"`
	Resident   bool           `json:"resident_b"`
	SingleCore map[string]int `json:"single_core,omitempty"`
	Published  []publishedRow `json:"published,omitempty"`
	Searched   []searched     `json:"searched"`   // empty with --sizes, which rates all designs on all products
	Considered int            `json:"considered"` // designs that were rated, or that take all products of --sizes

	Seconds        float64   `json:"seconds,omitempty"` // of --sizes
	Configurations int       `json:"configurations,omitempty"`
	Legs           []legJSON `json:"legs,omitempty"`
}

func (f *planFlags) run(ctx context.Context, w io.Writer) error {
	m, t, err := f.parse()
	if err != nil {
		return err
	}
	if f.design != "paper" && f.design != "best" {
		return cli.Usagef("--design %q: paper or best is right", f.design)
	}
	measure := m.Analytic
	if f.emulate {
		measure = new(plan.Emulator).Measure(ctx)
	}
	base := plan.Design{Device: m.Name, Types: t, RowMajorB: f.layout == "row"}
	var d plan.Design
	var tops float64
	var chosen *plan.Choice // of --sizes
	out := planResult{Device: m.Name, DType: t.String(), Layout: f.layout, Searched: []searched{}}
	switch {
	case f.sizes != "":
		list, err := cli.ParseSizes("sizes", f.sizes)
		if err != nil {
			return err
		}
		var work []plan.Work
		for _, s := range list {
			work = append(work, plan.Work{Size: plan.Size{M: s.M, N: s.N, K: s.K}, Count: 1})
		}
		families := []string{plan.FamilyPaper}
		if f.design == "best" {
			families = []string{plan.FamilyBest}
		}
		c, err := plan.Choose(m.Name, []plan.Types{t}, work, plan.ChooseOptions{Families: families, Accept: plan.Buildable})
		if err != nil {
			return err
		}
		d, chosen = c.Single, &c
		ops := 0.0
		for _, x := range work {
			ops += x.Ops()
		}
		tops = ops / c.SingleTime / 1e12
		out.Seconds, out.Configurations, out.Considered = c.Seconds, len(c.Legs), c.Considered
		for _, l := range c.Legs {
			out.Legs = append(out.Legs, legJSON{l.First, l.Seconds, designJSON(l.Design)})
		}
	case f.design == "best":
		s := plan.Best(m, t, plan.FamilyBest, plan.About, plan.Buildable)
		d, tops, out.Searched, out.Considered = s.Best.Design, s.Best.TOPS, searchJSON(s), s.Considered
		if f.emulate { // only the best: the search has rated tens of thousands
			s := d.Near(plan.About)
			sec, err := measure(d, s)
			if err != nil {
				return err
			}
			tops = s.Ops() / sec / 1e12
		}
	default:
		o := plan.SearchOptions{Measure: measure}
		if f.emulate { // the model's choice is near; a handful of steps around it is enough for the slower measure
			fast, err := plan.Find(base, plan.SearchOptions{})
			if err != nil {
				return err
			}
			o.FromK, o.Patience = fast.Best.Design.Tile.K+16, 3
		}
		s, err := plan.Find(base, o)
		if err != nil {
			return err
		}
		d, tops, out.Searched, out.Considered = s.Best.Design, s.Best.TOPS, searchJSON(s), s.Considered
	}
	out.Tile, out.KMT, out.Native, out.L1, out.TOPS, out.Design = tileJSON(d.Tile), d.KMT, sizeJSON(d.Native()), d.L1Bytes(), tops, d.Family()
	out.L2 = d.L2Bytes(plan.About)
	out.Bands, out.Resident = max(d.Bands, 1), d.ResidentB
	if one, err := plan.SingleCore(m.Name, t, 0); err == nil {
		out.SingleCore = tileJSON(one)
	}
	for _, r := range plan.Published().WholeArray {
		if r.Device != m.Name || r.DType() != t.String() {
			continue
		}
		pd := r.Design()
		pd.RowMajorB = base.RowMajorB
		sec, err := measure(pd, r.Size())
		if err != nil {
			return err
		}
		out.Published = append(out.Published, publishedRow{r.Rank, tileJSON(r.Tile()), r.KMT, sizeJSON(r.Size()), r.TOPS, r.Size().Ops() / sec / 1e12})
	}
	if err := f.writeDesign(d); err != nil {
		return err
	}
	if f.json {
		return cli.PrintJSON(w, out)
	}
	fmt.Fprintf(w, "%s\n", describeDesign(d))
	fmt.Fprintf(w, "predicted %.2f TOPS; L1 %d bytes of each core, L2 %d bytes in all\n", tops, out.L1, out.L2)
	if chosen != nil {
		printChoice(w, chosen)
	}
	if len(out.Published) > 0 {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "\nthe paper's choices\ttile m x k x n\tk_mt\tpublished TOPS (col)\tpredicted TOPS ("+f.layout+")\t")
		for _, r := range out.Published {
			fmt.Fprintf(tw, "rank %d\t%dx%dx%d\t%d\t%.2f\t%.2f\t\n", r.Rank, r.Tile["m"], r.Tile["k"], r.Tile["n"], r.KMT, r.TOPS, r.Predicted)
		}
		tw.Flush()
	}
	if len(out.Searched) > 0 {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "\nsearched\tk_mt\tMACs/cycle\tpredicted TOPS\tbound by\tdesign\t")
		for _, x := range out.Searched {
			if x.Transposed {
				x.Design += " transposed"
			}
			fmt.Fprintf(tw, "%dx%dx%d\t%d\t%.1f\t%.2f\t%s\t%s\t\n", x.Tile["m"], x.Tile["k"], x.Tile["n"], x.KMT, x.Rate, x.TOPS, x.Bound, x.Design)
		}
		tw.Flush()
		if out.Considered > len(out.Searched) {
			fmt.Fprintf(w, "%d designs were rated; these led in turn\n", out.Considered)
		}
	}
	return nil
}

// printChoice says whether more than one configuration pays for the products of --sizes.
func printChoice(w io.Writer, c *plan.Choice) {
	if len(c.Legs) == 1 {
		fmt.Fprintf(w, "all products on this configuration: %.2f ms predicted; another beside it would not pay for its loading\n", 1e3*c.SingleTime)
		return
	}
	fmt.Fprintf(w, "all products on this configuration: %.2f ms predicted; %d configurations pay: %.2f ms, their loading between products included\n", 1e3*c.SingleTime, len(c.Legs), 1e3*c.Seconds)
	for _, l := range c.Legs {
		fmt.Fprintf(w, "  from product %d on: %s\n", l.First+1, describeDesign(l.Design))
	}
}

// writeDesign writes the files that somebody who compiles an xclbin for the design needs.
func (f *planFlags) writeDesign(d plan.Design) error {
	if f.manifest == "" && f.config == "" {
		return nil
	}
	b, err := d.Build()
	if err != nil {
		return err
	}
	if f.manifest != "" {
		if err := cli.WriteFile(f.manifest, func(w io.Writer) error {
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return enc.Encode(xdna.Manifest(b))
		}); err != nil {
			return err
		}
	}
	if f.config == "" {
		return nil
	}
	cfg, err := b.Config()
	if err != nil {
		return err
	}
	return cli.WriteFile(f.config, func(w io.Writer) error { return txn.Format(w, cfg) })
}
