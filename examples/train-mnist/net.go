package main

import (
	"math"
	"math/rand/v2"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// The network: three convolutions of 3x3 with 16, 32 and 64 channels, each followed by ReLU, the first two by a pooling of 2x2 as
// well, then one product with 10 columns. Images are [H, W, C]; filters are matrices [9 C, M], rows in the order of taps.
type net struct{ params []*param }

// param is a matrix that is learned, with the state of the Adam optimizer.
type param struct {
	rows, cols int
	w, m, v    []float32
}

const (
	side    = 28
	classes = 10
)

var channels = []int{1, 16, 32, 64}

// sides of the image before each convolution.
var sides = []int{28, 14, 7}

func newNet(rng *rand.Rand) *net {
	n := &net{}
	add := func(rows, cols int, std float64) {
		p := &param{rows: rows, cols: cols, w: make([]float32, rows*cols), m: make([]float32, rows*cols), v: make([]float32, rows*cols)}
		for i := range p.w {
			p.w[i] = float32(rng.NormFloat64() * std)
		}
		n.params = append(n.params, p)
	}
	for i := range 3 {
		k := 9 * channels[i]
		add(k, channels[i+1], math.Sqrt(2/float64(k)))
		add(1, channels[i+1], 0)
	}
	add(features, classes, math.Sqrt(1/float64(features)))
	add(1, classes, 0)
	return n
}

const features = 7 * 7 * 64

// worker computes gradients of its share of a batch. All memory is made once.
type worker struct {
	net   *net
	batch int
	in    []float32    // [batch, 28, 28]
	col   [3][]float32 // images as matrices of patches [batch H W, 9 C]
	act   [3][]float32 // convolutions after ReLU [batch H W, M]
	pool  [3][]float32 // after pooling; of the last the same as act
	from  [3][]int32   // which of act each pooled value is
	prob  []float32    // [batch, 10]
	grads [][]float32
	dact  [3][]float32
	dcol  [3][]float32
	dpool [3][]float32
	loss  float64
	right int
}

func newWorker(n *net, batch int) *worker {
	w := &worker{net: n, batch: batch, in: make([]float32, batch*side*side), prob: make([]float32, batch*classes)}
	for i := range 3 {
		px := batch * sides[i] * sides[i]
		w.col[i], w.dcol[i] = make([]float32, px*9*channels[i]), make([]float32, px*9*channels[i])
		w.act[i], w.dact[i] = make([]float32, px*channels[i+1]), make([]float32, px*channels[i+1])
		w.pool[i], w.dpool[i] = w.act[i], w.dact[i]
		if i < 2 {
			w.pool[i], w.dpool[i] = make([]float32, px/4*channels[i+1]), make([]float32, px/4*channels[i+1])
			w.from[i] = make([]int32, px/4*channels[i+1])
		}
	}
	for _, p := range n.params {
		w.grads = append(w.grads, make([]float32, len(p.w)))
	}
	return w
}

func mat(v []float32, rows, cols int) tensor.Tensor { return tensor.Of(v, rows, cols) }

func transposed(t tensor.Tensor) tensor.Tensor {
	u, err := t.Transpose(0, 1)
	check(err)
	return u
}

// forward computes the probabilities of the images in w.in.
func (w *worker) forward() {
	x := w.in
	for i := range 3 {
		px, c, m := w.batch*sides[i]*sides[i], channels[i], channels[i+1]
		patches(w.col[i], x, w.batch, sides[i], c)
		weight, bias := w.net.params[2*i], w.net.params[2*i+1]
		e := matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}
		check(matmul.MatMul(mat(w.act[i], px, m), mat(w.col[i], px, 9*c), mat(weight.w, 9*c, m),
			matmul.WithThreads(1), matmul.WithEpilogue(e, tensor.Of(bias.w, m))))
		if i < 2 {
			maxPool(w.pool[i], w.from[i], w.act[i], w.batch, sides[i], m)
		}
		x = w.pool[i]
	}
	weight, bias := w.net.params[6], w.net.params[7]
	check(matmul.MatMul(mat(w.prob, w.batch, classes), mat(x, w.batch, features), mat(weight.w, features, classes),
		matmul.WithThreads(1), matmul.WithEpilogue(matmul.Epilogue{Bias: true}, tensor.Of(bias.w, classes))))
	for b := range w.batch {
		softmax(w.prob[b*classes : (b+1)*classes])
	}
}

func softmax(v []float32) {
	top, sum := v[0], float32(0)
	for _, x := range v {
		top = max(top, x)
	}
	for i, x := range v {
		v[i] = float32(math.Exp(float64(x - top)))
		sum += v[i]
	}
	for i := range v {
		v[i] /= sum
	}
}

