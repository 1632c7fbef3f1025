// Package xdnacmd holds the sub-commands of `tessera xdna`, a file each.
package xdnacmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// makers make the sub-commands; each file adds its own.
var makers []func() *cobra.Command

// add registers a sub-command.
func add(f func() *cobra.Command) bool {
	makers = append(makers, f)
	return true
}

// Commands returns `tessera xdna` with its sub-commands.
func Commands() []*cobra.Command {
	cmd := &cobra.Command{Use: "xdna", Short: "Plan, emulate and inspect matrix products on the Ryzen AI NPUs",
		Args: cli.Args(cobra.NoArgs), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	for _, f := range makers {
		cmd.AddCommand(f())
	}
	slices.SortFunc(cmd.Commands(), func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	return []*cobra.Command{cmd}
}
