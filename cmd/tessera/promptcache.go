package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/internal/atomicfile"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/llm"
)

// promptCache is a file that keeps what a session has read from one start of the program to the next.
type promptCache struct {
	path string
	held []int32 // tokens of which the file holds keys and values
}

func (p *promptCache) add(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&p.path, "prompt-cache", "", usage)
}

// check returns an error for a file that could not be written, before a model is loaded and a prompt read for it.
func (p *promptCache) check() error {
	if p.path == "" {
		return nil
	}
	if err := atomicfile.CheckWritable(p.path); err != nil {
		return fmt.Errorf("--prompt-cache: %w", err)
	}
	return nil
}

// load gives the session what the file holds; one that does not exist holds nothing.
func (p *promptCache) load(ctx context.Context, s *llm.Session) error {
	if p.path == "" {
		return nil
	}
	f, err := regular.Open(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--prompt-cache: %w", err)
	}
	defer f.Close()
	if err := s.Load(ctx, f); err != nil {
		var saved *llm.SavedError
		if errors.As(err, &saved) {
			return fmt.Errorf("--prompt-cache %s: %w; it is not replaced", p.path, err)
		}
		return err
	}
	p.held = s.Tokens()
	return nil
}

// read makes ids the session's content. What the file holds of their beginning is not evaluated: cached tells of how many tokens that is so. The
// file then holds them all.
func (p *promptCache) read(ctx context.Context, s *llm.Session, ids []int32) (cached int, err error) {
	if err := p.load(ctx, s); err != nil {
		return 0, err
	}
	if len(ids) > 0 && slices.Equal(p.held, ids) {
		return len(ids) - 1, nil // loading has evaluated the last one, for its logits
	}
	if cached, err = s.EvalShared(ctx, ids); err != nil {
		return 0, err
	}
	return cached, p.save(s)
}

// save writes what the session has read, unless the file holds that already, with or without more behind it.
func (p *promptCache) save(s *llm.Session) error {
	tokens := s.Tokens()
	if p.path == "" || len(tokens) <= len(p.held) && slices.Equal(tokens, p.held[:len(tokens)]) {
		return nil
	}
	if err := atomicfile.Write(p.path, 0o600, func(f *os.File) error { return s.Save(f) }); err != nil {
		return fmt.Errorf("--prompt-cache: %w", err)
	}
	return nil
}
