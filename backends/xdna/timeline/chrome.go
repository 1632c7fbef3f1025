package timeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// chromeEvent is an event of the Trace Event Format that Chrome and Perfetto read. Times are in microseconds.
type chromeEvent struct {
	Name string         `json:"name"`
	Ph   string         `json:"ph"`
	TS   float64        `json:"ts"`
	Dur  float64        `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Cat  string         `json:"cat,omitempty"`
	Args map[string]any `json:"args,omitempty"`
}

var classNames = [numClasses]string{"compute", "move", "wait", "control"}

// WriteChrome writes the spans as a Chrome trace: a process for the controller and one a column, a thread a track, simulated microseconds.
func (r *Recorder) WriteChrome(w io.Writer) error {
	if r.Dev == nil {
		return fmt.Errorf("timeline: the recorder has no device, whose clock a trace needs")
	}
	us := 1e6 / r.Dev.ClockHz
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `{"displayTimeUnit":"ns","otherData":{"device":%q,"clock_hz":%.0f,"times":"simulated"},"traceEvents":[`, r.Dev.Name, r.Dev.ClockHz)
	first := true
	emit := func(e chromeEvent) error {
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteByte('\n')
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("timeline: %w", err)
		}
		_, err = b.Write(text)
		return err
	}
	named := map[int]bool{}
	for tid, l := range r.Lanes() {
		pid := 1 + l.Tile.Col
		name := fmt.Sprintf("column %d", l.Tile.Col)
		if controllerName(l.Name) {
			pid, name = 0, "controller"
		}
		if !named[pid] {
			named[pid] = true
			if err := emit(chromeEvent{Name: "process_name", Ph: "M", PID: pid, Args: map[string]any{"name": name}}); err != nil {
				return err
			}
			if err := emit(chromeEvent{Name: "process_sort_index", Ph: "M", PID: pid, Args: map[string]any{"sort_index": pid}}); err != nil {
				return err
			}
		}
		if err := emit(chromeEvent{Name: "thread_name", Ph: "M", PID: pid, TID: tid, Args: map[string]any{"name": Title(l.Track)}}); err != nil {
			return err
		}
		if err := emit(chromeEvent{Name: "thread_sort_index", Ph: "M", PID: pid, TID: tid, Args: map[string]any{"sort_index": tid}}); err != nil {
			return err
		}
		for _, s := range l.Spans {
			if err := emit(chromeEvent{Name: s.What, Ph: "X", TS: s.From * us, Dur: (s.To - s.From) * us, PID: pid, TID: tid,
				Cat: classNames[ClassOf(l.Track, s)], Args: map[string]any{"cycles": s.To - s.From}}); err != nil {
				return err
			}
		}
	}
	b.WriteString("\n]}\n")
	return b.Flush()
}
