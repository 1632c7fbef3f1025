// Package cli holds what the sub-commands share: flags with the same names everywhere, opening of backends, JSON output, progress,
// and the difference between wrong usage and failure.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
)

// UsageError is a mistake in how the command was called: exit status 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// ExitCode returns the exit status for an error: 0 none, 1 failure, 2 wrong usage.
func ExitCode(err error) int {
	var usage *UsageError
	var spec *backends.SpecError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.As(err, &spec):
		return 2
	}
	return 1
}

// Args wraps an argument check of cobra so that its error counts as wrong usage. If a flag was given without the value that it may have, the
// error says how that is written: what stands behind a space is an argument.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		var hints []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if len(args) > 0 && f.Changed && f.Value.Type() != "bool" && f.NoOptDefVal != "" && f.Value.String() == f.NoOptDefVal {
				kind, _ := pflag.UnquoteUsage(f)
				hints = append(hints, fmt.Sprintf("; a value of --%s is written behind an equals sign: --%s=%s", f.Name, f.Name, kind))
			}
		})
		return Usagef("%w%s", err, strings.Join(hints, ""))
	}
}

type typedKey struct{}

// WithTyped keeps the command line as it was typed for Typed.
func WithTyped(ctx context.Context, args []string) context.Context {
	return context.WithValue(ctx, typedKey{}, args)
}

// Typed returns the command line as it was typed: which argument stands behind which flag is lost once the flags are parsed.
func Typed(ctx context.Context) []string {
	args, _ := ctx.Value(typedKey{}).([]string)
	return args
}

// NoArgs is the check of a sub-command that takes flags alone; instead names the flags that an argument may have been meant for, if there are any.
func NoArgs(instead string) cobra.PositionalArgs {
	return Args(func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if instead != "" {
			instead = ", " + instead
		}
		return fmt.Errorf("%q: %s takes flags only%s", args[0], cmd.CommandPath(), instead)
	})
}

// Count is a number of things in words: "1 token", "3 tokens".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// CountArgs is the check of a sub-command that takes from least to most arguments, or any number from least where most is -1; what names them.
func CountArgs(least, most int, what string) cobra.PositionalArgs {
	return Args(func(cmd *cobra.Command, args []string) error {
		usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
		switch n := len(args); {
		case n < least:
			return fmt.Errorf("%s missing: %s", what, usage)
		case most >= 0 && n > most:
			return fmt.Errorf("%q: an argument too many: %s", args[most], usage)
		}
		return nil
	})
}

// Given repeats the flags of a set that were given, as one types them.
func Given(flags *pflag.FlagSet) string {
	var words []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	return strings.Join(words, " ")
}

// word is the value of a flag that names one of some choices, in lower case.
type word string

func (w *word) String() string { return string(*w) }
func (w *word) Type() string   { return "string" }

func (w *word) Set(s string) error {
	*w = word(strings.ToLower(s))
	return nil
}

// WordVar adds a flag that names one of some choices. Upper and lower case are alike: Q8_0 is q8_0.
func WordVar(f *pflag.FlagSet, p *string, name, value, usage string) {
	*p = value
	f.Var((*word)(p), name, usage)
}

// Options are the flags that have the same name and meaning in every sub-command that runs a model.
type Options struct {
	Model     string
	Backend   string
	Precision string
	Mode      string
	Threads   int
	Strict    bool
	MaxMemory string
	Profile   bool
	Trace     string
	JSON      bool
	NoPasses  []string
}

// AddModel adds the flags of a sub-command that opens a model.
func (o *Options) AddModel(cmd *cobra.Command, what string) {
	f := cmd.Flags()
	f.StringVarP(&o.Model, "model", "m", "", what)
	o.AddBackend(cmd)
	f.BoolVar(&o.Strict, "strict", false, "a product that the backend refuses is an error, not a fallback to the CPU")
	f.StringVar(&o.MaxMemory, "max-memory", "", "refuse to start if more memory is needed (for example 512MiB)")
	f.StringSliceVar(&o.NoPasses, "disable-pass", nil, "passes over the graph that are left out, or all; tessera inspect --passes lists them")
}

// AddProfile adds --profile and --trace, of a sub-command that runs a model.
func (o *Options) AddProfile(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Profile, "profile", false, "print the time of each operation to standard error")
	f.StringVar(&o.Trace, "trace", "", "write a Chrome trace of the run to `FILE` (Perfetto opens it)")
}

// AddBackend adds --backend, --precision, --mode, --threads and --json.
func (o *Options) AddBackend(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Backend, "backend", "cpu", "what runs the products: "+strings.Join(backends.Names(), ", ")+", with options as `NAME[:key=value,...]`; tessera backends lists them")
	WordVar(f, &o.Precision, "precision", "", "number format of the products on an accelerator: bf16, int8, bfp16 (xdna2); int16, int8, fp32 (aie)")
	WordVar(f, &o.Mode, "mode", "", "how a simulated accelerator computes: fast or emulate")
	o.AddThreads(cmd)
}

// AddThreads adds --threads and --json.
func (o *Options) AddThreads(cmd *cobra.Command) {
	cmd.Flags().IntVar(&o.Threads, "threads", 0, "workers; 0 means all processors that Go may use")
	o.AddJSON(cmd)
}

