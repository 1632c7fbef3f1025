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

// publishedRow is a row of the paper beside the model's value for it.
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
	var c chosen
	switch {
	case f.sizes != "":
		c, err = f.forProducts(base)
	case f.design == "best":
		c, err = f.best(m, t, measure)
	default:
		c, err = f.paper(base, measure)
	}
	if err != nil {
		return err
	}
	out := c.result(base, f.layout)
	if out.Published, err = publishedRows(base, measure); err != nil {
		return err
	}
	if err := f.writeDesign(c.design); err != nil {
		return err
	}
	if f.json {
		return cli.PrintJSON(w, out)
	}
	fmt.Fprintf(w, "%s\n", describeDesign(c.design))
	fmt.Fprintf(w, "predicted %.2f TOPS; L1 %d bytes of each core, L2 %d bytes in all\n", c.tops, out.L1, out.L2)
	if c.products != nil {
		printChoice(w, c.products)
	}
	printPublished(w, out.Published, f.layout)
	printSearched(w, out.Searched, out.Considered)
	return nil
}

// chosen is what a search has found.
type chosen struct {
	design     plan.Design
	tops       float64
	steps      []searched
	considered int
	products   *plan.Choice // of --sizes, else nil
}

// found is what a search of one tile has found.
func found(s plan.Search) chosen {
	return chosen{design: s.Best.Design, tops: s.Best.TOPS, steps: searchJSON(s), considered: s.Considered}
}

// forProducts chooses for the total time of the products of --sizes.
func (f *planFlags) forProducts(base plan.Design) (chosen, error) {
	list, err := cli.ParseSizes("sizes", f.sizes)
	if err != nil {
		return chosen{}, err
	}
	var work []plan.Work
	ops := 0.0
	for _, s := range list {
		x := plan.Work{Size: plan.Size{M: s.M, N: s.N, K: s.K}, Count: 1}
		work = append(work, x)
		ops += x.Ops()
	}
	families := []string{plan.FamilyPaper}
	if f.design == "best" {
		families = []string{plan.FamilyBest}
	}
	c, err := plan.Choose(base.Device, []plan.Types{base.Types}, work, plan.ChooseOptions{Families: families, Accept: plan.Buildable})
	if err != nil {
		return chosen{}, err
	}
	return chosen{design: c.Single, tops: ops / c.SingleTime / 1e12, steps: []searched{}, considered: c.Considered, products: &c}, nil
}

// best rates all tiles and designs by the model. --emulate measures the best of them only: the search has rated tens of thousands.
func (f *planFlags) best(m *plan.Machine, t plan.Types, measure plan.Measure) (chosen, error) {
	c := found(plan.Best(m, t, plan.FamilyBest, plan.About, plan.Buildable))
	if f.emulate {
		s := c.design.Near(plan.About)
		sec, err := measure(c.design, s)
		if err != nil {
			return chosen{}, err
		}
		c.tops = s.Ops() / sec / 1e12
	}
	return c, nil
}

// paper runs the paper's search. With --emulate it starts near the model's choice: a handful of steps around it is enough for the slower measure.
func (f *planFlags) paper(base plan.Design, measure plan.Measure) (chosen, error) {
	o := plan.SearchOptions{Measure: measure}
	if f.emulate {
		fast, err := plan.Find(base, plan.SearchOptions{})
		if err != nil {
			return chosen{}, err
		}
		o.FromK, o.Patience = fast.Best.Design.Tile.K+16, 3
	}
	s, err := plan.Find(base, o)
	return found(s), err
}

// result is the JSON document, but for the rows of the paper.
func (c *chosen) result(base plan.Design, layout string) planResult {
	d := c.design
	out := planResult{Device: base.Device, DType: base.Types.String(), Layout: layout, Tile: tileJSON(d.Tile), KMT: d.KMT, Native: sizeJSON(d.Native()),
		L1: d.L1Bytes(), L2: d.L2Bytes(plan.About), TOPS: c.tops, Design: d.Family(), Bands: max(d.Bands, 1), Resident: d.ResidentB,
		Searched: c.steps, Considered: c.considered}
	if one, err := plan.SingleCore(base.Device, base.Types, 0); err == nil {
		out.SingleCore = tileJSON(one)
	}
	if c.products != nil {
		out.Seconds, out.Configurations = c.products.Seconds, len(c.products.Legs)
		for _, l := range c.products.Legs {
			out.Legs = append(out.Legs, legJSON{l.First, l.Seconds, designJSON(l.Design)})
		}
	}
	return out
}

// publishedRows are the paper's choices for a device and its types, each measured with the layout of B that was asked for.
func publishedRows(base plan.Design, measure plan.Measure) (list []publishedRow, err error) {
	for _, r := range plan.Published().WholeArray {
		if r.Device != base.Device || r.DType() != base.Types.String() {
			continue
		}
		d := r.Design()
		d.RowMajorB = base.RowMajorB
		sec, err := measure(d, r.Size())
		if err != nil {
			return nil, err
		}
		list = append(list, publishedRow{r.Rank, tileJSON(r.Tile()), r.KMT, sizeJSON(r.Size()), r.TOPS, r.Size().Ops() / sec / 1e12})
	}
	return list, nil
}

func printPublished(w io.Writer, list []publishedRow, layout string) {
	if len(list) == 0 {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nthe paper's choices\ttile m x k x n\tk_mt\tpublished TOPS (col)\tpredicted TOPS ("+layout+")\t")
	for _, r := range list {
		fmt.Fprintf(tw, "rank %d\t%dx%dx%d\t%d\t%.2f\t%.2f\t\n", r.Rank, r.Tile["m"], r.Tile["k"], r.Tile["n"], r.KMT, r.TOPS, r.Predicted)
	}
	tw.Flush()
}

func printSearched(w io.Writer, steps []searched, considered int) {
	if len(steps) == 0 {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nsearched\tk_mt\tMACs/cycle\tpredicted TOPS\tbound by\tdesign\t")
	for _, x := range steps {
		if x.Transposed {
			x.Design += " transposed"
		}
		fmt.Fprintf(tw, "%dx%dx%d\t%d\t%.1f\t%.2f\t%s\t%s\t\n", x.Tile["m"], x.Tile["k"], x.Tile["n"], x.KMT, x.Rate, x.TOPS, x.Bound, x.Design)
	}
	tw.Flush()
	if considered > len(steps) {
		fmt.Fprintf(w, "%d designs were rated; these led in turn\n", considered)
	}
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
