package aiecmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// predictResult is the JSON document of `aie predict`.
type predictResult struct {
	Device string         `json:"device"`
	DType  string         `json:"dtype"`
	Out    string         `json:"out"`
	Design string         `json:"design"`
	Size   map[string]int `json:"size"`
	Tiles  int            `json:"tiles"`
	Clock  float64        `json:"clock_ghz"`
	plan.Prediction
	AnalyticTOPS float64        `json:"analytic_tops"`
	Emulated     *array.Report  `json:"emulated,omitempty"`
	EmulatedTOPS float64        `json:"emulated_tops,omitempty"`
	Padded       map[string]int `json:"padded"`
	Useful       float64        `json:"useful_percent"`
	Plan         blocking       `json:"plan"`
	Paper        *comparison    `json:"against_paper,omitempty"`
}

// comparison sets the best design beside the paper's on the same product, as fast as the seed's one tile runs it.
type comparison struct {
	Cycles  float64 `json:"paper_cycles"`
	Speedup float64 `json:"speedup"`
}

// kernelResult is the JSON document of `aie predict --kernel`.
type kernelResult struct {
	Kernel       string       `json:"kernel"`
	KC           int          `json:"k_c"`
	Cycles       int          `json:"cycles"`
	MACsPerCycle float64      `json:"macs_per_cycle"`
	Efficiency   float64      `json:"efficiency_percent"`
	CopyCycles   float64      `json:"b_r_copy_cycles"`
	Registers    budgetResult `json:"registers"`
}

// emulatedSteps is the number of block kernels or micro-kernels up to which predict runs the clock of the emulator without being asked.
const emulatedSteps = 400_000

