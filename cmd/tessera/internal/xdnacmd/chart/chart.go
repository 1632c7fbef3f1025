// Package chart draws the NPU's figures with gonum/plot: rooflines, k_mt sweeps, comparisons of designs, timelines. Light, one idea a picture,
// every simulated value labelled as such. The format follows the file's extension: SVG or PNG.
package chart

import (
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// Colours: distinguishable for the colour-blind (Okabe and Ito) and readable on white.
var (
	ink    = color.RGBA{0x22, 0x22, 0x22, 0xFF}
	faint  = color.RGBA{0xE4, 0xE4, 0xE4, 0xFF}
	grey   = color.RGBA{0x8C, 0x8C, 0x8C, 0xFF}
	blue   = color.RGBA{0x00, 0x72, 0xB2, 0xFF}
	orange = color.RGBA{0xE6, 0x9F, 0x00, 0xFF}
	green  = color.RGBA{0x00, 0x9E, 0x73, 0xFF}
	red    = color.RGBA{0xD5, 0x5E, 0x00, 0xFF}
	pink   = color.RGBA{0xCC, 0x79, 0xA7, 0xFF}
)

const (
	width  = 8 * vg.Inch
	height = 5 * vg.Inch
	dpi    = 144
)

// Formats are the extensions that [Save] knows.
var Formats = []string{".svg", ".png"}

// Format checks a file name's extension.
func Format(file string) (string, error) {
	ext := strings.ToLower(filepath.Ext(file))
	for _, f := range Formats {
		if ext == f {
			return ext, nil
		}
	}
	return "", fmt.Errorf("file %q: want an extension of %s", file, strings.Join(Formats, ", "))
}

// Picture is something that draws itself on a canvas of its size.
type Picture struct {
	W, H vg.Length
	Draw func(draw.Canvas)
}

// Save writes a picture to a file, format by extension.
func Save(p Picture, file string) error {
	ext, err := Format(file)
	if err != nil {
		return err
	}
	return cli.WriteFile(file, func(w io.Writer) error { return Write(p, ext, w) })
}

// Write writes a picture in the format of an extension.
func Write(p Picture, ext string, w io.Writer) error {
	var out io.WriterTo
	switch ext {
	case ".svg":
		c := vgsvg.New(p.W, p.H)
		p.Draw(draw.New(c))
		out = c
	case ".png":
		c := vgimg.NewWith(vgimg.UseWH(p.W, p.H), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
		p.Draw(draw.New(c))
		out = vgimg.PngCanvas{Canvas: c}
	default:
		return fmt.Errorf("format %q: want one of %s", ext, strings.Join(Formats, ", "))
	}
	_, err := out.WriteTo(w)
	return err
}

// sans is the sans-serif variant of the built-in Liberation fonts.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

// newPlot is a plot with this package's style.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = x, y
	style := func(s *draw.TextStyle, size vg.Length) {
		s.Font = font.From(sans, size)
		s.Color = ink
	}
	style(&p.Title.TextStyle, 11)
	p.Title.Padding = 8
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		style(&a.Label.TextStyle, 10)
		style(&a.Tick.Label, 9)
		a.LineStyle.Color, a.Tick.LineStyle.Color = grey, grey
		a.Min = 0
		a.Tick.Marker = plot.TickerFunc(evenTicks)
	}
	style(&p.Legend.TextStyle, 9)
	p.Legend.Padding = 3
	p.Legend.ThumbnailWidth = 18
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = faint, faint
	p.Add(g)
	return p
}

// evenTicks are about six round values with as few digits as they need.
func evenTicks(lo, hi float64) []plot.Tick {
	var out []plot.Tick
	step := nice((hi - lo) / 7)
	for i := math.Ceil(lo / step); i*step <= hi*1.0001; i++ {
		out = append(out, plot.Tick{Value: i * step, Label: fmt.Sprintf("%g", math.Round(i*step*1e6)/1e6)})
	}
	return out
}

// picture makes a plot a picture with a margin.
func picture(p *plot.Plot, w, h vg.Length) Picture {
	return Picture{w, h, func(c draw.Canvas) {
		c.SetColor(color.White)
		c.Fill(c.Rectangle.Path())
		p.Draw(draw.Crop(c, 8, -14, 6, -8))
	}}
}

