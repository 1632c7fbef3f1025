// Command onnx runs models on this library and on ONNX Runtime, in one process and in turn, and prints the ratio of their times and the
// largest difference of their results. install.sh fetches the runtime and the models.
//
//	go run ./onnx -dir onnx-peer -magika ../../shared/data/magika/model.onnx -threads 1,2 -json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	stdimage "image"
	"image/color"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// subject is a model with the shape of its input, and how pictures enter it.
type subject struct {
	name   string
	path   string
	dims   []int
	format image.Format
}

// result is a line of the output. Times are in milliseconds, memory in bytes.
type result struct {
	Model       string  `json:"model"`
	Threads     int     `json:"threads"`
	Ours        float64 `json:"ours_ms"`
	ORT         float64 `json:"ort_ms"`
	Ratio       float64 `json:"ratio"` // ours / theirs
	OursBest    float64 `json:"ours_best_ms"`
	ORTBest     float64 `json:"ort_best_ms"`
	Difference  float64 `json:"difference"` // largest, as a part of the output's range
	OursLoad    float64 `json:"ours_load_ms"`
	ORTLoad     float64 `json:"ort_load_ms"`
	OursMemory  int64   `json:"ours_bytes"` // growth of the process by loading and the first run
	ORTMemory   int64   `json:"ort_bytes"`
	Eager       string  `json:"eager,omitempty"`
	Repetitions int     `json:"repetitions"`
}

