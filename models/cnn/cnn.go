// Package cnn classifies pictures: with an ONNX classifier of any kind, whose input says how pictures must be laid out, or with the
// digit classifier that it embeds.
package cnn

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	stdimage "image"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// digits is a network of three convolutions for images of 28 x 28 pixels with values from 0 to 255, trained on MNIST by
// examples/train-mnist.
//
//go:embed digits.onnx
var digits []byte

// Options say how pictures enter a model and what its results are called.
type Options struct {
	Backends  []backends.Backend // in order of preference, the CPU last; nil opens "cpu" for the classifier
	Labels    []string           // one name for each class; by default those in the model's metadata, else their numbers
	Scale     float32            // pixel values 0 to 255 are multiplied by it; 0 means 1
	Mean, Std []float32          // then: - Mean, / Std; one number a channel or one for all
	Top       int                // classes to report, best first; 0 means 5
	Batch     int                // pictures at a time at most, if the model allows any number; 0 means 32

	// What the graph is told, as in onnx.Options.
	Strict        bool     // a product that an earlier backend refuses is an error, not a fallback
	MaxMemory     int64    // bytes above which a model is refused; 0 is no limit
	DisablePasses []string // names of passes over the graph to leave out, or "all"
	Profile       bool     // measure every node
}

// Classifier is a model whose input is pictures and whose output is a score for each class. One goroutine at a time uses it.
type Classifier struct {
	session *onnx.Session
	owned   *onnx.Model
	opts    Options
	format  image.Format
	input   string
	w, h    int
	batch   int // of a run
	fixed   bool
	labels  []string
	buf     tensor.Tensor
}

// Score is a class and how probable it is.
type Score struct {
	Class int     `json:"class"`
	Label string  `json:"label"`
	Score float32 `json:"score"`
}

// Result is what a model says about a picture: the best class, and the Top best.
type Result struct {
	Score
	Top []Score
}

// Digits opens the embedded classifier of handwritten digits, white on black.
func Digits(ctx context.Context, o Options) (*Classifier, error) {
	m, err := onnx.Decode(digits)
	if err != nil {
		return nil, err
	}
	return own(ctx, m, o)
}

// Open opens an ONNX classifier.
func Open(ctx context.Context, path string, o Options) (*Classifier, error) {
	m, err := onnx.Open(path)
	if err != nil {
		return nil, err
	}
	return own(ctx, m, o)
}

func own(ctx context.Context, m *onnx.Model, o Options) (*Classifier, error) {
	c, err := New(ctx, m, o)
	if err != nil {
		_ = m.Close()
		return nil, err
	}
	c.owned = m
	return c, nil
}

// New makes a classifier of a model, which stays open as long as the classifier.
func New(ctx context.Context, m *onnx.Model, o Options) (*Classifier, error) {
	if o.Top <= 0 {
		o.Top = 5
	}
	if o.Batch <= 0 {
		o.Batch = 32
	}
	s, err := onnx.NewSession(ctx, m, onnx.Options{Backends: o.Backends, Strict: o.Strict, MaxMemory: o.MaxMemory, Profile: o.Profile, DisablePasses: o.DisablePasses})
	if err != nil {
		return nil, err
	}
	c := &Classifier{session: s, opts: o}
	if err := c.layout(); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("no classifier of pictures: %w", err)
	}
	c.format.Scale, c.format.Mean, c.format.Std = o.Scale, o.Mean, o.Std
	if err := c.format.Check(); err != nil {
		_ = s.Close()
		return nil, err
	}
	if c.labels = o.Labels; c.labels == nil {
		c.labels = metadataLabels(m.Metadata)
	}
	if n := declaredClasses(s.Outputs()[0].Type); n > 0 {
		if err := c.checkLabels(n); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return c, nil
}

// declaredClasses returns how many classes the file says that the output has, 0 where it does not.
func declaredClasses(t *onnx.TypeInfo) int {
	if t == nil || !t.HasShape || len(t.Dims) < 2 {
		return 0
	}
	n := 1
	for _, d := range t.Dims[1:] {
		if d.Size < 1 || d.Size > math.MaxInt32/n {
			return 0
		}
		n *= d.Size
	}
	return n
}

// checkLabels refuses names that cannot be those of the model's classes: with too few or too many of them, all may be shifted.
func (c *Classifier) checkLabels(classes int) error {
	if c.opts.Labels != nil && len(c.opts.Labels) != classes {
		return fmt.Errorf("%d labels for the %d classes of the model", len(c.opts.Labels), classes)
	}
	return nil
}

