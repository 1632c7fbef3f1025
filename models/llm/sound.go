package llm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/quant"
)

// What a model computes is a number where its weights are. Reading them all when a file is opened would cost what mapping it saves, so that they are looked
// at when a result is none, for an error that names the culprit.

// finite reports whether a result is a number.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// errSound says that weights are not to blame.
var errSound = errors.New("all weights are numbers, but what is computed from them overflows")

// blame returns the reason why what a model computes is no number. The model must not be closed meanwhile.
func (m *Model) blame() error {
	if err := m.w.validate(); err != nil {
		return err
	}
	return errSound
}

// explain adds the reason to an error of sampling, if logits are no numbers.
func (s *Session) explain(err error, logits []float32) error {
	if !slices.ContainsFunc(logits, func(v float32) bool { return v != v }) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exe == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, s.m.blame())
}

// validate returns an error that names the first weight, by name and row, that holds NaN or infinity.
func (w *weights) validate() (err error) {
	defer mem.Caught(mem.Catch(), &err)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		t := w.known[name].Tensor
		if !quant.CanDecode(t.DType) || t.Rank == 0 || !t.IsContiguous() {
			continue
		}
		raw, row := t.Raw(), t.Dim(-1)/t.DType.Block()*t.DType.Size()
		for i := 0; i*row < len(raw); i++ {
			if err := quant.Validate(t.DType, raw[i*row:(i+1)*row]); err != nil {
				return fmt.Errorf("tensor %q: row %d: %w", name, i, err)
			}
		}
	}
	return nil
}
