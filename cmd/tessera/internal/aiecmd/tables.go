package aiecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// point is a published figure beside ours: a line of `aie tables`.
type point struct {
	Table     string   `json:"table"`
	Device    string   `json:"device"`
	DType     string   `json:"dtype"`
	Out       string   `json:"out,omitempty"` // type of the results, where it is not the one that the type has by itself
	Tile      string   `json:"tile"`
	Size      string   `json:"size"`
	Unit      string   `json:"unit"`
	Published float64  `json:"published"`
	Analytic  float64  `json:"analytic"`
	Emulated  *float64 `json:"emulated"` // null where the emulated clock has not run it
	Fitted    bool     `json:"fitted"`
	Error     float64  `json:"error_percent"`
	Remark    string   `json:"remark,omitempty"`
}

// arrayTOPS is the unit of rates without the limit of DDR: array_tops of `aie predict`. Plain TOPS are its analytic_tops.
const arrayTOPS = "array TOPS"

func tablesCommand() *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:     "tables",
		Example: "  tessera aie tables",
		Short:   "Every published figure beside ours",
		Long: `Tables prints every published figure for the VC1902 that this project knows, beside what the model and the emulated clock give. The seed's are
for one tile and this design; those of other works are for other designs on the same device and say what the hardware has reached. TOPS count the
limit of DDR, as the analytic figure of predict does; array TOPS leave it out, on both sides.`,
		Args: cli.NoArgs(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			points, err := tables(cmd)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if !json {
				fmt.Fprintf(w, "%-30s %-6s %-9s %-17s %-10s %10s %10s %10s %8s\n", "table", "dtype", "tile", "size", "unit", "published", "analytic", "emulated", "error")
			}
			for i := range points {
				p := &points[i]
				if json {
					if err := cli.PrintJSON(w, p); err != nil {
						return err
					}
					continue
				}
				emulated, mark := "", ""
				if p.Emulated != nil {
					emulated = fmt.Sprintf("%.2f", *p.Emulated)
				}
				if p.Fitted {
					mark = " fitted"
				}
				fmt.Fprintf(w, "%-30s %-6s %-9s %-17s %-10s %10.2f %10.2f %10s %+7.2f%%%s\n", p.Table, p.DType, p.Tile, p.Size, p.Unit, p.Published, p.Analytic, emulated, p.Error, mark)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "print one JSON document a line and nothing else")
	return cmd
}

