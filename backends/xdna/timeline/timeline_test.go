package timeline

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/device"
)

// example is a small run by hand: one core of 100 cycles, of which 60 compute and 30 wait.
func example() *Recorder {
	r := &Recorder{Dev: device.XDNA}
	ctl := array.Track{Name: "controller"}
	core := array.Track{Tile: device.Tile{Col: 0, Row: 2}, Name: "core"}
	shimA := array.Track{Tile: device.Tile{Col: 0, Row: 0}, Name: "mm2s0"}
	shimB := array.Track{Tile: device.Tile{Col: 0, Row: 0}, Name: "mm2s1"}
	r.Span(ctl, "blockwrite", 0, 10)
	r.Span(core, "wait for the barrier", 0, 10)
	r.Span(shimA, "bd 1", 10, 15)
	r.Span(core, "wait for a full A buffer", 10, 20) // 5 moving, 5 without a task while the controller waits
	r.Span(ctl, "sync", 10, 60)
	r.Span(shimB, "bd 2", 10, 40)
	r.Span(core, "compute", 20, 80)
	r.Span(ctl, "write", 60, 85)
	r.Span(core, "wait for a full B buffer", 80, 90) // no task: 5 with the controller at work, 5 without
	r.Span(core, "wait for a free C buffer", 90, 98)
	r.Span(ctl, "sync", 85, 100)
	return r
}

func TestStalls(t *testing.T) {
	s := example().Stalls(false)
	require.InDelta(t, 60, s.Compute, 1e-9)
	require.InDelta(t, 5, s.ATraffic, 1e-9)
	require.InDelta(t, 0, s.BTraffic, 1e-9)
	require.InDelta(t, 8, s.CTraffic, 1e-9)
	require.InDelta(t, 10, s.Descriptors, 1e-9)
	require.InDelta(t, 15, s.Controller, 1e-9)
	require.InDelta(t, 2, s.Locks, 1e-9)
	require.Equal(t, "controller", s.Bound)
	require.Contains(t, s.String(), "bound by controller: compute 60.0 %")
	require.InDelta(t, 100, s.Compute+s.ATraffic+s.BTraffic+s.CTraffic+s.Descriptors+s.Controller+s.Locks, 1e-9)
	// With the operands' ways exchanged the same waits are for other channels.
	s = example().Stalls(true)
	require.InDelta(t, 10, s.ATraffic, 1e-9)
	// Waits of little weight are no bound.
	r := &Recorder{Dev: device.XDNA}
	core := array.Track{Tile: device.Tile{Col: 0, Row: 2}, Name: "core"}
	r.Span(core, "wait for a free C buffer", 0, 5)
	r.Span(core, "compute", 5, 100)
	require.Equal(t, "compute", r.Stalls(false).Bound)
	require.Zero(t, (&Recorder{Dev: device.XDNA}).Stalls(false).Compute)
}

func TestChrome(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, example().WriteChrome(&b))
	var doc struct {
		TraceEvents []struct {
			Name string
			Ph   string
			TS   float64
			Dur  float64
			PID  int
			TID  int
			Args map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &doc))
	threads, spans := map[string]int{}, 0
	for _, e := range doc.TraceEvents {
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				threads[e.Args["name"].(string)] = e.PID
			}
		case "X":
			spans++
			if e.Name == "compute" {
				require.InDelta(t, 0.02, e.TS, 1e-9, "microseconds at 1 GHz")
				require.InDelta(t, 0.06, e.Dur, 1e-9)
			}
		}
	}
	require.Equal(t, map[string]int{"controller": 0, "shim 0: reads A": 1, "shim 0: reads B": 1, "core 0,0: kernel": 1}, threads)
	require.Equal(t, 11, spans)
	require.Error(t, (&Recorder{}).WriteChrome(&b))
}

func TestKeepAndOrder(t *testing.T) {
	r := &Recorder{Dev: device.XDNA, Keep: func(t array.Track) bool { return t.Name != "mm2s1" }}
	for _, l := range example().lanes {
		for _, s := range l.Spans {
			r.Span(l.Track, s.What, s.From, s.To)
		}
	}
	var names []string
	for _, l := range r.Lanes() {
		names = append(names, Title(l.Track))
	}
	require.Equal(t, []string{"controller", "shim 0: reads A", "core 0,0: kernel"}, names)
	from, to := r.Range()
	require.Equal(t, 0.0, from)
	require.Equal(t, 100.0, to)
	r.Reset()
	require.Empty(t, r.Lanes())
}
