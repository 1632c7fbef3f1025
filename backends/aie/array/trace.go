package array

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tessera-go/tessera/backends/internal/sim"
)

// Trace is a timeline of a run: who did what when, on the simulated clock.
type Trace struct {
	Max    int // spans kept, 0 = 200,000
	Cut    bool
	tracks map[string]int
	names  []string
	spans  []span
}

type span struct {
	track      int
	name       string
	start, end sim.Time
}

func (m *machine) span(track, name string, start, end sim.Time) {
	t := m.opt.Trace
	if t == nil {
		return
	}
	most := t.Max
	if most == 0 {
		most = 200000
	}
	if len(t.spans) >= most {
		t.Cut = true
		return
	}
	if t.tracks == nil {
		t.tracks = map[string]int{}
	}
	id, ok := t.tracks[track]
	if !ok {
		id = len(t.names)
		t.tracks[track] = id
		t.names = append(t.names, track)
	}
	t.spans = append(t.spans, span{id, name, start, end})
}

// Spans is the number of spans kept.
func (t *Trace) Spans() int { return len(t.spans) }

// WriteChrome writes the timeline in the Chrome trace format, which Perfetto opens. Its microseconds are those of the array clock.
func (t *Trace) WriteChrome(w io.Writer, clockHz float64) error {
	b := bufio.NewWriter(w)
	us := func(x sim.Time) float64 { return float64(x) / tick / clockHz * 1e6 }
	fmt.Fprint(b, "[")
	for i, n := range t.names {
		name, _ := json.Marshal(n)
		if i > 0 {
			fmt.Fprint(b, ",\n")
		}
		fmt.Fprintf(b, `{"ph":"M","pid":1,"tid":%d,"name":"thread_name","args":{"name":%s}}`, i+1, name)
	}
	for _, s := range t.spans {
		name, _ := json.Marshal(s.name)
		fmt.Fprintf(b, ",\n"+`{"ph":"X","pid":1,"tid":%d,"name":%s,"ts":%.4f,"dur":%.4f}`, s.track+1, name, us(s.start), us(s.end-s.start))
	}
	fmt.Fprint(b, "]\n")
	return b.Flush()
}

// svgTracks is the number of tracks that a picture shows.
const svgTracks = 48

// WriteSVG draws the timeline: a row a track, a box a span; the first rows of those there are.
func (t *Trace) WriteSVG(w io.Writer, clockHz float64) error {
	const width, left, height = 1000.0, 130.0, 14
	end := sim.Time(1)
	for _, s := range t.spans {
		end = max(end, s.end)
	}
	tracks := min(len(t.names), svgTracks)
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="sans-serif" font-size="9">`+"\n", left+width+10, height*tracks+40)
	fmt.Fprintf(b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i := range tracks {
		fmt.Fprintf(b, `<text x="4" y="%d">%s</text>`+"\n", i*height+11, t.names[i])
	}
	for _, s := range t.spans {
		if s.track >= tracks {
			continue
		}
		x, wide := left+width*float64(s.start)/float64(end), width*float64(s.end-s.start)/float64(end)
		fill := "#4878a8"
		if t.names[s.track][0] == 's' { // staging
			fill = "#c88040"
		}
		fmt.Fprintf(b, `<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="%s" stroke="white" stroke-width="0.2"><title>%s</title></rect>`+"\n", x, s.track*height+2, max(wide, 0.1), height-4, fill, s.name)
	}
	fmt.Fprintf(b, `<text x="%.0f" y="%d">0 to %.1f us, simulated; %d of %d rows</text>`+"\n</svg>\n", left, height*tracks+20, float64(end)/tick/clockHz*1e6, tracks, len(t.names))
	return b.Flush()
}
