package plan

import (
	"bufio"
	"fmt"
	"io"
)

// picture writes SVG elements.
type picture struct{ w *bufio.Writer }

func (p *picture) box(x, y, w, h float64, fill, title string) {
	fmt.Fprintf(p.w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="#445" stroke-width="0.8"><title>%s</title></rect>`+"\n", x, y, w, h, fill, title)
}

func (p *picture) text(x, y float64, size int, format string, args ...any) {
	fmt.Fprintf(p.w, `<text x="%.1f" y="%.1f" font-size="%d">%s</text>`+"\n", x, y, size, fmt.Sprintf(format, args...))
}

func (p *picture) arrow(x0, y0, x1, y1 float64, colour string, wide float64) {
	fmt.Fprintf(p.w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f" marker-end="url(#tip)"/>`+"\n", x0, y0, x1, y1, colour, wide)
}

// Colours of the operands.
const (
	colourA = "#3f78b5"
	colourB = "#c8772b"
	colourC = "#4d8f4d"
	pale    = "#f2f3f6"
)

// WriteSVG draws the plan: which tiles work, what lies in which memory, and over which streams it moves.
func (p *Plan) WriteSVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	height := 570
	if p.Design == Paper {
		height = 560
	}
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 %d" font-family="sans-serif">`+"\n"+
		`<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#445"/></marker></defs>`+"\n"+
		`<rect width="980" height="%d" fill="white"/>`+"\n", height, height)
	d := &picture{b}
	pr := p.Predict()
	d.text(20, 26, 16, "C[%d,%d] = A[%d,%d] B[%d,%d], %v to %v, design=%v", p.M, p.N, p.M, p.K, p.K, p.N, p.Type, p.Out, p.Design)
	d.text(20, 44, 11, "A: weights, prepacked. B: activations. VC1902, tiles: %d; predicted %.3f ms, %.2f TOPS, bound by %s. No board was used.", p.Tiles, 1e3*pr.Seconds, pr.TOPS, pr.Bound)
	if p.Design == Paper {
		p.drawPaper(d)
	} else {
		p.drawBest(d)
	}
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

// drawArray draws the array with the tiles that use accepts, and returns the position of a tile.
func (p *Plan) drawArray(d *picture, use func(col, row int) (fill string)) func(col, row int) (x, y float64) {
	const x0, y0, cell = 40.0, 112.0, 16.0
	at := func(col, row int) (float64, float64) {
		return x0 + cell*float64(col), y0 + cell*float64(p.Device.CoreRows-row)
	}
	for row := 0; row <= p.Device.CoreRows; row++ {
		for col := range p.Device.Cols {
			x, y := at(col, row)
			fill, what := pale, fmt.Sprintf("core (%d,%d)", col, row)
			if row == 0 {
				fill, what = "#dcdfe6", fmt.Sprintf("interface tile %d", col)
				if col < p.Device.FirstPLCol || col >= p.Device.FirstPLCol+p.Device.PLCols {
					what += ", no PLIO"
				}
				if p.Device.HasDMA(col) {
					fill, what = "#b9bfcc", fmt.Sprintf("interface tile %d with DMA (GMIO)", col)
				}
			} else if f := use(col, row); f != "" {
				fill = f
			}
			d.box(x, y, cell-1.5, cell-1.5, fill, what)
		}
	}
	d.text(x0, y0-10, 11, "array: %d columns x %d rows of cores over a row of interface tiles", p.Device.Cols, p.Device.CoreRows)
	return at
}