func tables(cmd *cobra.Command) ([]point, error) {
	var out []point
	add := func(p point) {
		p.Device = device.VC1902.Name
		if p.Published != 0 {
			p.Error = 100 * (p.Analytic/p.Published - 1)
		}
		out = append(out, p)
	}
	clock := func(p *plan.Plan) (*array.Report, error) {
		pr, err := array.Build(p)
		if err != nil {
			return nil, err
		}
		return array.Run(cmd.Context(), pr, array.Operands{}, array.Options{TimingOnly: true})
	}

	// The seed, section 6.3 and figure 5: the micro-kernel.
	for _, c := range []struct {
		k      core.Kernel
		kc     int
		cycles float64
		fitted bool
	}{{core.KernelInt16, 64, 212, true}, {core.KernelInt16, 256, 596, true}, {core.KernelInt16Wide, 256, 1429, true}} {
		add(point{Table: "seed: micro-kernel", DType: "int16", Tile: fmt.Sprintf("%dx%d", c.k.MR, c.k.NR), Size: fmt.Sprintf("k_c=%d", c.kc), Unit: "cycles", Published: c.cycles,
			Analytic: float64(c.k.Streamed(c.kc, true, 2)), Fitted: c.fitted})
	}
	for _, c := range []struct {
		kc    int
		value float64
	}{{64, 60}, {128, 75.3}, {256, 85.9}, {290, 87.6}} {
		k := core.KernelInt16
		add(point{Table: "seed: efficiency", DType: "int16", Tile: "16x4", Size: fmt.Sprintf("k_c=%d", c.kc), Unit: "% of peak", Published: c.value,
			Analytic: 100 * core.Int16.Efficiency(float64(64*c.kc), float64(k.Streamed(c.kc, true, 2)))})
	}

	// Section 6.5: the copy of B_r, and the whole product against m_c.
	small, err := plan.New(&device.VC1902, plan.Problem{M: 16, N: 4, K: 290, Type: core.Int16, Out: core.S16}, plan.Options{Design: plan.Paper})
	if err != nil {
		return nil, err
	}
	add(point{Table: "seed: B_r copy", DType: "int16", Tile: "16x4", Size: "k_c=290", Unit: "cycles", Published: 8309, Analytic: small.CopyCycles(290), Fitted: true})
	rep, err := clock(small)
	if err != nil {
		return nil, err
	}
	add(point{Table: "seed: copy and one kernel", DType: "int16", Tile: "16x4", Size: "k_c=290", Unit: "cycles", Published: 8952, Analytic: small.Predict().Cycles, Emulated: &rep.Cycles})
	for _, c := range []struct {
		m, mc  int
		value  float64
		remark string
	}{
		{4096, 4096, 83.3, "87.6 less the 4 to 5 % that the seed says are lost to B_r's copies"},
		{35504, 35504, 87.6, "the asymptote of figure 6"},
	} {
		p, err := plan.New(&device.VC1902, plan.Problem{M: c.m, N: 4096, K: 290, Type: core.Int16, Out: core.S16}, plan.Options{Design: plan.Paper, MC: c.mc})
		if err != nil {
			return nil, err
		}
		x := point{Table: "seed: product", DType: "int16", Tile: "16x4", Size: fmt.Sprintf("%dx4096x290", c.m), Unit: "% of peak", Published: c.value, Analytic: p.Predict().Efficiency, Remark: c.remark}
		if c.m == 4096 {
			if rep, err = clock(p); err != nil {
				return nil, err
			}
			x.Emulated = &rep.Efficiency
		}
		add(x)
	}

	// The authors' follow-up (arXiv 2404.15043): 31.5 MACs a cycle on one tile, 29.8 on each of 32.
	scale, err := plan.Alternatives(&device.VC1902, plan.Problem{M: 4096, N: 4096, K: 4096, Type: core.Int8, Out: core.S8}, plan.Options{}, []int{1, 32})
	if err != nil {
		return nil, err
	}
	one, many := scale[0].Predict(), scale[1].Predict()
	add(point{Table: "follow-up: scaling 1 to 32", DType: "int8", Tile: "32 tiles", Size: "4096x4096x4096", Unit: "%", Published: 94.6, Analytic: 100 * one.Cycles / many.Cycles / 32})

	// Whole-array works. Their sizes are not all published; ours is a large product whose A stays in FPGA RAM. CHARM and AutoMM ran on the board, operands in
	// DDR; MaxEVA's figures are the AI Engine simulator's, which knows no DDR, and AMA's stand beside them. Each stands beside the figure of ours that is of its kind.
	for _, c := range []struct {
		name  string
		typ   core.Type
		value float64
		ddr   bool
	}{
		{"CHARM (FPGA'23)", core.FP32, 2.94, true}, {"AutoMM (DAC'23)", core.FP32, 3.7, true}, {"AutoMM (DAC'23)", core.Int16, 7.5, true}, {"AutoMM (DAC'23)", core.Int8, 28.2, true},
		{"MaxEVA (FPT'23)", core.FP32, 5.44, false}, {"MaxEVA (FPT'23)", core.Int8, 77.01, false}, {"AMA (FPL'24)", core.FP32, 5.867, false}, {"AMA (FPL'24)", core.Int8, 88.55, false},
	} {
		prob := plan.Problem{M: 4096 / c.typ.Bytes(), N: 16384, K: 4096, Type: c.typ, Out: core.S8}
		switch c.typ {
		case core.FP32:
			prob.Out = core.F32
		case core.Int16:
			prob.Out = core.S16
		}
		p, err := plan.New(&device.VC1902, prob, plan.Options{})
		if err != nil {
			return nil, err
		}
		pr := p.Predict()
		x := point{Table: c.name, DType: c.typ.String(), Out: prob.Out.String(), Tile: fmt.Sprintf("%d tiles", p.Tiles), Size: fmt.Sprintf("%dx%dx%d", prob.N, prob.M, prob.K), Published: c.value}
		if c.ddr {
			x.Unit, x.Analytic, x.Remark = "TOPS", pr.TOPS, "another design, measured on the board at 1 GHz; ours is predicted at 1.25 GHz"
		} else {
			x.Unit, x.Analytic, x.Remark = arrayTOPS, pr.ArrayTOPS, fmt.Sprintf("another design, without the limit of DDR; ours is predicted, with that limit %.1f TOPS", pr.TOPS)
		}
		add(x)
	}
	return out, nil
}
