// Package aiecmd holds the sub-commands of `tessera aie`, a file each.
package aiecmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// Commands returns `tessera aie` with its sub-commands.
func Commands() []*cobra.Command {
	cmd := &cobra.Command{
		Use:   "aie",
		Short: "Plan, predict, emulate and trace matrix products on the Versal VC1902",
		Long: `The AI Engine array of a Versal VC1902, planned, emulated and timed by a model; no board is used, and every time is simulated or predicted.

Sizes are M x N x K as everywhere in this command: M rows of activations, N output channels (columns of the weights). The paper that the design
comes from writes C = A B with A the weights, so its m is our N and its n is our M.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, f := range []func() *cobra.Command{planCommand, predictCommand, runCommand, tablesCommand, traceCommand} {
		cmd.AddCommand(f())
	}
	slices.SortFunc(cmd.Commands(), func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	return []*cobra.Command{cmd}
}

// flags that the sub-commands share.
type flags struct {
	size, dtype, out, design string
	tiles                    int
	clock                    float64
	mc, nc, kc               int
	rows, chain, groups      int
	mb, nb                   int
	streamWeights            bool
	json                     bool

	blocks *pflag.FlagSet // those that narrow the search
}

func (f *flags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.size, "size", "", "the product, `MxNxK`: rows of activations, output channels, K")
	cli.WordVar(fl, &f.dtype, "dtype", "int16", "type of the operands: int16, int8, fp32")
	cli.WordVar(fl, &f.out, "out", "", "type of the results: s32, s16, s8 (integers), f32 (default: s32, or s16 for the paper's design; f32 for fp32)")
	cli.WordVar(fl, &f.design, "design", "best", "best, or paper (the seed's five loops)")
	f.blocks = pflag.NewFlagSet("", pflag.ContinueOnError)
	fl = f.blocks
	fl.IntVar(&f.tiles, "tiles", 0, "cores at most; 0 means all (paper: one)")
	fl.Float64Var(&f.clock, "clock", 0, "clock of the array in `GHz`; 0 means 1.25")
	fl.IntVar(&f.mc, "mc", 0, "m_c of the paper: channels that use one copy of B_r (0: what the FPGA RAM holds)")
	fl.IntVar(&f.nc, "nc", 0, "n_c of the paper (0: what DDR holds)")
	fl.IntVar(&f.kc, "kc", 0, "k_c: of the paper's design (0: 290), or of a tile's block in the best one (0: the largest that fits)")
	fl.IntVar(&f.rows, "rows", 0, "rows of the grid of tiles, which share channels (0: search)")
	fl.IntVar(&f.chain, "chain", 0, "columns that share K by the cascade (0: search)")
	fl.IntVar(&f.groups, "groups", 0, "groups of columns, which share activations (0: search)")
	fl.IntVar(&f.mb, "mb", 0, "channels of a tile's block (0: search)")
	fl.IntVar(&f.nb, "nb", 0, "activation rows of a tile's block (0: search)")
	fl.BoolVar(&f.streamWeights, "stream-weights", false, "keep the weights in DDR, to see what that costs")
	cmd.Flags().AddFlagSet(f.blocks)
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON document (or one a line) and nothing else")
}

// plans plans every size of --size.
func (f *flags) plans() ([]cli.Size, []*plan.Plan, error) {
	if f.size == "" {
		return nil, nil, cli.Usagef("--size is missing: MxNxK is right, for example 1024x1024x1024")
	}
	sizes, err := cli.ParseSizes("size", f.size)
	if err != nil {
		return nil, nil, err
	}
	var out []*plan.Plan
	for _, s := range sizes {
		p, err := f.plan(s)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, p)
	}
	return sizes, out, nil
}

func (f *flags) one() (cli.Size, *plan.Plan, error) {
	sizes, plans, err := f.plans()
	if err != nil {
		return cli.Size{}, nil, err
	}
	if len(plans) != 1 {
		return cli.Size{}, nil, cli.Usagef("--size %q: one size is right here", f.size)
	}
	return sizes[0], plans[0], nil
}

func (f *flags) plan(s cli.Size) (*plan.Plan, error) {
	typ, err := core.ParseType(f.dtype)
	if err != nil {
		return nil, cli.Usagef("--dtype: %w", err)
	}
	design, err := plan.ParseDesign(f.design)
	if err != nil {
		return nil, cli.Usagef("--design: %w", err)
	}
	out := typ.Default()
	if typ == core.Int16 && design == plan.Paper {
		out = core.S16
	}
	if f.out != "" {
		if out, err = core.ParseOut(f.out); err != nil {
			return nil, cli.Usagef("--out: %w", err)
		}
	}
	if err := typ.CheckOut(out); err != nil {
		return nil, cli.Usagef("--out: %w", err)
	}
	o := plan.Options{Design: design, Tiles: f.tiles, ClockHz: f.clock * 1e9, MC: f.mc, NC: f.nc, KC: f.kc, KB: f.kc, Rows: f.rows, Chain: f.chain, Groups: f.groups,
		MB: f.mb, NB: f.nb, StreamWeights: f.streamWeights}
	p, err := plan.New(&device.VC1902, plan.Problem{M: s.N, N: s.M, K: s.K, Type: typ, Out: out}, o)
	if given := cli.Given(f.blocks); err != nil && given != "" {
		return nil, cli.Usagef("%s: %w", given, err)
	}
	return p, err
}

// sizeOf is a size in JSON.
func sizeOf(s cli.Size) map[string]int { return map[string]int{"m": s.M, "n": s.N, "k": s.K} }

// blocking is the part of a plan that says how it is laid out.
type blocking struct {
	Paper *paperBlocking `json:"paper,omitempty"`
	Best  *bestBlocking  `json:"best,omitempty"`
}

type paperBlocking struct {
	MC             int `json:"m_c"`
	KC             int `json:"k_c"`
	NC             int `json:"n_c"`
	MR             int `json:"m_r"`
	NR             int `json:"n_r"`
	Blocks         int `json:"a_c_blocks"`
	ResidentBlocks int `json:"a_c_blocks_in_fpga_ram"`
}

type bestBlocking struct {
	Rows   int    `json:"rows"`
	Groups int    `json:"groups"`
	Chain  int    `json:"chain"`
	Start  int    `json:"first_column"`
	MB     int    `json:"m_b"`
	KB     int    `json:"k_c"`
	NB     int    `json:"n_b"`
	Steps  int    `json:"steps"`
	PassM  int    `json:"passes_m"`
	PassN  int    `json:"passes_n"`
	FeedA  string `json:"a"`
	FeedB  string `json:"b"`
	PLIn   int    `json:"plio_in"`
	PLOut  int    `json:"plio_out"`
}

func blockingOf(p *plan.Plan) blocking {
	if p.Design == plan.Paper {
		return blocking{Paper: &paperBlocking{p.MC, p.KC, p.NC, p.Kernel.MR, p.Kernel.NR, p.Blocks, p.ResidentBlocks}}
	}
	in, out := p.Streams()
	return blocking{Best: &bestBlocking{p.Rows, p.Groups, p.Chain, p.Start, p.MB, p.KB, p.NB, p.Steps, p.PassM, p.PassN, p.FeedA.String(), p.FeedB.String(), in, out}}
}

func printLimits(w io.Writer, pr *plan.Prediction) {
	fmt.Fprintf(w, "  %-9s %9s %14s %14s  %s\n", "limit", "time", "asked for", "gives", "what")
	for _, l := range pr.Limits {
		mark := ""
		if l.Name == pr.Bound {
			mark = "  <- bound"
		}
		if l.Rate > 0 {
			fmt.Fprintf(w, "  %-9s %8.1f%% %9.1f GB/s %9.1f GB/s  %s%s\n", l.Name, l.Percent, l.Asked/1e9, l.Rate/1e9, l.What, mark)
		} else {
			fmt.Fprintf(w, "  %-9s %8.1f%% %14s %14s  %s%s\n", l.Name, l.Percent, "", "", l.What, mark)
		}
	}
}