// backward computes the gradients of the mean cross entropy over total images for the labels.
func (w *worker) backward(labels []int, total int) {
	w.loss, w.right = 0, 0
	for b, l := range labels {
		row := w.prob[b*classes : (b+1)*classes]
		w.loss -= math.Log(max(float64(row[l]), 1e-12))
		if argmax(row) == l {
			w.right++
		}
		row[l]--
		for i := range row {
			row[i] /= float32(total)
		}
	}
	dy := mat(w.prob, w.batch, classes)
	x := mat(w.pool[2], w.batch, features)
	check(matmul.MatMul(mat(w.grads[6], features, classes), transposed(x), dy, matmul.WithThreads(1)))
	columnSums(w.grads[7], w.prob, classes)
	check(matmul.MatMul(mat(w.dpool[2], w.batch, features), dy, transposed(mat(w.net.params[6].w, features, classes)), matmul.WithThreads(1)))
	for i := 2; i >= 0; i-- {
		px, c, m := w.batch*sides[i]*sides[i], channels[i], channels[i+1]
		if i < 2 {
			clear(w.dact[i])
			for j, at := range w.from[i] {
				w.dact[i][at] = w.dpool[i][j]
			}
		}
		for j, a := range w.act[i] {
			if a <= 0 {
				w.dact[i][j] = 0
			}
		}
		d := mat(w.dact[i], px, m)
		check(matmul.MatMul(mat(w.grads[2*i], 9*c, m), transposed(mat(w.col[i], px, 9*c)), d, matmul.WithThreads(1)))
		columnSums(w.grads[2*i+1], w.dact[i], m)
		if i > 0 {
			check(matmul.MatMul(mat(w.dcol[i], px, 9*c), d, transposed(mat(w.net.params[2*i].w, 9*c, m)), matmul.WithThreads(1)))
			unpatch(w.dpool[i-1], w.dcol[i], w.batch, sides[i], c)
		}
	}
}

func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

func columnSums(dst, src []float32, cols int) {
	clear(dst)
	for i := 0; i < len(src); i += cols {
		for j, v := range src[i : i+cols] {
			dst[j] += v
		}
	}
}

// patches writes the 3x3 neighbourhood of every pixel, zeros outside, as a row.
func patches(col, x []float32, batch, n, c int) {
	at := 0
	for b := range batch {
		image := x[b*n*n*c:]
		for y := range n {
			for xx := range n {
				for dy := -1; dy <= 1; dy++ {
					for dx := -1; dx <= 1; dx++ {
						if y+dy < 0 || y+dy >= n || xx+dx < 0 || xx+dx >= n {
							clear(col[at : at+c])
						} else {
							copy(col[at:at+c], image[((y+dy)*n+xx+dx)*c:])
						}
						at += c
					}
				}
			}
		}
	}
}

// unpatch is the adjoint of patches: it adds rows back to the pixels that they came from.
func unpatch(x, col []float32, batch, n, c int) {
	clear(x)
	at := 0
	for b := range batch {
		image := x[b*n*n*c:]
		for y := range n {
			for xx := range n {
				for dy := -1; dy <= 1; dy++ {
					for dx := -1; dx <= 1; dx++ {
						if y+dy >= 0 && y+dy < n && xx+dx >= 0 && xx+dx < n {
							dst := image[((y+dy)*n+xx+dx)*c:][:c]
							for i, v := range col[at : at+c] {
								dst[i] += v
							}
						}
						at += c
					}
				}
			}
		}
	}
}

// maxPool takes the largest of 2x2 pixels, and remembers which it was.
func maxPool(dst []float32, from []int32, x []float32, batch, n, c int) {
	at := 0
	for b := range batch {
		for y := 0; y < n; y += 2 {
			for xx := 0; xx < n; xx += 2 {
				for ch := range c {
					best := ((b*n+y)*n+xx)*c + ch
					for _, p := range [3]int{best + c, best + n*c, best + n*c + c} {
						if x[p] > x[best] {
							best = p
						}
					}
					dst[at], from[at] = x[best], int32(best)
					at++
				}
			}
		}
	}
}

// step moves a parameter by Adam with decoupled weight decay.
func (p *param) step(g []float32, rate float64, t int) {
	const b1, b2, decay = 0.9, 0.999, 1e-4
	scale := rate * math.Sqrt(1-math.Pow(b2, float64(t))) / (1 - math.Pow(b1, float64(t)))
	shrink := float32(1 - rate*decay)
	for i, x := range g {
		p.m[i] = b1*p.m[i] + (1-b1)*x
		p.v[i] = b2*p.v[i] + (1-b2)*x*x
		p.w[i] = p.w[i]*shrink - float32(scale)*p.m[i]/(float32(math.Sqrt(float64(p.v[i])))+1e-8)
	}
}
