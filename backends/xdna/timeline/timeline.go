// Package timeline keeps what the array emulator did when, and shows it: as a Chrome trace that Perfetto opens, as a page of SVG, and as
// a report of what the cores waited for ([Recorder.Stalls]).
package timeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Span is one thing that a track did, in core clock cycles.
type Span struct {
	What     string
	From, To float64
}

// Lane is a track with its spans in time order.
type Lane struct {
	array.Track
	Spans []Span
}

// Recorder implements array.Tracer by keeping all spans. The zero value is ready; Keep may leave tracks out.
type Recorder struct {
	Dev  *device.Device
	Keep func(array.Track) bool

	index map[array.Track]int
	lanes []Lane
}

var _ array.Tracer = (*Recorder)(nil)

// Span implements array.Tracer.
func (r *Recorder) Span(t array.Track, what string, from, to float64) {
	i, ok := r.index[t]
	if !ok {
		if r.index == nil {
			r.index = map[array.Track]int{}
		}
		i = -1
		if r.Keep == nil || r.Keep(t) {
			i = len(r.lanes)
			r.lanes = append(r.lanes, Lane{Track: t})
		}
		r.index[t] = i
	}
	if i >= 0 && to > from {
		r.lanes[i].Spans = append(r.lanes[i].Spans, Span{what, from, to})
	}
}

// Reset forgets all spans.
func (r *Recorder) Reset() { r.index, r.lanes = nil, nil }

// Lanes are the tracks in reading order: controller, then column by column from the shim up.
func (r *Recorder) Lanes() []Lane {
	out := slices.Clone(r.lanes)
	slices.SortStableFunc(out, func(a, b Lane) int {
		ka, kb := controllerName(a.Name), controllerName(b.Name)
		switch {
		case ka != kb && ka:
			return -1
		case ka != kb:
			return 1
		}
		return cmp.Or(cmp.Compare(a.Tile.Col, b.Tile.Col), cmp.Compare(a.Tile.Row, b.Tile.Row), cmp.Compare(rank(a.Track), rank(b.Track)))
	})
	return out
}

func controllerName(s string) bool { return s == "controller" }

// rank orders the tracks of a tile as data passes: in, through the kernel, out; A before B before C.
func rank(t array.Track) int {
	in, out := "s2mm", "mm2s"
	if t.Tile.Row == 0 {
		in, out = out, in // what enters the array is what the shim reads
	}
	for i, prefix := range []string{in, "core", out} {
		if len(t.Name) >= 4 && t.Name[:4] == prefix {
			n := 0
			if len(t.Name) > 4 {
				n = int(t.Name[4] - '0')
			}
			return 10*i + n
		}
	}
	return 100
}

// Range is the time from the first span to the last.
func (r *Recorder) Range() (from, to float64) {
	first := true
	for _, l := range r.lanes {
		for _, s := range l.Spans {
			if first {
				from, to, first = s.From, s.To, false
			}
			from, to = min(from, s.From), max(to, s.To)
		}
	}
	return from, to
}

// Title names a track for people: which tile, and what passes through the channel in a matrix product of package design.
func Title(t array.Track) string {
	what := t.Name
	if n, ok := channelNames[kindOf(t.Tile.Row)][t.Name]; ok {
		what = n
	}
	switch {
	case controllerName(t.Name):
		return "controller"
	case t.Tile.Row == 0:
		return fmt.Sprintf("shim %d: %s", t.Tile.Col, what)
	case t.Tile.Row == 1:
		return fmt.Sprintf("MemTile %d: %s", t.Tile.Col, what)
	}
	return fmt.Sprintf("core %d,%d: %s", t.Tile.Col, t.Tile.Row-2, what)
}

func kindOf(row int) device.Kind {
	switch row {
	case 0:
		return device.Shim
	case 1:
		return device.Mem
	}
	return device.Core
}

var channelNames = map[device.Kind]map[string]string{
	device.Shim: {"mm2s0": "reads A", "mm2s1": "reads B", "s2mm0": "writes C"},
	device.Mem: {
		"s2mm0": "A in", "s2mm1": "B in", "mm2s0": "A to the row", "mm2s1": "B to the column", "mm2s2": "C out",
		"s2mm2": "C of core 0", "s2mm3": "C of core 1", "s2mm4": "C of core 2", "s2mm5": "C of core 3",
	},
	device.Core: {"s2mm0": "A in", "s2mm1": "B in", "mm2s0": "C out", "core": "kernel"},
}

// Class sorts spans for colours and sums.
type Class uint8

// The classes of spans.
const (
	Compute Class = iota // a kernel
	Move                 // words of A, B or C
	Wait                 // for a lock, a buffer, a token
	Control              // the controller works
	numClasses
)

// ClassOf is the class of a span on a track.
func ClassOf(t array.Track, s Span) Class {
	switch {
	case controllerName(t.Name):
		if s.What == syncName || s.What == pollName {
			return Wait
		}
		return Control
	case s.What == "compute" || s.What == "zero":
		return Compute
	case s.What == "lock" || len(s.What) >= 4 && s.What[:4] == "wait":
		return Wait
	}
	return Move
}

// Operand is the operand that passes through a channel in a matrix product of package design: A, B, C, or nothing for other tracks.
func Operand(t array.Track) string {
	switch kindOf(t.Tile.Row) {
	case device.Shim, device.Core:
		return map[string]string{"mm2s0": "A", "mm2s1": "B", "s2mm0": "C"}[shimName(t)]
	case device.Mem:
		switch t.Name {
		case "s2mm0", "mm2s0":
			return "A"
		case "s2mm1", "mm2s1":
			return "B"
		}
		return "C"
	}
	return ""
}

// shimName is the name of the shim channel at the other end: a core's DMA receives what a shim's sends.
func shimName(t array.Track) string {
	if kindOf(t.Tile.Row) == device.Core {
		return map[string]string{"s2mm0": "mm2s0", "s2mm1": "mm2s1", "mm2s0": "s2mm0"}[t.Name]
	}
	return t.Name
}
