// Command onnx runs models on this library and on ONNX Runtime, in one process and in turn, and prints the ratio of their times and the
// largest difference of their results, and the time to load and the peak of memory, each of which it takes from a process of its own.
// install.sh fetches the runtime and the models.
//
// The turns are batches of runs. Both libraries keep their threads spinning for some time after a run, which would take the processors
// from the other one; so before each batch the process waits until it is at rest, and the first run of a batch does not count.
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
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/median"
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
	OursMemory  int64   `json:"ours_bytes"` // peak, over what the process had before loading, to the end of the first run
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
		load    = flag.String("load", "", "\"ours\" or \"ort\": load, run once, and print time and memory; what the command calls itself with")
	)
	flag.Parse()
	if *lib == "" {
		*lib = filepath.Join(*dir, "libonnxruntime.so")
	}
	if *load != "ours" {
		ort.SetSharedLibraryPath(*lib)
		check(ort.InitializeEnvironment())
		defer ort.DestroyEnvironment()
	}

	at := func(name string) string { return filepath.Join(*dir, name) }
	resnet := at("resnet50-random.onnx")
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
	clips := at("r3d18-random.onnx")
	if strings.Contains(*only, "r3d") { // not among those whose mean is taken, like the next ones
		subjects = append(subjects, subject{"r3d18-8x112", clips, []int{1, 3, 8, 112, 112}, imagenet})
	}
	int8Net := at("resnet50-random-int8.onnx")
	if strings.Contains(*only, "int8") {
		subjects = append(subjects, subject{"resnet50-int8-1", int8Net, []int{1, 3, 224, 224}, imagenet}, subject{"resnet50-int8-8", int8Net, []int{8, 3, 224, 224}, imagenet})
	}
	var ratios []float64
	for _, s := range subjects {
		if s.path == "" || !strings.Contains(s.name, *only) {
			continue
		}
		if build := map[string]func() (*onnx.Model, error){resnet: resnet50, int8Net: quantizedResNet50, clips: r3d18}[s.path]; build != nil {
			if _, err := os.Stat(s.path); err != nil {
				m, err := build()
				check(err)
				data, err := m.Encode()
				check(err)
				check(os.WriteFile(s.path, data, 0o600))
			}
		}
		for _, t := range strings.Split(*threads, ",") {
			n, err := strconv.Atoi(t)
			check(err)
			if *profile {
				check(printProfile(s, n))
				continue
			}
			if *load != "" {
				l, err := measureLoad(s, n, *load == "ort")
				check(err)
				check(json.NewEncoder(os.Stdout).Encode(l))
				return
			}
			r, err := compare(s, n, *seconds)
			if err != nil {
				log.Fatalf("%s: %v", s.name, err)
			}
			args := []string{"-dir", *dir, "-lib", *lib, "-magika", *magika, "-only", s.name, "-threads", t}
			ours, err := loadElsewhere(append(args, "-load", "ours"))
			check(err)
			theirs, err := loadElsewhere(append(args, "-load", "ort"))
			check(err)
			r.OursLoad, r.OursMemory, r.ORTLoad, r.ORTMemory = ours.MS, ours.Peak, theirs.MS, theirs.Peak
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
	in, err := s.input()
	if err != nil {
		return r, err
	}
	theirs, err := openORT(s, in, threads)
	if err != nil {
		return r, err
	}
	defer theirs.close()
	if err := theirs.run(); err != nil {
		return r, err
	}
	ours, err := openOurs(s, in, threads, false)
	if err != nil {
		return r, err
	}
	defer ours.close()
	if err := ours.run(); err != nil {
		return r, err
	}
	r.Eager = ours.s.Eager()
	if r.Difference, err = difference(ours, theirs); err != nil {
		return r, err
	}
	var a, b []float64
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); len(a) < 3 || time.Now().Before(end); {
		if a, err = batch(a, ours.run); err != nil {
			return r, err
		}
		if b, err = batch(b, theirs.run); err != nil {
			return r, err
		}
	}
	r.Repetitions = min(len(a), len(b))
	r.Ours, r.ORT, r.OursBest, r.ORTBest = median.Of(a), median.Of(b), slices.Min(a), slices.Min(b)
	r.Ratio = r.Ours / r.ORT
	return r, nil
}

// batch adds the times in milliseconds of some runs.
func batch(times []float64, run func() error) ([]float64, error) {
	const length = 80 // milliseconds
	rest()
	if err := run(); err != nil {
		return nil, err
	}
	for begin := time.Now(); ; {
		start := time.Now()
		if err := run(); err != nil {
			return nil, err
		}
		times = append(times, ms(start))
		if ms(begin) > length {
			return times, nil
		}
	}
}