func alpha(c color.RGBA, a float64) color.NRGBA {
	return color.NRGBA{c.R, c.G, c.B, uint8(255 * a)}
}

func line(xy plotter.XYs, c color.Color, w vg.Length, dashes ...vg.Length) *plotter.Line {
	l := &plotter.Line{XYs: xy}
	l.LineStyle = draw.LineStyle{Color: c, Width: w, Dashes: dashes}
	return l
}

func dots(xy plotter.XYs, c color.Color, r vg.Length, shape draw.GlyphDrawer) *plotter.Scatter {
	return &plotter.Scatter{XYs: xy, GlyphStyle: draw.GlyphStyle{Color: c, Radius: r, Shape: shape}}
}

// Point is a rate at an arithmetic intensity.
type Point struct{ Intensity, TOPS float64 }

// Series is one set of points of a roofline.
type Series struct {
	Name   string
	Points []Point
}

// Roofline is what a roofline shows.
type Roofline struct {
	Title        string
	Col, Row     Series  // analytic sweeps; Row may be empty
	Emulated     Series  // may be empty
	Peak         float64 // TOPS of the kernels alone
	DRAM         float64 // bytes/s
	PublishedMax float64 // of the paper's sweep; 0 = none
	Published    []Point // rows of the paper's tables on this design
}

// Draw makes the picture: the paper's figures 9 to 11, intensity linear.
func (r Roofline) Draw() Picture {
	p := newPlot(r.Title, "arithmetic intensity, operations per byte (each matrix once)", "TOPS")
	far := 0.0
	for _, s := range []Series{r.Col, r.Row} {
		for _, q := range s.Points {
			far = max(far, q.Intensity)
		}
	}
	far *= 1.03
	knee := r.Peak * 1e12 / r.DRAM
	p.Add(line(plotter.XYs{{X: 0, Y: 0}, {X: knee, Y: r.Peak}, {X: far, Y: r.Peak}}, grey, 1))
	p.Legend.Add("roofs: kernels, DRAM reads", line(nil, grey, 1))
	add := func(s Series, c color.Color, radius vg.Length, shape draw.GlyphDrawer) {
		if len(s.Points) == 0 {
			return
		}
		xy := make(plotter.XYs, len(s.Points))
		for i, q := range s.Points {
			xy[i] = plotter.XY{X: q.Intensity, Y: q.TOPS}
		}
		d := dots(xy, c, radius, shape)
		p.Add(d)
		p.Legend.Add(s.Name, d)
	}
	add(r.Row, alpha(orange, 0.55), 2, draw.CircleGlyph{})
	add(r.Col, alpha(blue, 0.55), 2, draw.CircleGlyph{})
	add(r.Emulated, ink, 2.6, draw.CrossGlyph{})
	if r.PublishedMax > 0 {
		l := line(plotter.XYs{{X: 0, Y: r.PublishedMax}, {X: far, Y: r.PublishedMax}}, red, 1.2, 5, 3)
		p.Add(l)
		p.Legend.Add(fmt.Sprintf("published maximum %.2f", r.PublishedMax), l)
	}
	add(Series{"published, tables 2 and 3", r.Published}, red, 4, draw.TriangleGlyph{})
	p.X.Max = far
	p.Y.Max = 1.08 * max(r.Peak, r.PublishedMax)
	p.Legend.Top, p.Legend.Left = false, false
	p.Legend.XOffs, p.Legend.YOffs = -6, 8
	return picture(p, width, height)
}

// XY is a value of a curve.
type XY struct{ X, Y float64 }

// Depth is how the rate depends on k_mt (the paper's figures 7 and 8).
type Depth struct {
	Title     string
	Analytic  []XY
	Emulated  []XY
	Published []XY
	Chosen    float64 // the paper's k_mt
}

