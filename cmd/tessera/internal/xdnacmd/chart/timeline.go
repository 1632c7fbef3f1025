package chart

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/tessera-go/tessera/backends/xdna/timeline"
)

// Timeline is a window of an emulated run, a row a track.
type Timeline struct {
	Title    string
	Note     string // under the picture, for instance the stall report
	Lanes    []timeline.Lane
	From, To float64 // window, cycles
	Clock    float64 // Hz
}

// laneColour says what a span is by its colour: the kernel, what moves, what waits.
func laneColour(l timeline.Lane, s timeline.Span) color.Color {
	switch timeline.ClassOf(l.Track, s) {
	case timeline.Compute:
		if s.What == "zero" {
			return pink
		}
		return green
	case timeline.Wait:
		return color.RGBA{0xD8, 0xD8, 0xD8, 0xFF}
	case timeline.Control:
		return pink
	}
	switch timeline.Operand(l.Track) {
	case "A":
		return blue
	case "B":
		return orange
	}
	return red
}

// Draw makes the picture.
func (t Timeline) Draw() Picture {
	const (
		rowH  = 13
		label = 118
		top   = 44
		right = 14
	)
	w := 10.5 * vg.Inch
	h := vg.Length(top + rowH*len(t.Lanes) + 64)
	return Picture{w, h, func(c draw.Canvas) {
		c.SetColor(color.White)
		c.Fill(c.Rectangle.Path())
		text := func(x, y vg.Length, size vg.Length, align draw.XAlignment, s string) {
			st := draw.TextStyle{Color: ink, Font: font.From(sans, size), XAlign: align, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
			c.FillText(st, vg.Point{X: x, Y: y}, s)
		}
		y0 := c.Max.Y - top
		x0, x1 := c.Min.X+label, c.Max.X-right
		scale := float64(x1-x0) / (t.To - t.From)
		at := func(cycle float64) vg.Length {
			return x0 + vg.Length((min(max(cycle, t.From), t.To)-t.From)*scale)
		}
		text(c.Min.X+10, c.Max.Y-14, 11, draw.XLeft, t.Title)
		// Time axis.
		us := (t.To - t.From) / t.Clock * 1e6
		step := nice(us / 8)
		bottom := y0 - vg.Length(rowH*len(t.Lanes))
		for v := 0.0; v <= us*1.0001; v += step {
			x := at(t.From + v*1e-6*t.Clock)
			c.SetColor(faint)
			c.SetLineWidth(0.6)
			var p vg.Path
			p.Move(vg.Point{X: x, Y: y0 + 3})
			p.Line(vg.Point{X: x, Y: bottom})
			c.Stroke(p)
			text(x, y0+10, 8, draw.XCenter, fmt.Sprintf("%g us", math.Round(v*100)/100))
		}
		for i, l := range t.Lanes {
			y := y0 - vg.Length(rowH*i)
			text(x0-6, y-rowH/2, 8, draw.XRight, timeline.Title(l.Track))
			// Spans narrower than a fifth of a point are drawn as one with their neighbours of the same colour.
			var open vg.Rectangle
			var colour color.Color
			flush := func() {
				if colour != nil {
					c.SetColor(colour)
					c.Fill(open.Path())
					colour = nil
				}
			}
			for _, s := range l.Spans {
				if s.To <= t.From || s.From >= t.To {
					continue
				}
				col := laneColour(l, s)
				r := vg.Rectangle{Min: vg.Point{X: at(s.From), Y: y - rowH + 2}, Max: vg.Point{X: at(s.To), Y: y - 1.5}}
				// A hairline between two calls of the kernel keeps chunks apart.
				if r.Max.X-r.Min.X > 1.5 {
					r.Max.X -= 0.5
				}
				if colour != nil && col == colour && r.Min.X-open.Max.X < 0.2 {
					open.Max.X = r.Max.X
					continue
				}
				flush()
				open, colour = r, col
			}
			flush()
		}
		// Legend.
		x := x0
		for _, k := range []struct {
			name string
			c    color.Color
		}{{"kernel", green}, {"A", blue}, {"B", orange}, {"C", red}, {"controller, zeroing", pink}, {"waits", color.RGBA{0xD8, 0xD8, 0xD8, 0xFF}}} {
			r := vg.Rectangle{Min: vg.Point{X: x, Y: bottom - 20}, Max: vg.Point{X: x + 10, Y: bottom - 12}}
			c.SetColor(k.c)
			c.Fill(r.Path())
			text(x+14, bottom-16, 8, draw.XLeft, k.name)
			x += vg.Length(34 + 5*len(k.name))
		}
		text(c.Min.X+10, bottom-36, 8, draw.XLeft, t.Note)
	}}
}

// nice rounds up to 1, 2 or 5 times a power of ten.
func nice(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}
