// Command onnxref records what ONNX Runtime gives for the models from npm, so that the main module can compare without cgo: it
// completes models/onnx/testdata/onnxruntime.json, which says what the inputs are, with some elements of every output and its range.
//
//	sh onnx/install.sh .cache/onnx && go run ./onnxref -dir .cache/onnx ../models/onnx/testdata/onnxruntime.json
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/tensor"
)

// samples is how many elements of an output are kept: half of them evenly spaced, half those nearest the middle of its range, which
// differences move most.
const samples = 160

type record struct {
	Runtime string  `json:"runtime"`
	Picture string  `json:"picture"`
	Models  []model `json:"models"`
}

type model struct {
	File    string       `json:"file"`
	Dims    []int        `json:"dims"`
	Format  image.Format `json:"format"`
	Outputs []output     `json:"outputs"`
}

type output struct {
	Name   string    `json:"name"`
	Shape  []int64   `json:"shape"`
	Low    float32   `json:"low"`
	High   float32   `json:"high"`
	At     []int     `json:"at"` // the elements that are kept
	Values []float32 `json:"values"`
}

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "onnx-peer", "folder that onnx/install.sh has filled")
	flag.Parse()
	path := flag.Arg(0)
	text, err := os.ReadFile(path)
	check(err)
	var r record
	check(json.Unmarshal(text, &r))
	ort.SetSharedLibraryPath(filepath.Join(*dir, "libonnxruntime.so"))
	check(ort.InitializeEnvironment())
	defer ort.DestroyEnvironment()
	r.Runtime = "onnxruntime " + ort.GetVersion()
	pictures, err := image.ReadFile(filepath.Join(*dir, r.Picture))
	check(err)
	for i := range r.Models {
		m := &r.Models[i]
		in := tensor.New(tensor.F32, m.Dims...)
		check(m.Format.Put(in, pictures[0]))
		m.Outputs, err = run(filepath.Join(*dir, m.File), in)
		if err != nil {
			log.Fatalf("%s: %v", m.File, err)
		}
	}
	out, err := json.MarshalIndent(r, "", " ")
	check(err)
	check(os.WriteFile(path, append(compact(out), '\n'), 0o644))
}

// compact puts lists of numbers on a line each.
func compact(text []byte) []byte {
	var out []byte
	depth, inText := 0, false
	for i, c := range text {
		switch {
		case c == '"' && text[i-1] != '\\':
			inText = !inText
		case !inText && c == '[' && i+1 < len(text) && !objects(text[i+1:]):
			depth++
		case !inText && c == ']' && depth > 0:
			depth--
		case !inText && depth > 0 && (c == '\n' || c == ' '):
			continue
		}
		out = append(out, c)
	}
	return out
}

// objects reports whether a list has something else than numbers.
func objects(rest []byte) bool {
	for _, c := range rest {
		if c != ' ' && c != '\n' {
			return c == '{' || c == '"'
		}
	}
	return false
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func run(path string, in tensor.Tensor) ([]output, error) {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer o.Destroy()
	ins, outs, err := ort.GetInputOutputInfo(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, v := range outs {
		names = append(names, v.Name)
	}
	s, err := ort.NewDynamicAdvancedSession(path, []string{ins[0].Name}, names, o)
	if err != nil {
		return nil, err
	}
	defer s.Destroy()
	shape := ort.NewShape()
	for _, d := range in.Shape() {
		shape = append(shape, int64(d))
	}
	x, err := ort.NewTensor(shape, tensor.Data[float32](in))
	if err != nil {
		return nil, err
	}
	defer x.Destroy()
	values := make([]ort.Value, len(names))
	if err := s.Run([]ort.Value{x}, values); err != nil {
		return nil, err
	}
	var list []output
	for i, v := range values {
		t, ok := v.(*ort.Tensor[float32])
		if !ok {
			return nil, fmt.Errorf("output %q is not of f32", names[i])
		}
		data := t.GetData()
		out := output{Name: names[i], Shape: t.GetShape(), Low: slices.Min(data), High: slices.Max(data)}
		middle := out.Low + (out.High-out.Low)/2
		order := make([]int, len(data))
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(math.Abs(float64(data[a]-middle)), math.Abs(float64(data[b]-middle)))
		})
		out.At = slices.Clone(order[:min(len(order), samples/2)])
		for k := 0; k < len(data); k += max(len(data)/(samples/2)|1, 1) {
			out.At = append(out.At, k)
		}
		for _, k := range out.At {
			out.Values = append(out.Values, data[k])
		}
		list = append(list, out)
		v.Destroy()
	}
	return list, nil
}
