package qgemm

import (
	"fmt"

	"github.com/tessera-go/tessera/internal/knob"
)

// knobs are the thresholds that decide between ways to compute the same result; docs/knobs.md lists them.
type knobs struct {
	fewRows    int
	chunkDot   int
	chunkTiles int
	tileRows   int
	tilesFrom  int
	quantJob   int
}

var knobTable = knob.NewTable("backends/cpu/qgemm", (*knobs).check,
	knob.Int(func(k *knobs) *int { return &k.fewRows }, "TESSERA_Q_FEW_ROWS", fewPasses*fewRows, 0, fewPasses*fewRows,
		"rows of A up to which the bits of block formats are spread in registers, in up to four passes over a panel: with more, spreading them once to memory is cheaper"),
	knob.Int(func(k *knobs) *int { return &k.chunkDot }, "TESSERA_Q_CHUNK_DOT", 1024, 256, 1<<16,
		"elements of k, a multiple of 256, that are spread at once for dot kernels: two or four panels of 16 KiB, or of 32 KiB where they are widened to 16 bits, stay in L1 or L2"),
	knob.Int(func(k *knobs) *int { return &k.chunkTiles }, "TESSERA_Q_CHUNK_TILES", 512, 256, 1<<16,
		"elements of k, a multiple of 256, that are spread at once for tiles, and for dot kernels that take four panels through all rows: the panels, 8 KiB each, stay in L1 beside the rows of A that they meet"),
	knob.Int(func(k *knobs) *int { return &k.tileRows }, "TESSERA_Q_TILE_ROWS", 1024, 16, 4096,
		"rows of one call for tiles at most, because a call cannot be interrupted: 1,024 rows take about 40 microseconds"),
	knob.Int(func(k *knobs) *int { return &k.tilesFrom }, "TESSERA_Q_TILES_FROM", 16, 1, 1<<30,
		"rows of A from which processors with tiles multiply block formats by them: with fewer, what it takes to read weights and to spread their bits to memory leaves them little to gain (counted, not measured)"),
	knob.Int(func(k *knobs) *int { return &k.quantJob }, "TESSERA_Q_QUANT_JOB", 16384, 256, 1<<30,
		"elements of A that a job rounds to 8 bits at least: some microseconds of work"),
)

// check returns an error for chunks that cut a block.
func (k *knobs) check() error {
	for _, c := range []int{k.chunkDot, k.chunkTiles} {
		if c%256 != 0 {
			return fmt.Errorf("a chunk of %d elements of k, want a multiple of 256 (thresholds q-chunk-dot, q-chunk-tiles)", c)
		}
	}
	return nil
}

// Knobs are thresholds that a program chose, for the runs that hold them.
type Knobs struct{ v *knobs }

// NewKnobs returns thresholds by name (docs/knobs.md lists the names; those of this package count). Others keep the value that
// environment, profile or default give them.
func NewKnobs(values map[string]int) (*Knobs, error) {
	v, err := knobTable.With(nil, values)
	if err != nil {
		return nil, fmt.Errorf("qgemm: %w", err)
	}
	return &Knobs{v}, nil
}

func (r *Run) knobs() (*knobs, error) {
	if r.Knobs != nil && r.Knobs.v != nil {
		return r.Knobs.v, nil
	}
	v, err := knobTable.Get()
	if err != nil {
		return nil, fmt.Errorf("qgemm: %w", err)
	}
	return v, nil
}
