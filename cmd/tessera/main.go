// Command tessera runs small transformers and CNNs: it generates text, classifies images, measures matrix products, and drives
// the emulated AMD NPUs. See the README, or `tessera help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/knob"
)

func main() {
	ctx, stop := untilSignal(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// untilSignal returns a context that the first of these signals ends, or one that asks the process to end. The second ends the process: not everything
// looks at a context.
func untilSignal(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	signals = append(signals, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup asks
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// run executes the command line and returns the exit status.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	args = flagsBehind(root, args)
	root.SetArgs(args)
	warnStrays(root.ErrOrStderr(), os.Environ())
	out := &watchedWriter{file: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(cli.WithTyped(ctx, args))
	if err == nil {
		err = out.err
	}
	if err == nil {
		return 0
	}
	var name, path string
	if n, _ := fmt.Sscanf(err.Error(), "unknown command %q for %q", &name, &path); n == 2 {
		group, _, _ := root.Find(strings.Fields(path)[1:])
		var names []string
		for _, c := range group.Commands() {
			names = append(names, c.Name())
		}
		err = cli.Usagef("%w%s", err, meant(name, names, ""))
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	fmt.Fprintln(root.ErrOrStderr(), "tessera:", printable(err.Error()))
	if cli.ExitCode(err) == 2 {
		fmt.Fprintln(root.ErrOrStderr(), strings.TrimRight("see: tessera help "+strings.Join(commandPath(root, args), " "), " "))
	}
	return cli.ExitCode(err)
}

// meant says which of some names is near one that is none of them.
func meant(name string, names []string, dashes string) string {
	near := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, n := range names {
		near.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	list := near.SuggestionsFor(name)
	if len(list) == 0 {
		return ""
	}
	return "; " + dashes + strings.Join(list, " or "+dashes) + " may be meant"
}

// numbers says what a flag takes that is a number or a switch, by its type.
var numbers = map[string]string{
	"bool": "true or false", "int": "a whole number of 64 bits", "uint64": "a whole number from 0 to 18446744073709551615", "float32": "a number", "float64": "a number",
}

// flagError makes wrong usage of a flag that there is not, or whose value is none.
func flagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		f := value.GetFlag()
		kind := numbers[f.Value.Type()]
		if f.Value.Type() == "stringToInt" {
			kind, _ = pflag.UnquoteUsage(f)
		}
		if kind != "" {
			return cli.Usagef("--%s %s: %s is right", f.Name, value.GetValue(), kind)
		}
	}
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return &cli.UsageError{Err: err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return cli.Usagef("%w%s", err, meant(name, names, "--"))
}

// warnStrays says which variables of the environment are set as if they were for this program, and are not.
func warnStrays(w io.Writer, environ []string) {
	for _, s := range knob.Strays(environ) {
		hint := "tessera tune --list shows thresholds, docs/knobs.md all variables"
		if s.Nearest != "" {
			hint = s.Nearest + " may be meant"
		}
		fmt.Fprintf(w, "tessera: %s is set, and nothing reads it: %s\n", printable(s.Name), hint)
	}
}

// watchedWriter keeps the first error of writing, so that output which is lost, to a full disk say, ends with a failure whichever
// command printed it.
type watchedWriter struct {
	file *os.File
	err  error
}

// Fd is how a terminal is known.
func (w *watchedWriter) Fd() uintptr { return w.file.Fd() }

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// printable shortens a message to what fits some lines of a terminal, and replaces what a damaged file may have put into it.
func printable(message string) string {
	const most = 500
	message = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(message, "?"))
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + " ..."
	}
	return message
}

// commandPath returns the names of the sub-commands that the arguments begin with.
func commandPath(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || cmd == root || cmd.Name() == "help" {
		return nil
	}
	return strings.Fields(cmd.CommandPath())[1:]
}

// version returns what the build says: a release, or the commit with "+dirty" where files had been changed.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "tessera",
		Short:         "Run small transformers and CNNs: on the CPU, on emulated AMD NPUs, and on the emulated AI Engines of a Versal",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		// What may be meant is said on the line of the error.
		DisableSuggestions: true,
	}
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(commands()...)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
			return cli.Usagef("unknown command %q", strings.Join(args, " "))
		}
		return nil
	}
	return root
}
