package qgemm

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/rerun"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// TestKnobs: thresholds change how a product is computed, not what it gives beyond the order of sums, and illegal ones are errors.
func TestKnobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const m, n, k = 37, 40, 1024
	data, rowBytes, _ := weights(t, rng, tensor.Q4_0, n, k)
	p, err := Pack(tensor.Q4_0, data, rowBytes, n, k, nil)
	require.NoError(t, err)
	defer p.Close()
	a := activations(rng, m*k)
	product := func(rows int, values map[string]int) []float32 {
		kn, err := NewKnobs(values)
		require.NoError(t, err)
		c := make([]float32, rows*n)
		require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: c, LDC: n, M: rows, Knobs: kn}))
		return c
	}
	for _, rows := range []int{3, m} {
		want := product(rows, nil)
		for _, values := range []map[string]int{
			{"q-few-rows": 0}, {"q-chunk-dot": 256, "q-chunk-tiles": 256}, {"q-chunk-dot": 65536, "q-chunk-tiles": 65536}, {"q-tile-rows": 16}, {"q-tiles-from": 1}, {"q-tiles-from": 64}, {"q-quant-job": 256},
		} {
			got := product(rows, values)
			for i := range want {
				require.InDelta(t, want[i], got[i], 1e-3, "%v, element %d", values, i)
			}
		}
	}
	for _, values := range []map[string]int{{"q-few-rows": 33}, {"q-tiles-from": 0}, {"q-chunk-dot": 300}, {"kc-max": 512}} {
		_, err := NewKnobs(values)
		require.Error(t, err, "%v", values)
	}
}

// TestBadEnvironment: an illegal threshold or a missing instruction set is the error of every product.
func TestBadEnvironment(t *testing.T) {
	if os.Getenv("QGEMM_CHILD") != "" {
		data := make([]byte, tensor.Q4_0.Size())
		require.NoError(t, quant.EncodeRow(tensor.Q4_0, data, make([]float32, 32)))
		p, err := Pack(tensor.Q4_0, data, len(data), 1, 32, nil)
		require.NoError(t, err)
		err = p.Mul(context.Background(), &Run{A: make([]float32, 32), LDA: 32, C: make([]float32, 1), LDC: 1, M: 1})
		require.NoError(t, err)
		return
	}
	for env, want := range map[string]string{
		"TESSERA_Q_FEW_ROWS=33":   "TESSERA_Q_FEW_ROWS=33, want a number from 0 to 32",
		"TESSERA_Q_CHUNK_DOT=300": "multiple of 256",
		"TESSERA_ISA=vax":         `"vax" is unknown`,
		"TESSERA_Q_FEW_ROWS=2":    "PASS",
	} {
		cmd := rerun.Self("-test.run", "^TestBadEnvironment$", "-test.v")
		cmd.Env = append(os.Environ(), "QGEMM_CHILD=1", env)
		out, err := cmd.CombinedOutput()
		require.Equal(t, want == "PASS", err == nil, "%s: %s", env, out)
		require.Contains(t, string(out), want)
	}
}