// layout reads size and order of the channels from the model's input.
func (c *Classifier) layout() error {
	inputs := c.session.Inputs()
	if len(inputs) != 1 || len(c.session.Outputs()) < 1 {
		return fmt.Errorf("the model has %d inputs, one is right", len(inputs))
	}
	in := inputs[0]
	t := in.Type
	if t == nil || t.Elem != onnx.Float || !t.HasShape || len(t.Dims) != 4 {
		return fmt.Errorf("input %q is %v, float[N C H W] or float[N H W C] is right", in.Name, t)
	}
	c.input = in.Name
	size := func(i int) int { return t.Dims[i].Size }
	channels := func(n int) bool { return n == 1 || n == 3 || n == 4 }
	switch {
	case channels(size(1)) && !(channels(size(3)) && size(1) > size(3)):
		c.format.Channels, c.h, c.w = size(1), size(2), size(3)
	case channels(size(3)):
		c.format.Last, c.format.Channels, c.h, c.w = true, size(3), size(1), size(2)
	default:
		return fmt.Errorf("input %q is %v: no dimension of 1, 3 or 4 channels", in.Name, t)
	}
	const usual = 224 // of networks that leave their size open
	if c.h <= 0 {
		c.h = usual
	}
	if c.w <= 0 {
		c.w = usual
	}
	c.batch, c.fixed = size(0), true
	if c.batch <= 0 {
		c.batch, c.fixed = c.opts.Batch, false
	}
	if pixels := c.batch * c.h; c.batch > 1<<16 || c.h > 1<<14 || c.w > 1<<14 || pixels > image.MaxPixels/c.w {
		return fmt.Errorf("input %q is %v", in.Name, t)
	}
	return nil
}

// metadataLabels finds class names in a model's metadata: a JSON list or map, or a list separated by commas or lines.
func metadataLabels(meta map[string]string) []string {
	for _, key := range []string{"labels", "classes", "names", "class_names"} {
		s := strings.TrimSpace(meta[key])
		if s == "" {
			continue
		}
		var list []string
		if json.Unmarshal([]byte(s), &list) == nil {
			return list
		}
		var byNumber map[string]string
		if json.Unmarshal([]byte(s), &byNumber) == nil {
			for i := range len(byNumber) {
				list = append(list, byNumber[strconv.Itoa(i)])
			}
			return list
		}
		sep := ","
		if strings.Contains(s, "\n") {
			sep = "\n"
		}
		for _, l := range strings.Split(s, sep) {
			list = append(list, strings.TrimSpace(l))
		}
		return list
	}
	return nil
}

// Session returns the session that runs the model, for reports and profiles.
func (c *Classifier) Session() *onnx.Session { return c.session }

// Classify classifies pictures, which are resized to the model's size.
func (c *Classifier) Classify(ctx context.Context, pictures []stdimage.Image) ([]Result, error) {
	results := make([]Result, 0, len(pictures))
	for len(pictures) > 0 {
		n := min(c.batch, len(pictures))
		run := n
		if c.fixed {
			run = c.batch
		}
		if err := c.fill(pictures[:n], run); err != nil {
			return nil, err
		}
		out, err := c.session.Run(ctx, map[string]onnx.Value{c.input: onnx.Of(c.buf)})
		if err != nil {
			return nil, err
		}
		scores := out[c.session.Outputs()[0].Name].Tensor
		if scores.Elems() == 0 || scores.Elems()%run != 0 || !scores.DType.IsFloat() {
			return nil, fmt.Errorf("output %v for %d pictures: a score for each class is right", scores.Spec, run)
		}
		v := scores.Floats()
		classes := len(v) / run
		if err := c.checkLabels(classes); err != nil {
			return nil, err
		}
		for i := range n {
			results = append(results, c.result(v[i*classes:(i+1)*classes]))
		}
		pictures = pictures[n:]
	}
	return results, nil
}

// fill lays pictures out in the input; what a fixed batch has more is zero.
func (c *Classifier) fill(pictures []stdimage.Image, run int) error {
	dims := append([]int{run}, c.format.Dims(c.w, c.h)...)
	if want := tensor.MakeSpec(tensor.F32, dims...); c.buf.Spec != want {
		c.buf = tensor.New(tensor.F32, dims...)
	} else if len(pictures) < run {
		clear(c.buf.Raw())
	}
	for i, p := range pictures {
		one, err := c.buf.Slice(0, i, i+1, 1)
		if err != nil {
			return err
		}
		if b := p.Bounds(); b.Dx() == 0 || b.Dy() == 0 {
			return errors.New("a picture without pixels")
		}
		if err := c.format.Put(one, p); err != nil {
			return err
		}
	}
	return nil
}

// result ranks scores: as they are if they are probabilities, else after softmax.
func (c *Classifier) result(v []float64) Result {
	sum, low := 0.0, false
	for _, x := range v {
		sum += x
		low = low || x < 0
	}
	if low || math.Abs(sum-1) > 1e-3 {
		v = softmax(v)
	}
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return v[order[a]] > v[order[b]] })
	var r Result
	for _, i := range order[:min(c.opts.Top, len(order))] {
		r.Top = append(r.Top, Score{i, c.label(i), float32(v[i])})
	}
	r.Score = r.Top[0]
	return r
}

func (c *Classifier) label(i int) string {
	if i < len(c.labels) {
		return c.labels[i]
	}
	return strconv.Itoa(i)
}

func softmax(v []float64) []float64 {
	top, sum := math.Inf(-1), 0.0
	for _, x := range v {
		top = max(top, x)
	}
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = math.Exp(x - top)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// Close releases the session, and the model if the classifier opened it.
func (c *Classifier) Close() error {
	err := c.session.Close()
	if c.owned != nil {
		err = errors.Join(err, c.owned.Close())
	}
	return err
}
