package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/examples/internal/mnist"
	"github.com/tessera-go/tessera/models/onnx"
)

// A short training on few images learns something, and the file that it writes can be read.
func TestLearnsAndExports(t *testing.T) {
	dir, err := mnist.Dir()
	require.NoError(t, err)
	images, labels := load(dir, mnist.TestImages, mnist.TestLabels)
	n := newNet(rand.New(rand.NewPCG(1, 2)))
	before := evaluate(n, images[:200], labels[:200])
	train(n, images[:1000], labels[:1000], 2, 1)
	after := evaluate(n, images[1000:1200], labels[1000:1200])
	require.Less(t, before, 60)
	require.Greater(t, after, 120, "of 200 images that it has not seen")
	m, err := export(n)
	require.NoError(t, err)
	data, err := m.Encode()
	require.NoError(t, err)
	again, err := onnx.Decode(data)
	require.NoError(t, err)
	require.NoError(t, again.Unsupported())
}
