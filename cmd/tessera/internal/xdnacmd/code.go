package xdnacmd

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/regular"
)

var (
	_ = add(encodeCommand)
	_ = add(decodeCommand)
)

// codeResult is the JSON document of `xdna encode` and `xdna decode`.
type codeResult struct {
	File    string `json:"file,omitempty"`
	Dialect string `json:"dialect"`
	DevGen  int    `json:"devgen"`
	Columns int    `json:"columns"`
	Ops     int    `json:"ops"`
	Words   int    `json:"words"`
	Text    string `json:"text,omitempty"`
}

func encodeCommand() *cobra.Command {
	var output, dialect string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "encode FILE",
		Example: "  tessera xdna encode code.txt -o code.bin",
		Short:   "Turn the text form of control code into its words",
		Long: `Turn the text form of control code, as decode prints it, into the little-endian words that the NPU's command processor reads.
FILE - is standard input. Without --output the words go to standard output.`,
		Args: cli.CountArgs(1, 1, "the file is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asJSON && output == "" {
				return cli.Usagef("--json prints a document on standard output: say with --output where the words go")
			}
			if dialect != "" && dialect != "0.1" && dialect != "1.0" {
				return cli.Usagef("--dialect %q: 0.1 or 1.0 is right", dialect)
			}
			raw, err := regular.ReadInput(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			p, err := txn.Parse(bytes.NewReader(raw))
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			switch dialect {
			case "0.1":
				p.Head.Major, p.Head.Minor = 0, 1
			case "1.0":
				p.Head = p.Head.Optimised()
			}
			words, err := txn.EncodeBytes(p)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if output == "" {
				_, err := cmd.OutOrStdout().Write(words)
				return err
			}
			if err := os.WriteFile(output, words, 0o666); err != nil {
				return err
			}
			if asJSON {
				r := describe(p, len(words))
				r.File = output
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the words to `FILE`")
	cmd.Flags().StringVar(&dialect, "dialect", "", "binary dialect, 0.1 or 1.0 (default: as the text says)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what was written as one JSON document")
	return cmd
}

func decodeCommand() *cobra.Command {
	var output string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "decode FILE",
		Example: "  tessera xdna decode code.bin",
		Short:   "Print control code as text, one operation a line, with what it does",
		Long: `Print control code (either binary dialect, as words of a file) as text that encode reads back to the same operations.
Comments say which register of which tile an operation touches. FILE - is standard input.`,
		Args: cli.CountArgs(1, 1, "the file is"),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := regular.ReadInput(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			p, err := txn.DecodeBytes(raw)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			var text bytes.Buffer
			if err := txn.Format(&text, p); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			r := describe(p, len(raw))
			if output != "" {
				if err := os.WriteFile(output, text.Bytes(), 0o666); err != nil {
					return err
				}
				r.File = output
			} else if !asJSON {
				_, err := cmd.OutOrStdout().Write(text.Bytes())
				return err
			}
			if asJSON {
				if output == "" {
					r.Text = text.String()
				}
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the text to `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document, with the text unless --output takes it")
	return cmd
}

func describe(p *txn.Program, size int) codeResult {
	return codeResult{
		Dialect: fmt.Sprintf("%d.%d", p.Head.Major, p.Head.Minor), DevGen: int(p.Head.DevGen), Columns: int(p.Head.Cols),
		Ops: len(p.List), Words: size / 4,
	}
}