func (p *Plan) drawBest(d *picture) {
	shades := []string{"#7ea6d3", "#a3c0e0", "#c2d5ea", "#dde8f4"}
	at := p.drawArray(d, func(col, row int) string {
		if row <= p.Rows && col >= p.Start && col < p.Start+p.Groups*p.Chain {
			return shades[(col-p.Start)%p.Chain]
		}
		return ""
	})
	// One stream of A along each row, one of B up each column, results down.
	for r := 1; r <= p.Rows; r++ {
		x0, y := at(p.Start, r)
		x1, _ := at(p.Start+p.Groups*p.Chain-1, r)
		d.arrow(x0-14, y+7, x1+8, y+7, colourA, 1)
	}
	for c := range p.Groups * p.Chain {
		if c%max(1, p.Groups*p.Chain/12) != 0 {
			continue
		}
		x, y := at(p.Start+c, 0)
		_, y1 := at(c, p.Rows)
		d.arrow(x+7, y+24, x+7, y1+6, colourB, 0.8)
	}
	_, below := at(0, 0)
	y := below + 14
	d.text(20, 62, 11, "A enters each of %d rows over %d stream(s) and is broadcast along it; B enters each of %d columns over one and is broadcast up it: %d PLIO streams in, %d out", p.Rows, p.Chain,
		p.Groups*p.Chain, (p.Rows+p.Groups)*p.Chain, p.cStreams)
	if p.Chain > 1 {
		d.text(20, 76, 11, "Shades: the %d columns of a group take %d slices of K; their sums run through the cascade, east in odd rows and west in even ones", p.Chain, p.Chain)
	}

	// The memories behind the array.
	y += 34
	d.box(40, y, 420, 70, pale, "FPGA RAM")
	d.text(48, y+16, 12, "FPGA RAM %.1f of %.1f MB", float64(p.FPGABytes)/1e6, float64(p.Device.FPGABytes())/1e6)
	scale := 404 / float64(p.Device.FPGABytes())
	a, ringA, ringB := float64(0), float64(p.SlotsA)*float64(p.SlabA()), float64(p.SlotsB)*float64(p.SlabB())
	if p.FeedA == Resident {
		a = float64(p.BytesA())
	}
	d.box(48, y+26, 404, 18, "white", "free")
	d.box(48, y+26, (a+ringA)*scale, 18, colourA, "A")
	d.box(48+(a+ringA)*scale, y+26, ringB*scale, 18, colourB, "B")
	d.text(48, y+60, 11, "A %v; B %v, %d slabs of %d bytes", p.FeedA, p.FeedB, p.SlotsB, p.SlabB())
	d.box(40, y+92, 420, 52, pale, "DDR")
	d.text(48, y+110, 12, "DDR, %.1f GB/s", p.Device.DDRBytesPerSec/1e9)
	d.text(48, y+128, 11, "B as the program has it; C written once, after all of K; %.1f MB", p.Predict().Bytes.DDR/1e6)
	d.arrow(250, y+92, 250, y+72, colourB, 2)
	d.arrow(120, y, 120, below+16, colourA, 2)
	d.arrow(250, y, 250, below+16, colourB, 2)
	d.arrow(440, below+16, 440, y+90, colourC, 2)

	// A tile.
	tx := 500.0
	d.box(tx, y, 440, 250, "white", "a tile")
	d.text(tx+10, y+18, 12, "a tile: block of C %d x %d, K in %d steps of %d", p.MB, p.NB, p.Steps, p.KB)
	bank := p.Device.BankBytes()
	for i := range p.Device.Core.Banks {
		d.box(tx+10, y+28+24*float64(i), 200, 21, pale, fmt.Sprintf("bank %d", i))
	}
	buf := func(at, n int, colour, name string) {
		for n > 0 {
			room := min(n, bank-at%bank)
			d.box(tx+10+200*float64(at%bank)/float64(bank), y+28+24*float64(at/bank), 200*float64(room)/float64(bank), 21, colour, name)
			at, n = at+room, n-room
		}
	}
	label := func(at int, name string) { d.text(tx+216, y+43+24*float64(at/bank), 10, "%s", name) }
	l := &p.Local
	e := p.Type.Bytes()
	for i := range 2 {
		buf(l.A[i], p.MB*p.KB*e, colourA, "A")
		buf(l.B[i], p.KB*p.NB*e, colourB, "B")
		label(l.A[i], fmt.Sprintf("A %s, filled by S2MM 0", [...]string{"ping", "pong"}[i]))
		label(l.B[i], fmt.Sprintf("B %s, filled by S2MM 1", [...]string{"ping", "pong"}[i]))
	}
	if l.Partial >= 0 {
		buf(l.Partial, p.MB*p.NB*p.Type.PartialBytes(), "#a9cca9", "sums")
		label(l.Partial, "sums between steps")
	}
	for i := range l.Outs {
		buf(l.Out[i], p.MB*p.NB*p.Out.Bytes(), colourC, "C")
		label(l.Out[i], "results, sent by MM2S 0")
	}
	buf(l.Stack, stackBytes, "#888", "stack")
	bud := p.Kernel.Budget()
	d.text(tx+10, y+240, 11, "micro-kernel %v: %.0f %% of accumulators, %.0f %% of vector registers", p.Kernel, bud.AccPercent(), bud.VectorPercent())
}