// AddJSON adds --json.
func (o *Options) AddJSON(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.JSON, "json", false, "print one JSON document (or one a line) and nothing else")
}

// Open checks the flags, opens the backend that they name and, behind it, the CPU, and returns the options of a graph for them. closeAll
// closes the backends.
func (o *Options) Open() (g graph.Options, closeAll func(), err error) {
	if g, err = o.check(); err != nil {
		return g, nil, err
	}
	closeAll = func() {
		for _, b := range g.Backends {
			_ = b.Close()
		}
	}
	if err = o.openBackends(&g); err != nil {
		closeAll()
		return g, nil, err
	}
	return g, closeAll, nil
}

// check returns what the flags say about a graph, or an error for the first whose value is wrong, but for those of the backend.
func (o *Options) check() (g graph.Options, err error) {
	if err := o.CheckThreads(); err != nil {
		return g, err
	}
	limit, err := ParseBytes(o.MaxMemory)
	if err != nil {
		return g, Usagef("--max-memory: %w", err)
	}
	for _, name := range o.NoPasses {
		if name != "all" && !slices.Contains(graph.PassNames(), name) {
			return g, Usagef("--disable-pass %s: all, or of %s is right", name, strings.Join(graph.PassNames(), ", "))
		}
	}
	if err := CheckFiles(File{"--model", o.Model, false}, File{"--trace", o.Trace, true}); err != nil {
		return g, err
	}
	if o.Trace != "" { // what cannot be written is said before the work, not after it, and stays as it is until then
		f, err := os.OpenFile(o.Trace, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return g, err
		}
		if err := f.Close(); err != nil {
			return g, err
		}
	}
	return graph.Options{Strict: o.Strict, MaxMemory: limit, Profile: o.Profile || o.Trace != "", DisablePasses: o.NoPasses}, nil
}

// openBackends opens the backend of the flags and the CPU behind it.
func (o *Options) openBackends(g *graph.Options) error {
	threads := ""
	if o.Threads > 0 {
		threads = "threads=" + strconv.Itoa(o.Threads)
	}
	name, _, _ := strings.Cut(o.Backend, ":")
	given := "--backend " + o.Backend
	var overrides []string
	if o.Precision != "" && name != "cpu" {
		overrides = append(overrides, "precision="+o.Precision)
		given += " --precision " + o.Precision
	}
	if o.Mode != "" {
		overrides = append(overrides, "mode="+o.Mode)
		given += " --mode " + o.Mode
	}
	if name == "cpu" {
		overrides = append(overrides, threads)
		if o.Precision != "" && o.Precision != "fp32" && o.Precision != "f32" {
			return Usagef("--precision %s: the CPU computes in the precision of the model's file; quantize it instead", o.Precision)
		}
	}
	first, err := backends.Open(o.Backend, overrides...)
	if err != nil {
		return fmt.Errorf("%s: %w", given, err)
	}
	g.Backends = append(g.Backends, first)
	if name == "cpu" {
		return nil
	}
	host, err := backends.Open("cpu", threads)
	if err != nil {
		return err
	}
	g.Backends = append(g.Backends, host)
	return nil
}

// MaxThreads bounds --threads.
const MaxThreads = 1024

// CheckThreads returns an error for a number of workers that makes no sense.
func (o *Options) CheckThreads() error {
	if o.Threads < 0 || o.Threads > MaxThreads {
		return Usagef("--threads %d: a number from 0 to %d is right", o.Threads, MaxThreads)
	}
	return nil
}

// ParseBytes reads a size such as "1000", "64KiB", "1.5GiB" or "2GB"; empty is 0.
func ParseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	units := []struct {
		suffix string
		scale  float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
		{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"B", 1}, {"", 1}}
	for _, u := range units {
		head, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(head), 64)
		if err != nil || !(v >= 0) || v*u.scale > 1<<62 {
			break
		}
		return int64(v * u.scale), nil
	}
	return 0, fmt.Errorf("%q is no size in bytes", s)
}

// FormatBytes writes a size for people.
func FormatBytes(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// WriteFile creates a file, or empties the one that is there, and lets write fill it.
func WriteFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// PrintJSON writes one document on one line.
func PrintJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Progress shows a bar on standard error when it is a terminal and the step has lasted over half a second.
type Progress struct {
	title    string
	start    time.Time
	pool     *mpb.Progress
	bar      *mpb.Bar
	terminal bool
}

// NewProgress returns a progress bar that is not yet shown.
func NewProgress(title string) *Progress {
	info, err := os.Stderr.Stat()
	return &Progress{title: title, start: time.Now(), terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// Set reports that done of total steps are done.
func (p *Progress) Set(done, total int64) {
	if !p.terminal {
		return
	}
	if p.bar == nil {
		if time.Since(p.start) < 500*time.Millisecond {
			return
		}
		p.pool = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(48))
		p.bar = p.pool.AddBar(total, mpb.PrependDecorators(decor.Name(p.title+" ")),
			mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), decor.AverageETA(decor.ET_STYLE_GO, decor.WC{W: 6})), mpb.BarRemoveOnComplete())
	}
	p.bar.SetTotal(total, false)
	p.bar.SetCurrent(done)
}

// Done removes the bar.
func (p *Progress) Done() {
	if p.bar != nil {
		p.bar.SetTotal(-1, true)
		p.pool.Wait()
		p.bar = nil
	}
}
