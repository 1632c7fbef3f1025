// Command onnx runs an ONNX model as a program of your own would: names of inputs and outputs, tensors in, tensors out.
//
//	go run ./examples/onnx -model models/cnn/digits.onnx
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

func main() {
	log.SetFlags(0)
	path := flag.String("model", "models/cnn/digits.onnx", "the classifier of handwritten digits")
	flag.Parse()
	err := run(context.Background(), *path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (examples/onnx/README.md says where the model is)", err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	model, err := onnx.Open(path)
	if err != nil {
		return err
	}
	defer model.Close()
	session, err := onnx.NewSession(ctx, model, onnx.Options{}) // on the CPU; the error names operators that are not there
	if err != nil {
		return err
	}
	defer session.Close()
	for _, v := range session.Inputs() {
		fmt.Println("input", v)
	}
	for _, v := range session.Outputs() {
		fmt.Println("output", v)
	}

	// Two pictures of 28 x 28 pixels, white on black: a one and a seven. Each combination of input shapes is compiled once.
	const side = 28
	pixels := make([]float32, 2*side*side)
	for y := 5; y < 23; y++ {
		for x := 13; x < 16; x++ {
			pixels[y*side+x] = 255
			pixels[(side+y)*side+x+(14-y)/3] = 255 // slanted
		}
	}
	for x := 7; x < 19; x++ {
		pixels[(side+5)*side+x], pixels[(side+6)*side+x] = 255, 255
	}
	out, err := session.Run(ctx, map[string]onnx.Value{"image": onnx.Of(tensor.Of(pixels, 2, 1, side, side))})
	if err != nil {
		return err
	}
	scores := out["scores"].Tensor // valid until the next run
	all := tensor.Data[float32](scores)
	for i := range scores.Dim(0) {
		row := all[i*scores.Dim(1) : (i+1)*scores.Dim(1)]
		best := 0
		for class, s := range row {
			if s > row[best] {
				best = class
			}
		}
		fmt.Printf("picture %d: %d\n", i, best)
	}
	return nil
}
