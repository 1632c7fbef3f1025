package plan

import (
	"fmt"
	"math"
)

// Fit is one fitted parameter and the published points that it comes from.
type Fit struct {
	Device    string  `json:"device"`
	Parameter string  `json:"parameter"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit,omitempty"`
	From      string  `json:"from"`
}

// Every fitted parameter follows from one named point of the first-ranked rows:
//
//   - Extra of a type pair from the measured TOPS of its first-ranked row, whose steady state the model explains by arithmetic;
//   - DRAM of a device is the least bandwidth at which none of its four first-ranked rows is held up by its own traffic: the paper's criterion for
//     them is that both times meet. The row that decides is bf16 on both;
//   - RunHalf, one for both devices, from the XDNA bf16 tile run with k_mt = k_ct = 56 (1.27 TOPS);
//   - RowShare of a device from the gain of a column-major over a row-major B on int8-int8.
//
// MACs of the emulated bf16 kernel on XDNA2 follows from the two kernel rates of table 1 and the first-ranked row (two equations, P and a).

// Refit derives all fitted parameters of both machines from the published points, starting from the architecture's constants only.
func Refit() (map[string]*Machine, error) {
	p := Published()
	ms := make(map[string]*Machine)
	for _, name := range Devices {
		m := machine(name).Clone()
		m.DRAM, m.RunHalf, m.RowShare = p.Microbench[name]*1e9, 300, 1
		ms[name] = m
	}

	// The emulated bf16 kernel: cycles = m k n / P + a m n at the two published rates.
	bf, _ := ParseTypes("bf16-bf16")
	one, ok1 := p.single("xdna2", "bf16-bf16")
	first, ok2 := p.row("xdna2", "bf16-bf16", 1)
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("plan: points.json lacks the bf16 rows of xdna2")
	}
	mn1, mn2 := float64(one.MCT*one.NCT), float64(first.MCT*first.NCT)
	mkn1, mkn2 := mn1*float64(one.KCT), mn2*float64(first.KCT)
	c1, c2 := mkn1/one.MACs, mkn2/first.MACs
	k := ms["xdna2"].Kernels[bf]
	k.MACs = (mkn2 - mkn1*mn2/mn1) / (c2 - c1*mn2/mn1)
	ms["xdna2"].Kernels[bf] = k

	for range 60 { // the fits depend on each other weakly; this settles to the last digit
		for _, name := range Devices {
			m := ms[name]
			need := 0.0
			for _, dt := range PaperTypes {
				r, ok := p.row(name, dt, 1)
				if !ok {
					return nil, fmt.Errorf("plan: points.json lacks the first-ranked row of %s %s", name, dt)
				}
				d := r.Design()
				pr := m.Predict(d, r.Size())
				steady := r.Size().Ops()/(r.TOPS*1e12) - m.Dispatch - pr.Fill - pr.Tail
				kn := m.Kernels[d.Types]
				chunks := pr.Compute * m.Clock / tileCycles(m, d, r.Size()) * float64(r.K/r.KCT) // chunks of the whole product
				kn.Extra += (steady - pr.Compute) * m.Clock / chunks / float64(r.MCT*r.NCT)
				m.Kernels[d.Types] = kn
				need = max(need, pr.Read/steady)
			}
			m.DRAM *= need
		}
		// Short runs.
		d, s, tops, err := shortRunPoint()
		if err != nil {
			return nil, err
		}
		m := ms["xdna"]
		half := bisect(10, 2000, func(v float64) float64 {
			m.RunHalf = v
			return tops - m.Predict(d, s).TOPS
		})
		for _, name := range Devices {
			ms[name].RunHalf = half
		}
	}
	for _, name := range Devices {
		m := ms[name]
		want := p.ColumnGain[name]["int8-int8"]
		m.RowShare = bisect(0.01, 50, func(v float64) float64 {
			m.RowShare = v
			g, _ := m.ColumnGain("int8-int8")
			return g - want
		})
	}
	return ms, nil
}

// tileCycles is the time of one output tile in a core.
func tileCycles(m *Machine, d Design, s Size) float64 {
	cBytes := float64(d.Tile.M*d.Tile.N) * width(d.Types.C)
	return float64(d.Pad(s).K/d.Tile.K)*m.ChunkCycles(d) + cBytes/m.StoreBytes + cBytes/m.StreamRate
}

// shortRunPoint is the published product with k_mt = k_ct: XDNA, bf16, 96x56x96, 4224x4032x4224 at 1.27 TOPS.
func shortRunPoint() (Design, Size, float64, error) {
	r, ok := Published().row("xdna", "bf16-bf16", 1)
	if !ok {
		return Design{}, Size{}, 0, fmt.Errorf("plan: points.json lacks the first-ranked bf16 row of xdna")
	}
	d := r.Design()
	d.KMT = d.Tile.K
	return d, r.Size(), 1.27, nil
}

// ColumnGain is the gain in percent of a column-major over a row-major B, each averaged over the same sweep, with the paper's tile.
func (m *Machine) ColumnGain(dtype string) (float64, error) {
	r, ok := Published().row(m.Name, dtype, 1)
	if !ok {
		return 0, fmt.Errorf("no published design for %s %s", m.Name, dtype)
	}
	return gain(r.Design(), SweepPoints, func(d Design, s Size) float64 { return m.Predict(d, s).TOPS }), nil
}

// bisect finds where a rising f crosses zero.
func bisect(lo, hi float64, f func(float64) float64) float64 {
	for range 100 {
		mid := math.Sqrt(lo * hi)
		if f(mid) > 0 {
			hi = mid
		} else {
			lo = mid
		}
	}
	v := math.Sqrt(lo * hi)
	f(v)
	return v
}
