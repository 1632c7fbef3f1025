package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

func backendsCommand() *cobra.Command {
	var o cli.Options
	cmd := &cobra.Command{
		Use:   "backends",
		Short: "List the backends, their devices, number formats and options",
		Args:  cli.NoArgs(""),
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
			for _, d := range list {
				simulated := ""
				if d.Simulated {
					simulated = " (simulated)"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s%s\n", d.Name, d.Device, simulated)
				for _, row := range []struct {
					title string
					items []string
				}{{"features", d.Features}, {"types", d.Types}, {"options", d.Options}} {
					if len(row.items) > 0 {
						fmt.Fprintf(cmd.OutOrStdout(), "  %-9s %s\n", row.title, strings.Join(row.items, ", "))
					}
				}
			}
			return nil
		},
	}
	o.AddJSON(cmd)
	return cmd
}
