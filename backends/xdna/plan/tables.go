package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
)

// Ablation is a product that the paper measured with one of its ideas taken away.
type Ablation struct {
	What      string
	Design    Design
	Size      Size
	Base      Design // what a ratio is against; zero if the figure is in TOPS
	BaseSize  Size
	Published float64 // TOPS, or the ratio of this design's TOPS to the base's
	Unit      string
	Fitted    bool
}

// Ratio turns the rates of the design and of its base, in TOPS, into the published quantity: the paper prints the first two ablations of
// each kind in TOPS, others as "x times" or "percent less".
func (a Ablation) Ratio(tops, base float64) float64 {
	if a.Unit == "TOPS" {
		return tops
	}
	return tops / base
}

// Predict is the analytic model's value of the quantity.
func (a Ablation) Predict(m *Machine) float64 {
	base := 1.0
	if a.Unit != "TOPS" {
		base = m.Predict(a.Base, a.BaseSize).TOPS
	}
	return a.Ratio(m.Predict(a.Design, a.Size).TOPS, base)
}

// Ablations are those of section 6.3 of the paper that have a rate. Sizes are the table's where the tile is the table's, else about 4K. Where
// the paper does not print k_mt, ours is the multiple of k_ct nearest to the balanced design's.
func Ablations() []Ablation {
	p := Published()
	row := func(device, dtype string) (Design, Size) {
		r, _ := p.row(device, dtype, 1)
		return r.Design(), r.Size()
	}
	var out []Ablation
	add := func(what, unit string, d Design, s Size, base Design, bs Size, v float64, fitted bool) {
		out = append(out, Ablation{what, d, s, base, bs, v, unit, fitted})
	}
	d1, s1 := row("xdna", "bf16-bf16")
	d2, s2 := row("xdna2", "int8-int16")
	d3, s3 := row("xdna", "int8-int16")

	d := d1
	d.KMT = d.Tile.K
	add("k_mt = k_ct = 56", "TOPS", d, s1, Design{}, Size{}, 1.27, true)

	d = d2
	d.Tile, d.KMT = Tile{64, 216, 64}, 432
	add("best single-core tile on the array", "TOPS", d, d.Near(About), Design{}, Size{}, 17.86, false)
	d = d3
	d.Tile, d.KMT = Tile{64, 216, 64}, 432
	add("best single-core tile on the array", "TOPS", d, d.Near(About), Design{}, Size{}, 4.03, false)

	d = d2
	d.Tile, d.KMT, d.DoubleC = Tile{112, 48, 96}, 432, true
	add("C double-buffered", "TOPS", d, d.Near(About), Design{}, Size{}, 26.1, false)
	d = d1
	d.Tile, d.KMT, d.DoubleC = Tile{80, 40, 96}, 240, true
	add("C double-buffered", "TOPS", d, d.Near(About), Design{}, Size{}, 2.76, false)

	d = d2
	d.Schedule = Serial
	add("descriptors reprogrammed serially", "TOPS", d, s2, Design{}, Size{}, 22.21, false)
	d = d3
	d.Schedule = Serial
	add("descriptors reprogrammed serially, against overlapped", "ratio", d, s3, d3, s3, 1-0.27, false)

	// The public example reads blocks of k_ct only, and refills descriptors in halves.
	d = d1
	d.KMT, d.Schedule = d.Tile.K, PingPong
	add("public example design, balanced design faster by", "factor", d1, s1, d, s1, 2.4, false)
	d = d2
	d.KMT, d.Schedule = d.Tile.K, PingPong
	add("public example design, balanced design faster by", "factor", d2, s2, d, s2, 3.6, false)

	d = d1
	d.KMT = 560
	s := Size{4224, 4224, 4480}
	add("k_mt 560 instead of 224 (published: under 1 % more)", "ratio", d, s, d1, s, 1.00, false)
	return out
}

