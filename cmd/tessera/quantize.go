package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/atomicfile"
	"github.com/tessera-go/tessera/models/gguf"
)

func quantizeCommand() *cobra.Command {
	var o gguf.QuantizeOptions
	var common cli.Options
	cmd := &cobra.Command{
		Use:     "quantize IN.gguf OUT.gguf --type TYPE",
		Example: "  tessera quantize model-f16.gguf model.gguf --type q4_k_m",
		Short:   "Store a model in fewer bits",
		Args:    cli.CountArgs(2, 2, "the model or the file to write is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Type == "" {
				return cli.Usagef("--type is missing: one of %s", strings.Join(gguf.Recipes(), ", "))
			}
			if !slices.Contains(gguf.Recipes(), o.Type) {
				return cli.Usagef("--type %s: one of %s is right", o.Type, strings.Join(gguf.Recipes(), ", "))
			}
			// What cannot be written is said before the work, not after it.
			if err := atomicfile.Check(args[1]); err != nil {
				return err
			}
			if in, err := os.Stat(args[0]); err == nil {
				if in.IsDir() {
					return cli.Usagef("%s is a folder: a GGUF file is quantized", args[0])
				}
				if out, err := os.Stat(args[1]); err == nil && os.SameFile(in, out) {
					return cli.Usagef("%s is both the model and the file to write", args[1])
				}
			}
			in, err := gguf.Open(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			start := time.Now()
			bar := cli.NewProgress("quantize")
			o.Progress = func(_ string, done, total int64) { bar.Set(done, total) }
			var list []gguf.QuantizedTensor
			var size int64
			err = atomicfile.Write(args[1], 0o644, func(f *os.File) (err error) {
				if list, err = gguf.Quantize(cmd.Context(), f, in, o); err != nil {
					if errors.Is(err, gguf.ErrQuantized) {
						err = fmt.Errorf("%w (--allow-requantize)", err)
					}
					return err
				}
				info, err := f.Stat()
				if err == nil {
					size = info.Size()
				}
				return err
			})
			bar.Done()
			if err != nil {
				return err
			}
			if common.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"tensors": list, "bytes_in": in.Size(), "bytes_out": size, "seconds": time.Since(start).Seconds()})
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "tensor\tfrom\tto\tbytes\tRMS error")
			for _, t := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.2g\n", t.Name, t.From, t.To, t.BytesOut, t.RMSE)
			}
			fmt.Fprintf(w, "%d tensors: %s to %s in %.1f s\n", len(list), cli.FormatBytes(int64(in.Size())), cli.FormatBytes(size), time.Since(start).Seconds())
			return w.Flush()
		},
	}
	cli.WordVar(cmd.Flags(), &o.Type, "type", "", "tensor `TYPE` or recipe: "+strings.Join(gguf.Recipes(), ", "))
	cmd.Flags().BoolVar(&o.Pure, "pure", false, "every matrix in the base type, without the recipe's mixture")
	cmd.Flags().BoolVar(&o.Requantize, "allow-requantize", false, "accept tensors that are quantized already")
	common.AddJSON(cmd)
	return cmd
}
