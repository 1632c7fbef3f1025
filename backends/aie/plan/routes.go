package plan

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/device"
)

// Dir is the direction in which a stream leaves a switch.
type Dir uint8

// The directions.
const (
	North Dir = iota
	South
	East
	West
)

func (d Dir) String() string { return [...]string{"north", "south", "east", "west"}[d] }

// Hop is a lane taken out of a switch; row 0 is the interface.
type Hop struct {
	Col, Row int
	Dir      Dir
}

// Route is a circuit, or what several senders share by packets: its place on the interface and the lanes that it takes.
type Route struct {
	Name string
	Col  int // of the interface tile
	Hops []Hop
}

// lanesOf is the number of lanes between neighbouring switches.
func lanesOf(d *device.Device, dir Dir) int {
	return [...]int{d.Core.NorthOut, d.Core.SouthOut, d.Core.EastOut, d.Core.WestOut}[dir]
}

// place chooses the first column of the grid: inside the columns with PLIO if they suffice, else reaching out on both sides.
func (p *Plan) place() {
	d := &p.Device
	w := p.Groups * p.Chain
	p.Start = d.FirstPLCol + (d.PLCols-w)/2
	if w > d.PLCols {
		p.Start = d.FirstPLCol - (w-d.PLCols+1)/2
	}
	p.Start = min(max(p.Start, 0), d.Cols-w)
}

// outside is the number of grid columns west and east of those with PLIO.
func (p *Plan) outside() (west, east int) {
	d := &p.Device
	return max(0, d.FirstPLCol-p.Start), max(0, p.Start+p.Groups*p.Chain-d.FirstPLCol-d.PLCols)
}

// routable returns an error unless the streams of B reach the columns without PLIO: along the interface, and along the first row beside the streams
// of A. Rows further up are of no use, because the way back down is taken by results.
func (p *Plan) routable() error {
	d := &p.Device
	west, east := p.outside()
	room := d.Core.WestOut + d.Core.WestOut - p.Chain
	if max(west, east) > room {
		return fmt.Errorf("%d columns beside the %d with PLIO need a stream of B each, %d lanes are there (chains of %d take the others)", max(west, east), d.PLCols, room, p.Chain)
	}
	if in := (p.Rows + p.Groups) * p.Chain; in > d.PLStreamsIn() {
		return fmt.Errorf("%d PLIO streams into the array, %s has %d", in, d.Name, d.PLStreamsIn())
	}
	return nil
}

// Lane is where the results of a grid row and group leave: a column with PLIO and one of its streams. Groups beside those columns send along their row to the
// nearest one and share its streams.
func (p *Plan) Lane(row, group int) (col, lane int) {
	d := &p.Device
	col = p.Start + group*p.Chain + p.ChainOrder(row+1, p.Chain-1)
	return min(max(col, d.FirstPLCol), d.FirstPLCol+d.PLCols-1), row % p.CLanes
}

// laneLoad is the largest number of tiles whose results share a stream, and the number of streams.
func (p *Plan) laneLoad() (most, lanes int) {
	load := map[[2]int]int{}
	for r := range p.Rows {
		for z := range p.Groups {
			c, l := p.Lane(r, z)
			load[[2]int{c, l}]++
			most = max(most, load[[2]int{c, l}])
		}
	}
	return most, len(load)
}

// router hands out lanes.
type router struct {
	p      *Plan
	used   map[Hop]int
	in     map[int]int // streams into the array by column
	routes []Route
}

func (r *router) free(h Hop) bool { return r.used[h] < lanesOf(&r.p.Device, h.Dir) }

// take adds a route; each of its hops costs a lane.
func (r *router) take(x Route) error {
	for _, h := range x.Hops {
		if !r.free(h) {
			return fmt.Errorf("%s: all %d lanes %v of (%d,%d) are taken", x.Name, lanesOf(&r.p.Device, h.Dir), h.Dir, h.Col, h.Row)
		}
		r.used[h]++
	}
	r.routes = append(r.routes, x)
	return nil
}