// TableRow is one published figure beside ours. Fields of the command's JSON.
type TableRow struct {
	Table     string  `json:"table"` // 1, 2, 3 as in the paper; sweep, layout, ablation
	Device    string  `json:"device"`
	DType     string  `json:"dtype"`
	Tile      string  `json:"tile"` // m x k x n
	KMT       int     `json:"k_mt,omitempty"`
	Size      string  `json:"size"` // M x N x K; empty where the figure belongs to no product: a kernel's rate, a mean over the sweep
	What      string  `json:"what"`
	Unit      string  `json:"unit"`
	Published float64 `json:"published"`
	Analytic  float64 `json:"analytic"`
	Emulated  float64 `json:"emulated"`      // 0, null in JSON, where the emulator has not run it
	Fitted    bool    `json:"fitted"`        // the point was used to fit a parameter
	Error     float64 `json:"error_percent"` // of the analytic value; in points where the unit is percent
	EmuError  float64 `json:"emulated_error_percent,omitempty"`
}

// MarshalJSON writes null where the emulator has not run the point: the field is there in every line, and no rate is 0.
func (r TableRow) MarshalJSON() ([]byte, error) {
	type plain TableRow
	out := struct {
		plain
		Emulated *float64 `json:"emulated"`
	}{plain: plain(r)}
	if r.Emulated != 0 {
		out.Emulated = &r.Emulated
	}
	return json.Marshal(out)
}

// TableOptions steer [Tables].
type TableOptions struct {
	Emulate  Measure               // fills the emulated column; nil leaves it empty. Called from Workers goroutines
	Workers  int                   // 0 = 1
	Progress func(done, total int) // nil = none
}

// gainSizes is how many sizes of the sweep the emulator averages for the gain of a column-major B; the analytic model takes all.
const gainSizes = 10

// product is one thing to emulate.
type product struct {
	d Design
	s Size
}

