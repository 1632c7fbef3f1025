package main

import (
	"context"
	"fmt"
	stdimage "image"
	"math"

	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/tensor"
)

const (
	lineHeight = 48   // pixels at which the recognizer reads
	lineUnit   = 320  // widths are multiples of it, so that few different shapes must be compiled
	widestLine = 4800 // a longer line is squeezed into it
	// A box so much higher than wide holds text that runs upwards or downwards, and is turned.
	uprightRatio = 1.5
)

// recognize reads the text in a box.
func (r *reader) recognize(ctx context.Context, img stdimage.Image, box [4]image.Point) (line, error) {
	width := max(distance(box[0], box[1]), distance(box[3], box[2]))
	height := max(distance(box[0], box[3]), distance(box[1], box[2]))
	if height >= uprightRatio*width {
		box = [4]image.Point{box[1], box[2], box[3], box[0]}
		width, height = height, width
	}
	l := line{box: box}
	if width < 1 || height < 1 {
		return l, nil
	}
	strip, err := image.Cut(img, box, int(width+0.5), int(height+0.5))
	if err != nil {
		return l, err
	}
	in, err := lineTensor(strip)
	if err != nil {
		return l, err
	}
	out, err := r.recognizer.run(ctx, in)
	if err != nil {
		return l, err
	}
	classes := out.Dim(-1)
	if classes != len(r.characters) {
		return l, fmt.Errorf("the recognizer knows %d characters, the file has %d", classes, len(r.characters))
	}
	l.text, l.confidence = decode(tensor.Data[float32](out), r.characters)
	return l, nil
}

// lineTensor scales a line to the recognizer's height with its proportions kept; what is missing at the right is gray.
func lineTensor(strip stdimage.Image) (tensor.Tensor, error) {
	b := strip.Bounds()
	w := min(max(int(math.Ceil(lineHeight*float64(b.Dx())/float64(b.Dy()))), 1), widestLine)
	padded := (w + lineUnit - 1) / lineUnit * lineUnit
	format := image.Format{BGR: true, Scale: 1.0 / 255, Mean: []float32{0.5}, Std: []float32{0.5}}
	narrow := tensor.New(tensor.F32, append([]int{1}, format.Dims(w, lineHeight)...)...)
	if err := format.Put(narrow, strip); err != nil || w == padded {
		return narrow, err
	}
	in := tensor.New(tensor.F32, append([]int{1}, format.Dims(padded, lineHeight)...)...)
	left, err := in.Slice(3, 0, w, 1)
	if err != nil {
		return in, err
	}
	return in, tensor.Copy(left, narrow)
}

// decode reads the most probable class of each step. A class that goes on is one character, and class 0 separates characters
// ("connectionist temporal classification").
func decode(prob []float32, characters []string) (text string, confidence float32) {
	before, n := 0, 0
	var sum float32
	for ; len(prob) >= len(characters); prob = prob[len(characters):] {
		best := 0
		for c, p := range prob[:len(characters)] {
			if p > prob[best] {
				best = c
			}
		}
		if best != 0 && best != before {
			text += characters[best]
			sum += prob[best]
			n++
		}
		before = best
	}
	return text, sum / float32(max(n, 1))
}