func (p *Plan) drawPaper(d *picture) {
	used := map[int]bool{}
	for t := range p.Tiles {
		used[p.Device.NoCCols[t]] = true
	}
	at := p.drawArray(d, func(col, row int) string {
		if row == 1 && used[col] {
			return "#7ea6d3"
		}
		return ""
	})
	_, below := at(0, 0)
	y := below + 50
	e := p.Type.Bytes()
	rows := []struct {
		name, holds, size, loop, colour string
	}{
		{"registers", fmt.Sprintf("C_r %d x %d in %d accumulators of 16 x 48 bits", p.Kernel.MR, p.Kernel.NR, p.Kernel.Budget().Accs), "", "L6: k_c rank-1 updates, in the micro-kernel", colourC},
		{"local memory", fmt.Sprintf("B_r %d x %d", p.KC, p.Kernel.NR), fmt.Sprintf("%d of %d bytes", p.KC*p.Kernel.NR*e, p.Device.Core.MemoryBytes), fmt.Sprintf("L5: reused by m_c/m_r = %d micro-kernels", p.MC/p.Kernel.MR), colourB},
		{"FPGA RAM", fmt.Sprintf("A_c %d x %d, prepacked; %d of %d blocks", p.MC, p.KC, p.ResidentBlocks, p.Blocks), fmt.Sprintf("%.2f of %.1f MB", float64(p.FPGABytes)/1e6, float64(p.Device.FPGABytes())/1e6), "L3: blocks of m_c", colourA},
		{"DDR", fmt.Sprintf("B_c %d x %d, packed at run time; C, read and written every k_c", p.KC, p.NC), "", "L1: n_c, L2: k_c, L4: panels of n_r", colourB},
	}
	for i, r := range rows {
		yy := y + 62*float64(i)
		d.box(40, yy, 620, 44, pale, r.name)
		d.box(40, yy, 8, 44, r.colour, r.name)
		d.text(58, yy+18, 13, "%s", r.name)
		d.text(180, yy+18, 12, "%s", r.holds)
		d.text(180, yy+35, 11, "%s", r.size)
		d.text(680, yy+26, 12, "%s", r.loop)
	}
	// What moves: A from FPGA RAM past the registers, B_r from DDR to local memory, C both ways.
	top := func(i int) float64 { return y + 62*float64(i) }
	d.arrow(470, top(2), 470, top(0)+46, colourA, 2)
	d.text(478, top(1)+28, 10, "A, over PLIO")
	d.arrow(550, top(3), 550, top(1)+46, colourB, 2)
	d.text(558, top(2)+28, 10, "B_r, by GMIO")
	d.arrow(630, top(3), 630, top(0)+46, colourC, 2)
	d.arrow(644, top(0)+44, 644, top(3)-2, colourC, 2)
	d.text(574, top(0)+30, 10, "C, by GMIO")
	d.text(40, top(4), 11, "a copy of B_r takes %.0f cycles, a micro-kernel %d, of which 64 for C on its way in and out", p.CopyCycles(p.KC), p.KernelCycles(p.KC))
}