// Tables lays every published figure beside the models'.
func Tables(o TableOptions) ([]TableRow, error) {
	if o.Emulate == nil {
		return tableRows(nil), nil
	}
	// Build once to learn what has to be emulated, emulate, build again with the results.
	index := map[product]int{}
	var todo []product
	tableRows(func(d Design, s Size) float64 {
		if _, ok := index[product{d, s}]; !ok {
			index[product{d, s}] = len(todo)
			todo = append(todo, product{d, s})
		}
		return 1
	})
	tops := make([]float64, len(todo))
	err := Parallel(o.Workers, len(todo), o.Progress, func(i int) error {
		sec, err := o.Emulate(todo[i].d, todo[i].s)
		if err != nil {
			return fmt.Errorf("emulate %v on %v: %w", todo[i].d, todo[i].s, err)
		}
		tops[i] = todo[i].s.Ops() / sec / 1e12
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tableRows(func(d Design, s Size) float64 { return tops[index[product{d, s}]] }), nil
}

// Parallel does n jobs on some goroutines and returns the first error by index.
func Parallel(workers, n int, progress func(done, total int), job func(int) error) error {
	errs := make([]error, n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	next, done := 0, 0
	for range max(1, min(workers, n)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return
				}
				errs[i] = job(i)
				mu.Lock()
				if done++; progress != nil {
					progress(done, n)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// tableRows builds the tables; emulated gives TOPS, nil leaves the column empty.
func tableRows(emulated func(Design, Size) float64) []TableRow {
	p := Published()
	var rows []TableRow
	emu := func(d Design, s Size) float64 {
		if emulated == nil {
			return 0
		}
		return emulated(d, s)
	}
	add := func(r TableRow) {
		diff := func(v float64) float64 {
			if r.Unit == "percent" {
				return v - r.Published
			}
			return 100 * (v/r.Published - 1)
		}
		r.Error = diff(r.Analytic)
		if r.Emulated != 0 {
			r.EmuError = diff(r.Emulated)
		}
		rows = append(rows, r)
	}
	for _, r := range p.SingleCore {
		d := r.Design()
		// The emulated bf16 kernel's two parameters come from the two published rates.
		add(TableRow{Table: "1", Device: r.Device, DType: r.DType(), Tile: d.Tile.String(), What: "kernel rate", Unit: "MACs/cycle",
			Published: r.MACs, Analytic: machine(r.Device).KernelRate(d), Fitted: r.Device == "xdna2" && r.In == "bf16"})
	}
	for _, r := range p.WholeArray {
		d, s, m := r.Design(), r.Size(), machine(r.Device)
		table := map[string]string{"xdna": "2", "xdna2": "3"}[r.Device]
		row := TableRow{Table: table, Device: r.Device, DType: r.DType(), Tile: d.Tile.String(), KMT: d.KMT, Size: s.String(),
			What: fmt.Sprintf("rank %d", r.Rank), Unit: "TOPS", Published: r.TOPS, Analytic: m.Predict(d, s).TOPS, Emulated: emu(d, s), Fitted: r.Rank == 1}
		add(row)
		row.What, row.Unit, row.Size, row.Emulated = row.What+", kernel rate", "MACs/cycle", "", 0
		row.Published, row.Analytic, row.Fitted = r.MACs, m.KernelRate(d), r.Rank == 1 && r.Device == "xdna2" && r.In == "bf16"
		add(row)
	}
	for _, name := range Devices {
		for _, dt := range PaperTypes {
			r, _ := p.row(name, dt, 1)
			d, m := r.Design(), machine(name)
			var top Size
			best := 0.0
			for _, s := range SweepSizes(d, SweepPoints) {
				if v := m.Predict(d, s).TOPS; v > best {
					best, top = v, s
				}
			}
			add(TableRow{Table: "sweep", Device: name, DType: dt, Tile: d.Tile.String(), KMT: d.KMT, Size: top.String(), What: "maximum of the sweep",
				Unit: "TOPS", Published: p.SweepMax[name][dt], Analytic: best, Emulated: emu(d, top)})
		}
	}
	for _, name := range Devices {
		for _, dt := range PaperTypes {
			want, ok := p.ColumnGain[name][dt]
			if !ok {
				continue
			}
			got, _ := machine(name).ColumnGain(dt)
			r, _ := p.row(name, dt, 1)
			row := TableRow{Table: "layout", Device: name, DType: dt, Tile: r.Tile().String(), KMT: r.KMT, What: "mean gain of column-major over row-major B",
				Unit: "percent", Published: want, Analytic: got, Fitted: dt == "int8-int8"}
			if emulated != nil {
				row.Emulated = gain(r.Design(), gainSizes, emulated)
			}
			add(row)
		}
	}
	for _, a := range Ablations() {
		row := TableRow{Table: "ablation", Device: a.Design.Device, DType: a.Design.Types.String(), Tile: a.Design.Tile.String(), KMT: a.Design.KMT,
			Size: a.Size.String(), What: a.What, Unit: a.Unit, Published: a.Published, Analytic: a.Predict(machine(a.Design.Device)), Fitted: a.Fitted}
		if emulated != nil {
			base := 1.0
			if a.Unit != "TOPS" {
				base = emulated(a.Base, a.BaseSize)
			}
			row.Emulated = a.Ratio(emulated(a.Design, a.Size), base)
		}
		add(row)
	}
	return rows
}

// gain is the gain in percent of a column-major over a row-major B, each averaged over n sizes of the sweep.
func gain(col Design, n int, tops func(Design, Size) float64) float64 {
	row := col
	row.RowMajorB = true
	var a, b float64
	for _, s := range SweepSizes(col, n) {
		a += tops(col, s)
		b += tops(row, s)
	}
	return (a/b - 1) * 100
}

// Fits lists the fitted parameters with their values and the points that they come from.
func Fits() []Fit {
	var out []Fit
	for _, name := range Devices {
		m := machine(name)
		out = append(out,
			Fit{name, "DRAM read bandwidth", m.DRAM / 1e9, "GB/s", "measured TOPS of the first-ranked rows: the least bandwidth that holds none of them up"},
			Fit{name, "run length at the knee of the DRAM law", m.RunHalf, "bytes", "xdna bf16 96x56x96 with k_mt 56: 1.27 TOPS; one value for both devices"},
			Fit{name, "share of a broken DRAM line paid by a row-major B", m.RowShare, "", "mean gain of column-major B, int8-int8"})
		for _, dt := range PaperTypes {
			ty, _ := ParseTypes(dt)
			k := m.Kernels[ty]
			if r, ok := Published().row(name, dt, 1); ok {
				out = append(out, Fit{name, dt + " cycles per element of C and chunk", k.Extra, "cycles", fmt.Sprintf("measured %.2f TOPS of the first-ranked row %s", r.TOPS, r.Tile())})
			}
			if name == "xdna2" && dt == "bf16-bf16" {
				out = append(out, Fit{name, dt + " inner loop", math.Round(k.MACs*10) / 10, "MACs/cycle", "kernel rates 158.1 (48x152x48) and 137.2 (112x48x96)"})
			}
		}
	}
	return out
}
