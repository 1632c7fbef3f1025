// Package backends decides what a backend is and how one is opened by name. A program chooses what it links by a blank import, as
// with database/sql drivers:
//
//	import _ "github.com/tessera-go/tessera/backends/cpu"
//
//	b, err := backends.Open("cpu:threads=2")
package backends

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Verdict is the answer to whether a backend takes an operation.
type Verdict struct {
	OK       bool
	Reason   string        // in words: why not, or what it would cost
	Cost     time.Duration // predicted; 0 where the backend does not say
	Accuracy Accuracy      // the zero value promises float32
}

// Accuracy says how far a product of floats may be from the exact one because of the number format that a backend computes it in. The conformance suite
// holds the backend to it, element by element.
type Accuracy struct {
	// Operand bounds what an element of an operand is off by on its way into the format, as a fraction of the largest magnitude among those that share its scale.
	Operand float64 `json:"operand,omitempty"`
	// Shared is how many consecutive elements along K share a scale: 0 or 1 for a float format, -1 for all of K.
	Shared int `json:"shared,omitempty"`
	// Sum bounds what one rounding of the running sum costs, as a fraction of the sum of the products' magnitudes, and Roundings is how often it is rounded.
	Sum       float64 `json:"sum,omitempty"`
	Roundings int     `json:"roundings,omitempty"`
}

// Yes is a verdict of support.
func Yes(reason string) Verdict { return Verdict{OK: true, Reason: reason} }

// No is a verdict against, with its reason.
func No(format string, args ...any) Verdict { return Verdict{Reason: fmt.Sprintf(format, args...)} }

// Backend runs parts of graphs.
type Backend interface {
	// Name is the name that Open knows.
	Name() string
	// Describe says what the backend runs on.
	Describe() Description
	// Supports says whether the backend takes an operation on inputs of these specs, and why or why not.
	Supports(ops.Call) Verdict
	// MatMul returns the engine for matrix products, nil if they run as operations of graphs only.
	MatMul() matmul.Engine
	// Compile prepares a part, all of whose calls the backend supports. Constants are prepared once, however often they are compiled.
	Compile(context.Context, *ops.Part) (Program, error)
	// Stats returns counters since the backend was opened.
	Stats() Stats
	Close() error
}

// Program is a compiled part. It belongs to one executable; two goroutines use two programs.
type Program interface {
	// Run executes the nodes from first (inclusive) to last (exclusive) in order. Frame holds a tensor for every value of the part:
	// its memory may change between runs, its spec may not. Run looks at the context between nodes and inside long ones.
	Run(ctx context.Context, frame []tensor.Tensor, first, last int) error
	Close() error
}

// Description says what a backend runs on.
type Description struct {
	Name      string   `json:"name"`
	Device    string   `json:"device"`
	Simulated bool     `json:"simulated"`
	Features  []string `json:"features,omitempty"`
	Types     []string `json:"types,omitempty"`
	Options   []string `json:"options,omitempty"` // "name=default: meaning"
}

// Stats counts what a backend has done since it was opened. Times of simulated devices are simulated.
type Stats struct {
	Nodes            int64   `json:"nodes"`                   // of graphs, those that are views not among them
	Products         int64   `json:"products"`                // matrix products; a convolution that runs as one counts as such
	Dispatches       int64   `json:"dispatches"`              // kernels started; on a device, hand-overs of control code
	Configurations   int64   `json:"configurations"`          // of a device's array
	Conversions      int64   `json:"conversions"`             // activations that the host brought into a type or layout of the device, and results that it brought back; what is made of weights once is not counted
	ControlWords     int64   `json:"control_words,omitempty"` // of 32 bits, in the control code of the dispatches
	Bytes            int64   `json:"bytes"`                   // moved between the device's memory and its array
	StagedBytes      int64   `json:"staged_bytes,omitempty"`  // copied by the host into another layout or type for the device, and back
	UsefulMACs       int64   `json:"useful_macs,omitempty"`   // multiply-accumulates of the products as given
	PaddedMACs       int64   `json:"padded_macs,omitempty"`   // of the products as the array computes them, in whole tiles
	HostResults      int64   `json:"host_results,omitempty"`  // elements with NaN or infinity among their operands, which the device's number format does not hold: the host computes them
	SimulatedSeconds float64 `json:"simulated_seconds"`
}

// Sub returns the counts since an earlier reading.
func (s Stats) Sub(t Stats) Stats {
	s.Nodes -= t.Nodes
	s.Products -= t.Products
	s.Dispatches -= t.Dispatches
	s.Configurations -= t.Configurations
	s.Conversions -= t.Conversions
	s.ControlWords -= t.ControlWords
	s.Bytes -= t.Bytes
	s.StagedBytes -= t.StagedBytes
	s.UsefulMACs -= t.UsefulMACs
	s.PaddedMACs -= t.PaddedMACs
	s.HostResults -= t.HostResults
	s.SimulatedSeconds -= t.SimulatedSeconds
	return s
}

