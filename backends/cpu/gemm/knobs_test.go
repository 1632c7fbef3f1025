package gemm

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/rerun"
)

// TestKnobsChangeNoBit: every threshold at its bounds and in between gives the bits of the defaults, for products that meet it.
func TestKnobsChangeNoBit(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	type problem struct {
		typ     Type
		m, n, k int
		colA    bool
		packed  bool
	}
	problems := []problem{{F32, 70, 130, 90, false, false}, {F32, 70, 130, 90, true, false}, {F32, 3, 200, 100, false, false}, {F32, 40, 96, 64, false, true},
		{BF16, 5, 100, 64, false, true}, {BF16, 30, 100, 64, false, true}, {S8, 33, 70, 100, false, false}, {S8, 33, 70, 100, false, true}}
	defaults := knobTable.Defaults()
	for _, p := range problems {
		at, ct := F32, F32
		if p.typ == S8 {
			at, ct = S8, S32
		}
		a, b := operand(r, at, p.m, p.k), operand(r, p.typ, p.k, p.n)
		if p.typ == F32 {
			a, b = Of(floats(r, p.m*p.k), p.m, p.k), Of(floats(r, p.k*p.n), p.k, p.n)
			if p.colA {
				a = View(floats(r, p.m*p.k), p.m, p.k, 1, p.m)
			}
		}
		pb, err := PackB(b, nil)
		require.NoError(t, err)
		run := func(values map[string]int) Matrix {
			kn, err := NewKnobs(values)
			require.NoError(t, err, "%v", values)
			c := Raw(ct, make([]byte, 4*p.m*p.n), p.m, p.n, p.n, 1)
			o := &Options{Threads: 3, Knobs: kn}
			if p.packed {
				err = MulPacked(c, a, pb, o)
			} else {
				err = Mul(c, a, b, o)
			}
			require.NoError(t, err, "%v", values)
			return c
		}
		want := run(nil)
		for i := range knobTable.Rows() {
			row := &knobTable.Rows()[i]
			for _, v := range []int{row.Low, max(row.Low, row.Default/3), min(row.High, max(row.Default, 1)*2), min(row.High, 1<<20)} {
				values := map[string]int{row.Name: v}
				if row.Name == "kc-min" && v > defaults.kcMax {
					values["kc-max"] = v
				}
				if row.Name == "kc-max" && v < defaults.kcMin {
					values["kc-min"] = v
				}
				got := run(values)
				for i := range p.m {
					require.Equal(t, want.bytes(i), got.bytes(i), "%v of %+v", values, p)
				}
			}
		}
	}
}

func TestKnobsRefused(t *testing.T) {
	for _, values := range []map[string]int{{"kc-max": 7}, {"kc-min": 600}, {"b-percent": 91}, {"q-few-rows": 1}, {"": 1}} {
		_, err := NewKnobs(values)
		require.ErrorContains(t, err, "gemm: ", "%v", values)
	}
}

// TestBadEnvironmentIsAnError: of every kind of product, before C is touched.
func TestBadEnvironmentIsAnError(t *testing.T) {
	if os.Getenv("GEMM_CHILD") != "" {
		c := []float32{5}
		one := Of([]float32{2}, 1, 1)
		pb, err := PackB(one, nil)
		require.NoError(t, err)
		for name, call := range map[string]func() error{
			"Mul":       func() error { return Mul(Of(c, 1, 1), one, one, nil) },
			"MulPacked": func() error { return MulPacked(Of(c, 1, 1), one, pb, nil) },
			"MulAdd":    func() error { return MulAdd(1, one, one, 1, Of(c, 1, 1), nil) },
			"MulBatch":  func() error { return MulBatch(Of(c, 1, 1), one, one, Batch{}, nil) },
		} {
			require.ErrorContains(t, call(), "TESSERA_", name)
			require.Equal(t, []float32{5}, c)
		}
		_, err = NewKnobs(nil)
		require.ErrorContains(t, err, "TESSERA_")
		return
	}
	for _, env := range []string{"TESSERA_KC_MAX=many", "TESSERA_B_PERCENT=0", "TESSERA_SPIN_MICROSECONDS=-3", "TESSERA_PROFILE=/nowhere/profile.json"} {
		cmd := rerun.Self("-test.run", "^TestBadEnvironmentIsAnError$")
		cmd.Env = append(os.Environ(), "GEMM_CHILD=1", env)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", env, out)
	}
}
