package aiecmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

func traceCommand() *cobra.Command {
	var f flags
	var output string
	cmd := &cobra.Command{
		Use:     "trace --size MxNxK -o FILE",
		Example: "  tessera aie trace --size 128x128x128 -o timeline.json",
		Short:   "Write the timeline of a product: Chrome trace format (Perfetto opens it), or SVG",
		Args:    cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "" {
				return cli.Usagef("--output is missing: the name of a .json or .svg file is right")
			}
			s, p, err := f.one()
			if err != nil {
				return err
			}
			pr, err := array.Build(p)
			if err != nil {
				return err
			}
			var tr array.Trace
			rep, err := array.Run(cmd.Context(), pr, array.Operands{}, array.Options{TimingOnly: true, Trace: &tr})
			if err != nil {
				return err
			}
			err = cli.WriteFile(output, func(w io.Writer) error {
				if strings.HasSuffix(output, ".svg") {
					return tr.WriteSVG(w, p.Device.ClockHz)
				}
				return tr.WriteChrome(w, p.Device.ClockHz)
			})
			if err != nil {
				return err
			}
			if f.json {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"file": output, "spans": tr.Spans(), "cut": tr.Cut, "cycles": rep.Cycles, "macs_per_cycle": rep.MACsPerCycle,
					"efficiency_percent": rep.Efficiency, "bytes": rep.Bytes, "bound": rep.Bound, "simulated_seconds": rep.Seconds})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d spans over %.0f simulated cycles of %s\n", output, tr.Spans(), rep.Cycles, s)
			if tr.Cut {
				fmt.Fprintln(cmd.ErrOrStderr(), "the timeline is cut: only its beginning was kept")
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write, .json or .svg")
	return cmd
}