func main() {
	log.SetFlags(0)
	var (
		dir     = flag.String("dir", "onnx-peer", "folder that install.sh has filled")
		lib     = flag.String("lib", "", "ONNX Runtime's shared library (default: in -dir)")
		magika  = flag.String("magika", "", "Magika's model")
		threads = flag.String("threads", "1,2", "numbers of threads")
		only    = flag.String("only", "", "run models whose name contains this")
		seconds = flag.Float64("seconds", 3, "time for each model and number of threads")
		asJSON  = flag.Bool("json", false, "print JSON, a line a model")
		profile = flag.Bool("profile", false, "print our time by node instead")
	)
	flag.Parse()
	if *lib == "" {
		*lib = filepath.Join(*dir, "libonnxruntime.so")
	}
	ort.SetSharedLibraryPath(*lib)
	check(ort.InitializeEnvironment())
	defer ort.DestroyEnvironment()

	at := func(name string) string { return filepath.Join(*dir, name) }
	resnet := filepath.Join(os.TempDir(), fmt.Sprintf("resnet50-random-%d.onnx", os.Getpid()))
	defer os.Remove(resnet)
	// Pixels as the models want them: noise would make networks that end in decisions (maxima, sigmoids far from 1/2) compare rounding.
	raw := image.Format{Channels: 4, Last: true}
	signed := image.Format{Last: true, Scale: 1 / 127.5, Mean: []float32{1}}
	imagenet := image.Format{Scale: 1.0 / 255, Mean: []float32{0.485, 0.456, 0.406}, Std: []float32{0.229, 0.224, 0.225}}
	half := image.Format{Scale: 1.0 / 255, Mean: []float32{0.5}, Std: []float32{0.5}}
	subjects := []subject{
		{"mlsd-large-320", at("mlsd_320x320_large.onnx"), []int{1, 320, 320, 4}, raw},
		{"ppocr4-det-640", at("ch_PP-OCRv4_det_infer.onnx"), []int{1, 3, 640, 640}, imagenet},
		{"ppocr4-rec-320", at("ch_PP-OCRv4_rec_infer.onnx"), []int{1, 3, 48, 320}, half},
		{"blazeface-back-256", at("face_detection_back_256x256_barracuda.onnx"), []int{1, 256, 256, 3}, signed},
		{"blazeface-front-128", at("face_detection_front_128x128_barracuda.onnx"), []int{1, 128, 128, 3}, signed},
		{"magika-1", *magika, []int{1, 2048}, raw},
		{"magika-32", *magika, []int{32, 2048}, raw},
		{"resnet50-1", resnet, []int{1, 3, 224, 224}, imagenet},
		{"resnet50-8", resnet, []int{8, 3, 224, 224}, imagenet},
	}
	var ratios []float64
	for _, s := range subjects {
		if s.path == "" || !strings.Contains(s.name, *only) {
			continue
		}
		if s.path == resnet {
			if _, err := os.Stat(resnet); err != nil {
				m, err := resnet50()
				check(err)
				check(os.WriteFile(resnet, m.Encode(), 0o600))
			}
		}
		for _, t := range strings.Split(*threads, ",") {
			n, err := strconv.Atoi(t)
			check(err)
			if *profile {
				check(printProfile(s, n))
				continue
			}
			r, err := compare(s, n, *seconds)
			if err != nil {
				log.Fatalf("%s: %v", s.name, err)
			}
			ratios = append(ratios, r.Ratio)
			if *asJSON {
				check(json.NewEncoder(os.Stdout).Encode(r))
				continue
			}
			fmt.Printf("%-20s %d thread(s)  ours %8.2f ms  onnxruntime %8.2f ms  ratio %.2f  best %.2f/%.2f  difference %.1e  load %.0f/%.0f ms  memory %d/%d MB %s\n",
				r.Model, r.Threads, r.Ours, r.ORT, r.Ratio, r.OursBest, r.ORTBest, r.Difference, r.OursLoad, r.ORTLoad, r.OursMemory>>20, r.ORTMemory>>20, r.Eager)
		}
	}
	if len(ratios) > 0 && !*asJSON {
		sum := 0.0
		for _, r := range ratios {
			sum += math.Log(r)
		}
		fmt.Printf("geometric mean of the ratios: %.3f\n", math.Exp(sum/float64(len(ratios))))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// compare runs both in turn and takes medians.
func compare(s subject, threads int, seconds float64) (result, error) {
	r := result{Model: s.name, Threads: threads}
	rng := rand.New(rand.NewPCG(1, 2))
	before, start := resident(), time.Now()
	theirs, err := openORT(s, threads, rng)
	if err != nil {
		return r, err
	}
	defer theirs.close()
	r.ORTLoad = ms(start)
	if err := theirs.run(); err != nil {
		return r, err
	}
	r.ORTMemory = resident() - before

	before, start = resident(), time.Now()
	ours, err := openOurs(s, threads, false)
	if err != nil {
		return r, err
	}
	defer ours.close()
	if err := ours.prepare(theirs.input()); err != nil {
		return r, err
	}
	r.OursLoad = ms(start)
	if err := ours.run(); err != nil {
		return r, err
	}
	r.OursMemory = resident() - before
	r.Eager = ours.s.Eager()
	if r.Difference, err = difference(ours, theirs); err != nil {
		return r, err
	}
	var a, b []float64
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); len(a) < 5 || time.Now().Before(end); {
		start := time.Now()
		if err := ours.run(); err != nil {
			return r, err
		}
		a = append(a, ms(start))
		start = time.Now()
		if err := theirs.run(); err != nil {
			return r, err
		}
		b = append(b, ms(start))
	}
	r.Repetitions = len(a)
	r.Ours, r.ORT, r.OursBest, r.ORTBest = median(a), median(b), slices.Min(a), slices.Min(b)
	r.Ratio = r.Ours / r.ORT
	return r, nil
}

func ms(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1000 }

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// resident returns the memory of the process.
func resident() int64 {
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	fmt.Sscan(string(text), &size, &pages)
	return pages * int64(os.Getpagesize())
}

// peer is a session of ONNX Runtime.
type peer struct {
	s     *ort.DynamicAdvancedSession
	in    ort.Value
	given tensor.Tensor
	names []string
	outs  []ort.Value
}

func openORT(s subject, threads int, rng *rand.Rand) (*peer, error) {
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, err
	}
	defer o.Destroy()
	if err := o.SetIntraOpNumThreads(threads); err != nil {
		return nil, err
	}
	ins, outs, err := ort.GetInputOutputInfo(s.path)
	if err != nil {
		return nil, err
	}
	p := &peer{outs: make([]ort.Value, len(outs))}
	for _, v := range outs {
		p.names = append(p.names, v.Name)
	}
	if p.s, err = ort.NewDynamicAdvancedSession(s.path, []string{ins[0].Name}, p.names, o); err != nil {
		return nil, err
	}
	shape := ort.NewShape()
	n := 1
	for _, d := range s.dims {
		shape = append(shape, int64(d))
		n *= d
	}
	if ins[0].DataType == ort.TensorElementDataTypeInt32 {
		v := make([]int32, n)
		for i := range v {
			v[i] = rng.Int32N(257)
		}
		p.given = tensor.Of(v, s.dims...)
		p.in, err = ort.NewTensor(shape, v)
	} else {
		v := make([]float32, n)
		p.given = tensor.Of(v, s.dims...)
		w, h := s.dims[3], s.dims[2]
		if s.format.Last {
			w, h = s.dims[2], s.dims[1]
		}
		for i := range s.dims[0] {
			one, err := p.given.Slice(0, i, i+1, 1)
			if err != nil {
				return nil, err
			}
			if err := s.format.Put(one, picture(w, h, rng)); err != nil {
				return nil, err
			}
		}
		p.in, err = ort.NewTensor(shape, v)
	}
	return p, err
}

