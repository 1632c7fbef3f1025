package main

import "github.com/spf13/cobra"

// commands returns the sub-commands, each of which has a file of its own.
func commands() []*cobra.Command {
	return []*cobra.Command{generateCommand(), perplexityCommand(), quantizeCommand(), inspectCommand(), runCommand(), backendsCommand(), benchCommand()}
}
