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
