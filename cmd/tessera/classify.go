package main

import (
	"bufio"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/image"
)

// classification is the JSON document of classify, a line an image.
type classification struct {
	File  string      `json:"file"`
	Index int         `json:"index"` // of the image in the file
	Label string      `json:"label"`
	Score float32     `json:"score"`
	Top   []cnn.Score `json:"top"`
}

func classifyCommand() *cobra.Command {
	var (
		o           cli.Options
		labels      string
		mean, std   string
		scale       float32
		top, batch  int
		expected    string
		showSummary bool
	)
	cmd := &cobra.Command{
		Use:   "classify FILE...",
		Short: "Classify images: digits, or with an ONNX classifier of your own",
		Long: `Classify reads PNG, JPEG and IDX files (gzipped or not; an IDX file holds many images). Without --model the embedded
classifier tells handwritten digits, white on black. With --model any ONNX classifier runs; pixels enter as raw 0 to 255 unless
--scale, --mean or --std is given, in this order: value x scale, - mean, / std.`,
		Example: "  tessera classify examples/classify/*.png",
		Args:    cli.CountArgs(1, -1, "a picture is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options := cnn.Options{Scale: scale, Top: top, Batch: batch}
			var err error
			if options.Mean, err = channels("--mean", mean); err != nil {
				return err
			}
			if options.Std, err = channels("--std", std); err != nil {
				return err
			}
			if top < 1 || batch < 0 || batch > 1<<16 {
				return cli.Usagef("--top from 1 and --batch from 0 to 65536 are right")
			}
			if s := float64(scale); math.IsNaN(s) || math.IsInf(s, 0) {
				return cli.Usagef("--scale %v: a number is right", s)
			}
			if labels != "" {
				if options.Labels, err = readLines(labels); err != nil {
					return err
				}
			}
			var truth []int
			if expected != "" {
				if truth, err = image.ReadLabels(expected); err != nil {
					return err
				}
			}
			g, closeAll, err := o.Open()
			if err != nil {
				return err
			}
			defer closeAll()
			options.Backends, options.Strict, options.MaxMemory, options.Profile, options.DisablePasses = g.Backends, g.Strict, g.MaxMemory, g.Profile, g.DisablePasses
			var c *cnn.Classifier
			if o.Model == "" {
				c, err = cnn.Digits(cmd.Context(), options)
			} else {
				if c, err = cnn.Open(cmd.Context(), o.Model, options); err != nil {
					err = notONNX(o.Model, err)
				}
			}
			if err != nil {
				return err
			}
			defer c.Close()
			out := bufio.NewWriter(cmd.OutOrStdout())
			defer out.Flush()
			right, total := 0, 0
			for _, file := range args {
				pictures, err := image.ReadFile(file)
				if err != nil {
					return err
				}
				bar := cli.NewProgress(file)
				// In pieces, so that results and progress appear as they come.
				const piece = 256
				for from := 0; from < len(pictures); from += piece {
					results, err := c.Classify(cmd.Context(), pictures[from:min(from+piece, len(pictures))])
					if err != nil {
						return fmt.Errorf("%s: %w", file, err)
					}
					for i, r := range results {
						if total < len(truth) && truth[total] == r.Class {
							right++
						}
						total++
						if err := printResult(out, &o, file, from+i, len(pictures), r); err != nil {
							return err
						}
					}
					bar.Set(int64(min(from+piece, len(pictures))), int64(len(pictures)))
				}
				bar.Done()
			}
			if truth != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d right\n", right, total)
			}
			if showSummary {
				if err := cli.PrintJSON(cmd.ErrOrStderr(), c.Session().Report()); err != nil {
					return err
				}
			} else if line := offloaded(c.Session().Report(), "--report"); line != "" && !o.JSON {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			if exe := c.Session().Executable(); exe != nil {
				return writeProfile(&o, exe, cmd.ErrOrStderr())
			}
			return nil
		},
	}
	o.AddModel(cmd, "ONNX classifier; without it the embedded one tells digits")
	o.AddProfile(cmd)
	f := cmd.Flags()
	f.StringVar(&labels, "labels", "", "text `FILE` with the name of a class a line")
	f.Float32Var(&scale, "scale", 0, "pixel values 0 to 255 are multiplied by it")
	f.StringVar(&mean, "mean", "", "subtracted afterwards: `M` or one number a channel, M,M,M")
	f.StringVar(&std, "std", "", "divided by afterwards: `S` or S,S,S")
	f.IntVar(&top, "top", 5, "classes to report for each image")
	f.IntVar(&batch, "batch", 0, "images at a time; 0 lets the model decide")
	f.StringVar(&expected, "expect", "", "IDX `FILE` of labels: how many are right is printed to standard error")
	f.BoolVar(&showSummary, "report", false, "print what ran where to standard error")
	return cmd
}

func printResult(out *bufio.Writer, o *cli.Options, file string, index, of int, r cnn.Result) error {
	if o.JSON {
		return cli.PrintJSON(out, classification{file, index, r.Label, r.Score.Score, r.Top})
	}
	name := file
	if of > 1 {
		name = fmt.Sprintf("%s[%d]", file, index)
	}
	_, err := fmt.Fprintf(out, "%s: %s (%.1f %%)\n", name, r.Label, 100*r.Score.Score)
	return err
}

// channels reads one number, or one for each channel.
func channels(flag, text string) ([]float32, error) {
	if text == "" {
		return nil, nil
	}
	var list []float32
	for _, field := range strings.Split(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(field), 32)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || flag == "--std" && v == 0 {
			return nil, cli.Usagef("%s %q: a number, or one a channel separated by commas, is right", flag, text)
		}
		list = append(list, float32(v))
	}
	if n := len(list); n == 2 || n > 4 { // how many channels there are, the model says
		return nil, cli.Usagef("%s %q: %d numbers; one, or one for each of 3 or 4 channels, is right", flag, text, n)
	}
	return list, nil
}

func readLines(path string) ([]string, error) {
	data, err := regular.ReadStream(path)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n"), "\n"), nil
}
