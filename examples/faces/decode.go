package main

import (
	"cmp"
	"math"
	"slices"

	"github.com/tessera-go/tessera/models/image"
)

// BlazeFace sees a picture through two grids of cells, each with some anchors at its middle, which differ in nothing but what the
// network learned to make of them.
var grids = []struct{ cells, anchors int }{{16, 2}, {8, 6}}

// anchors are the middles, as parts of the picture's side, in the order of the model's outputs.
var anchors = func() (list []image.Point) {
	for _, g := range grids {
		for y := range g.cells {
			for x := range g.cells {
				for range g.anchors {
					list = append(list, image.Point{X: (float64(x) + 0.5) / float64(g.cells), Y: (float64(y) + 0.5) / float64(g.cells)})
				}
			}
		}
	}
	return list
}()

// pointNames are the six points of a face; left and right are the person's.
var pointNames = [6]string{"right eye", "left eye", "nose", "mouth", "right ear", "left ear"}

// boxNumbers is what the network says about an anchor's face: middle and size of the box, then the points.
const boxNumbers = 4 + 2*len(pointNames)

const (
	leastScore = 0.6 // probability of a face
	sameFace   = 0.3 // overlap (intersection over union) above which two boxes are of one face
)

// face is a face with its place in the picture.
type face struct {
	score    float64
	min, max image.Point
	points   [6]image.Point
}

func (f *face) scale(by float64) {
	for _, p := range f.places() {
		p.X *= by
		p.Y *= by
	}
}

// places are all that a face is made of.
func (f *face) places() []*image.Point {
	list := []*image.Point{&f.min, &f.max}
	for i := range f.points {
		list = append(list, &f.points[i])
	}
	return list
}

// decode returns the faces that the network is sure of, as parts of the picture's side. What it says is in pixels from the anchor.
func decode(scores, boxes []float32, side float64) []face {
	var faces []face
	for i, s := range scores {
		p := 1 / (1 + math.Exp(-float64(s)))
		if !(p >= leastScore) {
			continue
		}
		v := boxes[i*boxNumbers:][:boxNumbers]
		at := func(k int) image.Point {
			return image.Point{X: anchors[i].X + float64(v[k])/side, Y: anchors[i].Y + float64(v[k+1])/side}
		}
		middle, w, h := at(0), float64(v[2])/side, float64(v[3])/side
		f := face{score: p, min: image.Point{X: middle.X - w/2, Y: middle.Y - h/2}, max: image.Point{X: middle.X + w/2, Y: middle.Y + h/2}}
		for k := range f.points {
			f.points[k] = at(4 + 2*k)
		}
		faces = append(faces, f)
	}
	return faces
}

// overlap is the intersection of two boxes over their union.
func overlap(a, b face) float64 {
	w := min(a.max.X, b.max.X) - max(a.min.X, b.min.X)
	h := min(a.max.Y, b.max.Y) - max(a.min.Y, b.min.Y)
	if w <= 0 || h <= 0 {
		return 0
	}
	area := func(f face) float64 { return (f.max.X - f.min.X) * (f.max.Y - f.min.Y) }
	return w * h / (area(a) + area(b) - w*h)
}

// merge makes one face of all those that overlap with the best of them: the mean of their places, weighted by their scores. This is
// steadier than to take the best alone (the paper's replacement for suppression of all but the best).
func merge(faces []face) []face {
	slices.SortStableFunc(faces, func(a, b face) int { return cmp.Compare(b.score, a.score) })
	var merged []face
	for len(faces) > 0 {
		best, sum := face{score: faces[0].score}, 0.0
		var rest []face
		for i := range faces {
			f := &faces[i]
			if i > 0 && overlap(faces[0], *f) <= sameFace {
				rest = append(rest, *f)
				continue
			}
			from := f.places()
			for k, p := range best.places() {
				p.X += f.score * from[k].X
				p.Y += f.score * from[k].Y
			}
			sum += f.score
		}
		best.scale(1 / sum)
		merged = append(merged, best)
		faces = rest
	}
	return merged
}
