package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/models/llm"
)

// draftFlags name a smaller model that guesses tokens ahead of the one that answers.
type draftFlags struct {
	file   string
	tokens int
	cmd    *cobra.Command
}

// maxDraftTokens is the most that the library lets a draft model guess ahead.
const maxDraftTokens = 64

func (d *draftFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.file, "draft", "", "GGUF `FILE` or folder of a smaller model of the same vocabulary, which guesses tokens ahead; with --temp 0 the text stays the same")
	cmd.Flags().IntVar(&d.tokens, "draft-tokens", 4, "tokens that the model of --draft guesses ahead")
	d.cmd = cmd
}

func (d *draftFlags) check() error {
	if d.tokens < 1 || d.tokens > maxDraftTokens {
		return cli.Usagef("--draft-tokens %d: a number from 1 to %d is right", d.tokens, maxDraftTokens)
	}
	if d.file == "" && d.cmd.Flags().Changed("draft-tokens") {
		return cli.Usagef("--draft-tokens: --draft is missing, the model that guesses")
	}
	return nil
}

// open opens the draft of a model, if one is asked for, on the same backends, and adds it to the options of generation. It is closed with the model.
func (d *draftFlags) open(f *llmFlags, m *languageModel, o *llm.GenerateOptions) error {
	if d.file == "" {
		return nil
	}
	opened := m.opened
	opened.WeightCache = ""
	if f.packed == besideModel {
		opened.WeightCache = llm.WeightCachePath(d.file)
	}
	opened.Profile = false // the profile is that of the model
	if opened.MaxMemory > 0 {
		exe, err := m.Executable()
		if err != nil {
			return err
		}
		if opened.MaxMemory -= exe.Memory().Total; opened.MaxMemory <= 0 {
			return errors.New("--draft: --max-memory leaves nothing beside the model")
		}
	}
	draft, err := f.load(d.file, opened)
	if err != nil {
		return fmt.Errorf("--draft: %w", err)
	}
	closeModel := m.close
	m.close = func() {
		_ = draft.Close()
		closeModel()
	}
	if !draft.Tokenizer.Agrees(m.Tokenizer) {
		return fmt.Errorf("--draft %s: its vocabulary of %d tokens is not that of %s, of %d", d.file, len(draft.Tokenizer.Tokens), m.name, len(m.Tokenizer.Tokens))
	}
	if !draft.Config.Causal {
		return fmt.Errorf("--draft %s: %s models encode; they do not continue a text", d.file, draft.Config.Arch)
	}
	m.loadTime += draft.LoadTime
	o.Draft, o.DraftTokens = draft, d.tokens
	return nil
}

// accepted says what the guesses of a draft model were worth; nothing where there is none.
func accepted(o llm.GenerateOptions) string {
	if o.Draft == nil {
		return ""
	}
	return fmt.Sprintf(", %d of %s accepted", o.Stats.Accepted, cli.Count(o.Stats.Guessed, "guessed token"))
}
