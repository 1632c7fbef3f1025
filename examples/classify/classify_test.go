package main

import (
	"context"
	"flag"
	"fmt"
	stdimage "image"
	"image/jpeg"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/examples/internal/mnist"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/image"
)

var update = flag.Bool("update", false, "write the example pictures")

func options(t *testing.T) cnn.Options {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return cnn.Options{Backends: []backends.Backend{b}}
}

func testSet(t *testing.T) ([]stdimage.Image, []int) {
	dir, err := mnist.Dir()
	if err != nil {
		t.Skip(err)
	}
	images, err := image.ReadFile(filepath.Join(dir, mnist.TestImages))
	require.NoError(t, err)
	labels, err := image.ReadLabels(filepath.Join(dir, mnist.TestLabels))
	require.NoError(t, err)
	require.Len(t, images, 10000)
	return images, labels
}

func right(t *testing.T, c *cnn.Classifier, images []stdimage.Image, labels []int) int {
	got, err := c.Classify(context.Background(), images)
	require.NoError(t, err)
	n := 0
	for i, r := range got {
		if r.Label == strconv.Itoa(labels[i]) {
			n++
		}
	}
	return n
}

// The pictures in this folder, named for what they show.
func TestPictures(t *testing.T) {
	if *update {
		images, labels := testSet(t)
		for digit := range 10 {
			for i, l := range labels {
				if l != digit {
					continue
				}
				require.NoError(t, image.WritePNG(fmt.Sprintf("%d.png", digit), images[i]))
				if digit == 7 { // larger, as a photograph would be
					f, err := os.Create("7.jpg")
					require.NoError(t, err)
					require.NoError(t, jpeg.Encode(f, image.Resize(images[i], 140, 140), nil))
					require.NoError(t, f.Close())
				}
				break
			}
		}
	}
	c, err := cnn.Digits(context.Background(), options(t))
	require.NoError(t, err)
	defer c.Close()
	paths, err := filepath.Glob("*.[pj][np]g")
	require.NoError(t, err)
	require.Len(t, paths, 11)
	for _, p := range paths {
		pictures, err := image.ReadFile(p)
		require.NoError(t, err)
		got, err := c.Classify(context.Background(), pictures)
		require.NoError(t, err)
		require.Equal(t, p[:1], got[0].Label, p)
	}
}

// At least 99.0 % of MNIST's test set.
func TestEmbedded(t *testing.T) {
	images, labels := testSet(t)
	c, err := cnn.Digits(context.Background(), options(t))
	require.NoError(t, err)
	defer c.Close()
	n := right(t, c, images, labels)
	t.Logf("%d of 10,000", n)
	require.GreaterOrEqual(t, n, 9900)
}

// ONNX Runtime gets 9,891 right with this model and raw pixels.
func TestMNIST12(t *testing.T) {
	path := shared.File(t, "data/models/mnist-12.onnx")
	images, labels := testSet(t)
	c, err := cnn.Open(context.Background(), path, options(t))
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, 9891, right(t, c, images, labels))
}
