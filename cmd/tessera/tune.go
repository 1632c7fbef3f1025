package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/cpu/tune"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/knob"
)

// tuneResult is the JSON document of tune.
type tuneResult struct {
	File      string         `json:"file"` // empty where nothing was written
	Processor string         `json:"processor"`
	Knobs     map[string]int `json:"knobs"`
	Choices   []tune.Choice  `json:"choices"`
	Seconds   float64        `json:"seconds"`
}

func tuneCommand() *cobra.Command {
	var (
		o      cli.Options
		file   string
		names  []string
		rounds int
		margin float64
		dry    bool
		list   bool
	)
	cmd := &cobra.Command{
		Use:   "tune [-o FILE]",
		Short: "Measure the thresholds of the product engine on this processor and write a profile",
		Long: `Measures the thresholds that decide how products are computed, one after another, and writes the best values to the
profile that every later run loads: profile.json in the folder tessera of your configuration folder, or the file that TESSERA_PROFILE
names. A profile holds the values of several processors. The environment overrides it: a threshold whose variable is set is not
measured. docs/knobs.md says which others are not, and why. Results of products do not depend on thresholds, apart from the last place
where a format says so. It takes a minute or two; let nothing else run meanwhile.`,
		Example: "  tessera tune\n  tessera tune --dry-run --knob kc-max,b-pack-rows\n  tessera tune --list",
		Args:    cli.NoArgs("a threshold follows --knob"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				return listKnobs(cmd.OutOrStdout(), o.JSON)
			}
			if rounds < 1 || rounds > 1000 || !(margin >= 0 && margin < 1) {
				return cli.Usagef("--runs %d, --margin %g: 1 to 1000 runs and a margin from 0 to below 1 are right", rounds, margin)
			}
			if err := o.CheckThreads(); err != nil {
				return err
			}
			workers := o.Threads
			if workers == 0 {
				workers = runtime.GOMAXPROCS(0)
			}
			steps := tune.Steps(workers)
			if len(names) > 0 {
				var unknown []string
				if steps, unknown = tune.Select(steps, names); len(unknown) > 0 {
					if reason, ok := tune.Unmeasured()[unknown[0]]; ok {
						return cli.Usagef("--knob %s is not measured: %s", unknown[0], reason)
					}
					return cli.Usagef("--knob %s: not among those that are measured: %s", strings.Join(unknown, ","), strings.Join(measured(workers), ", "))
				}
			}
			ours := false // the file of the library, which may be replaced when it is broken
			if file == "" {
				var asked bool
				file, asked = knob.Path()
				ours = !asked
			}
			// The file that TESSERA_PROFILE names is made here at first. For every other program that it is not there is an error.
			if path, asked := knob.Path(); asked && path != "" {
				if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
					if err := os.Setenv("TESSERA_PROFILE", "none"); err != nil {
						return err
					}
				}
			}
			if file == "" && !dry {
				return cli.Usagef("there is no folder to write the profile to: name a file by -o, or let --dry-run write nothing")
			}
			if !dry && !ours { // before time is spent
				if _, err := knob.ReadProfile(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			r, err := runTune(cmd, steps, workers, rounds, margin)
			if err != nil {
				return err
			}
			if !dry {
				r.File = file
				t := knob.Tuned{Processor: r.Processor, Measured: time.Now().UTC().Format(time.RFC3339), Knobs: r.Knobs}
				if err := knob.WriteProfile(file, t, ours); err != nil {
					return err
				}
			}
			if o.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			return printTune(cmd.OutOrStdout(), r)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "profile to write to `FILE` instead")
	f.StringSliceVar(&names, "knob", nil, "measure only these thresholds (the profile then holds only these)")
	f.IntVar(&rounds, "runs", 15, "measurements of each value and product")
	f.Float64Var(&margin, "margin", 0.02, "share of the time that a value must save to replace the one before")
	f.BoolVar(&dry, "dry-run", false, "measure and print, and write nothing")
	f.BoolVar(&list, "list", false, "print all thresholds, what they are now and why, and measure nothing")
	o.AddThreads(cmd)
	return cmd
}

// measured returns the names of the thresholds that tune measures.
func measured(workers int) []string {
	var names []string
	for _, s := range tune.Steps(workers) {
		names = append(names, s.Knob)
	}
	return names
}

// newMeasurer is replaced by tests.
var newMeasurer = func(workers int) (tune.Measurer, io.Closer) {
	c := &tune.Clock{Workers: workers}
	return c, c
}

func runTune(cmd *cobra.Command, steps []tune.Step, workers, rounds int, margin float64) (*tuneResult, error) {
	m, closer := newMeasurer(workers)
	start := time.Now()
	bar := cli.NewProgress("tune")
	choices, err := tune.Run(cmd.Context(), m, tune.Config{Steps: steps, Rounds: rounds, Margin: margin,
		Progress: func(done, total int, _ string) { bar.Set(int64(done), int64(total)) },
		Current: func(d *knob.Def) (int, bool) {
			// What an old profile says is not what a new one starts from.
			s, err := knob.Resolve(d)
			if err == nil && s.Source == "environment" {
				return s.Value, true
			}
			return d.Default, false
		}})
	bar.Done()
	if err = errors.Join(err, closer.Close()); err != nil {
		return nil, err
	}
	return &tuneResult{Processor: knob.Processor(), Knobs: tune.Values(choices), Choices: choices, Seconds: time.Since(start).Seconds()}, nil
}

func printTune(w io.Writer, r *tuneResult) error {
	fmt.Fprintln(w, r.Processor)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "threshold\tvalue\tcompared with before")
	for _, c := range r.Choices {
		switch {
		case c.Fixed:
			fmt.Fprintf(t, "%s\t%d\tset by %s\n", c.Knob, c.Value, c.Env)
		case c.Value == c.Before:
			fmt.Fprintf(t, "%s\t%d\tas before\n", c.Knob, c.Value)
		default:
			fmt.Fprintf(t, "%s\t%d\tinstead of %d: saves %.1f %%\n", c.Knob, c.Value, c.Before, 100*c.Saved)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	written := "nothing was written"
	if r.File != "" {
		written = "written to " + r.File
	}
	_, err := fmt.Fprintf(w, "%.1f s; %s\n", r.Seconds, written)
	return err
}

// knobLine is the JSON of one threshold, a line each.
type knobLine struct {
	Name    string `json:"name"`
	Env     string `json:"env"`
	Value   int    `json:"value"`
	Source  string `json:"source"`
	Default int    `json:"default"`
	Low     int    `json:"low"`
	High    int    `json:"high"`
	Package string `json:"package"`
	Why     string `json:"why"`
}

func listKnobs(w io.Writer, asJSON bool) error {
	if err := knob.Check(); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(t, "threshold\tvalue\tfrom\twhat it decides, and why it is so")
	}
	for _, d := range knob.All() {
		s, err := knob.Resolve(d)
		if err != nil {
			return err
		}
		if asJSON {
			if err := cli.PrintJSON(w, knobLine{d.Name, d.Env, s.Value, s.Source, d.Default, d.Low, d.High, d.Room, d.Why}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", d.Name, s.Value, s.Source, d.Why)
	}
	return t.Flush()
}
