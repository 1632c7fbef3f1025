package main

import (
	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/aiecmd"
	"github.com/tessera-go/tessera/cmd/tessera/internal/xdnacmd"

	_ "github.com/tessera-go/tessera/backends/aie"
	_ "github.com/tessera-go/tessera/backends/cpu"
	_ "github.com/tessera-go/tessera/backends/reference"
	_ "github.com/tessera-go/tessera/backends/xdna"
)

// commands returns the sub-commands, each of which has a file of its own.
func commands() []*cobra.Command {
	all := []*cobra.Command{
		generateCommand(), chatCommand(), embedCommand(), perplexityCommand(), classifyCommand(), inspectCommand(), runCommand(), quantizeCommand(), backendsCommand(), benchCommand(), tuneCommand(),
	}
	all = append(all, group("xdna", "Plan, predict and emulate products on AMD Ryzen AI NPUs (XDNA, XDNA2)", xdnacmd.Commands()))
	return append(all, group("aie", "Plan, predict and emulate products on the AI Engines of the Versal VC1902", aiecmd.Commands()))
}

// group returns a command that only holds sub-commands; a list of one that is such a command already is taken as it is.
func group(name, short string, sub []*cobra.Command) *cobra.Command {
	if len(sub) == 1 && sub[0].Name() == name {
		return sub[0]
	}
	cmd := &cobra.Command{Use: name, Short: short, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(sub...)
	return cmd
}
