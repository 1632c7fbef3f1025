package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/onnx"
)

// classification is the JSON document of classify, a line an image.
type classification struct {
	File  string      `json:"file"`
	Index int         `json:"index"` // of the image in the file
	Label string      `json:"label"`
	Score float32     `json:"score"`
	Top   []cnn.Score `json:"top"`
}

// classify is a call of the command: its flags.
type classify struct {
	cli.Options
	labels, mean, std, expected string
	scale                       float32
	top, batch                  int
	report                      bool
}

func classifyCommand() *cobra.Command {
	var c classify
	cmd := &cobra.Command{
		Use:   "classify FILE...",
		Short: "Classify images: digits, or with an ONNX classifier of your own",
		Long: `Classify reads PNG, JPEG and IDX files (gzipped or not; an IDX file holds many images). Without --model the embedded
classifier tells handwritten digits, white on black. With --model any ONNX classifier runs; pixels enter as raw 0 to 255 unless
--scale, --mean or --std is given, in this order: value x scale, - mean, / std.`,
		Example: "  tessera classify examples/classify/*.png",
		Args:    cli.CountArgs(1, -1, "a picture is"),
		RunE:    c.run,
	}
	c.AddModel(cmd, "ONNX classifier; without it the embedded one tells digits")
	c.AddProfile(cmd)
	f := cmd.Flags()
	f.StringVar(&c.labels, "labels", "", "text `FILE` with the name of a class a line")
	f.Float32Var(&c.scale, "scale", 0, "pixel values 0 to 255 are multiplied by it")
	f.StringVar(&c.mean, "mean", "", "subtracted afterwards: `M` or one number a channel, M,M,M")
	f.StringVar(&c.std, "std", "", "divided by afterwards: `S` or S,S,S")
	f.IntVar(&c.top, "top", 5, "classes to report for each image")
	f.IntVar(&c.batch, "batch", 0, "images at a time; 0 lets the model decide")
	f.StringVar(&c.expected, "expect", "", "IDX `FILE` of labels: how many are right is printed to standard error")
	f.BoolVar(&c.report, "report", false, "print what ran where to standard error")
	return cmd
}

func (c *classify) run(cmd *cobra.Command, files []string) error {
	options, err := c.options()
	if err != nil {
		return err
	}
	var truth []int
	if c.expected != "" {
		if truth, err = image.ReadLabels(c.expected); err != nil {
			return err
		}
	}
	g, closeAll, err := c.Open()
	if err != nil {
		return err
	}
	defer closeAll()
	options.Backends, options.Strict, options.MaxMemory, options.Profile, options.DisablePasses = g.Backends, g.Strict, g.MaxMemory, g.Profile, g.DisablePasses
	classifier, err := c.classifier(cmd.Context(), options)
	if err != nil {
		return err
	}
	defer classifier.Close()
	out := bufio.NewWriter(cmd.OutOrStdout())
	right, total := 0, 0
	for _, file := range files {
		err := c.file(cmd.Context(), classifier, out, file, func(class int) {
			if total < len(truth) && truth[total] == class {
				right++
			}
			total++
		})
		if err != nil {
			return err
		}
	}
	if truth != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d right\n", right, total)
	}
	return c.summary(cmd.ErrOrStderr(), classifier.Session())
}

// options checks the flags and makes a classifier's options of them.
func (c *classify) options() (o cnn.Options, err error) {
	o = cnn.Options{Scale: c.scale, Top: c.top, Batch: c.batch}
	if o.Mean, err = channels("--mean", c.mean); err != nil {
		return o, err
	}
	if o.Std, err = channels("--std", c.std); err != nil {
		return o, err
	}
	if c.top < 1 || c.batch < 0 || c.batch > 1<<16 {
		return o, cli.Usagef("--top from 1 and --batch from 0 to 65536 are right")
	}
	if s := float64(c.scale); math.IsNaN(s) || math.IsInf(s, 0) {
		return o, cli.Usagef("--scale %v: a number is right", s)
	}
	if c.labels != "" {
		o.Labels, err = readLines(c.labels)
	}
	return o, err
}

// classifier opens the model of the flags, or the embedded one.
func (c *classify) classifier(ctx context.Context, o cnn.Options) (*cnn.Classifier, error) {
	if c.Model == "" {
		return cnn.Digits(ctx, o)
	}
	m, err := cnn.Open(ctx, c.Model, o)
	if err != nil {
		return nil, notONNX(c.Model, err)
	}
	return m, nil
}

// file classifies the images of a file, prints the results and gives each image's class to seen.
func (c *classify) file(ctx context.Context, classifier *cnn.Classifier, out *bufio.Writer, file string, seen func(class int)) error {
	pictures, err := image.ReadFile(file)
	if err != nil {
		return err
	}
	bar := cli.NewProgress(file)
	// In pieces, so that results and progress appear as they come.
	const piece = 256
	for from := 0; from < len(pictures); from += piece {
		results, err := classifier.Classify(ctx, pictures[from:min(from+piece, len(pictures))])
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for i, r := range results {
			seen(r.Class)
			if err := printResult(out, &c.Options, file, from+i, len(pictures), r); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
		bar.Set(int64(min(from+piece, len(pictures))), int64(len(pictures)))
	}
	bar.Done()
	return nil
}

// summary says what ran where, and writes the profile if there is one.
func (c *classify) summary(w io.Writer, s *onnx.Session) error {
	if c.report {
		if err := cli.PrintJSON(w, s.Report()); err != nil {
			return err
		}
	} else if line := offloaded(s.Report(), "--report"); line != "" && !c.JSON {
		fmt.Fprintln(w, line)
	}
	if exe := s.Executable(); exe != nil {
		return writeProfile(&c.Options, exe, w)
	}
	return nil
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
