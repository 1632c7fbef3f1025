package cnn_test

import (
	"context"
	"fmt"
	stdimage "image"
	"image/color"
	"log"

	_ "github.com/tessera-go/tessera/backends/cpu" // the program decides which backends it links
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/onnx"
)

// drawn is a picture of 28 x 28 pixels with a vertical bar: a one.
func drawn() stdimage.Image {
	g := stdimage.NewGray(stdimage.Rect(0, 0, 28, 28))
	for y := 5; y < 23; y++ {
		for x := 13; x < 16; x++ {
			g.SetGray(x, y, color.Gray{Y: 250})
		}
	}
	return g
}

// The embedded classifier needs no file. Pictures of any size and kind that package image decodes are resized and laid out as the model wants them.
func ExampleDigits() {
	ctx := context.Background()
	c, err := cnn.Digits(ctx, cnn.Options{Top: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	results, err := c.Classify(ctx, []stdimage.Image{drawn()})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range results {
		fmt.Println(r.Label, r.Score.Score > 0.9, len(r.Top))
	}
	// Output: 1 true 3
}

// A classifier of one's own gets names for its classes, and pixels as it was trained on: here one that was trained on values from 0 to 1, whose only
// layer is the mean of a picture with three colours.
func ExampleNew() {
	ctx := context.Background()
	m, err := onnx.NewModel(13, &onnx.Graph{
		Inputs:  []onnx.ValueInfo{onnx.Info("picture", onnx.Float, -1, 3, 8, 8)},
		Outputs: []onnx.ValueInfo{onnx.Info("scores", onnx.Float, -1, 3)},
		Nodes: []*onnx.Node{{Op: "ReduceMean", In: []string{"picture"}, Out: []string{"scores"}, Attrs: []onnx.Attr{
			onnx.IntsAttr("axes", 2, 3), onnx.IntAttr("keepdims", 0),
		}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	c, err := cnn.New(ctx, m, cnn.Options{Labels: []string{"red", "green", "blue"}, Scale: 1. / 255})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sky := stdimage.NewUniform(color.RGBA{R: 80, G: 150, B: 240, A: 255})
	picture := stdimage.NewRGBA(stdimage.Rect(0, 0, 32, 32))
	for y := range 32 {
		for x := range 32 {
			picture.Set(x, y, sky.C)
		}
	}
	results, err := c.Classify(ctx, []stdimage.Image{picture})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[0].Label)
	// Output: blue
}