// line is the hops along a column or a row, from a tile to another.
func line(col, row, toCol, toRow int) (hops []Hop) {
	for col < toCol {
		hops = append(hops, Hop{col, row, East})
		col++
	}
	for col > toCol {
		hops = append(hops, Hop{col, row, West})
		col--
	}
	for row < toRow {
		hops = append(hops, Hop{col, row, North})
		row++
	}
	for row > toRow {
		hops = append(hops, Hop{col, row, South})
		row--
	}
	return hops
}

// Routes lays every stream of the best design over the switches' lanes, or says which lane is missing.
func (p *Plan) Routes() ([]Route, error) {
	if p.Design != Best {
		return nil, fmt.Errorf("the paper's design uses the streams of single tiles, which need no routes beside their own columns")
	}
	d := &p.Device
	r := &router{p: p, used: map[Hop]int{}, in: map[int]int{}}
	lastPL := d.FirstPLCol + d.PLCols - 1
	// B up each column. A column without PLIO is reached along the interface, or along row 1.
	for c := p.Start; c < p.Start+p.Groups*p.Chain; c++ {
		entry := min(max(c, d.FirstPLCol), lastPL)
		x := Route{Name: fmt.Sprintf("B of column %d", c), Col: entry, Hops: append(line(entry, 0, c, 0), line(c, 0, c, p.Rows)...)}
		if c != entry && !r.free(x.Hops[0]) {
			x.Hops = append(line(entry, 0, entry, 1), line(entry, 1, c, 1)...)
			x.Hops = append(x.Hops, line(c, 1, c, p.Rows)...)
		}
		if err := r.take(x); err != nil {
			return nil, err
		}
		r.in[entry]++
	}
	// A of each row and column of the chain: up some column inside, then both ways along the row as far as its tiles stand.
	at := 0
	for row := 1; row <= p.Rows; row++ {
		for q := range p.Chain {
			entry := d.FirstPLCol + at%d.PLCols
			at++
			first, last := p.Start+q, p.Start+(p.Groups-1)*p.Chain+q
			x := Route{Name: fmt.Sprintf("A of row %d, column %d of the chain", row, q), Col: entry, Hops: line(entry, 0, entry, row)}
			if first < entry {
				x.Hops = append(x.Hops, line(entry, row, first, row)...)
			}
			if last > entry {
				x.Hops = append(x.Hops, line(entry, row, last, row)...)
			}
			if err := r.take(x); err != nil {
				return nil, err
			}
			if r.in[entry]++; r.in[entry] > d.PLIn {
				return nil, fmt.Errorf("%s: column %d has %d streams in", x.Name, entry, d.PLIn)
			}
		}
	}
	// C down the lanes; senders of one lane share it by packets, so it costs each hop once.
	lanes := map[[2]int]map[Hop]bool{}
	for row := range p.Rows {
		for z := range p.Groups {
			col, lane := p.Lane(row, z)
			from := p.Start + z*p.Chain + p.ChainOrder(row+1, p.Chain-1)
			key := [2]int{col, lane}
			if lanes[key] == nil {
				lanes[key] = map[Hop]bool{}
			}
			for _, h := range append(line(from, row+1, col, row+1), line(col, row+1, col, 0)...) {
				lanes[key][h] = true
			}
		}
	}
	out := map[int]int{}
	for key, hops := range lanes {
		x := Route{Name: fmt.Sprintf("C of column %d, stream %d", key[0], key[1]), Col: key[0]}
		for h := range hops {
			x.Hops = append(x.Hops, h)
		}
		if err := r.take(x); err != nil {
			return nil, err
		}
		if out[key[0]]++; out[key[0]] > d.PLOut {
			return nil, fmt.Errorf("%s: column %d has %d streams out", x.Name, key[0], d.PLOut)
		}
	}
	return r.routes, nil
}
