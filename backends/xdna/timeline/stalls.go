package timeline

import (
	"fmt"
	"sort"
	"strings"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Names of controller operations that wait.
var (
	syncName = txn.Sync.String()
	pollName = txn.MaskPoll.String()
)

// Stalls says how the cores' time was spent, in percent of all cores' time from the first operation to the last event; the parts add up to 100.
type Stalls struct {
	Compute     float64 `json:"compute"`     // kernels, zeroing included
	ATraffic    float64 `json:"a_traffic"`   // A is waited for while its shim channel works on a descriptor
	BTraffic    float64 `json:"b_traffic"`   // likewise B
	CTraffic    float64 `json:"c_traffic"`   // C is waited for: the single buffer is being drained
	Descriptors float64 `json:"descriptors"` // an operand is waited for, its shim channel has no task, and the controller waits for a token
	Controller  float64 `json:"controller"`  // an operand or the start is waited for while the controller is at work on the channel's next task
	Locks       float64 `json:"locks"`       // the rest: lock grants, descriptor set-up, cores that are done or have not begun
	Bound       string  `json:"bound"`       // what the cores wait for most, or compute if that is little
}

// little is the share of the cores' time, in percent, up to which waiting for one thing does not count as what bounds a run.
const little = 10

// String is one line for people.
func (s Stalls) String() string {
	return fmt.Sprintf("bound by %s: compute %.1f %%, A traffic %.1f %%, B traffic %.1f %%, C traffic %.1f %%, descriptors %.1f %%, controller %.1f %%, start, end and locks %.1f %%",
		s.Bound, s.Compute, s.ATraffic, s.BTraffic, s.CTraffic, s.Descriptors, s.Controller, s.Locks)
}

// intervals are disjoint spans in order, with sums for quick overlaps.
type intervals struct {
	spans []Span
	sum   []float64 // length of all spans before i
}

func newIntervals(spans []Span) *intervals {
	v := &intervals{spans: spans, sum: make([]float64, len(spans)+1)}
	for i, s := range spans {
		v.sum[i+1] = v.sum[i] + s.To - s.From
	}
	return v
}

// before is the covered length from the beginning up to time t.
func (v *intervals) before(t float64) float64 {
	i := sort.Search(len(v.spans), func(i int) bool { return v.spans[i].From >= t })
	out := v.sum[i]
	if i > 0 && v.spans[i-1].To > t {
		out -= v.spans[i-1].To - t
	}
	return out
}

// overlap is the covered length in a span.
func (v *intervals) overlap(s Span) float64 {
	if v == nil {
		return 0
	}
	return v.before(s.To) - v.before(s.From)
}

// subtract returns the parts of s that v does not cover.
func (v *intervals) subtract(s Span) []Span {
	if v == nil {
		return []Span{s}
	}
	var out []Span
	at := s.From
	i := sort.Search(len(v.spans), func(i int) bool { return v.spans[i].To > s.From })
	for ; i < len(v.spans) && v.spans[i].From < s.To; i++ {
		if v.spans[i].From > at {
			out = append(out, Span{s.What, at, v.spans[i].From})
		}
		at = max(at, v.spans[i].To)
	}
	if at < s.To {
		out = append(out, Span{s.What, at, s.To})
	}
	return out
}

// Stalls reports what the cores waited for. It needs the tracks of the shim, the cores and the controller. Transposed says that the
// design has A down the columns and B along the rows.
func (r *Recorder) Stalls(transposed bool) Stalls {
	type key struct {
		t    device.Tile
		name string
	}
	by := map[key]*intervals{}
	var control *intervals
	for _, l := range r.lanes {
		spans := l.Spans
		sort.SliceStable(spans, func(i, j int) bool { return spans[i].From < spans[j].From })
		if controllerName(l.Name) {
			var busy []Span
			for _, s := range spans {
				if ClassOf(l.Track, s) == Control {
					busy = append(busy, s)
				}
			}
			control = newIntervals(busy)
			continue
		}
		if l.Tile.Row == 0 {
			by[key{l.Tile, l.Name}] = newIntervals(spans)
		}
	}
	from, to := r.Range()
	total := 0.0
	var out Stalls
	for _, l := range r.lanes {
		if l.Name != "core" {
			continue
		}
		total += to - from
		row := l.Tile.Row - r.Dev.CoreRow
		rowShim := by[key{device.Tile{Col: r.Dev.ACols[row]}, "mm2s0"}]
		colShim := by[key{device.Tile{Col: l.Tile.Col}, "mm2s1"}]
		a, b := rowShim, colShim
		if transposed {
			a, b = colShim, rowShim
		}
		operand := func(s Span, shim *intervals, traffic *float64) {
			*traffic += shim.overlap(s)
			for _, idle := range shim.subtract(s) {
				c := control.overlap(idle)
				out.Controller += c
				out.Descriptors += idle.To - idle.From - c
			}
		}
		for _, s := range l.Spans {
			switch d := s.To - s.From; {
			case ClassOf(l.Track, s) == Compute:
				out.Compute += d
			case strings.Contains(s.What, "full A"):
				operand(s, a, &out.ATraffic)
			case strings.Contains(s.What, "full B"):
				operand(s, b, &out.BTraffic)
			case strings.Contains(s.What, "free C"):
				out.CTraffic += d
			case strings.Contains(s.What, "barrier"):
				out.Controller += control.overlap(s)
			}
		}
	}
	if total == 0 {
		return out
	}
	rest := 100.0
	for _, v := range []*float64{&out.Compute, &out.ATraffic, &out.BTraffic, &out.CTraffic, &out.Descriptors, &out.Controller} {
		*v = max(*v*100/total, 0) // rounding may leave a trace below 0
		rest -= *v
	}
	out.Locks = max(rest, 0)
	out.Bound = "compute"
	most := float64(little)
	for _, p := range []struct {
		name string
		v    float64
	}{{"A traffic", out.ATraffic}, {"B traffic", out.BTraffic}, {"C traffic", out.CTraffic}, {"descriptors", out.Descriptors}, {"controller", out.Controller}, {"start and end", out.Locks}} {
		if p.v > most {
			most, out.Bound = p.v, p.name
		}
	}
	return out
}
