// Command filetype says what files are, by their content, with Google's model Magika (Apache-2.0).
//
//	go run ./examples/filetype -model model.onnx -config config.min.json FILE...
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

func main() {
	log.SetFlags(0)
	model := flag.String("model", "model.onnx", "Magika's model")
	config := flag.String("config", "config.min.json", "Magika's configuration")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: filetype [-model FILE] [-config FILE] FILE...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	cpu, err := backends.Open("cpu")
	check(err)
	d, err := open(*model, *config, cpu)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w; examples/filetype/README.md says where the model comes from", err)
	}
	check(err)
	defer d.close()
	for _, path := range flag.Args() {
		label, score, err := d.file(path)
		check(err)
		fmt.Printf("%s: %s (%.1f %%)\n", path, label, 100*score)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// detector holds the model and what its configuration says.
type detector struct {
	model   *onnx.Model
	session *onnx.Session
	Begin   int      `json:"beg_size"`
	End     int      `json:"end_size"`
	Block   int      `json:"block_size"`
	Padding int32    `json:"padding_token"`
	Labels  []string `json:"target_labels_space"`
}

func open(model, config string, b backends.Backend) (*detector, error) {
	text, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	d := &detector{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", config, err)
	}
	if d.model, err = onnx.Open(model); err != nil {
		return nil, err
	}
	if d.session, err = onnx.NewSession(context.Background(), d.model, onnx.Options{Backends: []backends.Backend{b}}); err != nil {
		_ = d.model.Close()
		return nil, err
	}
	return d, nil
}

func (d *detector) close() {
	_ = d.session.Close()
	_ = d.model.Close()
}

// file classifies a file by its first and last bytes.
func (d *detector) file(path string) (label string, score float32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	n := min(info.Size(), int64(d.Block))
	head, tail := make([]byte, n), make([]byte, n)
	if _, err = io.ReadFull(f, head); err == nil {
		_, err = f.ReadAt(tail, info.Size()-n)
	}
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", path, err)
	}
	features := make([]int32, d.Begin+d.End)
	d.features(features, head, tail)
	scores, err := d.scores(features, 1)
	if err != nil {
		return "", 0, err
	}
	best := 0
	for i, s := range scores {
		if s > scores[best] {
			best = i
		}
	}
	return d.Labels[best], scores[best], nil
}

// features puts the bytes of the beginning at the left and those of the end at the right, both without the white space outside.
func (d *detector) features(dst []int32, head, tail []byte) {
	const space = " \t\n\v\f\r"
	head, tail = bytes.TrimLeft(head, space), bytes.TrimRight(tail, space)
	for i := range dst {
		dst[i] = d.Padding
	}
	for i, b := range head[:min(len(head), d.Begin)] {
		dst[i] = int32(b)
	}
	tail = tail[max(len(tail)-d.End, 0):]
	for i, b := range tail {
		dst[len(dst)-len(tail)+i] = int32(b)
	}
}

// scores runs the model on the features of n files.
func (d *detector) scores(features []int32, n int) ([]float32, error) {
	in := d.session.Inputs()[0].Name
	out, err := d.session.Run(context.Background(), map[string]onnx.Value{in: onnx.Of(tensor.Of(features, n, len(features)/n))})
	if err != nil {
		return nil, err
	}
	t := out[d.session.Outputs()[0].Name].Tensor
	if t.DType != tensor.F32 || t.Elems() != n*len(d.Labels) {
		return nil, fmt.Errorf("the model gives %v for %d labels", t.Spec, len(d.Labels))
	}
	return tensor.Data[float32](t), nil
}
