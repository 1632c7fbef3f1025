package qgemm

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

func TestView(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, d := range types() {
		const m, n, k = 3, 37, 512
		data, rowBytes, _ := weights(t, rng, d, n, k)
		p, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		var form bytes.Buffer
		size, err := p.WriteTo(&form)
		require.NoError(t, err)
		require.EqualValues(t, form.Len(), size)
		kept := mem.Bytes(form.Len())
		copy(kept, form.Bytes())
		view, err := View(kept)
		require.NoError(t, err)
		require.Equal(t, []any{d, n, k, p.Bytes()}, []any{view.Type(), view.N(), view.K(), view.Bytes()})
		a := activations(rng, m*k)
		want, got := make([]float32, m*n), make([]float32, m*n)
		require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: want, LDC: n, M: m}))
		require.NoError(t, view.Mul(context.Background(), &Run{A: a, LDA: k, C: got, LDC: n, M: m}))
		require.Equal(t, want, got, "%v", d)
		require.NoError(t, view.Close())
		require.NoError(t, p.Close())
		_, err = p.WriteTo(&form)
		require.ErrorContains(t, err, "closed")

		for cut := 0; cut < len(kept); cut += 61 {
			_, err := View(kept[:cut])
			require.Error(t, err)
		}
		for _, at := range []int{0, 8, 12, 13, 23, 24, 31, 32, 39, 40, 47} {
			bad := bytes.Clone(kept)
			bad[at] ^= 0x41
			_, err := View(bad)
			require.Error(t, err, "byte %d", at)
		}
	}
}

func FuzzView(f *testing.F) {
	data, rowBytes, _ := weights(f, rand.New(rand.NewPCG(5, 6)), tensor.Q4_K, 5, 256)
	p, err := Pack(tensor.Q4_K, data, rowBytes, 5, 256, nil)
	require.NoError(f, err)
	var form bytes.Buffer
	_, err = p.WriteTo(&form)
	require.NoError(f, err)
	f.Add(form.Bytes())
	for _, d := range types() {
		h := bytes.Clone(form.Bytes())
		copy(h[12:24], make([]byte, 12))
		copy(h[12:24], d.String())
		binary.LittleEndian.PutUint64(h[40:], 0)
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := View(append(mem.Bytes(len(data)), data...)[len(data):])
		if err != nil || p.n > 1<<10 {
			return
		}
		c := make([]float32, p.n)
		require.NoError(t, p.Mul(context.Background(), &Run{A: make([]float32, p.k), LDA: p.k, C: c, LDC: p.n, M: 1}))
	})
}