func predictCommand() *cobra.Command {
	var f flags
	var emulate bool
	var kernel string
	cmd := &cobra.Command{
		Use:     "predict --size MxNxK",
		Example: "  tessera aie predict --size 65536x4096x4096 --dtype int8 --out s8\n  tessera aie predict --kernel 16x4 --kc 256",
		Short:   "Predict the time of a product, and what bounds it",
		Long: `Predict gives the closed-form model's time of a product and, for products that are not too large, that of the emulated array's clock, with
every limit: what the product asks of it and what it gives. Everything is predicted; no board is used.

With --kernel 16x4 (or 32x4) it gives the cycles of the seed's micro-kernel alone at --kc.`,
		Args: cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			if kernel != "" {
				r, err := f.kernel(kernel)
				if err != nil {
					return err
				}
				if f.json {
					return cli.PrintJSON(w, r)
				}
				fmt.Fprintf(w, "%s at k_c = %d: %d cycles, %.1f MACs a cycle, %.1f %% of the peak; copy of B_r %.0f cycles; %d accumulators (%.0f %%), %d vector bits (%.0f %%)\n",
					r.Kernel, r.KC, r.Cycles, r.MACsPerCycle, r.Efficiency, r.CopyCycles, r.Registers.Accumulators, r.Registers.AccumulatorPercent, r.Registers.VectorBits, r.Registers.VectorPercent)
				return nil
			}
			sizes, plans, err := f.plans()
			if err != nil {
				return err
			}
			for i, p := range plans {
				r, err := f.predict(cmd.Context(), sizes[i], p, emulate)
				if err != nil {
					return err
				}
				if f.json {
					if err := cli.PrintJSON(w, r); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(w, "%s %v design=%v, %s: predicted %.0f cycles, %.3f ms, %.3f TOPS, %.2f MACs a cycle and tile (%.1f %% of the peak of the tiles, %.1f %% of the array's)\n", sizes[i], p.Type, p.Design,
					cli.Count(p.Tiles, "tile"), r.Cycles, 1e3*r.Seconds, r.TOPS, r.PerTile, r.Efficiency, r.PeakPercent)
				fmt.Fprintf(w, "  without the limit of DDR %.3f TOPS (%.1f %% of the array's peak), DDR alone allows %.3f TOPS; bound by %s\n", r.ArrayTOPS, r.ArrayPercent, r.DDRTOPS, r.Bound)
				if r.Emulated != nil {
					fmt.Fprintf(w, "  emulated clock: %.0f cycles, %.3f TOPS, bound by %s\n", r.Emulated.Cycles, r.Emulated.TOPS, r.Emulated.Bound)
				}
				if r.Paper != nil {
					fmt.Fprintf(w, "  the paper's design on one tile: %.0f cycles, %.2f times as long\n", r.Paper.Cycles, r.Paper.Speedup)
				}
				printLimits(w, &r.Prediction)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&emulate, "emulate", false, "run the emulator's clock however long it takes")
	cli.WordVar(cmd.Flags(), &kernel, "kernel", "", "the micro-kernel alone: 16x4, 32x4, or the type's own with \"auto\"")
	return cmd
}

func (f *flags) kernel(name string) (*kernelResult, error) {
	typ, err := core.ParseType(f.dtype)
	if err != nil {
		return nil, cli.Usagef("--dtype: %w", err)
	}
	k := core.KernelFor(typ)
	switch {
	case name == "auto" || name == fmt.Sprintf("%dx%d", k.MR, k.NR):
	case name == "32x4" && typ == core.Int16:
		k = core.KernelInt16Wide
	default:
		return nil, cli.Usagef("--kernel %s: %dx%d, auto or (int16) 32x4 is right", name, k.MR, k.NR)
	}
	kc := f.kc
	if kc == 0 {
		kc = 290
	}
	if kc < 1 || kc > 1<<20 {
		return nil, cli.Usagef("--kc %d: 1 to %d is right", kc, 1<<20)
	}
	out := 2
	if typ != core.Int16 {
		out = 4
	}
	c := k.Streamed(kc, true, out)
	macs := float64(k.MR * k.NR * kc)
	b := k.Budget()
	return &kernelResult{Kernel: k.String(), KC: kc, Cycles: c, MACsPerCycle: macs / float64(c), Efficiency: 100 * typ.Efficiency(macs, float64(c)),
		CopyCycles: plan.CopyCyclesPerByte * float64(kc*k.NR*typ.Bytes()),
		Registers:  budgetResult{b.Accs, b.AccPercent(), b.VectorBits, b.VectorPercent(), b.SpillBits}}, nil
}

func (f *flags) predict(ctx context.Context, s cli.Size, p *plan.Plan, emulate bool) (*predictResult, error) {
	m, n, k := p.Padded()
	r := &predictResult{Device: p.Device.Name, DType: p.Type.String(), Out: p.Out.String(), Design: p.Design.String(), Size: sizeOf(s), Tiles: p.Tiles, Clock: p.Device.ClockHz / 1e9,
		Prediction: p.Predict(), Padded: map[string]int{"m": n, "n": m, "k": k}, Useful: 100 * p.Useful(), Plan: blockingOf(p)}
	r.AnalyticTOPS = r.TOPS
	if emulate || kernels(p) <= emulatedSteps {
		pr, err := array.Build(p)
		if err != nil {
			return nil, err
		}
		if r.Emulated, err = array.Run(ctx, pr, array.Operands{}, array.Options{TimingOnly: true}); err != nil {
			return nil, err
		}
		r.EmulatedTOPS = r.Emulated.TOPS
	}
	if p.Design == plan.Best && p.Tiles == 1 {
		g := *f
		g.design, g.kc, g.rows, g.chain, g.groups, g.tiles = "paper", 0, 0, 0, 0, 1
		if q, err := g.plan(s); err == nil {
			c := q.Predict().Cycles
			r.Paper = &comparison{c, c / r.Cycles}
		}
	}
	return r, nil
}

// kernels is the number of kernel calls of a plan.
func kernels(p *plan.Plan) int {
	m, n, k := p.Padded()
	if p.Design == plan.Paper {
		return (m / p.Kernel.MR) * (n / p.Kernel.NR) * ((k + p.KC - 1) / p.KC)
	}
	return p.Passes() * p.Steps * p.Tiles
}
