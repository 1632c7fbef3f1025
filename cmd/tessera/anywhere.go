package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// flagsBehind moves flags that stand before the name of a sub-command behind it, so that flags may stand anywhere. Which of them have a
// value behind a space only the sub-commands know: cobra, which looks for the name first, would take the name for the value of a flag
// that has none.
func flagsBehind(root *cobra.Command, args []string) []string {
	var path, moved []string
	cmd, rest := root, args
	for len(rest) > 0 && cmd.HasSubCommands() {
		arg := rest[0]
		if len(arg) > 1 && arg[0] == '-' && arg != "--" {
			n := 1
			if len(rest) > 1 && hasValue(cmd, arg, rest[1]) {
				n = 2
			}
			moved, rest = append(moved, rest[:n]...), rest[n:]
			continue
		}
		sub := child(cmd, arg)
		if sub == nil {
			break
		}
		path, rest, cmd = append(path, arg), rest[1:], sub
	}
	if len(path) == 0 || len(moved) == 0 {
		return args
	}
	return slices.Concat(path, moved, rest)
}

// child returns the sub-command of a name, nil if there is none.
func child(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// hasValue reports whether the argument after a flag is its value: not of a switch, not where the value stands in the same argument, and
// not of a flag that no sub-command knows. A flag that is a switch of some sub-commands only takes anything but the name of one.
func hasValue(cmd *cobra.Command, arg, next string) bool {
	if name := strings.TrimLeft(arg, "-"); strings.Contains(name, "=") || !strings.HasPrefix(arg, "--") && len(name) > 1 {
		return false
	}
	valued, switches := kinds(cmd, arg)
	return valued && !(switches && child(cmd, next) != nil)
}

// kinds reports whether there are sub-commands where a flag has a value behind a space, and where it has none.
func kinds(cmd *cobra.Command, arg string) (valued, switches bool) {
	f := cmd.Flags().Lookup(strings.TrimPrefix(arg, "--"))
	if !strings.HasPrefix(arg, "--") {
		f = cmd.Flags().ShorthandLookup(arg[1:])
	}
	if f != nil {
		return f.NoOptDefVal == "", f.NoOptDefVal != ""
	}
	for _, c := range cmd.Commands() {
		v, s := kinds(c, arg)
		valued, switches = valued || v, switches || s
	}
	return valued, switches
}
