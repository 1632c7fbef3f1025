package xdnacmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// dtypeHelp lists the types that the planner models.
const dtypeHelp = "types: int8-int8, int8-int16, int8-int32, bf16-bf16, bf16-f32 (input-output); on xdna2 bf16-bfp16, bfp16-bfp16 (A-B)"

// designFlags name a planned design on the command line: by default the paper's first-ranked one for the types.
type designFlags struct {
	device, dtype, layout, design, tile, schedule string
	kmt, bands                                    int
	doubleC, serial, resident, transposed         bool

	shape *pflag.FlagSet // those that change the design
}

func (f *designFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	cli.WordVar(fl, &f.device, "device", "xdna2", "xdna or xdna2")
	cli.WordVar(fl, &f.dtype, "dtype", "int8-int16", dtypeHelp)
	cli.WordVar(fl, &f.layout, "layout", "col", "layout of B: col or row")
	cli.WordVar(fl, &f.design, "design", "paper", "paper: the published design; best: the planner's, beyond the paper")
	f.shape = pflag.NewFlagSet("", pflag.ContinueOnError)
	fl = f.shape
	fl.StringVar(&f.tile, "tile", "", "tile of a core, `m,k,n`; needs --kmt")
	fl.IntVar(&f.kmt, "kmt", 0, "depth of a MemTile block, a multiple of the tile's k; 0 means the design's own")
	fl.IntVar(&f.bands, "bands", 0, "bands that A arrives in (asymmetric tile buffering)")
	fl.BoolVar(&f.doubleC, "double-c", false, "two C buffers in each core")
	fl.BoolVar(&f.resident, "resident", false, "B stays in the MemTiles")
	fl.BoolVar(&f.transposed, "transposed", false, "A down the columns, B along the rows")
	fl.BoolVar(&f.serial, "serial", false, "shim descriptors rewritten one product tile at a time")
	cli.WordVar(fl, &f.schedule, "schedule", "overlapped", "of the shim's descriptors: overlapped, pingpong, serial")
	cmd.Flags().AddFlagSet(f.shape)
}

// parse returns the machine and the types that the flags name.
func (f *designFlags) parse() (*plan.Machine, plan.Types, error) {
	m, err := plan.Lookup(f.device)
	if err != nil {
		return nil, plan.Types{}, cli.Usagef("--device: %w", err)
	}
	t, err := plan.ParseTypes(f.dtype)
	if err != nil {
		return nil, plan.Types{}, cli.Usagef("--dtype: %w", err)
	}
	if _, ok := m.Kernels[t]; !ok {
		return nil, plan.Types{}, cli.Usagef("--dtype %s: %s has no model of such a kernel", f.dtype, m.Name)
	}
	if f.layout != "col" && f.layout != "row" {
		return nil, plan.Types{}, cli.Usagef("--layout %q: col or row is right", f.layout)
	}
	return m, t, nil
}

// build makes the design.
func (f *designFlags) build() (*plan.Machine, plan.Design, error) {
	m, t, err := f.parse()
	if err != nil {
		return nil, plan.Design{}, err
	}
	var d plan.Design
	switch f.design {
	case "paper":
		d = plan.Default(m, t)
	case "best":
		d, _ = plan.BestNear(m, t, plan.FamilyBest, plan.About, plan.Buildable)
	default:
		return nil, plan.Design{}, cli.Usagef("--design %q: paper or best is right", f.design)
	}
	if f.tile != "" {
		if d.Tile, err = parseTile(f.tile); err != nil {
			return nil, plan.Design{}, err
		}
		if f.kmt == 0 {
			return nil, plan.Design{}, cli.Usagef("--tile needs --kmt, a multiple of %d", d.Tile.K)
		}
		d.Bands, d.ResidentB, d.Transposed = 0, false, false
	}
	if f.kmt != 0 {
		d.KMT = f.kmt
	}
	if f.bands < 0 || f.kmt < 0 {
		return nil, plan.Design{}, cli.Usagef("--bands %d, --kmt %d: 0, for the design's own, or more is right", f.bands, f.kmt)
	}
	if f.bands != 0 {
		d.Bands = f.bands
	}
	d.RowMajorB = f.layout == "row"
	d.DoubleC = d.DoubleC || f.doubleC
	d.ResidentB = d.ResidentB || f.resident
	d.Transposed = d.Transposed || f.transposed
	switch {
	case f.serial || f.schedule == "serial":
		d.Schedule = plan.Serial
	case f.schedule == "pingpong":
		d.Schedule = plan.PingPong
	case f.schedule != "overlapped":
		return nil, plan.Design{}, cli.Usagef("--schedule %q: overlapped, pingpong or serial is right", f.schedule)
	}
	if err := d.Check(); err != nil {
		return nil, plan.Design{}, cli.Usagef("%s: %w", cli.Given(f.shape), err)
	}
	return m, d, nil
}

// parseTile reads "m,k,n", the paper's order.
func parseTile(s string) (plan.Tile, error) {
	parts := strings.Split(s, ",")
	var v [3]int
	if len(parts) != 3 {
		return plan.Tile{}, cli.Usagef("--tile %q: m,k,n is right, for example 128,72,112", s)
	}
	for i, p := range parts {
		n, err := strconv.Atoi(strings.TrimSpace(p))
		if err != nil || n < 1 {
			return plan.Tile{}, cli.Usagef("--tile %q: %q is no positive number", s, p)
		}
		v[i] = n
	}
	return plan.Tile{M: v[0], K: v[1], N: v[2]}, nil
}

// errNoSize is for commands that need --size.
var errNoSize = cli.Usagef("--size is missing: MxNxK is right, for example 1024x1024x1024")

// oneSize reads a --size flag.
func oneSize(s string) (plan.Size, error) {
	if s == "" {
		return plan.Size{}, errNoSize
	}
	list, err := cli.ParseSizes("size", s)
	if err != nil {
		return plan.Size{}, err
	}
	if len(list) != 1 {
		return plan.Size{}, cli.Usagef("--size %q: one size is right", s)
	}
	// Time grows with the transfers: more than about 40,000 cubed would take hours.
	if work := float64(list[0].M) * float64(list[0].N) * float64(list[0].K); work > 1e14 {
		return plan.Size{}, fmt.Errorf("--size %s: %.3g multiplications, at most 1e14 are emulated", s, work)
	}
	return plan.Size{M: list[0].M, N: list[0].N, K: list[0].K}, nil
}

// tileJSON and sizeJSON give tiles and sizes as documents have them.
func tileJSON(t plan.Tile) map[string]int { return map[string]int{"m": t.M, "k": t.K, "n": t.N} }
func sizeJSON(s plan.Size) map[string]int { return map[string]int{"m": s.M, "n": s.N, "k": s.K} }

// designJSON is a design in JSON.
func designJSON(d plan.Design) map[string]any {
	out := map[string]any{"tile": tileJSON(d.Tile), "k_mt": d.KMT, "design": d.Family(), "dtype": d.Types.String(), "device": d.Device}
	if d.Bands > 1 {
		out["bands"] = d.Bands
	}
	if d.ResidentB {
		out["resident_b"] = true
	}
	if d.Transposed {
		out["transposed"] = true
	}
	return out
}

// describeDesign is a design in words.
func describeDesign(d plan.Design) string {
	return fmt.Sprintf("%s, native size %v (M x N x K)", d, d.Native())
}
