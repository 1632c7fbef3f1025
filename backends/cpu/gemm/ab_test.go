package gemm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestKnobsAB compares settings of knobs in one process, alternating: TESSERA_AB="kcMax=256;kcMax=512,lowRows=0".
func TestKnobsAB(t *testing.T) {
	spec := os.Getenv("TESSERA_AB")
	if spec == "" {
		t.Skip("set TESSERA_AB to compare settings")
	}
	kn, err := knobTable.Get()
	if err != nil {
		t.Fatal(err)
	}
	saved := *kn
	defer func() { *kn = saved }()
	set := func(s string) {
		*kn = saved
		for _, kv := range strings.Split(s, ",") {
			name, v, _ := strings.Cut(kv, "=")
			n, _ := strconv.Atoi(v)
			found := false
			for _, d := range knobTable.Rows() {
				if d.Env == "TESSERA_"+name {
					*d.Of(kn), found = n, true
				}
			}
			if !found && kv != "" {
				panic(kv)
			}
		}
	}
	sizes := "256x256x256,512x512x512,1024x1024x1024"
	if s := os.Getenv("TESSERA_AB_SIZES"); s != "" {
		sizes = s
	}
	plain := os.Getenv("TESSERA_AB_PLAIN") != ""
	threads, _ := strconv.Atoi(os.Getenv("TESSERA_AB_THREADS"))
	if threads == 0 {
		threads = 1
	}
	typ := os.Getenv("TESSERA_AB_TYPE")
	confs := strings.Split(spec, ";")
	for _, s := range strings.Split(sizes, ",") {
		var m, n, k int
		fmt.Sscanf(s, "%dx%dx%d", &m, &n, &k)
		r := rand.New(rand.NewPCG(1, 1))
		z := make([]float32, m*n)
		o := &Options{Threads: threads}
		A, B, C := Of(floats(r, m*k), m, k), Of(floats(r, k*n), k, n), Of(z, m, n)
		switch typ {
		case "bf16":
			A, B = Of(bf16s(r, m*k), m, k), Of(bf16s(r, k*n), k, n)
		case "s8":
			A, B, C = Of(ints8(r, m*k), m, k), Of(ints8(r, k*n), k, n), Of(make([]int32, m*n), m, n)
		case "u8":
			A, B, C = Of(uints8(r, m*k), m, k), Of(ints8(r, k*n), k, n), Of(make([]int32, m*n), m, n)
		}
		p, _ := PackB(B, o)
		rates := make([][]float64, len(confs))
		var peaks []float64
		end := time.Now().Add(1500 * time.Millisecond)
		for round := 0; round < 8 || time.Now().Before(end); round++ {
			peaks = append(peaks, Peak(B.Type(), threads, o))
			for j := range confs {
				i := (round + j) % len(confs)
				set(confs[i])
				reps := 0
				t0 := time.Now()
				for time.Since(t0) < 4*time.Millisecond {
					if plain {
						_ = Mul(C, A, B, o)
					} else {
						_ = MulPacked(C, A, p, o)
					}
					reps++
				}
				rates[i] = append(rates[i], 2*float64(m*n*k)*float64(reps)/time.Since(t0).Seconds()/1e9)
			}
		}
		slices.Sort(peaks)
		fmt.Printf("%s peak %.1f/%.1f:", s, peaks[len(peaks)/2], peaks[len(peaks)-1])
		for i := range confs {
			v := rates[i]
			slices.Sort(v)
			fmt.Printf("  [%s] %.1f/%.1f", confs[i], v[len(v)/2], v[len(v)-1])
		}
		fmt.Println()
	}
}
