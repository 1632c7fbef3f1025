// Command gemm runs Tessera's matrix product beside its peers in one process, one after another in many short rounds, so that
// a clock that drifts or a neighbour on the machine hits all alike. It prints rates, the ratio of medians to each peer, and
// the percentage of the peak that was measured in the same rounds.
//
//	go run ./gemm                     # all cases
//	go run ./gemm -case '^f32-1024'   # some
//	go run ./gemm -json               # one line a case
//	go run ./gemm -peer-isa avx512_core_bf16   # oneDNN without AMX, under the name onednn-avx512_core_bf16
package main

// #cgo CFLAGS: -O2
// #cgo LDFLAGS: -ldnnl -ldl -lgomp
// #include "peers.h"
// #include <stdlib.h>
import "C"

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gorgonia.org/tensor"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/median"
)

// result is one line of the output.
type result struct {
	Case               string             `json:"case"`
	DType              string             `json:"dtype"`
	M                  int                `json:"m"`
	N                  int                `json:"n"`
	K                  int                `json:"k"`
	Threads            int                `json:"threads"`
	Packed             bool               `json:"packed"`
	Ours               float64            `json:"ours"`
	Best               float64            `json:"best"`
	Peers              map[string]float64 `json:"peers"`
	Ratio              map[string]float64 `json:"ratio"`
	Peak               float64            `json:"peak"`
	PercentOfPeak      float64            `json:"percent_of_peak"`
	Bandwidth          float64            `json:"bandwidth_gb_s,omitempty"`
	PercentOfBandwidth float64            `json:"percent_of_bandwidth,omitempty"`
}

type benchCase struct {
	dtype   string
	m, n, k int
	threads int
	plain   bool
}

func (c benchCase) name() string {
	s := fmt.Sprintf("%s-%dx%dx%d-t%d", c.dtype, c.m, c.n, c.k, c.threads)
	if c.plain {
		s = "plain-" + s
	}
	return s
}

func cases() []benchCase {
	var list []benchCase
	cubes := []int{64, 256, 512, 1000, 1024, 2048, 4096}
	odd := [][3]int{{1, 4096, 4096}, {2, 4096, 4096}, {4, 4096, 4096}, {8, 4096, 4096}, {16, 4096, 4096}, {128, 4096, 4096}, {37, 511, 129}, {1024, 1024, 16}}
	for _, dtype := range []string{"f32", "bf16", "s8s8s32", "u8s8s32"} {
		for _, threads := range []int{1, 2} {
			for _, n := range cubes {
				list = append(list, benchCase{dtype, n, n, n, threads, false})
			}
			for _, s := range odd {
				list = append(list, benchCase{dtype, s[0], s[1], s[2], threads, false})
			}
		}
	}
	for _, threads := range []int{1, 2} {
		for _, n := range cubes {
			list = append(list, benchCase{"f32", n, n, n, threads, true})
		}
		for _, s := range odd {
			list = append(list, benchCase{"f32", s[0], s[1], s[2], threads, true})
		}
	}
	return list
}

// onednn is the name of the peer, with the instruction set that it is held to.
var onednn = "onednn"

// contestant is one implementation of a case.
type contestant struct {
	name  string
	run   func()
	rates []float64
	close func()
}

