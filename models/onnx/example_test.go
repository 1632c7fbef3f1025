package onnx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// save writes a model of one layer, y = Relu(x w + b), for any number of rows, and returns its path.
func save(dir string) (string, error) {
	rows := func(name string, columns int) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Size: -1, Param: "rows"}, {Size: columns}}}}
	}
	m, err := onnx.NewModel(17, &onnx.Graph{
		Name:    "layer",
		Inputs:  []onnx.ValueInfo{rows("x", 3)},
		Outputs: []onnx.ValueInfo{rows("y", 2)},
		Inits: []*onnx.Tensor{
			onnx.NewTensor("w", tensor.Of([]float32{1, 0, 0, 1, 1, -1}, 3, 2)),
			onnx.NewTensor("b", tensor.Of([]float32{0.5, 1}, 2)),
		},
		Nodes: []*onnx.Node{
			{Op: "MatMul", In: []string{"x", "w"}, Out: []string{"product"}},
			{Op: "Add", In: []string{"product", "b"}, Out: []string{"sum"}},
			{Op: "Relu", In: []string{"sum"}, Out: []string{"y"}},
		},
	})
	if err != nil {
		return "", err
	}
	data, err := m.Encode()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "layer.onnx")
	return path, os.WriteFile(path, data, 0o600)
}

// A file is opened, asked for its inputs and outputs, and run. Sizes with a name take what a run brings.
func Example() {
	dir, err := os.MkdirTemp("", "onnx")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, err := save(dir)
	if err != nil {
		log.Fatal(err)
	}

	m, err := onnx.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	ctx := context.Background()
	s, err := onnx.NewSession(ctx, m, onnx.Options{}) // on the CPU, which the blank import above links
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for _, v := range s.Inputs() {
		fmt.Println("input", v)
	}
	for _, v := range s.Outputs() {
		fmt.Println("output", v)
	}
	out, err := s.Run(ctx, map[string]onnx.Value{"x": onnx.Of(tensor.Of([]float32{1, 2, 3, -1, -2, -3}, 2, 3))})
	if err != nil {
		log.Fatal(err)
	}
	y := out["y"].Tensor
	fmt.Println(y.Shape(), y.Floats())
	// Output:
	// input x float[rows 3]
	// output y float[rows 2]
	// [2 2] [4.5 0 0 2]
}

// Prepare does before the first run what it would do then, for the shapes that are expected: here of one row.
func ExampleSession_Prepare() {
	dir, err := os.MkdirTemp("", "onnx")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, err := save(dir)
	if err != nil {
		log.Fatal(err)
	}
	m, err := onnx.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	cpu, err := backends.Open("cpu", "threads=1")
	if err != nil {
		log.Fatal(err)
	}
	defer cpu.Close()
	ctx := context.Background()
	s, err := onnx.NewSession(ctx, m, onnx.Options{Backends: []backends.Backend{cpu}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Prepare(ctx, map[string]tensor.Spec{"x": tensor.MakeSpec(tensor.F32, 1, 3)}); err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		x := []float32{float32(i), 0, 1}
		out, err := s.Run(ctx, map[string]onnx.Value{"x": onnx.Of(tensor.Of(x, 1, 3))})
		if err != nil {
			log.Fatal(err)
		}
		y := out["y"].Tensor
		fmt.Println(x, y.Floats())
	}
	// Output:
	// [0 0 1] [1.5 0]
	// [1 0 1] [2.5 0]
	// [2 0 1] [3.5 0]
}

// A model that needs operators which are not there says all of them before anything runs.
func ExampleUnsupportedError() {
	m, err := onnx.NewModel(17, &onnx.Graph{
		Inputs:  []onnx.ValueInfo{onnx.Info("x", onnx.Float, 1, 3)},
		Outputs: []onnx.ValueInfo{onnx.Info("y", onnx.Float, 1, 3)},
		Nodes:   []*onnx.Node{{Name: "first", Op: "Frobnicate", In: []string{"x"}, Out: []string{"y"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	cpu, err := backends.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	defer cpu.Close()
	_, err = onnx.NewSession(context.Background(), m, onnx.Options{Backends: []backends.Backend{cpu}})
	var u *onnx.UnsupportedError
	fmt.Println(errors.As(err, &u))
	fmt.Println(err)
	// Output:
	// true
	// onnx: 1 node has an operator that is not supported: Frobnicate (ai.onnx 17) in node "first": unknown operator
}
