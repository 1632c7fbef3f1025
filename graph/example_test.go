package graph_test

import (
	"context"
	"fmt"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu" // the program decides which backends it links
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// A layer with a bias and an activation, compiled once and run for batches of different sizes. The passes make one product of its three nodes.
func Example() {
	if err := layer(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// relu = [fc bias] + relu: matmul on cpu
	// f32[2 2] [2 0 6 2]
	// f32[1 2] [0 4]
}

func layer(ctx context.Context) error {
	g := graph.New("layer")
	x := g.Input("x", tensor.F32, g.Symbol("batch", 64), ops.Const(3)) // up to 64 rows of 3
	w := g.Constant("w", tensor.Of([]float32{1, 0, 0, 1, 1, -1}, 3, 2))
	b := g.Constant("b", tensor.Of([]float32{0, 1}, 2))
	y := g.Apply("fc", matmul.Op{}, x, w)
	y = g.Apply("bias", elementwise.Binary{F: elementwise.Add}, y, b)
	y = g.Apply("relu", elementwise.Activate{Act: ops.Act{Kind: ops.ReLU}}, y)
	g.Output("y", y)
	defer g.Close()

	cpu, err := backends.Open("cpu")
	if err != nil {
		return err
	}
	defer cpu.Close()
	exe, err := g.Compile(ctx, graph.Options{Backends: []backends.Backend{cpu}}) // mistakes of building are reported here too
	if err != nil {
		return err
	}
	defer exe.Close()
	for _, p := range exe.Placements() {
		fmt.Printf("%s = %v + %s: %s on %s\n", p.Name, p.Fused, p.Name, p.Op, p.Backend)
	}

	for _, rows := range []tensor.Tensor{
		tensor.Of([]float32{1, 0, 1, 2, 5, 4}, 2, 3),
		tensor.Of([]float32{0, 3, 0}, 1, 3),
	} {
		if err := exe.Bind(x, rows); err != nil {
			return err
		}
		if err := exe.Run(ctx); err != nil {
			return err
		}
		out := exe.Output(y) // valid until the next run
		fmt.Println(out, tensor.Data[float32](out))
	}
	return nil
}
