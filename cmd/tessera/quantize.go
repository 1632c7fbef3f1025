package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/models/gguf"
)

func quantizeCommand() *cobra.Command {
	var o gguf.QuantizeOptions
	var common cli.Options
	cmd := &cobra.Command{
		Use:   "quantize IN.gguf OUT.gguf --type TYPE",
		Short: "Store a model in fewer bits",
		Args:  cli.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Type == "" {
				return cli.Usagef("--type is missing: one of %s", strings.Join(gguf.Recipes(), ", "))
			}
			if !slices.Contains(gguf.Recipes(), strings.ToLower(o.Type)) {
				return cli.Usagef("--type %s: one of %s is right", o.Type, strings.Join(gguf.Recipes(), ", "))
			}
			// Only a file is replaced, and what cannot be written is said before the work, not after it.
			if info, err := os.Stat(args[1]); err == nil && !info.Mode().IsRegular() {
				return fmt.Errorf("%s exists and is not a regular file: it is not replaced", args[1])
			}
			if info, err := os.Stat(filepath.Dir(args[1])); err != nil || !info.IsDir() {
				return fmt.Errorf("%s: its folder does not exist", args[1])
			}
			in, err := gguf.Open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			start := time.Now()
			bar := cli.NewProgress("quantize")
			o.Progress = func(_ string, done, total int64) { bar.Set(done, total) }
			// The file appears under its name only when it is whole.
			tmp, err := os.CreateTemp(filepath.Dir(args[1]), ".tessera-*")
			if err != nil {
				return err
			}
			defer os.Remove(tmp.Name())
			list, err := gguf.Quantize(cmd.Context(), tmp, in, o)
			bar.Done()
			if err = errors.Join(err, tmp.Close()); err != nil {
				return err
			}
			if err := os.Chmod(tmp.Name(), 0o644); err != nil {
				return err
			}
			size, err := os.Stat(tmp.Name())
			if err != nil {
				return err
			}
			if err := os.Rename(tmp.Name(), args[1]); err != nil {
				return err
			}
			if common.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"tensors": list, "bytes_in": in.Size(), "bytes_out": size.Size(), "seconds": time.Since(start).Seconds()})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "tensor\tfrom\tto\tbytes\tRMS error")
			for _, t := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.2g\n", t.Name, t.From, t.To, t.BytesOut, t.RMSE)
			}
			fmt.Fprintf(w, "%d tensors: %s to %s in %.1f s\n", len(list), cli.FormatBytes(int64(in.Size())), cli.FormatBytes(size.Size()), time.Since(start).Seconds())
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&o.Type, "type", "", "`TYPE` or recipe: "+strings.Join(gguf.Recipes(), ", "))
	cmd.Flags().BoolVar(&o.Pure, "pure", false, "every matrix in the base type, without the recipe's mixture")
	cmd.Flags().BoolVar(&o.Requantize, "allow-requantize", false, "accept tensors that are quantized already")
	common.AddJSON(cmd)
	return cmd
}
