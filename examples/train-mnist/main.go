// Command train-mnist trains the digit classifier that package models/cnn embeds, from the images that the Go module GoMNIST
// carries, with nothing but this library's matrix product. It takes a few minutes on two cores.
//
//	go run ./examples/train-mnist -o models/cnn/digits.onnx
package main

import (
	"flag"
	"fmt"
	"image"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/examples/internal/mnist"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"

	pictures "github.com/tessera-go/tessera/models/image"
)

func main() {
	log.SetFlags(0)
	var (
		out    = flag.String("o", "digits.onnx", "file to write")
		data   = flag.String("data", "", "folder of the MNIST files (default: the module cache)")
		epochs = flag.Int("epochs", 4, "passes over the 60,000 images")
		seed   = flag.Uint64("seed", 1, "seed of everything random")
		limit  = flag.Int("limit", 0, "train on so many images only (for a quick look)")
	)
	flag.Parse()
	if *data == "" {
		var err error
		*data, err = mnist.Dir()
		check(err)
	}
	images, labels := load(*data, mnist.TrainImages, mnist.TrainLabels)
	testImages, testLabels := load(*data, mnist.TestImages, mnist.TestLabels)
	if *limit > 0 && *limit < len(labels) {
		images, labels = images[:*limit], labels[:*limit]
	}
	n := newNet(rand.New(rand.NewPCG(*seed, 0)))
	train(n, images, labels, *epochs, *seed)
	right := evaluate(n, testImages, testLabels)
	fmt.Printf("%d of %d test images right\n", right, len(testLabels))
	m, err := export(n)
	check(err)
	file, err := m.Encode()
	check(err)
	check(os.WriteFile(*out, file, 0o644))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// load reads images as numbers from 0 to 1.
func load(dir, images, labels string) ([][]float32, []int) {
	list, err := pictures.ReadFile(filepath.Join(dir, images))
	check(err)
	l, err := pictures.ReadLabels(filepath.Join(dir, labels))
	check(err)
	out := make([][]float32, len(list))
	for i, img := range list {
		out[i] = make([]float32, side*side)
		for j, p := range img.(*image.Gray).Pix {
			out[i][j] = float32(p) / 255
		}
	}
	return out, l
}

const batchSize = 64

// train runs mini-batches, each shared by all cores. The learning rate follows half a cosine.
func train(n *net, images [][]float32, labels []int, epochs int, seed uint64) {
	count := runtime.GOMAXPROCS(0)
	for batchSize%count != 0 {
		count--
	}
	share := batchSize / count
	workers := make([]*worker, count)
	for i := range workers {
		workers[i] = newWorker(n, share)
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	steps := epochs * (len(images) / batchSize)
	step := 0
	start := time.Now()
	for epoch := range epochs {
		order := rng.Perm(len(images))
		loss, right := 0.0, 0
		for at := 0; at+batchSize <= len(order); at += batchSize {
			step++
			var wg sync.WaitGroup
			for i, w := range workers {
				ids := order[at+i*share : at+(i+1)*share]
				r := rand.New(rand.NewPCG(seed+uint64(step), uint64(i)))
				wg.Go(func() {
					l := make([]int, share)
					for j, id := range ids {
						distort(w.in[j*side*side:(j+1)*side*side], images[id], r)
						l[j] = labels[id]
					}
					w.forward()
					w.backward(l, batchSize)
				})
			}
			wg.Wait()
			rate := 0.5 * 2e-3 * (1 + math.Cos(math.Pi*float64(step)/float64(steps)))
			for k, p := range n.params {
				sum := workers[0].grads[k]
				for _, w := range workers[1:] {
					for i, v := range w.grads[k] {
						sum[i] += v
					}
				}
				p.step(sum, rate, step)
			}
			for _, w := range workers {
				loss += w.loss
				right += w.right
			}
		}
		seen := len(order) / batchSize * batchSize
		fmt.Fprintf(os.Stderr, "epoch %d of %d: loss %.4f, %.2f %% right, %v\n", epoch+1, epochs, loss/float64(seen), 100*float64(right)/float64(seen),
			time.Since(start).Round(time.Second))
	}
}

// distort turns, scales and shifts an image a little, so that the network does not learn the images by heart.
func distort(dst, src []float32, r *rand.Rand) {
	angle, scale := (r.Float64()*2-1)*0.18, 1+(r.Float64()*2-1)*0.1
	dx, dy := (r.Float64()*2-1)*2, (r.Float64()*2-1)*2
	s, c := math.Sincos(angle)
	s, c = s/scale, c/scale
	const mid = (side - 1) / 2.0
	for y := range side {
		for x := range side {
			u, v := float64(x)-mid-dx, float64(y)-mid-dy
			sx, sy := c*u+s*v+mid, -s*u+c*v+mid
			x0, y0 := int(math.Floor(sx)), int(math.Floor(sy))
			fx, fy := float32(sx-float64(x0)), float32(sy-float64(y0))
			at := func(x, y int) float32 {
				if x < 0 || y < 0 || x >= side || y >= side {
					return 0
				}
				return src[y*side+x]
			}
			dst[y*side+x] = (1-fy)*((1-fx)*at(x0, y0)+fx*at(x0+1, y0)) + fy*((1-fx)*at(x0, y0+1)+fx*at(x0+1, y0+1))
		}
	}
}

func evaluate(n *net, images [][]float32, labels []int) int {
	w := newWorker(n, 100)
	right := 0
	for at := 0; at+100 <= len(images); at += 100 {
		for j := range 100 {
			copy(w.in[j*side*side:], images[at+j])
		}
		w.forward()
		for j := range 100 {
			if argmax(w.prob[j*classes:(j+1)*classes]) == labels[at+j] {
				right++
			}
		}
	}
	return right
}

// export writes the network as ONNX that takes raw pixels: their scale is folded into the first filter.
func export(n *net) (*onnx.Model, error) {
	g := &onnx.Graph{Name: "digits", Inputs: []onnx.ValueInfo{{Name: "image", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true,
		Dims: []onnx.Dim{{Size: -1, Param: "N"}, {Size: 1}, {Size: side}, {Size: side}}}}},
		Outputs: []onnx.ValueInfo{{Name: "scores", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true,
			Dims: []onnx.Dim{{Size: -1, Param: "N"}, {Size: classes}}}}}}
	add := func(op, out string, in []string, attrs ...onnx.Attr) {
		g.Nodes = append(g.Nodes, &onnx.Node{Name: out, Op: op, In: in, Out: []string{out}, Attrs: attrs})
	}
	x := "image"
	for i := range 3 {
		p, c, m := n.params[2*i], channels[i], channels[i+1]
		scale := float32(1)
		if i == 0 {
			scale = 1.0 / 255
		}
		filter := tensor.New(tensor.F32, m, c, 3, 3) // from [9 C, M]
		f := tensor.Data[float32](filter)
		for tap := range 9 {
			for ch := range c {
				for o := range m {
					f[(o*c+ch)*9+tap] = p.w[(tap*c+ch)*m+o] * scale
				}
			}
		}
		w, b, name := fmt.Sprintf("w%d", i), fmt.Sprintf("b%d", i), fmt.Sprintf("conv%d", i)
		g.Inits = append(g.Inits, onnx.NewTensor(w, filter), onnx.NewTensor(b, tensor.Of(n.params[2*i+1].w, m)))
		add("Conv", name, []string{x, w, b}, onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("pads", 1, 1, 1, 1))
		add("Relu", name+"_relu", []string{name})
		x = name + "_relu"
		if i < 2 {
			add("MaxPool", name+"_pool", []string{x}, onnx.IntsAttr("kernel_shape", 2, 2), onnx.IntsAttr("strides", 2, 2))
			x = name + "_pool"
		}
	}
	// Features here are [H, W, C], in ONNX [C, H, W].
	head := tensor.New(tensor.F32, features, classes)
	h := tensor.Data[float32](head)
	for px := range 49 {
		for ch := range 64 {
			copy(h[(ch*49+px)*classes:][:classes], n.params[6].w[(px*64+ch)*classes:])
		}
	}
	g.Inits = append(g.Inits, onnx.NewTensor("w3", head), onnx.NewTensor("b3", tensor.Of(n.params[7].w, classes)))
	add("Flatten", "flat", []string{x})
	add("Gemm", "scores", []string{"flat", "w3", "b3"})
	m, err := onnx.NewModel(13, g)
	if err == nil {
		m.Producer = "tessera train-mnist"
		m.Metadata["labels"] = "0,1,2,3,4,5,6,7,8,9"
	}
	return m, err
}
