package graph

import (
	"encoding/json"
	"io"
	"sort"
	"time"

	"github.com/tessera-go/tessera/ops"
)

// profile collects the time of every node over runs.
type profile struct {
	begin  time.Time
	nodes  map[string]*NodeProfile
	order  []string
	events []traceEvent
}

// NodeProfile is the sum over the runs of one node.
type NodeProfile struct {
	Name      string        `json:"name"`
	Op        string        `json:"op"`
	Backend   string        `json:"backend"`
	Calls     int           `json:"calls"`
	Time      time.Duration `json:"ns"`
	Simulated float64       `json:"simulated_seconds,omitempty"`
	Flops     float64       `json:"flops"`
	Bytes     float64       `json:"bytes"`           // of operands and results, each counted once a call
	Fused     []string      `json:"fused,omitempty"` // as in Placement
}

// GFLOPS is the rate in 10^9 operations a second.
func (n *NodeProfile) GFLOPS() float64 { return n.Flops / max(n.Time.Seconds(), 1e-12) / 1e9 }

// GBps is the rate in 10^9 bytes a second.
func (n *NodeProfile) GBps() float64 { return n.Bytes / max(n.Time.Seconds(), 1e-12) / 1e9 }

type traceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	Ts   float64        `json:"ts"`
	Dur  float64        `json:"dur,omitempty"`
	Pid  int            `json:"pid"`
	Tid  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

const maxTraceEvents = 1 << 20 // a trace of more is of no use to a viewer

func newProfile() *profile { return &profile{begin: time.Now(), nodes: map[string]*NodeProfile{}} }

func (f *profile) add(p *plan, n *ops.Node, fused []string, backend string, start time.Time, took time.Duration, simulated float64) {
	key := n.Name + "\x00" + backend
	e := f.nodes[key]
	if e == nil {
		e = &NodeProfile{Name: n.Name, Op: n.Op.Name(), Backend: backend, Fused: fused}
		f.nodes[key] = e
		f.order = append(f.order, key)
	}
	e.Calls++
	e.Time += took
	e.Simulated += simulated
	flops, bytes := p.work(n)
	e.Flops += flops
	e.Bytes += float64(bytes)
	if len(f.events) < maxTraceEvents {
		ts := float64(start.Sub(f.begin).Nanoseconds()) / 1e3
		args := map[string]any{"op": ops.Describe(n.Op, p.specs(n.In)), "backend": backend}
		if len(fused) > 0 {
			args["fused"] = fused
		}
		f.events = append(f.events, traceEvent{Name: n.Name, Cat: n.Op.Name(), Ph: "X", Ts: ts, Dur: float64(took.Nanoseconds()) / 1e3, Pid: 1, Tid: 1, Args: args})
		if simulated > 0 {
			f.events = append(f.events, traceEvent{Name: n.Name, Cat: "simulated", Ph: "X", Ts: ts, Dur: simulated * 1e6, Pid: 2, Tid: 1,
				Args: map[string]any{"backend": backend + " (simulated)"}})
		}
	}
}

// Profile returns the sums for every node, the longest first; nil unless the graph was compiled with Profile.
func (x *Executable) Profile() []NodeProfile {
	if x.profile == nil {
		return nil
	}
	out := make([]NodeProfile, 0, len(x.profile.order))
	for _, k := range x.profile.order {
		out = append(out, *x.profile.nodes[k])
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Time > out[j].Time })
	return out
}

// WriteTrace writes the profile as a Chrome trace, which Perfetto opens. Simulated time stands in a process of its own.
func (x *Executable) WriteTrace(w io.Writer) error {
	events := []traceEvent{
		{Name: "process_name", Ph: "M", Pid: 1, Args: map[string]any{"name": "tessera (measured)"}},
		{Name: "process_name", Ph: "M", Pid: 2, Args: map[string]any{"name": "accelerator (simulated)"}},
	}
	if x.profile != nil {
		events = append(events, x.profile.events...)
	}
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
}
