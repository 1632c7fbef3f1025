package amdxdna

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ManifestVersion is the version of the manifest's format that this package reads.
const ManifestVersion = 1

// Manifest says which design an xclbin was built for, so that streams made for that design may run on it. It is a JSON file that whoever
// compiles the xclbin writes beside it.
type Manifest struct {
	Version  int    `json:"version"`
	Device   string `json:"device"` // "xdna" or "xdna2"
	Kernel   string `json:"kernel"` // name in the xclbin; empty if it has one only
	Types    string `json:"types"`  // as "int8-int16"
	Tile     Dims   `json:"tile"`
	KMT      int    `json:"k_mt"`
	BLayout  string `json:"b_layout"`        // "col" or "row"
	DoubleC  bool   `json:"double_c"`        // two C buffers in L1
	Bands    int    `json:"bands,omitempty"` // of asymmetric buffering; 0 = none
	Resident bool   `json:"resident_b,omitempty"`
	Rounding string `json:"rounding,omitempty"` // "even" (default) or "floor"
	RTP      int    `json:"rtp_address"`        // byte address of the runtime parameters in each core's data memory
	Barrier  int    `json:"barrier_lock"`       // lock of each core that starts a dispatch
	Notes    string `json:"notes,omitempty"`    // for people: tool versions, commit
}

// Dims is a tile in a manifest.
type Dims struct {
	M int `json:"m"`
	K int `json:"k"`
	N int `json:"n"`
}

// ReadManifest reads and checks a manifest. Unknown fields are errors: one that a reader ignores could change what the array does.
func ReadManifest(r io.Reader) (*Manifest, error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	m := new(Manifest)
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if dec.More() {
		return nil, errors.New("manifest: more than one JSON document")
	}
	return m, m.Check()
}

// Check reports what is wrong with a manifest, all of it.
func (m *Manifest) Check() error {
	var bad []string
	note := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if m.Version != ManifestVersion {
		note("version %d, want %d", m.Version, ManifestVersion)
	}
	if m.Device != "xdna" && m.Device != "xdna2" {
		note("device %q, want xdna or xdna2", m.Device)
	}
	if m.Types == "" {
		note("types are missing")
	}
	if m.Tile.M <= 0 || m.Tile.K <= 0 || m.Tile.N <= 0 {
		note("tile %dx%dx%d: every side must be positive", m.Tile.M, m.Tile.K, m.Tile.N)
	} else if m.KMT <= 0 || m.KMT%m.Tile.K != 0 {
		note("k_mt %d is not a multiple of k %d", m.KMT, m.Tile.K)
	}
	if m.BLayout != "col" && m.BLayout != "row" {
		note("b_layout %q, want col or row", m.BLayout)
	}
	if !slices.Contains([]string{"", "even", "floor"}, m.Rounding) {
		note("rounding %q, want even or floor", m.Rounding)
	}
	if m.Bands < 0 {
		note("bands %d", m.Bands)
	}
	if m.RTP < 0 || m.RTP > 0xFFFC || m.RTP%4 != 0 {
		note("rtp_address %#x, want a multiple of 4 below 0x10000", m.RTP)
	}
	if m.Barrier < 0 || m.Barrier > 15 {
		note("barrier_lock %d, want 0 to 15", m.Barrier)
	}
	if len(bad) > 0 {
		return fmt.Errorf("manifest: %s", strings.Join(bad, "; "))
	}
	return nil
}

// Differs lists how a manifest differs from the one of the design whose streams are to run; empty means that they fit.
func (m *Manifest) Differs(want *Manifest) error {
	var bad []string
	diff := func(what string, got, want any) {
		if got != want {
			bad = append(bad, fmt.Sprintf("%s is %v, the design has %v", what, got, want))
		}
	}
	round := func(s string) string {
		if s == "" {
			return "even"
		}
		return s
	}
	diff("device", m.Device, want.Device)
	diff("types", m.Types, want.Types)
	diff("tile", m.Tile, want.Tile)
	diff("k_mt", m.KMT, want.KMT)
	diff("b_layout", m.BLayout, want.BLayout)
	diff("double_c", m.DoubleC, want.DoubleC)
	diff("bands", max(m.Bands, 1), max(want.Bands, 1))
	diff("resident_b", m.Resident, want.Resident)
	diff("rounding", round(m.Rounding), round(want.Rounding))
	diff("rtp_address", m.RTP, want.RTP)
	diff("barrier_lock", m.Barrier, want.Barrier)
	if len(bad) > 0 {
		return fmt.Errorf("the xclbin's manifest does not fit the design: %s", strings.Join(bad, "; "))
	}
	return nil
}
