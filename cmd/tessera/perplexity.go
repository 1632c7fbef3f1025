package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/tokenizer"
)

var errOneToken = cli.Usagef("--context 1: a window of one token has nothing to score")

func perplexityCommand() *cobra.Command {
	var (
		f    llmFlags
		file string
	)
	cmd := &cobra.Command{
		Use:     "perplexity --file FILE",
		Example: "  tessera perplexity --file text.txt\n  tessera perplexity --model model.gguf --context 512 --file text.txt --json",
		Short:   "Measure how well a language model predicts a text",
		Long: `Perplexity splits the tokens of a text into windows of the context, evaluates each from an empty cache, and scores
positions 1 to the end of each, the last partial one too. Lower is better.`,
		Args: cli.NoArgs("a file of text follows --file and a model's --model"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return cli.Usagef("--file is missing: the text to score")
			}
			if f.context == 1 {
				return errOneToken
			}
			if err := cli.CheckFiles(append(f.files(), cli.File{Flag: "--file", Path: file})...); err != nil {
				return err
			}
			text, err := regular.ReadInput(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			m, err := f.open()
			if err != nil {
				return err
			}
			defer m.close()
			ids := m.Tokenizer.Encode(string(text), tokenizer.Options{})
			bar := cli.NewProgress("perplexity")
			p, err := m.Perplexity(cmd.Context(), ids, f.context, func(done, total int) { bar.Set(int64(done), int64(total)) })
			bar.Done()
			if err != nil {
				return err
			}
			report, err := m.report(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"tokens": p.Tokens, "nll": p.NLL, "perplexity": p.Value(), "backend": m.backend, "model": m.name, "report": report})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "perplexity %.4f over %s (%s on %s)\n", p.Value(), cli.Count(p.Tokens, "token"), m.name, m.backend)
			if line := offloaded(report, "--json"); line != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			return nil
		},
	}
	f.add(cmd)
	f.AddProfile(cmd)
	cmd.Flags().StringVar(&file, "file", "", "text `FILE` to score; - is standard input")
	return cmd
}