func main() {
	pattern := flag.String("case", "", "regular expression that selects cases by name")
	asJSON := flag.Bool("json", false, "print one JSON line a case")
	budget := flag.Duration("time", 1500*time.Millisecond, "time per case")
	only := flag.String("peers", "", "comma-separated peers to run (default: all that apply)")
	limit := flag.String("peer-isa", "", "instruction set to which oneDNN is held: avx2, avx512_core, avx512_core_vnni, avx512_core_bf16 or avx512_core_amx")
	flag.Parse()
	re, err := regexp.Compile(*pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *limit != "" {
		name := C.CString(*limit)
		defer C.free(unsafe.Pointer(name))
		if C.dnn_limit(name) != 0 {
			fmt.Fprintf(os.Stderr, "oneDNN cannot be held to %s\n", *limit)
			os.Exit(2)
		}
		onednn += "-" + *limit
	}
	isa, err := cpuinfo.Pinned()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "the engine runs as %v, oneDNN as %s\n", isa, C.GoString(C.dnn_isa()))
	have := [2]bool{C.blas_open(0) == 0, C.blas_open(1) == 0}
	if have[0] {
		fmt.Fprintf(os.Stderr, "OpenBLAS runs as %s\n", C.GoString(C.blas_core(0)))
	}
	enc := json.NewEncoder(os.Stdout)
	for _, c := range cases() {
		if !re.MatchString(c.name()) {
			continue
		}
		r, err := measure(c, have, *budget, *only)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if *asJSON {
			_ = enc.Encode(r)
			continue
		}
		fmt.Printf("%-28s ours %7.1f (best %7.1f)  %5.1f %% of peak %.1f", r.Case, r.Ours, r.Best, r.PercentOfPeak, r.Peak)
		if r.Bandwidth > 0 {
			fmt.Printf("  %5.1f %% of %.1f GB/s", r.PercentOfBandwidth, r.Bandwidth)
		}
		names := make([]string, 0, len(r.Peers))
		for n := range r.Peers {
			names = append(names, n)
		}
		slices.Sort(names)
		for _, n := range names {
			fmt.Printf("  %s %.1f (x %.3f)", n, r.Peers[n], r.Ratio[n])
		}
		fmt.Println()
	}
}

// cbytes allocates C memory, which both sides may keep pointers to; it is released with the case.
func cbytes(n int) (unsafe.Pointer, func()) {
	p := C.aligned_alloc(64, C.size_t((n+4095)/4096*4096+4096))
	return p, func() { C.free(p) }
}

func slice[T any](p unsafe.Pointer, n int) []T { return unsafe.Slice((*T)(p), n) }