// Draw makes the picture.
func (d Depth) Draw() Picture {
	p := newPlot(d.Title, "k_mt", "TOPS")
	xy := func(v []XY) plotter.XYs {
		out := make(plotter.XYs, len(v))
		for i := range v {
			out[i] = plotter.XY(v[i])
		}
		return out
	}
	top := 0.0
	for _, v := range [][]XY{d.Analytic, d.Emulated, d.Published} {
		for _, q := range v {
			top = max(top, q.Y)
		}
	}
	p.Y.Max = 1.12 * top
	var ticks []plot.Tick
	for _, q := range d.Analytic {
		ticks = append(ticks, plot.Tick{Value: q.X, Label: fmt.Sprintf("%.0f", q.X)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Max = 1.04 * d.Analytic[len(d.Analytic)-1].X
	if d.Chosen > 0 {
		l := line(plotter.XYs{{X: d.Chosen, Y: 0}, {X: d.Chosen, Y: p.Y.Max}}, red, 1, 5, 3)
		p.Add(l)
		p.Legend.Add(fmt.Sprintf("the paper's choice, %.0f", d.Chosen), l)
	}
	l := line(xy(d.Analytic), blue, 1.5)
	p.Add(l)
	p.Legend.Add("predicted by the model", l)
	if len(d.Emulated) > 0 {
		s := dots(xy(d.Emulated), ink, 3, draw.CrossGlyph{})
		p.Add(s)
		p.Legend.Add("emulated (simulated time)", s)
	}
	if len(d.Published) > 0 {
		s := dots(xy(d.Published), red, 4, draw.TriangleGlyph{})
		p.Add(s)
		p.Legend.Add("published", s)
	}
	p.Legend.Top, p.Legend.Left = false, false
	p.Legend.XOffs, p.Legend.YOffs = -6, 8
	return picture(p, width, height)
}

// Bars is a comparison: a group of bars for each label.
type Bars struct {
	Title, Y string
	Labels   []string
	Sets     []BarSet
}

// BarSet is one bar of every group; NaN leaves it out.
type BarSet struct {
	Name   string
	Values []float64
}

// Draw makes the picture, values above the bars.
func (b Bars) Draw() Picture {
	p := newPlot(b.Title, "", b.Y)
	colours := []color.Color{red, alpha(blue, 0.45), blue, ink}
	const group = 0.8
	w := group / float64(len(b.Sets))
	top := 0.0
	for i, s := range b.Sets {
		var bars []box
		for j, v := range s.Values {
			if math.IsNaN(v) {
				continue
			}
			x := float64(j) - group/2 + float64(i)*w
			bars = append(bars, box{x + 0.04*w, x + 0.96*w, v})
			top = max(top, v)
		}
		bx := &boxes{bars, colours[i%len(colours)]}
		p.Add(bx)
		p.Legend.Add(s.Name, bx)
	}
	p.X.Min, p.X.Max = -0.55, float64(len(b.Labels))-0.45
	p.Y.Max = 1.16 * top
	p.NominalX(b.Labels...)
	p.X.Tick.Length = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs = 6, -2
	p.Title.Padding = 12
	return picture(p, width+vg.Length(len(b.Labels)*len(b.Sets))*4, height)
}

type box struct{ lo, hi, v float64 }

// boxes draws bars at places of the data's own, with their values; gonum's bar chart places bars by index and width in points.
type boxes struct {
	bars   []box
	colour color.Color
}

func (b *boxes) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := p.X.Tick.Label
	style.Font.Size = 7.5
	style.XAlign, style.YAlign = draw.XCenter, draw.YBottom
	for _, q := range b.bars {
		r := vg.Rectangle{Min: vg.Point{X: x(q.lo), Y: y(0)}, Max: vg.Point{X: x(q.hi), Y: y(q.v)}}
		c.SetColor(b.colour)
		c.Fill(r.Path())
		format := "%.1f"
		if q.v < 10 {
			format = "%.2f"
		}
		c.FillText(style, vg.Point{X: (r.Min.X + r.Max.X) / 2, Y: r.Max.Y + 1.5}, fmt.Sprintf(format, q.v))
	}
}

func (b *boxes) Thumbnail(c *draw.Canvas) {
	c.SetColor(b.colour)
	c.Fill(c.Rectangle.Path())
}
