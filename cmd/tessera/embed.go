package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/use"
)

// embedding is a line of embed --json.
type embedding struct {
	Text   string    `json:"text"`
	IDs    []int32   `json:"ids"`
	Vector []float32 `json:"vector"`
}

func embedCommand() *cobra.Command {
	var (
		f       llmFlags
		pooling string
		o       llm.EmbedOptions
	)
	poolings := map[string]llm.Pooling{"": llm.PoolNone, "mean": llm.PoolMean, "cls": llm.PoolCLS, "last": llm.PoolLast}
	cmd := &cobra.Command{
		Use:   "embed TEXT...",
		Short: "Turn sentences into vectors",
		Long: `Embed prints a line of numbers for each text: the vector that a sentence encoder (BERT from GGUF or a folder, or the converted
Universal Sentence Encoder), or the last layer of a language model, gives. A text "-" stands for the lines of standard input.`,
		Example: `  tessera embed --model bge-small.gguf "The cat sits on the mat." "A cat is sitting on a rug." --json
  tessera embed --model bge-small.gguf - < sentences.txt`,
		Args: cli.CountArgs(1, -1, "a text is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ok bool
			if o.Pooling, ok = poolings[pooling]; !ok {
				return cli.Usagef("--pooling %s: mean, cls or last is right", pooling)
			}
			if text, ok := behindCache(cmd.Context()); ok && f.packed == besideModel {
				return cli.Usagef("--cache %q: a file is written behind an equals sign, --cache=FILE; --cache alone stands behind the texts", text)
			}
			embed, most, report, closeModel, err := openEmbedder(&f, o)
			if err != nil {
				return err
			}
			defer closeModel()
			out := bufio.NewWriter(cmd.OutOrStdout())
			one := func(text string) error {
				e := embedding{Text: text}
				var err error
				if e.Vector, e.IDs, err = embed(cmd.Context(), text); err != nil {
					return fmt.Errorf("%.40q: %w", text, err)
				}
				if f.JSON {
					if err := cli.PrintJSON(out, e); err != nil {
						return err
					}
					return out.Flush()
				}
				for i, x := range e.Vector {
					if i > 0 {
						_ = out.WriteByte(' ')
					}
					_, _ = out.WriteString(strconv.FormatFloat(float64(x), 'g', -1, 32))
				}
				_ = out.WriteByte('\n')
				return out.Flush() // who writes the next text may wait for this vector
			}
			for _, text := range args {
				if text != "-" {
					if err := one(text); err != nil {
						return err
					}
					continue
				}
				in := cli.NewLineReader(cmd.InOrStdin(), nil, "", most)
				for {
					line, err := in.Read()
					if err != nil {
						if errors.Is(err, io.EOF) {
							break
						}
						return err
					}
					if strings.TrimSpace(line) == "" {
						continue
					}
					if err := one(line); err != nil {
						return err
					}
				}
			}
			return report(cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	f.AddProfile(cmd)
	cli.WordVar(cmd.Flags(), &pooling, "pooling", "", "how the vectors of the tokens become one: mean, cls (the first), last; empty means as the model says")
	cmd.Flags().BoolVar(&o.Normalize, "normalize", false, "scale vectors to length 1, so that their products are cosines")
	return cmd
}

// behindCache returns the argument that was typed directly behind --cache: a file, as one writes it behind other flags, and no text.
func behindCache(ctx context.Context) (string, bool) {
	typed := cli.Typed(ctx)
	for i, word := range typed[:max(len(typed)-1, 0)] {
		if next := typed[i+1]; word == "--cache" && !strings.HasPrefix(next, "-") {
			return next, true
		}
	}
	return "", false
}

// openEmbedder opens the model that the flags name: a language model or encoder, or a folder of the Universal Sentence Encoder.
// most bounds a text that may have no end; report writes the profile and the trace that were asked for.
func openEmbedder(f *llmFlags, o llm.EmbedOptions) (embed func(context.Context, string) ([]float32, []int32, error), most int, report func(io.Writer) error, closeModel func(), err error) {
	if info, err := os.Stat(f.Model); f.Model != "" && err == nil && info.IsDir() && !exists(filepath.Join(f.Model, "config.json")) && exists(filepath.Join(f.Model, "vocab.json")) {
		for _, flag := range []string{"pooling", "profile", "trace", "strict", "max-memory", "disable-pass", "context", "cache", "cache-type"} {
			if f.cmd.Flags().Changed(flag) {
				return nil, 0, nil, nil, cli.Usagef("--%s has no meaning for the Universal Sentence Encoder", flag)
			}
		}
		g, closeAll, err := f.Open()
		if err != nil {
			return nil, 0, nil, nil, err
		}
		m, err := use.Open(f.Model, g.Backends...)
		if err != nil {
			closeAll()
			return nil, 0, nil, nil, err
		}
		// Its vectors have the length 1 as they are.
		return m.Embed, leastText, func(io.Writer) error { return nil }, func() { _ = m.Close(); closeAll() }, nil
	}
	m, err := f.open()
	if err != nil {
		return nil, 0, nil, nil, err
	}
	if m.Config.Causal && (f.Profile || f.Trace != "") { // each text has a session of its own
		m.close()
		return nil, 0, nil, nil, cli.Usagef("--profile and --trace: embed has them for BERT-style encoders only")
	}
	embed = func(ctx context.Context, text string) ([]float32, []int32, error) { return m.Embed(ctx, text, o) }
	return embed, m.mostText(), func(w io.Writer) error { _, err := m.report(w); return err }, m.close, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
