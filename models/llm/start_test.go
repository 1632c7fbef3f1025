package llm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
)

// Weights are packed by the first runs: sessions that start at once, and all runs of each, give the bits of a model whose weights were packed when it was
// opened. Close waits for runs that pack.
func TestFirstRunsPackWeights(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, tolstoy.GGUF(), 0o600))
	packed, err := llm.Open(path, llm.Options{WeightCache: llm.WeightCachePath(path)})
	require.NoError(t, err)
	defer packed.Close()
	ids := []int32{11, 28, 45, 62, 79}
	eval := func(m *llm.Model) (logits [][]float32, err error) {
		s, err := m.NewSession()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		for range 12 {
			if err := s.Rewind(0); err != nil {
				return nil, err
			}
			for _, id := range ids {
				if err := s.Eval(context.Background(), id); err != nil {
					return nil, err
				}
			}
			logits = append(logits, append([]float32{}, s.Logits()...))
		}
		return logits, nil
	}
	want, err := eval(packed)
	require.NoError(t, err)
	for range 3 {
		m, err := llm.Open(path, llm.Options{})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				got, err := eval(m)
				if err != nil {
					t.Error(err)
				}
				for i := range got {
					for j := range got[i] {
						if got[i][j] != want[i][j] {
							t.Errorf("run %d, logit %d: %v, want %v", i, j, got[i][j], want[i][j])
							return
						}
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, m.Close())
	}
	m, err := llm.Open(path, llm.Options{})
	require.NoError(t, err)
	s, err := m.NewSession()
	require.NoError(t, err)
	done := make(chan error)
	started := make(chan struct{})
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			if i == 1 {
				close(started)
			}
			err = s.Eval(context.Background(), 11)
		}
		done <- err
	}()
	<-started
	require.NoError(t, m.Close())
	require.ErrorIs(t, <-done, llm.ErrClosed)
}

// Sessions that are opened while the model is being closed work or say ErrClosed, and nobody waits for ever.
func TestSessionsOpenBesideClose(t *testing.T) {
	for round := range 60 {
		m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
		require.NoError(t, err)
		var wg sync.WaitGroup
		var begun atomic.Int64
		reached := make(chan struct{})
		for range 2 {
			wg.Go(func() {
				for {
					if begun.Add(1) == int64(1+round%8) {
						close(reached)
					}
					s, err := m.NewSession()
					if err == nil {
						err = s.Eval(context.Background(), 11)
						_ = s.Close()
					}
					if err != nil {
						if !errors.Is(err, llm.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		<-reached
		require.NoError(t, m.Close())
		wg.Wait()
	}
}
