package aiecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// planResult is the JSON document of `aie plan`.
type planResult struct {
	Device  string         `json:"device"`
	DType   string         `json:"dtype"`
	Out     string         `json:"out"`
	Design  string         `json:"design"`
	Size    map[string]int `json:"size"`
	Kernel  string         `json:"kernel"`
	Budget  budgetResult   `json:"registers"`
	Tiles   int            `json:"tiles"`
	Plan    blocking       `json:"plan"`
	Local   plan.Buffers   `json:"local"`
	FPGA    int64          `json:"fpga_bytes"`
	HasFPGA int64          `json:"fpga_bytes_have"`
	Padded  map[string]int `json:"padded"`
	Useful  float64        `json:"useful_percent"`
	TOPS    float64        `json:"predicted_tops"`
	Cycles  float64        `json:"cycles"`
	MACs    float64        `json:"macs_per_cycle"`
	Percent float64        `json:"efficiency_percent"`
	Bytes   plan.Bytes     `json:"bytes"`
	Bound   string         `json:"bound"`
	Reasons []string       `json:"reasons"`
	Search  map[string]int `json:"searched"`
}

type budgetResult struct {
	Accumulators       int     `json:"accumulators"`
	AccumulatorPercent float64 `json:"accumulator_percent"`
	VectorBits         int     `json:"vector_bits"`
	VectorPercent      float64 `json:"vector_percent"`
	SpillBits          int     `json:"spill_bits"`
}

func planCommand() *cobra.Command {
	var f flags
	var svg string
	cmd := &cobra.Command{
		Use:     "plan --size MxNxK",
		Example: "  tessera aie plan --size 512x768x1000 --dtype int16 --svg plan.svg",
		Short:   "Find grid and blocking for a product and say why",
		Args:    cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sizes, plans, err := f.plans()
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			if svg != "" {
				if len(plans) != 1 {
					return cli.Usagef("--svg draws one plan; --size %q has %d", f.size, len(plans))
				}
				if err := cli.WriteFile(svg, plans[0].WriteSVG); err != nil {
					return err
				}
			}
			for i, p := range plans {
				pr := p.Predict()
				b := p.Kernel.Budget()
				m, n, k := p.Padded()
				r := planResult{Device: p.Device.Name, DType: p.Type.String(), Out: p.Out.String(), Design: p.Design.String(), Size: sizeOf(sizes[i]), Kernel: p.Kernel.String(),
					Budget: budgetResult{b.Accs, b.AccPercent(), b.VectorBits, b.VectorPercent(), b.SpillBits}, Tiles: p.Tiles, Plan: blockingOf(p), Local: p.Local,
					FPGA: p.FPGABytes, HasFPGA: p.Device.FPGABytes(), Padded: map[string]int{"m": n, "n": m, "k": k}, Useful: 100 * p.Useful(), TOPS: pr.TOPS, Cycles: pr.Cycles, MACs: pr.MACsPerCycle, Percent: pr.Efficiency, Bytes: pr.Bytes, Bound: pr.Bound, Reasons: p.Reasons,
					Search: map[string]int{"candidates": p.Considered, "fit": p.Searched}}
				if f.json {
					if err := cli.PrintJSON(w, r); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(w, "%s %v %v design=%v on %s, micro-kernel %v (%.0f %% of the accumulators, %.0f %% of the vector registers)\n", sizes[i], p.Type, p.Device.Name, p.Design,
					cli.Count(p.Tiles, "tile"), p.Kernel, b.AccPercent(), b.VectorPercent())
				for _, why := range p.Reasons {
					fmt.Fprintf(w, "  - %s\n", why)
				}
				fmt.Fprintf(w, "  local memory %d of %d bytes, FPGA RAM %d of %d bytes, %.1f %% of the arithmetic is useful\n", p.Local.Bytes, p.Device.Core.MemoryBytes, p.FPGABytes,
					p.Device.FPGABytes(), 100*p.Useful())
				fmt.Fprintf(w, "  predicted %.3f ms, %.2f TOPS, %.1f %% of the tiles' peak, bound by %s\n", 1e3*pr.Seconds, pr.TOPS, pr.Efficiency, pr.Bound)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&svg, "svg", "", "draw the plan to `FILE`")
	return cmd
}
