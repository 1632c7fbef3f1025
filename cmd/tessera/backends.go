package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

func backendsCommand() *cobra.Command {
	var o cli.Options
	cmd := &cobra.Command{
		Use:     "backends",
		Example: "  tessera backends --json",
		Short:   "List the backends, their devices, number formats and options",
		Args:    cli.NoArgs(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []backends.Description{}
			for _, name := range backends.Names() {
				b, err := backends.Open(name)
				if err != nil {
					return err
				}
				list = append(list, b.Describe())
				if err := b.Close(); err != nil {
					return err
				}
			}
			if o.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), list)
			}
			for i, d := range list {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				if err := printBackend(cmd.OutOrStdout(), d); err != nil {
					return err
				}
			}
			return nil
		},
	}
	o.AddJSON(cmd)
	return cmd
}

// printBackend prints an option a line.
func printBackend(w io.Writer, d backends.Description) error {
	simulated := ""
	if d.Simulated && !strings.Contains(d.Device, "simulated") {
		simulated = " (simulated)"
	}
	fmt.Fprintf(w, "%s: %s%s\n", d.Name, d.Device, simulated)
	if len(d.Features) > 0 {
		fmt.Fprintf(w, "  features: %s\n", strings.Join(d.Features, ", "))
	}
	if len(d.Types) > 0 {
		fmt.Fprintf(w, "  types: %s\n", strings.Join(d.Types, ", "))
	}
	if len(d.Options) == 0 {
		return nil
	}
	fmt.Fprintf(w, "  options, as in --backend %s:name=value,name=value, with their defaults:\n", d.Name)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, option := range d.Options {
		name, meaning, _ := strings.Cut(option, ": ")
		fmt.Fprintf(tw, "    %s\t%s\n", name, meaning)
	}
	return tw.Flush()
}