// picture draws something for networks to look at: boxes, lines and text on a gradient.
func picture(w, h int, rng *rand.Rand) stdimage.Image {
	img := stdimage.NewRGBA(stdimage.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.Set(x, y, color.RGBA{uint8(200 * x / w), uint8(220 * y / h), uint8(120 + rng.IntN(40)), 255})
		}
	}
	random := func() color.RGBA {
		return color.RGBA{uint8(rng.IntN(256)), uint8(rng.IntN(256)), uint8(rng.IntN(256)), 255}
	}
	for range 12 {
		x, y := rng.Float64()*float64(w), rng.Float64()*float64(h)
		image.Box(img, x, y, x+rng.Float64()*float64(w)/2, y+rng.Float64()*float64(h)/2, random(), 1+rng.IntN(3))
		image.Text(img, rng.IntN(w), rng.IntN(h), "The quick brown fox 0123", color.Black, color.White)
	}
	return img
}

func (p *peer) input() tensor.Tensor { return p.given }

func (p *peer) run() error {
	for i := range p.outs {
		if p.outs[i] != nil {
			p.outs[i].Destroy()
			p.outs[i] = nil
		}
	}
	return p.s.Run([]ort.Value{p.in}, p.outs)
}

func (p *peer) close() {
	for _, v := range p.outs {
		if v != nil {
			v.Destroy()
		}
	}
	p.in.Destroy()
	p.s.Destroy()
}

// own is a session of this library.
type own struct {
	b   backends.Backend
	m   *onnx.Model
	s   *onnx.Session
	in  map[string]onnx.Value
	out map[string]onnx.Value
}

func openOurs(s subject, threads int, profile bool) (*own, error) {
	b, err := backends.Open("cpu", fmt.Sprintf("threads=%d", threads))
	if err != nil {
		return nil, err
	}
	m, err := onnx.Open(s.path)
	if err != nil {
		return nil, err
	}
	session, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: []backends.Backend{b}, Profile: profile})
	return &own{b: b, m: m, s: session}, err
}

func (o *own) prepare(t tensor.Tensor) error {
	name := o.s.Inputs()[0].Name
	o.in = map[string]onnx.Value{name: onnx.Of(t)}
	return o.s.Prepare(context.Background(), map[string]tensor.Spec{name: t.Spec})
}

func (o *own) run() (err error) {
	o.out, err = o.s.Run(context.Background(), o.in)
	return err
}

func (o *own) close() {
	_ = o.s.Close()
	_ = o.m.Close()
	_ = o.b.Close()
}

// difference returns the largest difference of the outputs, each as a part of its range.
func difference(a *own, b *peer) (float64, error) {
	worst := 0.0
	for i, name := range b.names {
		t, ok := b.outs[i].(*ort.Tensor[float32])
		if !ok {
			continue
		}
		ours := a.out[name].Tensor
		want, got := t.GetData(), ours.Floats()
		if len(want) != len(got) {
			return 0, fmt.Errorf("output %q has %d elements, %d are right", name, len(got), len(want))
		}
		lo, hi, most := math.Inf(1), math.Inf(-1), 0.0
		for j, w := range want {
			lo, hi = min(lo, float64(w)), max(hi, float64(w))
			most = max(most, math.Abs(float64(w)-got[j]))
			if got[j] != got[j] {
				return 0, fmt.Errorf("output %q: element %d is NaN", name, j)
			}
		}
		worst = max(worst, most/max(hi-lo, 1e-30))
	}
	return worst, nil
}

func printProfile(s subject, threads int) error {
	o, err := openOurs(s, threads, true)
	if err != nil {
		return err
	}
	defer o.close()
	p, err := openORT(s, threads, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		return err
	}
	defer p.close()
	if err := o.prepare(p.input()); err != nil {
		return err
	}
	for range 10 {
		if err := o.run(); err != nil {
			return err
		}
	}
	const peak = 175 // GFLOP/s of one core of the reference machine
	fmt.Println(s.name, threads, "threads")
	total := time.Duration(0)
	for _, n := range o.s.Executable().Profile() {
		total += n.Time
	}
	for _, n := range o.s.Executable().Profile() {
		fmt.Printf("%9.1f us %5.1f %%  %-16s %7.1f GFLOP/s %3.0f %% of peak %6.1f GB/s  %s\n", float64(n.Time.Microseconds())/float64(n.Calls),
			100*float64(n.Time)/float64(total), n.Op, n.GFLOPS(), 100*n.GFLOPS()/float64(peak*threads), n.GBps(), n.Name)
	}
	return nil
}