func measure(c benchCase, have [2]bool, budget time.Duration, only string) (*result, error) {
	m, n, k := c.m, c.n, c.k
	asize, bsize := map[string]int{"f32": 4, "bf16": 2}[c.dtype], 0
	if asize == 0 {
		asize = 1
	}
	bsize = asize
	pa, freeA := cbytes(m * k * asize)
	pb, freeB := cbytes(k * n * bsize)
	pc, freeC := cbytes(m * n * 4)
	defer freeA()
	defer freeB()
	defer freeC()
	fill(c.dtype, pa, m*k, true)
	fill(c.dtype, pb, k*n, false)

	o := &gemm.Options{Threads: c.threads}
	var list []*contestant
	add := func(name string, run, done func()) {
		if name != "ours" && only != "" && !slices.Contains(strings.Split(only, ","), name) {
			if done != nil {
				done()
			}
			return
		}
		list = append(list, &contestant{name: name, run: run, close: done})
	}
	a, b, out, weights, err := views(c, pa, pb, pc)
	if err != nil {
		return nil, err
	}
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	if c.plain {
		add("ours", func() { check(gemm.Mul(out, a, b, o)) }, nil)
	} else {
		packed, err := gemm.PackB(b, o)
		if err != nil {
			return nil, err
		}
		add("ours", func() { check(gemm.MulPacked(out, a, packed, o)) }, func() { packed.Close() })
	}
	dnn := func(name string, kind C.int) {
		cc, free := cbytes(m * n * 4)
		d := C.dnn_new(C.int(m), C.int(n), C.int(k), kind, b2i(!c.plain), pa, pb, cc)
		if d == nil {
			fmt.Fprintf(os.Stderr, "%s: oneDNN has no product\n", c.name())
			free()
			return
		}
		add(name, func() {
			C.dnn_threads(C.int(c.threads))
			C.dnn_run(d)
		}, func() { C.dnn_free(d); free() })
	}
	switch c.dtype {
	case "f32":
		dnn(onednn, C.DNN_F32)
		for i, name := range []string{"openblas", "blis"} {
			if have[i] {
				cc, free := cbytes(m * n * 4)
				add(name, func() {
					C.blas_threads(C.int(i), C.int(c.threads))
					if i == 1 {
						C.dnn_threads(C.int(c.threads))
					}
					C.blas_sgemm(C.int(i), C.int(m), C.int(n), C.int(k), (*C.float)(pa), (*C.float)(pb), (*C.float)(cc))
				}, free)
			}
		}
		if c.threads == 1 && m*n*k <= 512*512*512 && m >= 256 {
			goPeers(c, pa, pb, add)
		}
	case "bf16":
		dnn(onednn, C.DNN_BF16)
	case "s8s8s32":
		dnn(onednn, C.DNN_S8)
		dnn(onednn+"-u8s8s32", C.DNN_U8)
	case "u8s8s32":
		dnn(onednn, C.DNN_U8)
	}

	work := 2 * float64(m) * float64(n) * float64(k) / 1e9
	slot := max(budget/60, 4*time.Millisecond)
	for _, x := range list {
		x.run() // warm up
	}
	var bands []float64
	weightBytes := k * n * bsize
	var band unsafe.Pointer
	if m == 1 && c.threads == 1 {
		band = C.read_memory(C.int64_t(weightBytes))
		defer C.free(band)
	}
	st := &settler{weights: weights, threads: c.threads, o: o}
	for range 5 {
		st.full = max(st.full, float64(c.threads)*gemm.Peak(weights, 1, o))
	}
	end := time.Now().Add(budget)
	for round := 0; round < 5 || time.Now().Before(end); round++ {
		if m == 1 && c.threads == 1 {
			best := 0.0
			for pattern := range C.int(2) {
				// Again and again, as the contestants do, so that caches hold as much of it as of the weights.
				reps := 0
				t := time.Now()
				for reps == 0 || time.Since(t) < slot {
					C.read_all(band, C.int64_t(weightBytes), pattern)
					reps++
				}
				best = max(best, float64(reps)*float64(weightBytes)/time.Since(t).Seconds()/1e9)
			}
			bands = append(bands, best)
		}
		// Each round starts with another contestant.
		for i := range list {
			x := list[(round+i)%len(list)]
			st.settle()
			if c.threads > 1 {
				x.run()
				x.run()
			}
			reps := 0
			t := time.Now()
			for {
				x.run()
				reps++
				if time.Since(t) >= slot {
					break
				}
			}
			x.rates = append(x.rates, work*float64(reps)/time.Since(t).Seconds())
		}
		end = end.Add(st.waited)
		st.total += st.waited
		st.waited = 0
		if round > 200 {
			break
		}
	}
	r := &result{Case: c.name(), DType: c.dtype, M: m, N: n, K: k, Threads: c.threads, Packed: !c.plain,
		Peers: map[string]float64{}, Ratio: map[string]float64{}}
	for _, x := range list {
		med := median.Of(x.rates)
		if x.name == "ours" {
			r.Ours, r.Best = med, slices.Max(x.rates)
			continue
		}
		r.Peers[x.name] = med
	}
	for name, v := range r.Peers {
		r.Ratio[name] = r.Ours / v
	}
	r.Peak = median.Of(st.peaks)
	r.PercentOfPeak = 100 * r.Ours / r.Peak
	if len(bands) > 0 {
		r.Bandwidth = median.Of(bands)
		r.PercentOfBandwidth = 100 * (r.Ours / work * float64(weightBytes) / 1e9) / r.Bandwidth
	}
	for _, x := range list {
		if x.close != nil {
			x.close()
		}
	}
	runtime.KeepAlive(list)
	return r, nil
}

