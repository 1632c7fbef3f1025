package plan

import (
	_ "embed"
	"encoding/json"
	"sync"
)

// points.json is the transcript of every figure that arXiv 2512.13282 publishes (tables 1 to 3 and the text of section 6), made from a
// Chinese translation of the paper. Sizes are M, K, N by name.
//
//go:embed points.json
var pointsJSON []byte

// Point is a row of the paper's tables. Rows of table 1 (one core) have no k_mt, no size and no measured TOPS.
type Point struct {
	Device      string  `json:"device"`
	In          string  `json:"in"`
	Out         string  `json:"out"`
	MCT         int     `json:"m_ct"`
	KCT         int     `json:"k_ct"`
	NCT         int     `json:"n_ct"`
	KMT         int     `json:"k_mt"`
	MACs        float64 `json:"macs_per_cycle"` // of one core, profiled with the trace unit
	L1KB        float64 `json:"l1_kb"`
	L2TotalKB   float64 `json:"l2_total_kb"`
	PeakCompute float64 `json:"peak_compute_tops"`
	M           int     `json:"M"`
	K           int     `json:"K"`
	N           int     `json:"N"`
	TOPS        float64 `json:"measured_tops"`
	Rank        int     `json:"rank"`         // 1 = the paper's choice, 2 = its runner-up
	KMTDerived  bool    `json:"k_mt_derived"` // k_mt is not printed; it follows from the printed L2 total
}

// DType names the type pair of the point, input-output.
func (p Point) DType() string { return p.In + "-" + p.Out }

// Tile is the tile of the point.
func (p Point) Tile() Tile { return Tile{p.MCT, p.KCT, p.NCT} }

// Size is the problem of the point.
func (p Point) Size() Size { return Size{M: p.M, N: p.N, K: p.K} }

// Design is the paper's design for the point: B column-major, one C buffer, overlapped schedule.
func (p Point) Design() Design {
	t, _ := ParseTypes(p.DType())
	return Design{Device: p.Device, Types: t, Tile: p.Tile(), KMT: p.KMT}
}

// Paper is what the paper publishes, as far as this package compares itself with it.
type Paper struct {
	Source     string                        `json:"source"`
	Clocks     map[string]float64            `json:"clocks_ghz"`
	Reconfig   map[string]float64            `json:"reconfiguration_ms"`
	SingleCore []Point                       `json:"single_core"`
	WholeArray []Point                       `json:"whole_array"`
	SweepMax   map[string]map[string]float64 `json:"sweep_max_tops"`
	ColumnGain map[string]map[string]float64 `json:"column_major_gain_over_row_major_percent"`
	NativeSize map[string][3]int             `json:"native_size"` // M, K, N
	Microbench map[string]float64            `json:"dram_gb_per_s_microbenchmark"`
	Array      map[string][2]int             `json:"array"` // rows, columns
}

// Published returns the paper's figures. The result is shared and must not be changed.
func Published() *Paper { return published() }

var published = sync.OnceValue(func() *Paper {
	p := new(Paper)
	if err := json.Unmarshal(pointsJSON, p); err != nil {
		panic("plan: embedded points.json: " + err.Error())
	}
	return p
})

// single returns the table 1 row of a device and type pair.
func (p *Paper) single(device, dtype string) (Point, bool) {
	for _, r := range p.SingleCore {
		if r.Device == device && r.DType() == dtype {
			return r, true
		}
	}
	return Point{}, false
}

// row returns the row of tables 2 and 3 with that rank.
func (p *Paper) row(device, dtype string, rank int) (Point, bool) {
	for _, r := range p.WholeArray {
		if r.Device == device && r.DType() == dtype && r.Rank == rank {
			return r, true
		}
	}
	return Point{}, false
}
