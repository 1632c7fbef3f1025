package ops

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/tensor"
)

func TestSize(t *testing.T) {
	sizes := Sizes{"n": 7}
	for _, c := range []struct {
		s    Size
		want int
		text string
	}{{Const(3), 3, "3"}, {Size{Sym: "n"}, 7, "n"}, {Size{Sym: "n"}.Plus(2), 9, "n+2"}, {Size{Sym: "n", N: -1}, 6, "n-1"}} {
		got, err := c.s.Value(sizes)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		require.Equal(t, c.text, c.s.String())
	}
	_, err := Size{Sym: "m"}.Value(sizes)
	require.ErrorContains(t, err, `"m"`)
}

func TestConstantPreparesOnce(t *testing.T) {
	c := NewConstant(tensor.Of([]float32{1}, 1))
	var wg sync.WaitGroup
	made := 0
	for i := 0; i < 16; i++ {
		wg.Go(func() {
			v, err := c.Prepare("key", func() (any, error) { made++; return &form{}, nil })
			if err != nil || v == nil {
				t.Error("no form")
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, made)
	require.Equal(t, 12, c.PreparedBytes())
	_, err := c.Prepare("other", func() (any, error) { return nil, errors.New("bad") })
	require.EqualError(t, err, "bad")
	v, _ := c.Prepare("key", nil)
	require.NoError(t, c.Close())
	require.True(t, v.(*form).closed)
}

// A form whose making panics is one for all that wait for it, never a nil form, and is made by the next caller.
func TestConstantPreparesAfterAPanic(t *testing.T) {
	c := NewConstant(tensor.Of([]float32{1}, 1))
	began, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	prepare := func(make func() (any, error)) (v any, panicked any) {
		defer func() { panicked = recover() }()
		v, _ = c.Prepare("key", make)
		return v, nil
	}
	wg.Go(func() {
		_, panicked := prepare(func() (any, error) { close(began); <-end; panic("cut short") })
		if panicked != "cut short" {
			t.Error("the first caller:", panicked)
		}
	})
	<-began
	for range 4 {
		wg.Go(func() { // these wait, or come when it is over
			v, panicked := prepare(func() (any, error) { return &form{}, nil })
			if (v == nil) == (panicked == nil) {
				t.Error("a later caller:", v, panicked)
			}
		})
	}
	close(end)
	wg.Wait()
	v, panicked := prepare(func() (any, error) { return &form{}, nil })
	require.Nil(t, panicked)
	require.NotNil(t, v)
	require.NoError(t, c.Close())
	require.True(t, v.(*form).closed)
}

// An error is that of the caller whose form failed, such as one whose context has ended: neither those that waited for it nor later ones have it.
func TestConstantPreparesAfterAnError(t *testing.T) {
	c := NewConstant(tensor.Of([]float32{1}, 1))
	began, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.Prepare("key", func() (any, error) { close(began); <-end; return nil, context.Canceled })
		if !errors.Is(err, context.Canceled) {
			t.Error("the first caller:", err)
		}
	})
	<-began
	made := 0
	for range 4 {
		wg.Go(func() { // these wait, or come when it is over
			v, err := c.Prepare("key", func() (any, error) { made++; return &form{}, nil })
			if v == nil || err != nil {
				t.Error("a later caller:", v, err)
			}
		})
	}
	close(end)
	wg.Wait()
	require.Equal(t, 1, made)
	require.Equal(t, 12, c.PreparedBytes())
	require.NoError(t, c.Close())
}

type form struct{ closed bool }

func (*form) Bytes() int     { return 12 }
func (f *form) Close() error { f.closed = true; return nil }

func TestActivationsAtKnownPoints(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		act     Act
		x, want float64
	}{
		{Act{}, -3, -3},
		{Act{Kind: ReLU}, -3, 0}, {Act{Kind: ReLU}, 3, 3},
		{Act{Kind: LeakyReLU, P: 0.25}, -4, -1},
		{Act{Kind: GELU}, 1, 0.8413447460685429}, {Act{Kind: GELU}, -inf, 0}, {Act{Kind: GELU}, inf, inf},
		{Act{Kind: GELUTanh}, 1, 0.8411919906082768}, {Act{Kind: GELUTanh}, -inf, 0},
		{Act{Kind: QuickGELU}, 0, 0}, {Act{Kind: QuickGELU}, -inf, 0},
		{Act{Kind: SiLU}, 1, 0.7310585786300049}, {Act{Kind: SiLU}, -1000, 0}, {Act{Kind: SiLU}, -inf, 0},
		{Act{Kind: Tanh}, 0.5, 0.46211715726000973},
		{Act{Kind: Sigmoid}, 0, 0.5}, {Act{Kind: Sigmoid}, -1000, 0}, {Act{Kind: Sigmoid}, inf, 1},
		{Act{Kind: HardSigmoid, P: 0.2, Q: 0.5}, 1, 0.7}, {Act{Kind: HardSigmoid, P: 0.2, Q: 0.5}, 9, 1},
		{Act{Kind: HardSwish}, 3, 3}, {Act{Kind: HardSwish}, -3, 0}, {Act{Kind: HardSwish}, 1.5, 1.125}, {Act{Kind: HardSwish}, -inf, 0},
		{Act{Kind: Clip, P: -1, Q: 2}, 5, 2}, {Act{Kind: Clip, P: -1, Q: 2}, -5, -1},
		{Act{Kind: ELU, P: 2}, -1, 2 * (math.Exp(-1) - 1)},
		{Act{Kind: Softplus}, 0, math.Ln2}, {Act{Kind: Softplus}, 1000, 1000},
		{Act{Kind: Mish}, 1, 0.8650983882673103}, {Act{Kind: Mish}, -inf, 0},
	} {
		require.InDelta(t, c.want, c.act.Apply(c.x), 1e-6, "%v(%v)", c.act, c.x) // parameters are float32
	}
	for k := NoActivation; k < numActivations; k++ {
		require.True(t, math.IsNaN(Act{Kind: k, P: -1, Q: 1}.Apply(nan)), "%v", k)
		require.NotEmpty(t, k.String())
	}
}

