package matmul_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu" // computes; without it the reference does
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// A product without a graph: C = relu(A B + bias).
func ExampleMatMul() {
	a := tensor.Of([]float32{1, 2, 3, 4}, 2, 2)
	b := tensor.Of([]float32{1, 0, 2, -1, 1, 0}, 2, 3)
	bias := tensor.Of([]float32{0, -1, 0.5}, 3)
	c := tensor.New(tensor.F32, 2, 3)
	relu := matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}
	if err := matmul.MatMul(c, a, b, matmul.WithEpilogue(relu, bias)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tensor.Data[float32](c))
	// Output: [0 1 2.5 0 3 6.5]
}

// Weights as int8, packed once and used for many runs: a layer of PyTorch, [out, in], quantized with a scale for each output. The activations get a
// scale for each row when they come.
func ExampleEngine() {
	const m, k, n = 2, 4, 3
	layer := []float32{ // [n, k]
		1, 0, 0, 0,
		0.5, -0.5, 0, 0,
		0, 0, 2, 4,
	}
	weights, columns := make([]int8, n*k), make([]float32, n)
	quant.Rows(weights, columns, layer, k)

	ctx := context.Background()
	cpu, err := backends.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer cpu.Close()
	engine := cpu.MatMul()
	spec := matmul.Spec{N: n, K: k, A: tensor.I8, B: tensor.I8, C: tensor.F32, BLayout: matmul.ColMajor,
		Epilogue: matmul.Epilogue{RowScale: true, ColScale: true}}
	packed, err := engine.Pack(ctx, spec, tensor.Of(weights, n, k))
	if err != nil {
		log.Fatal(err)
	}
	defer packed.Close()
	plan, err := engine.Plan(spec, matmul.Shape{M: m}) // for so many rows
	if err != nil {
		log.Fatal(err)
	}

	var ws matmul.Workspace // one for each goroutine
	a, rows := make([]int8, m*k), make([]float32, m)
	c := tensor.New(tensor.F32, m, n)
	for _, x := range [][]float32{{1, 2, 0, 0, 0, 0, 1, 1}, {-1, 1, 0, 0, 4, 0, 0, 0}} {
		quant.Rows(a, rows, x, k)
		if err := plan.Run(ctx, packed, &matmul.Args{A: tensor.Of(a, m, k), C: c, RowScale: rows, ColScale: columns}, &ws); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%.1f\n", c.Floats())
	}
	// Output:
	// [1.0 -0.5 0.0 0.0 0.0 6.0]
	// [-1.0 -1.0 0.0 4.0 2.0 0.0]
}
