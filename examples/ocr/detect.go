package main

import (
	"cmp"
	"context"
	"fmt"
	stdimage "image"
	"math"
	"slices"

	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// Parameters of the detector's post-processing, as PP-OCRv4 was published with.
const (
	longestSide = 960  // a larger picture is reduced to it
	sideUnit    = 32   // sides are multiples of it: the network halves five times
	textPixel   = 0.3  // probability above which a pixel is text
	textBox     = 0.6  // mean probability above which a region is text
	unclipRatio = 1.5  // regions are trained to be smaller than the text: they grow by area x ratio / perimeter
	leastSide   = 3    // pixels of the map; less is noise
	mostBoxes   = 1000 // regions looked at
)

// detect returns the boxes of text, in pixels of the picture and in reading order.
func (r *reader) detect(ctx context.Context, img stdimage.Image) ([][4]image.Point, error) {
	b := img.Bounds()
	w, h := mapSize(b.Dx(), b.Dy())
	format := image.Format{BGR: true, Scale: 1.0 / 255, Mean: []float32{0.485, 0.456, 0.406}, Std: []float32{0.229, 0.224, 0.225}}
	in := tensor.New(tensor.F32, append([]int{1}, format.Dims(w, h)...)...)
	if err := format.Put(in, img); err != nil {
		return nil, err
	}
	out, err := r.detector.run(ctx, in)
	if err != nil {
		return nil, err
	}
	if out.Elems() != w*h {
		return nil, fmt.Errorf("the detector gives %v for %d x %d pixels", out.Spec, w, h)
	}
	boxes := textBoxes(tensor.Data[float32](out), w, h)
	sx, sy := float64(b.Dx())/float64(w), float64(b.Dy())/float64(h)
	for i := range boxes {
		for j, p := range boxes[i] {
			boxes[i][j] = image.Point{X: min(max(p.X*sx, 0), float64(b.Dx())), Y: min(max(p.Y*sy, 0), float64(b.Dy()))}
		}
	}
	return readingOrder(boxes), nil
}

func (n *network) run(ctx context.Context, in tensor.Tensor) (tensor.Tensor, error) {
	out, err := n.session.Run(ctx, map[string]onnx.Value{n.session.Inputs()[0].Name: onnx.Of(in)})
	if err != nil {
		return tensor.Tensor{}, err
	}
	t := out[n.session.Outputs()[0].Name].Tensor
	if t.DType != tensor.F32 {
		return t, fmt.Errorf("the model gives %v, probabilities in f32 are right", t.Spec)
	}
	return t, nil
}

// mapSize returns the size at which the detector sees a picture.
func mapSize(w, h int) (int, int) {
	scale := min(1, longestSide/float64(max(w, h)))
	side := func(n int) int { return max(int(math.Round(float64(n)*scale/sideUnit)), 1) * sideUnit }
	return side(w), side(h)
}

// textBoxes turns a map of probabilities into boxes ("differentiable binarization"): regions of text pixels, the smallest rectangle
// around each, grown back to the size of the text.
func textBoxes(prob []float32, w, h int) [][4]image.Point {
	var boxes [][4]image.Point
	for _, region := range regions(prob, w, h) {
		box := smallestRectangle(region)
		if shortSide(box) < leastSide || meanInside(prob, w, h, box) < textBox {
			continue
		}
		if box = unclip(box); shortSide(box) >= leastSide+2 {
			boxes = append(boxes, box)
		}
	}
	return boxes
}

// regions returns the connected regions of text pixels, each by its outermost pixels of every row.
func regions(prob []float32, w, h int) [][]image.Point {
	seen := make([]bool, w*h)
	var all [][]image.Point
	var stack []int
	left, right := make([]int, h), make([]int, h)
	for start := range prob {
		if seen[start] || prob[start] <= textPixel {
			continue
		}
		if len(all) == mostBoxes {
			break
		}
		top, bottom := start/w, start/w
		left[top], right[top] = w, -1
		seen[start] = true
		for stack = append(stack[:0], start); len(stack) > 0; {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			x, y := at%w, at/w
			for ; bottom < y; left[bottom], right[bottom] = w, -1 {
				bottom++
			}
			left[y], right[y] = min(left[y], x), max(right[y], x)
			for ny := max(y-1, 0); ny <= min(y+1, h-1); ny++ {
				for nx := max(x-1, 0); nx <= min(x+1, w-1); nx++ {
					if n := ny*w + nx; !seen[n] && prob[n] > textPixel {
						seen[n] = true
						stack = append(stack, n)
					}
				}
			}
		}
		var outline []image.Point
		for y := top; y <= bottom; y++ {
			outline = append(outline, image.Point{X: float64(left[y]), Y: float64(y)}, image.Point{X: float64(right[y]), Y: float64(y)})
		}
		all = append(all, outline)
	}
	return all
}

// hull returns the corners of the convex hull (monotone chain).
func hull(points []image.Point) []image.Point {
	points = slices.Clone(points)
	slices.SortFunc(points, func(a, b image.Point) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
	points = slices.Compact(points)
	if len(points) < 3 {
		return points
	}
	var chain []image.Point
	add := func(p image.Point, from int) {
		for len(chain) >= from+2 && cross(chain[len(chain)-2], chain[len(chain)-1], p) <= 0 {
			chain = chain[:len(chain)-1]
		}
		chain = append(chain, p)
	}
	for _, p := range points {
		add(p, 0)
	}
	lower := len(chain) - 1
	for i := len(points) - 2; i >= 0; i-- {
		add(points[i], lower)
	}
	return chain[:len(chain)-1]
}

func cross(o, a, b image.Point) float64 { return (a.X-o.X)*(b.Y-o.Y) - (a.Y-o.Y)*(b.X-o.X) }

func distance(a, b image.Point) float64 { return math.Hypot(b.X-a.X, b.Y-a.Y) }

// smallestRectangle returns the rectangle of the smallest area, of any orientation, that holds the points. One of its sides lies on a
// side of their hull.
func smallestRectangle(points []image.Point) [4]image.Point {
	corners := hull(points)
	best, area := [4]image.Point{}, math.Inf(1)
	for i, p := range corners {
		q := corners[(i+1)%len(corners)]
		length := distance(p, q)
		ux, uy := 1.0, 0.0 // of a single point
		if length > 0 {
			ux, uy = (q.X-p.X)/length, (q.Y-p.Y)/length
		}
		u0, u1, v0, v1 := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
		for _, c := range corners {
			u, v := c.X*ux+c.Y*uy, c.Y*ux-c.X*uy
			u0, u1, v0, v1 = min(u0, u), max(u1, u), min(v0, v), max(v1, v)
		}
		if a := (u1 - u0) * (v1 - v0); a < area {
			at := func(u, v float64) image.Point { return image.Point{X: u*ux - v*uy, Y: u*uy + v*ux} }
			best, area = [4]image.Point{at(u0, v0), at(u1, v0), at(u1, v1), at(u0, v1)}, a
		}
	}
	return clockwise(best)
}

// clockwise orders the corners of a rectangle from its upper left: of the two at the left the upper one is first.
func clockwise(box [4]image.Point) [4]image.Point {
	slices.SortFunc(box[:], func(a, b image.Point) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
	if box[0].Y > box[1].Y {
		box[0], box[1] = box[1], box[0]
	}
	if box[2].Y > box[3].Y {
		box[2], box[3] = box[3], box[2]
	}
	return [4]image.Point{box[0], box[2], box[3], box[1]}
}

func shortSide(box [4]image.Point) float64 {
	return min(distance(box[0], box[1]), distance(box[1], box[2]))
}

// meanInside returns the mean probability of the pixels in a box.
func meanInside(prob []float32, w, h int, box [4]image.Point) float64 {
	x0, y0, x1, y1 := w-1, h-1, 0, 0
	for _, p := range box {
		x0, x1 = min(x0, int(math.Floor(p.X))), max(x1, int(math.Ceil(p.X)))
		y0, y1 = min(y0, int(math.Floor(p.Y))), max(y1, int(math.Ceil(p.Y)))
	}
	sum, n := 0.0, 0
	for y := max(y0, 0); y <= min(y1, h-1); y++ {
		for x := max(x0, 0); x <= min(x1, w-1); x++ {
			p, inside := image.Point{X: float64(x), Y: float64(y)}, true
			for i, c := range box {
				inside = inside && cross(c, box[(i+1)%4], p) >= -1e-6
			}
			if inside {
				sum += float64(prob[y*w+x])
				n++
			}
		}
	}
	return sum / float64(max(n, 1))
}

// unclip moves every side outwards.
func unclip(box [4]image.Point) [4]image.Point {
	width, height := distance(box[0], box[1]), distance(box[1], box[2])
	grow := width * height * unclipRatio / (2 * (width + height))
	ux, uy := (box[1].X-box[0].X)/width*grow, (box[1].Y-box[0].Y)/width*grow
	vx, vy := (box[3].X-box[0].X)/height*grow, (box[3].Y-box[0].Y)/height*grow
	for i, s := range [4][2]float64{{-1, -1}, {1, -1}, {1, 1}, {-1, 1}} {
		box[i].X += s[0]*ux + s[1]*vx
		box[i].Y += s[0]*uy + s[1]*vy
	}
	return box
}

// readingOrder sorts boxes by rows, each from left to right. A row is what begins above the middle of its first box.
func readingOrder(boxes [][4]image.Point) [][4]image.Point {
	middle := func(b [4]image.Point) float64 { return (b[0].Y + b[1].Y + b[2].Y + b[3].Y) / 4 }
	top := func(b [4]image.Point) float64 { return min(b[0].Y, b[1].Y, b[2].Y, b[3].Y) }
	slices.SortStableFunc(boxes, func(a, b [4]image.Point) int { return cmp.Compare(top(a), top(b)) })
	for from := 0; from < len(boxes); {
		to := from + 1
		for to < len(boxes) && top(boxes[to]) < middle(boxes[from]) {
			to++
		}
		slices.SortStableFunc(boxes[from:to], func(a, b [4]image.Point) int { return cmp.Compare(a[0].X, b[0].X) })
		from = to
	}
	return boxes
}
