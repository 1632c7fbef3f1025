package plan

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Types are the element types of a product: A, B, C.
type Types = device.Types

// ParseTypes reads a type pair such as "int8-int16" (input-output) or "bf16-bfp16" (A-B, bf16 output).
func ParseTypes(s string) (Types, error) { return device.ParseTypes(s) }

// PaperTypes are the names of the four type pairs of the paper.
var PaperTypes = []string{"int8-int8", "int8-int16", "int8-int32", "bf16-bf16"}

// eighths is the size of eight elements in bytes: a whole number for every type, bfp16 included.
func eighths(t kernel.Type) int { return t.Bytes(8) }

// width is the size of an element in bytes, 9/8 for bfp16.
func width(t kernel.Type) float64 { return float64(eighths(t)) / 8 }

// Tile is what one core multiplies at a time: m_ct x k_ct x n_ct.
type Tile struct{ M, K, N int }

// String writes the tile as the paper does: m x k x n.
func (t Tile) String() string { return fmt.Sprintf("%dx%dx%d", t.M, t.K, t.N) }

// Size is a problem: C[M,N] = A[M,K] x B[K,N].
type Size struct{ M, N, K int }

// String writes the size in this project's order, M x N x K.
func (s Size) String() string { return fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K) }

// Ops is the number of useful operations, two a multiply-add.
func (s Size) Ops() float64 { return 2 * float64(s.M) * float64(s.N) * float64(s.K) }

// Intensity is the arithmetic intensity in operations a byte, each matrix counted once, as on the paper's rooflines.
func (s Size) Intensity(t Types) float64 {
	m, n, k := float64(s.M), float64(s.N), float64(s.K)
	return s.Ops() / (m*k*width(t.A) + k*n*width(t.B) + m*n*width(t.C))
}

// Schedule is how the controller refills the shim's descriptors.
type Schedule uint8

const (
	Overlapped Schedule = iota // the paper's: 5 triples in flight, one refilled for each completed C
	PingPong                   // the public example's: halves of two row blocks
	Serial                     // one triple at a time, waited for before the next is written
)

// String names the schedule.
func (s Schedule) String() string { return [...]string{"overlapped", "pingpong", "serial"}[s] }

// Design is a planned configuration of the array. Its zero options are the paper's.
type Design struct {
	Device string
	Types  Types
	Tile   Tile
	KMT    int // depth of the block of A (and of a column-major B) that a MemTile reads at once, a multiple of Tile.K

	RowMajorB  bool     // B is [K,N] in memory; else [N,K]
	DoubleC    bool     // two C buffers in L1
	Bands      int      // asymmetric buffering: A buffers hold Tile.M/Bands rows; 0 and 1 mean the paper's symmetric tile
	ResidentB  bool     // B's columns stay in the MemTile while all row blocks use them
	Transposed bool     // A is broadcast down columns and B along rows
	Schedule   Schedule // of the shim's descriptors
}

// bands is rho, at least 1.
func (d Design) bands() int { return max(d.Bands, 1) }

// String describes the design in one line.
func (d Design) String() string {
	s := fmt.Sprintf("%s %s %s k_mt %d", d.Device, d.Types, d.Tile, d.KMT)
	if d.RowMajorB {
		s += " row-major B"
	}
	if d.DoubleC {
		s += " double C"
	}
	if d.bands() > 1 {
		s += fmt.Sprintf(" bands %d", d.Bands)
	}
	if d.ResidentB {
		s += " resident B"
	}
	if d.Transposed {
		s += " transposed"
	}
	if d.Schedule != Overlapped {
		s += " " + d.Schedule.String()
	}
	return s
}

// Family names the kind of design: paper, atb, resident, atb+resident; with bfp16 weights prefixed by bfp16.
func (d Design) Family() string {
	f := ""
	switch {
	case d.bands() > 1 && d.ResidentB:
		f = "atb+resident"
	case d.bands() > 1:
		f = "atb"
	case d.ResidentB:
		f = "resident"
	}
	if d.Types.B == kernel.BFP16 {
		if f == "" {
			return "bfp16"
		}
		return "bfp16+" + f
	}
	if f == "" {
		return "paper"
	}
	return f
}
