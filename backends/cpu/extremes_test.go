package cpu_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/knob"
	"github.com/tessera-go/tessera/internal/rerun"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// extreme is an operation that meets thresholds.
type extreme struct {
	name string
	op   ops.Op
	in   []tensor.Tensor
	bits bool // whatever the thresholds say; else sums may have another order

	tolerance float64 // as a fraction of the result's largest magnitude
}

func extremes(t testing.TB) (list []extreme) {
	const sums = 1e-5
	rng := rand.New(rand.NewPCG(71, 72))
	random := func(d tensor.DType, dims ...int) tensor.Tensor {
		x := tensor.New(d, dims...)
		v := make([]float64, x.Elems())
		for i := range v {
			if v[i] = rng.NormFloat64(); d.IsInt() {
				v[i] = float64(rng.IntN(200) - 100)
			}
		}
		x.SetFloats(v)
		return x
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		for _, m := range []int{1, 5, 70} {
			list = append(list, extreme{fmt.Sprint(d, " product of ", m, " rows"), matmul.Op{TransB: true}, []tensor.Tensor{random(tensor.F32, m, 90), random(d, 130, 90)}, m > 1, sums})
		}
	}
	list = append(list, extreme{"i8 product", matmul.Op{}, []tensor.Tensor{random(tensor.I8, 33, 100), random(tensor.I8, 100, 70)}, true, 0})
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_K} {
		w, err := quant.Encode(d, random(tensor.F32, 40, 512))
		require.NoError(t, err)
		for _, m := range []int{1, 7, 37} {
			list = append(list, extreme{fmt.Sprint(d, " product of ", m, " rows"), matmul.Op{TransB: true}, []tensor.Tensor{random(tensor.F32, m, 512), w}, false, 2e-2}) // activations become bytes
		}
	}
	same := conv.Window{Before: [3]int{1, 1}, After: [3]int{1, 1}}
	list = append(list,
		extreme{"convolution", conv.Conv{Window: same}, []tensor.Tensor{random(tensor.F32, 1, 20, 19, 18), random(tensor.F32, 40, 20, 3, 3)}, false, sums},
		extreme{"depthwise convolution", conv.Conv{Window: same, Groups: 24}, []tensor.Tensor{random(tensor.F32, 1, 24, 19, 18), random(tensor.F32, 24, 1, 3, 3)}, false, sums},
		extreme{"convolution of bytes", conv.Conv{Window: same}, []tensor.Tensor{random(tensor.I8, 1, 20, 19, 18), random(tensor.I8, 40, 20, 3, 3)}, true, 0},
		extreme{"attention", attention.SDPA{Scale: 0.2}, []tensor.Tensor{random(tensor.F32, 1, 4, 70, 32), random(tensor.F32, 1, 2, 90, 32), random(tensor.F32, 1, 2, 90, 32)}, false, sums})
	return list
}

// TestThresholdsAtTheirBounds: on each instruction set of this processor every threshold, at either of its bounds, leaves what products, convolutions and attention
// give within rounding of the definition, and keeps the bits that no threshold may change. Thresholds are read once, so each is set in a process of its own.
func TestThresholdsAtTheirBounds(t *testing.T) {
	cases, isas := extremes(t), cpuinfo.Get().ISAs
	if path := os.Getenv("EXTREMES_CHILD"); path != "" {
		f, err := os.Create(path)
		require.NoError(t, err)
		for _, isa := range isas {
			b, err := backends.Open("cpu:threads=3,isa=" + isa.String())
			require.NoError(t, err)
			for _, c := range cases {
				got, err := onBackend(b, c.op, c.in, true)
				require.NoError(t, err, "%v %s", isa, c.name)
				_, err = f.Write(got[0].Raw())
				require.NoError(t, err)
			}
			require.NoError(t, b.Close())
		}
		require.NoError(t, f.Close())
		return
	}
	if testing.Short() {
		t.Skip("starts a process for each bound of each threshold")
	}
	dir := t.TempDir()
	var files atomic.Int64
	run := func(env ...string) []byte {
		path := filepath.Join(dir, fmt.Sprint(files.Add(1)))
		cmd := rerun.Self("-test.run", "^TestThresholdsAtTheirBounds$")
		cmd.Env = append(append(os.Environ(), "EXTREMES_CHILD="+path, "TESSERA_PROFILE=none"), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", env, err, out)
			return nil
		}
		results, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return results
	}
	defaults := run()
	require.NotEmpty(t, defaults)
	want := make([]tensor.Tensor, len(cases))
	for i, c := range cases {
		var specs []tensor.Spec
		for _, x := range c.in {
			specs = append(specs, x.Spec)
		}
		out, err := c.op.Infer(specs)
		require.NoError(t, err)
		want[i] = tensor.New(out[0].DType, out[0].Shape()...)
		require.NoError(t, c.op.Reference([]tensor.Tensor{want[i]}, c.in))
	}
	// check compares what a process has computed with the definition, and with the bits of the defaults.
	check := func(results []byte, env []string) {
		if len(results) != len(defaults) {
			t.Errorf("%v: %d bytes of results, %d are right", env, len(results), len(defaults))
			return
		}
		at := 0
		for _, isa := range isas {
			for i, c := range cases {
				raw := results[at : at+want[i].Bytes()]
				same := bytes.Equal(raw, defaults[at:at+len(raw)])
				at += len(raw)
				if c.bits && !same {
					t.Errorf("%v: %v %s: other bits than with the defaults", env, isa, c.name)
				}
				got := tensor.New(want[i].DType, want[i].Shape()...)
				copy(got.Raw(), raw)
				if element, off := furthest(got, want[i]); !(off <= c.tolerance) {
					t.Errorf("%v: %v %s: element %d is %v of the largest off, %v is right", env, isa, c.name, element, off, c.tolerance)
				}
			}
		}
	}
	check(defaults, nil)
	var settings [][]string
	for _, d := range knob.All() {
		for _, v := range []int{d.Low, d.High} {
			env := []string{d.Env + "=" + strconv.Itoa(v)}
			switch d.Name { // the one must not be above the other
			case "kc-min":
				env = append(env, "TESSERA_KC_MAX="+strconv.Itoa(max(v, 512)))
			case "kc-max":
				env = append(env, "TESSERA_KC_MIN="+strconv.Itoa(min(v, 64)))
			}
			settings = append(settings, env)
		}
	}
	require.Greater(t, len(settings), 60)
	work := make(chan []string)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 8) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for env := range work {
				if results := run(env...); results != nil {
					check(results, env)
				}
			}
		}()
	}
	for _, env := range settings {
		work <- env
	}
	close(work)
	wg.Wait()
}

// furthest returns the element that is furthest from what it should be, and by how much, as a fraction of the largest magnitude.
func furthest(got, want tensor.Tensor) (element int, off float64) {
	g, w, most := got.Floats(), want.Floats(), 0.0
	for i := range w {
		most = max(most, math.Abs(w[i]))
		if d := math.Abs(g[i] - w[i]); !(d <= off) {
			element, off = i, d
		}
	}
	return element, off / most
}
