package image

import (
	"bytes"
	"compress/gzip"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/tensor"
)

func idx(n, h, w int) []byte {
	b := []byte{0, 0, 8, 3, 0, 0, 0, byte(n), 0, 0, 0, byte(h), 0, 0, 0, byte(w)}
	for i := range n * h * w {
		b = append(b, byte(i))
	}
	return b
}

func TestIDX(t *testing.T) {
	raw := idx(2, 3, 4)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(raw)
	require.NoError(t, z.Close())
	for _, data := range [][]byte{raw, zipped.Bytes()} {
		list, err := Read(bytes.NewReader(data))
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, image.Rect(0, 0, 4, 3), list[1].Bounds())
		require.Equal(t, color.Gray{Y: 13}, list[1].At(1, 0))
	}
	for n := range raw {
		_, err := Read(bytes.NewReader(raw[:n]))
		require.Error(t, err)
	}
	_, err := Read(bytes.NewReader([]byte{0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 0, 1, 0, 0, 0, 1}))
	require.ErrorContains(t, err, "dimension 0")
	path := filepath.Join(t.TempDir(), "labels")
	require.NoError(t, os.WriteFile(path, []byte{0, 0, 8, 1, 0, 0, 0, 2, 7, 9}, 0o600))
	labels, err := ReadLabels(path)
	require.NoError(t, err)
	require.Equal(t, []int{7, 9}, labels)
}

func TestPNG(t *testing.T) {
	src := image.NewNRGBA(image.Rect(0, 0, 2, 1))
	src.Set(0, 0, color.NRGBA{R: 10, G: 20, B: 30, A: 255})
	src.Set(1, 0, color.NRGBA{R: 40, G: 50, B: 60, A: 255})
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, src))
	list, err := Read(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	for _, c := range []struct {
		f    Format
		want []float64
	}{
		{Format{}, []float64{10, 40, 20, 50, 30, 60}},
		{Format{Last: true}, []float64{10, 20, 30, 40, 50, 60}},
		{Format{Last: true, BGR: true}, []float64{30, 20, 10, 60, 50, 40}},
		{Format{Scale: 0.1, Mean: []float32{1, 2, 3}, Std: []float32{2, 2, 2}}, []float64{0, 1.5, 0, 1.5, 0, 1.5}},
		{Format{Channels: 4, Last: true}, []float64{10, 20, 30, 0, 40, 50, 60, 0}},
	} {
		dst := tensor.New(tensor.F32, c.f.Dims(2, 1)...)
		require.NoError(t, c.f.Put(dst, list[0]))
		require.InDeltaSlice(t, c.want, dst.Floats(), 1e-5)
	}
	gray := tensor.New(tensor.F32, 1, 1, 1, 2)
	require.NoError(t, Format{Channels: 1}.Put(gray, list[0]))
	require.InDelta(t, 0.299*10+0.587*20+0.114*30, gray.Floats()[0], 1e-4)
	require.Error(t, Format{Channels: 2}.Check())
	require.Error(t, Format{Std: []float32{0}}.Check())
	require.Error(t, Format{}.Put(gray, list[0]))
	for n := range b.Len() {
		_, err := Read(bytes.NewReader(b.Bytes()[:n]))
		require.Error(t, err)
	}
	// A header that claims 2^31 x 2^31 pixels.
	big := append([]byte{}, b.Bytes()...)
	copy(big[16:], []byte{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff})
	_, err = Read(bytes.NewReader(big))
	require.Error(t, err)
}

func TestDraw(t *testing.T) {
	c := Canvas(image.NewGray(image.Rect(5, 5, 45, 35)))
	red := color.RGBA{R: 255, A: 255}
	Box(c, 2, 3, 20, 25, red, 1)
	require.Equal(t, red, c.RGBAAt(2, 10))
	require.Equal(t, red, c.RGBAAt(20, 25))
	require.NotEqual(t, red, c.RGBAAt(10, 10))
	Box(c, -1e300, -5, 1e300, 5, red, 3) // ends outside do no harm
	Text(c, 5, 10, "42", color.White, color.Black)
	bright := 0
	for y := 10; y < 23; y++ {
		for x := 5; x < 20; x++ {
			if c.RGBAAt(x, y) == (color.RGBA{255, 255, 255, 255}) {
				bright++
			}
		}
	}
	require.Greater(t, bright, 10)
	fitted, factor := Fit(image.NewGray(image.Rect(0, 0, 40, 20)), 10, 10)
	require.Equal(t, 0.25, factor)
	require.Equal(t, image.Rect(0, 0, 10, 10), fitted.Rect)
}

func FuzzRead(f *testing.F) {
	f.Add(idx(1, 2, 2))
	f.Add([]byte("\x89PNG\r\n\x1a\n"))
	f.Fuzz(func(t *testing.T, data []byte) { _, _ = Read(bytes.NewReader(data)) })
}
