package plan

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Default is the design that a type pair runs on unless somebody chooses: the paper's first-ranked one, or, for types that the paper does not
// have, the planner's best that can be built.
func Default(m *Machine, ty Types) Design {
	if r, ok := Published().row(m.Name, ty.String(), 1); ok {
		return r.Design()
	}
	d, _ := BestNear(m, ty, FamilyBest, About, Buildable)
	return d
}

// Buildable reports whether package design can make a design's configuration. It is slow enough to be asked of candidates last.
func Buildable(d Design) bool {
	_, err := d.Build()
	return err == nil
}

// BeyondRow is a design beside the paper's for the same types.
type BeyondRow struct {
	Device       string  `json:"device"`
	DType        string  `json:"dtype"`
	Design       string  `json:"design"` // family
	Tile         string  `json:"tile"`
	KMT          int     `json:"k_mt"`
	Bands        int     `json:"bands"`
	Transposed   bool    `json:"transposed,omitempty"`
	Size         string  `json:"size"` // M x N x K
	Analytic     float64 `json:"analytic"`
	Gain         float64 `json:"analytic_gain"` // over the paper's design, in the same model
	Emulated     float64 `json:"emulated,omitempty"`
	EmulatedGain float64 `json:"emulated_gain,omitempty"`
	Published    string  `json:"published,omitempty"` // on silicon, in words with the source
	Label        string  `json:"label"`

	design, base   Design
	size, baseSize Size
}

// publishedBeyond is what is published on silicon for a technique, by other work than the paper.
func publishedBeyond(d Design) string {
	switch {
	case d.Device != "xdna2":
		return ""
	case d.Types.B == kernel.BFP16:
		return "24.3 (Strix), 27.3 (Krackan) TFLOPS with bands, 4096x4096x2048 (arXiv 2511.16041)"
	case d.ResidentB:
		return "24 % less median time than without, another design, Strix (amd/IRON flm.GEMM)"
	}
	return ""
}

// Beyond predicts, for each device and type pair, the paper's design and the best buildable one of each family beyond it, each on its own multiple of its
// native size nearest 4K as in the paper's tables. Types with bfp16 weights are compared with bf16.
func Beyond(o TableOptions) ([]BeyondRow, error) {
	type entry struct {
		d    Design
		s    Size
		base int // index of the paper's design
	}
	var list []entry
	for _, name := range Devices {
		m := machine(name)
		for _, dt := range append(append([]string(nil), PaperTypes...), "bf16-bfp16") {
			ty, err := ParseTypes(dt)
			if err != nil {
				return nil, err
			}
			if _, ok := m.Kernels[ty]; !ok {
				continue
			}
			base := len(list)
			if r, ok := Published().row(name, dt, 1); ok {
				list = append(list, entry{r.Design(), r.Size(), base})
			} else if r, ok := Published().row(name, "bf16-bf16", 1); ok {
				for i, e := range list {
					if e.d == r.Design() {
						base = i
					}
				}
			}
			for _, f := range []string{FamilyPaper, FamilyATB, FamilyResident, FamilyATBResident, FamilyBFP16} {
				if d, tops := BestBuildable(m, ty, f, About); tops > 0 {
					list = append(list, entry{d, d.Near(About), base})
				}
			}
		}
	}
	emulated := make([]float64, len(list))
	if o.Emulate != nil {
		err := Parallel(o.Workers, len(list), o.Progress, func(i int) error {
			sec, err := o.Emulate(list[i].d, list[i].s)
			if err != nil {
				return fmt.Errorf("emulate %v on %v: %w", list[i].d, list[i].s, err)
			}
			emulated[i] = list[i].s.Ops() / sec / 1e12
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	analytic := func(e entry) float64 { return machine(e.d.Device).Predict(e.d, e.s).TOPS }
	var rows []BeyondRow
	for i, e := range list {
		row := BeyondRow{Device: e.d.Device, DType: e.d.Types.String(), Design: e.d.Family(), Tile: e.d.Tile.String(), KMT: e.d.KMT, Bands: e.d.bands(), Transposed: e.d.Transposed, Size: e.s.String(),
			Analytic: analytic(e), Gain: analytic(e) / analytic(list[e.base]), Label: "predicted", Published: publishedBeyond(e.d)}
		row.design, row.size, row.base, row.baseSize = e.d, e.s, list[e.base].d, list[e.base].s
		if i == e.base {
			r, _ := Published().row(e.d.Device, e.d.Types.String(), 1)
			row.Design, row.Published = "published", fmt.Sprintf("%.2f TOPS (arXiv 2512.13282)", r.TOPS)
		}
		if o.Emulate != nil {
			row.Emulated, row.EmulatedGain = emulated[i], emulated[i]/emulated[e.base]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// BestBuildable is [BestNear] among the designs that can be built and whose resident B, if any, does stay. It tries candidates in falling order of
// their predicted rate.
func BestBuildable(m *Machine, ty Types, family string, side int) (Design, float64) {
	type scored struct {
		d    Design
		tops float64
	}
	var list []scored
	for _, d := range m.Candidates(ty, family) {
		if s := d.Near(side); !d.ResidentB || d.Stays(s.K) {
			list = append(list, scored{d, m.Predict(d, s).TOPS})
		}
	}
	for len(list) > 0 {
		best := 0
		for i := range list {
			if list[i].tops > list[best].tops {
				best = i
			}
		}
		if Buildable(list[best].d) {
			return list[best].d, list[best].tops
		}
		list[best] = list[len(list)-1]
		list = list[:len(list)-1]
	}
	return Design{}, 0
}
