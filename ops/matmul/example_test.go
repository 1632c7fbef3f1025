package matmul_test

import (
	"fmt"

	_ "github.com/tessera-go/tessera/backends/cpu" // computes; without it the reference does
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
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
