package chart

import (
	"bytes"
	"image/png"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPicturesInBothFormats(t *testing.T) {
	series := Series{Name: "sweep", Points: []Point{{10, 1}, {50, 4}, {200, 6}}}
	for name, p := range map[string]Picture{
		"roofline": Roofline{Title: "t", Col: series, Peak: 6.5, DRAM: 16e9, PublishedMax: 6, Published: []Point{{100, 5}}}.Draw(),
		"bars":     Bars{Title: "t", Y: "TOPS", Labels: []string{"a", "b"}, Sets: []BarSet{{"x", []float64{1, math.NaN()}}, {"y", []float64{2, 3}}}}.Draw(),
		"depth":    Depth{Title: "t", Analytic: []XY{{X: 56, Y: 1}, {X: 224, Y: 3}}, Chosen: 224}.Draw(),
	} {
		var svg, raster bytes.Buffer
		require.NoError(t, Write(p, ".svg", &svg), name)
		require.Contains(t, svg.String(), "<svg", name)
		require.NoError(t, Write(p, ".png", &raster), name)
		img, err := png.Decode(&raster)
		require.NoError(t, err, name)
		require.Greater(t, img.Bounds().Dx(), 100)
		colours := map[[4]uint32]bool{}
		for y := 0; y < img.Bounds().Dy(); y += 3 {
			for x := 0; x < img.Bounds().Dx(); x += 3 {
				r, g, b, a := img.At(x, y).RGBA()
				colours[[4]uint32{r, g, b, a}] = true
			}
		}
		require.Greater(t, len(colours), 2, "%s is an empty picture", name)
	}
}

func TestFormat(t *testing.T) {
	for _, f := range Formats {
		ext, err := Format("picture" + f)
		require.NoError(t, err)
		require.Contains(t, ext, f)
	}
	_, err := Format("picture.gif")
	require.Error(t, err)
}
