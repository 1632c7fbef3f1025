package llm

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// source is where tensors come from, by their GGUF names.
type source interface {
	Tensor(name string) (tensor.Tensor, error)
	Has(name string) bool
	// stamp is what changes with the files, such as their sizes and times; empty for those in memory.
	stamp() string
	// each calls f with the bytes of every tensor, in a fixed order and under the files' names.
	each(f func(name string, data []byte))
	Close() error
}

// weights hands out constants, each once, so that all graphs of a model share what backends prepare of them.
type weights struct {
	src  source
	keep keeper

	mu    sync.Mutex
	known map[string]*ops.Constant
}

// get returns a tensor that must have the given dimensions.
func (w *weights) get(name string, dims ...int) (*ops.Constant, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.known[name]
	if c == nil {
		t, err := w.src.Tensor(name)
		if err != nil {
			return nil, err
		}
		c = ops.NewConstant(t)
		c.Origin = &origin{&w.keep, name, t.Buf}
		if w.known == nil {
			w.known = map[string]*ops.Constant{}
		}
		w.known[name] = c
	}
	if want := tensor.MakeSpec(c.Tensor.DType, dims...); c.Tensor.Spec != want {
		return nil, fmt.Errorf("tensor %q is %v, %v is right", name, c.Tensor.Spec, want)
	}
	return c, nil
}

func (w *weights) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var first error
	for _, c := range w.known {
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}
	w.known = nil
	return errors.Join(first, w.keep.close(), w.src.Close())
}