func TestDescribeAndNumInputs(t *testing.T) {
	s := tensor.MakeSpec(tensor.F32, 2, 3)
	require.Equal(t, "x(f32[2 3], -)", Describe(named{}, []tensor.Spec{s, {}}))
	require.NoError(t, NumInputs(named{}, []tensor.Spec{s, {}}, 1, 2))
	require.ErrorContains(t, NumInputs(named{}, []tensor.Spec{s, {}}, 2, 2), "input 1 is absent")
	require.ErrorContains(t, NumInputs(named{}, []tensor.Spec{s}, 2, 3), "2 to 3 are right")
}

type named struct{ Op }

func (named) Name() string { return "x" }

// Close takes along a form that is still being made: nobody else would close it.
func TestConstantCloseWaitsForForms(t *testing.T) {
	c := NewConstant(tensor.Of([]float32{1}, 1))
	began, end, f := make(chan struct{}), make(chan struct{}), &form{}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Prepare("key", func() (any, error) { close(began); <-end; return f, nil }); err != nil {
			t.Error(err)
		}
	})
	<-began
	wg.Go(func() {
		if err := c.Close(); err != nil || !f.closed {
			t.Error("closed:", f.closed, err)
		}
	})
	close(end)
	wg.Wait()
}

// A goroutine that ends while it makes a form leaves none behind, and no nil form to those that wait.
func TestConstantPreparesAfterGoexit(t *testing.T) {
	c := NewConstant(tensor.Of([]float32{1}, 1))
	began, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		c.Prepare("key", func() (any, error) { close(began); <-end; runtime.Goexit(); return nil, nil })
	})
	<-began
	wg.Go(func() {
		if v, err := c.Prepare("key", func() (any, error) { return &form{}, nil }); v == nil || err != nil {
			t.Error(v, err)
		}
	})
	close(end)
	wg.Wait()
}
