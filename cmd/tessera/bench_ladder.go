package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/cpu/gemm/ladder"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// ladderLine is the JSON document of bench ladder, a line a stage.
type ladderLine struct {
	Stage      int     `json:"stage"`
	Name       string  `json:"name"`
	Kernels    string  `json:"kernels"`
	M          int     `json:"m"`
	N          int     `json:"n"`
	K          int     `json:"k"`
	Seconds    float64 `json:"seconds"` // the median
	SecondsMin float64 `json:"seconds_min"`
	GFLOPS     float64 `json:"gflops"`  // at the median
	Speedup    float64 `json:"speedup"` // ratio of the medians
	PacksA     int     `json:"packs_a"`
	PacksB     int     `json:"packs_b"`
	Workspace  int     `json:"workspace_bytes"`
}

func benchLadderCommand() *cobra.Command {
	var (
		o       cli.Options
		size    string
		stages  []string
		rounds  int
		seconds float64
		seed    uint64
	)
	cmd := &cobra.Command{
		Use:   "ladder --size MxNxK [--stage S]",
		Short: "Measure the steps from three plain loops to the product engine",
		Long: `Measures C = A B in f32, all column-major, by seven stages that each add one idea: naive, unrolled, simd128 (128-bit
vectors), simd (the widest vectors), packed, tiled (packed by tiles that caches hold), engine. All run on one thread unless
--threads gives the last one more; they are measured alternately, and each is verified against the first.`,
		Example: "  tessera bench ladder --size 512x512x512\n  tessera bench ladder --stage tiled,engine --json",
		Args:    cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sizes, err := cli.ParseSizes("size", size)
			if err != nil {
				return err
			}
			chosen := ladder.Stages()
			if len(stages) > 0 {
				chosen = chosen[:0]
				for _, text := range stages {
					s, err := ladder.ParseStage(text)
					if err != nil {
						return cli.Usagef("--stage: %w", err)
					}
					chosen = append(chosen, s)
				}
			}
			if rounds < 1 || rounds > 1<<20 || !(seconds >= 0 && seconds <= 3600) {
				return cli.Usagef("--runs %d, --seconds %g: at least one run and 0 to 3600 seconds are right", rounds, seconds)
			}
			if err := o.CheckThreads(); err != nil {
				return err
			}
			for _, s := range sizes {
				if err := s.CheckMemory(); err != nil {
					return err
				}
				l, err := ladder.New(cmd.Context(), s.M, s.N, s.K, max(o.Threads, 1), seed)
				if err != nil {
					return err
				}
				effort := ladder.Effort{Rounds: rounds, Time: time.Duration(seconds * float64(time.Second))}
				bar := cli.NewProgress("ladder " + s.String())
				results, err := l.Measure(cmd.Context(), chosen, effort, func(done, total int) { bar.Set(int64(done), int64(total)) })
				bar.Done()
				if err = errors.Join(err, l.Close()); err != nil {
					return err
				}
				if err := printLadder(cmd, s, results, o.JSON); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&size, "size", "512x512x512", "the products, `MxNxK[,...]`")
	f.StringSliceVar(&stages, "stage", nil, "only these stages: 1 to 7, or their names (the first is always measured with them)")
	f.IntVar(&rounds, "runs", 5, "rounds over all stages")
	f.Float64Var(&seconds, "seconds", 0.5, "least time for each stage")
	f.Uint64Var(&seed, "seed", 1, "seed of the operands")
	o.AddThreads(cmd)
	f.Lookup("threads").Usage = "workers of the last stage; 0 means one"
	return cmd
}

func printLadder(cmd *cobra.Command, s cli.Size, results []ladder.Result, asJSON bool) error {
	if asJSON {
		for _, r := range results {
			line := ladderLine{Stage: int(r.Stage), Name: r.Stage.String(), Kernels: r.Kernels, M: s.M, N: s.N, K: s.K,
				Seconds: r.Median.Seconds(), SecondsMin: r.Min.Seconds(), GFLOPS: r.GFLOPS, Speedup: r.Speedup, PacksA: r.PacksA, PacksB: r.PacksB, Workspace: r.WorkspaceBytes}
			if err := cli.PrintJSON(cmd.OutOrStdout(), line); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(cmd.OutOrStdout(), "C = A B in f32, %v (M x N x K), column-major\n", s)
	fmt.Fprintln(w, strings.Join([]string{"stage", "", "kernels", "ms", "GFLOP/s", "speedup", "packs of A", "of B", "workspace"}, "\t")+"\t")
	for _, r := range results {
		fmt.Fprintf(w, "%d\t%v\t%s\t%.3f\t%.2f\t%.1f\t%d\t%d\t%s\t\n", int(r.Stage), r.Stage, r.Kernels, r.Median.Seconds()*1e3, r.GFLOPS,
			r.Speedup, r.PacksA, r.PacksB, cli.FormatBytes(int64(r.WorkspaceBytes)))
	}
	return w.Flush()
}