// Options are the key=value pairs behind a backend's name. A constructor takes what it knows; Open refuses what is left.
type Options struct {
	values map[string]string
	used   map[string]bool
	err    error
}

// String takes an option, or its default.
func (o *Options) String(key, def string, allowed ...string) string {
	v, ok := o.values[key]
	o.used[key] = true
	if !ok {
		return def
	}
	if len(allowed) > 0 && !slices.Contains(allowed, v) && o.err == nil {
		o.err = &SpecError{fmt.Sprintf("%s=%s: one of %s is right", key, v, strings.Join(allowed, ", "))}
	}
	return v
}

// Int takes a number between least and most, or its default.
func (o *Options) Int(key string, def, least, most int) int {
	v, ok := o.values[key]
	o.used[key] = true
	if !ok {
		return def
	}
	n, err := strconv.Atoi(v)
	if (err != nil || n < least || n > most) && o.err == nil {
		o.err = &SpecError{fmt.Sprintf("%s=%s: a number from %d to %d is right", key, v, least, most)}
	}
	return n
}

// Conflict reports that options contradict each other, or that one would have no effect beside the others.
func (o *Options) Conflict(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// Err returns the first option that was wrong.
func (o *Options) Err() error { return o.err }

// Constructor opens a backend.
type Constructor func(*Options) (Backend, error)

var (
	registryMu sync.Mutex
	registry   = map[string]Constructor{}
)

// Register makes a backend known to Open, usually from an init function. It panics if the name is taken.
func Register(name string, c Constructor) {
	registryMu.Lock()
	defer registryMu.Unlock()
	if _, taken := registry[name]; taken {
		panic("backends: " + name + " registered twice")
	}
	registry[name] = c
}

// Names returns the linked backends, sorted.
func Names() []string {
	registryMu.Lock()
	defer registryMu.Unlock()
	names := make([]string, 0, len(registry))
	for n := range registry {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// SpecError is a mistake in the options of a backend's spec: one that it does not take, or a value.
type SpecError struct{ reason string }

func (e *SpecError) Error() string { return e.reason }

// importedBy are the packages of this module whose import links a backend.
var importedBy = map[string]string{"aie": "aie", "cpu": "cpu", "reference": "reference", "xdna": "xdna", "xdna2": "xdna"}

// linked lists the names that Open takes.
func linked() string {
	if names := Names(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}

// unlinked says how a backend that is not registered can be, if it is one of this module's.
func unlinked(name string) error {
	reason := fmt.Sprintf("unknown backend %q; linked are: %s", name, linked())
	if p, ok := importedBy[name]; ok {
		reason = fmt.Sprintf("backend %q is not linked: import _ \"github.com/tessera-go/tessera/backends/%s\" links it; linked are: %s", name, p, linked())
	}
	return errors.New(reason)
}

// Open opens a backend by its spec: name[:key=value,...]. Overrides, in the same form without a name ("threads=2"), win. Options that
// are wrong are a [SpecError]; other errors say that this program has no such backend, or that it cannot be opened here.
func Open(spec string, overrides ...string) (Backend, error) {
	name, rest, _ := strings.Cut(spec, ":")
	if name == "" {
		return nil, &SpecError{fmt.Sprintf("a backend's name is missing; linked are: %s", linked())}
	}
	registryMu.Lock()
	open := registry[name]
	registryMu.Unlock()
	if open == nil {
		return nil, unlinked(name)
	}
	o := &Options{values: map[string]string{}, used: map[string]bool{}}
	for _, list := range append([]string{rest}, overrides...) {
		here := map[string]bool{}
		for _, pair := range strings.Split(list, ",") {
			if pair == "" {
				continue
			}
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return nil, &SpecError{fmt.Sprintf("backend %s: option %q is not key=value", name, pair)}
			}
			if here[key] {
				return nil, &SpecError{fmt.Sprintf("backend %s: option %q is given twice", name, key)}
			}
			here[key] = true
			o.values[key] = value
		}
	}
	b, err := open(o)
	if err == nil {
		err = o.err
	}
	for key := range o.values {
		if err == nil && !o.used[key] {
			takes := "none"
			if len(o.used) > 0 {
				takes = strings.Join(slices.Sorted(maps.Keys(o.used)), ", ")
			}
			err = &SpecError{fmt.Sprintf("unknown option %q; it takes: %s", key, takes)}
		}
	}
	if err != nil {
		if b != nil {
			_ = b.Close()
		}
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	return b, nil
}