func views(c benchCase, pa, pb, pc unsafe.Pointer) (a, b, out gemm.Matrix, weights gemm.Type, err error) {
	m, n, k := c.m, c.n, c.k
	switch c.dtype {
	case "f32":
		return gemm.Of(slice[float32](pa, m*k), m, k), gemm.Of(slice[float32](pb, k*n), k, n), gemm.Of(slice[float32](pc, m*n), m, n), gemm.F32, nil
	case "bf16":
		return gemm.Of(slice[gemm.BFloat16](pa, m*k), m, k), gemm.Of(slice[gemm.BFloat16](pb, k*n), k, n), gemm.Of(slice[float32](pc, m*n), m, n), gemm.BF16, nil
	case "s8s8s32":
		return gemm.Of(slice[int8](pa, m*k), m, k), gemm.Of(slice[int8](pb, k*n), k, n), gemm.Of(slice[int32](pc, m*n), m, n), gemm.S8, nil
	case "u8s8s32":
		return gemm.Of(slice[uint8](pa, m*k), m, k), gemm.Of(slice[int8](pb, k*n), k, n), gemm.Of(slice[int32](pc, m*n), m, n), gemm.S8, nil
	}
	return a, b, out, 0, fmt.Errorf("unknown type %q", c.dtype)
}

func fill(dtype string, p unsafe.Pointer, n int, isA bool) {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	switch dtype {
	case "f32":
		for i := range slice[float32](p, n) {
			slice[float32](p, n)[i] = r.Float32()*2 - 1
		}
	case "bf16":
		for i := range slice[uint16](p, n) {
			slice[uint16](p, n)[i] = uint16(math.Float32bits(r.Float32()*2-1) >> 16)
		}
	default:
		s := slice[uint8](p, n)
		for i := range s {
			s[i] = uint8(r.IntN(256))
		}
	}
}

// goPeers adds gonum and gorgonia, single-threaded.
func goPeers(c benchCase, pa, pb unsafe.Pointer, add func(string, func(), func())) {
	m, n, k := c.m, c.n, c.k
	a, b := slice[float32](pa, m*k), slice[float32](pb, k*n)
	cc := make([]float32, m*n)
	one := func(f func()) func() {
		return func() {
			old := runtime.GOMAXPROCS(1)
			f()
			runtime.GOMAXPROCS(old)
		}
	}
	add("gonum", one(func() {
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, blas32.General{Rows: m, Cols: k, Stride: k, Data: a},
			blas32.General{Rows: k, Cols: n, Stride: n, Data: b}, 0, blas32.General{Rows: m, Cols: n, Stride: n, Data: cc})
	}), nil)
	ta := tensor.New(tensor.WithShape(m, k), tensor.WithBacking(slices.Clone(a)))
	tb := tensor.New(tensor.WithShape(k, n), tensor.WithBacking(slices.Clone(b)))
	tc := tensor.New(tensor.WithShape(m, n), tensor.WithBacking(make([]float32, m*n)))
	add("gorgonia", one(func() {
		if _, err := tensor.MatMul(ta, tb, tensor.WithReuse(tc)); err != nil {
			panic(err)
		}
	}), nil)
}

func b2i(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// settler brings a machine to the state in which products are measured.
type settler struct {
	weights       gemm.Type
	threads       int
	o             *gemm.Options
	full          float64       // the peak of one thread times the threads
	peaks         []float64     // those of the settled machine
	waited, total time.Duration // beyond what a settled machine takes, since the last round and before it
}

// settle waits until the machine gives as many processors as there are threads: virtual ones can be away for seconds. It gives up
// after ten seconds a case. With several threads it also keeps all processors at work until those of the contestant before have
// given up looking for more, which those of OpenBLAS do after 2^26 cycles; a pause would not do, because a virtual processor that
// has been idle takes milliseconds to come back.
func (s *settler) settle() {
	start, least := time.Now(), time.Duration(0)
	if s.threads > 1 {
		least = 25 * time.Millisecond
	}
	for {
		p := gemm.Peak(s.weights, s.threads, s.o)
		took := time.Since(start)
		settled := p >= 0.85*s.full
		if took < least || !settled && s.total+took < 10*time.Second {
			continue
		}
		s.peaks = append(s.peaks, p)
		s.waited += max(took-least, 0)
		return
	}
}