// rest waits until the process uses hardly any processor time: until threads that wait for work have gone to sleep.
func rest() {
	const step = 3 * time.Millisecond
	for range 100 {
		before := processorTime()
		time.Sleep(step)
		if processorTime()-before < step/10 {
			return
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// loaded is what loading a model and its first run cost.
type loaded struct {
	MS   float64 `json:"ms"`   // loading
	Peak int64   `json:"peak"` // bytes, over what the process had before
}

func measureLoad(s subject, threads int, theirs bool) (loaded, error) {
	in, err := s.input()
	if err != nil {
		return loaded{}, err
	}
	runtime.GC()
	before, start := status("VmRSS"), time.Now()
	var l loaded
	if theirs {
		p, err := openORT(s, in, threads)
		if err != nil {
			return l, err
		}
		l.MS = ms(start)
		if err := p.run(); err != nil {
			return l, err
		}
	} else {
		o, err := openOurs(s, in, threads, false)
		if err != nil {
			return l, err
		}
		l.MS = ms(start)
		if err := o.run(); err != nil {
			return l, err
		}
	}
	l.Peak = status("VmHWM") - before
	return l, nil
}

// loadElsewhere runs this command with the arguments, some times over, and returns the median of the times and the least peak.
func loadElsewhere(args []string) (loaded, error) {
	self, err := os.Executable()
	if err != nil {
		return loaded{}, err
	}
	var times []float64
	var best loaded
	for i := range 3 {
		out, err := exec.Command(self, args...).Output()
		if err != nil {
			return loaded{}, fmt.Errorf("%v: %w", args, err)
		}
		var l loaded
		if err := json.Unmarshal(out, &l); err != nil {
			return loaded{}, err
		}
		times = append(times, l.MS)
		if i == 0 || l.Peak < best.Peak {
			best.Peak = l.Peak
		}
	}
	best.MS = median.Of(times)
	return best, nil
}

func ms(start time.Time) float64 { return float64(time.Since(start).Microseconds()) / 1000 }

// status returns a field of the process's status, in bytes.
func status(field string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			var kb int64
			fmt.Sscan(rest, &kb)
			return kb << 10
		}
	}
	return 0
}

// input returns what the model is run on: bytes, pictures, or a clip of noise.
func (s *subject) input() (tensor.Tensor, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	if len(s.dims) == 2 {
		t := tensor.New(tensor.I32, s.dims...)
		v := tensor.Data[int32](t)
		for i := range v {
			v[i] = rng.Int32N(257)
		}
		return t, nil
	}
	t := tensor.New(tensor.F32, s.dims...)
	if len(s.dims) == 5 {
		v := tensor.Data[float32](t)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return t, nil
	}
	w, h := s.dims[3], s.dims[2]
	if s.format.Last {
		w, h = s.dims[2], s.dims[1]
	}
	for i := range s.dims[0] {
		one, err := t.Slice(0, i, i+1, 1)
		if err != nil {
			return t, err
		}
		if err := s.format.Put(one, picture(w, h, rng)); err != nil {
			return t, err
		}
	}
	return t, nil
}

// peer is a session of ONNX Runtime.
type peer struct {
	s     *ort.DynamicAdvancedSession
	in    ort.Value
	names []string
	outs  []ort.Value
}

func openORT(s subject, in tensor.Tensor, threads int) (*peer, error) {
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
	for _, d := range s.dims {
		shape = append(shape, int64(d))
	}
	if in.DType == tensor.I32 {
		p.in, err = ort.NewTensor(shape, tensor.Data[int32](in))
	} else {
		p.in, err = ort.NewTensor(shape, tensor.Data[float32](in))
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

func openOurs(s subject, in tensor.Tensor, threads int, profile bool) (*own, error) {
	b, err := backends.Open("cpu", fmt.Sprintf("threads=%d", threads))
	if err != nil {
		return nil, err
	}
	m, err := onnx.Open(s.path)
	if err != nil {
		return nil, err
	}
	session, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: []backends.Backend{b}, Profile: profile})
	if err != nil {
		return nil, err
	}
	name := session.Inputs()[0].Name
	o := &own{b: b, m: m, s: session, in: map[string]onnx.Value{name: onnx.Of(in)}}
	return o, session.Prepare(context.Background(), map[string]tensor.Spec{name: in.Spec})
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
	in, err := s.input()
	if err != nil {
		return err
	}
	o, err := openOurs(s, in, threads, true)
	if err != nil {
		return err
	}
	defer o.close()
	for range 10 {
		if err := o.run(); err != nil {
			return err
		}
	}
	peak := gemm.Peak(gemm.F32, threads, nil)
	fmt.Printf("%s, %d threads, peak %.0f GFLOP/s\n", s.name, threads, peak)
	total := time.Duration(0)
	for _, n := range o.s.Executable().Profile() {
		total += n.Time
	}
	for _, n := range o.s.Executable().Profile() {
		fmt.Printf("%9.1f us %5.1f %%  %-16s %7.1f GFLOP/s %3.0f %% of peak %6.1f GB/s  %s\n", float64(n.Time.Microseconds())/float64(n.Calls),
			100*float64(n.Time)/float64(total), n.Op, n.GFLOPS(), 100*n.GFLOPS()/peak, n.GBps(), n.Name)
	}
	return nil
}
