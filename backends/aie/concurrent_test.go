package aie

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// together calls each on n goroutines that begin at one time, and returns the first error.
func together(n int, each func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-begin
			errs[i] = each(i)
		}()
	}
	close(begin)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Products of several goroutines on one engine, with weights and plans that they share and are the first to ask for, have the bits of products one by one, and
// all of them are counted.
func TestProductsOfManyGoroutines(t *testing.T) {
	const goroutines, rounds = 8, 3
	heights := []int{1, 3, 20, 33}
	for _, c := range []struct {
		options string
		d       tensor.DType
	}{
		{"precision=int16", tensor.F32}, {"precision=int8", tensor.F32}, {"precision=fp32", tensor.F32}, {"design=paper", tensor.F32}, {"", tensor.I16}, {"", tensor.I8},
	} {
		for _, mode := range []string{"fast", "emulate"} {
			t.Run(fmt.Sprint(c.options, " ", c.d, " ", mode), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(11, 11))
				random := func(dims ...int) tensor.Tensor {
					if c.d == tensor.F32 {
						return floats(rng, dims...)
					}
					return integers(rng, c.d, 127, dims...)
				}
				const n, k = 37, 90
				spec := matmul.Spec{N: n, K: k, A: c.d, B: c.d, C: tensor.F32}
				if c.d != tensor.F32 {
					spec.C = tensor.I32
				}
				weights := random(k, n)
				var in, want []tensor.Tensor
				alone := openT(t, c.options+",mode="+mode).engine
				for _, m := range heights {
					in = append(in, random(m, k))
					want = append(want, multiply(t, alone, matmul.Op{Out: spec.C}, in[len(in)-1], weights))
				}

				b := openT(t, c.options+",mode="+mode)
				w, err := b.engine.Pack(context.Background(), spec, weights)
				require.NoError(t, err)
				require.NoError(t, together(goroutines, func(g int) error {
					var ws matmul.Workspace
					for round := range rounds * len(heights) {
						i := (g + round) % len(heights)
						m := heights[i]
						p, err := b.engine.Plan(spec, matmul.Shape{M: m})
						if err != nil {
							return err
						}
						c := tensor.New(spec.C, m, n)
						if err := p.Run(context.Background(), w, &matmul.Args{A: in[i], C: c}, &ws); err != nil {
							return err
						}
						if string(c.Raw()) != string(want[i].Raw()) {
							return fmt.Errorf("goroutine %d, %d rows: other bits than alone", g, m)
						}
					}
					return nil
				}))
				require.NoError(t, w.Close())
				s := b.Stats()
				require.EqualValues(t, goroutines*rounds*len(heights), s.Products)
				require.Equal(t, 2*s.Products, s.Conversions)
				macs := 0
				for _, m := range heights {
					macs += m * n * k
				}
				require.EqualValues(t, goroutines*rounds*macs, s.UsefulMACs)
			})
		}
	}
}

// Programs that several goroutines compile of one part and run, each with a frame of its own, share the packed weights and have the bits of one alone.
func TestProgramsOfManyGoroutines(t *testing.T) {
	const goroutines, runs = 6, 3
	rng := rand.New(rand.NewPCG(12, 12))
	relu := matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}
	for name, c := range map[string]struct {
		op ops.Op
		in []tensor.Tensor
	}{
		"product":     {matmul.Op{Epilogue: relu}, []tensor.Tensor{floats(rng, 19, 70), floats(rng, 70, 23), floats(rng, 23)}},
		"convolution": {conv.Conv{Epilogue: relu}, []tensor.Tensor{floats(rng, 2, 3, 9, 8), floats(rng, 5, 3, 3, 3), floats(rng, 5)}},
	} {
		for _, options := range []string{"precision=int16,mode=fast", "precision=int16,mode=emulate", "precision=int8,mode=emulate", "precision=fp32,mode=fast"} {
			t.Run(name+" "+options, func(t *testing.T) {
				ctx := context.Background()
				p, frame := part(t, c.op, c.in...)
				prog, err := openT(t, options).Compile(ctx, p)
				require.NoError(t, err)
				require.NoError(t, prog.Run(ctx, frame, 0, 1))
				require.NoError(t, prog.Close())
				want := frame[len(frame)-1]

				b := openT(t, options)
				p, _ = part(t, c.op, c.in...)
				require.NoError(t, together(goroutines, func(g int) error {
					prog, err := b.Compile(ctx, p)
					if err != nil {
						return err
					}
					own := append([]tensor.Tensor{}, frame...)
					for range runs {
						out := tensor.New(want.DType, want.Shape()...)
						own[len(own)-1] = out
						if err := prog.Run(ctx, own, 0, 1); err != nil {
							return err
						}
						if string(out.Raw()) != string(want.Raw()) {
							return fmt.Errorf("goroutine %d: other bits than alone", g)
						}
					}
					return prog.Close()
				}))
				require.EqualValues(t, goroutines*runs, b.Stats().Products)
			})
		}
	}
}
