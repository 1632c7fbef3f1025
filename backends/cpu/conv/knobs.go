package conv

import (
	"fmt"

	"github.com/tessera-go/tessera/internal/knob"
)

// knobs are the thresholds that decide how the same sums are cut; docs/knobs.md lists them. What decides between algorithms, whose
// results differ in the last places, is no threshold: see BestTile.
type knobs struct {
	scratchFloats int
	panelFloats   int
	jobsPerWorker int
	jobMacs       int
	depthwiseMacs int
	postFloats    int
}

var knobTable = knob.NewTable("backends/cpu/conv", nil,
	knob.Int(func(k *knobs) *int { return &k.scratchFloats }, "TESSERA_CONV_SCRATCH_FLOATS", 96<<10, 1<<10, 1<<26,
		"float32 of the padded input that a job copies at most, for an L2 of 1 MiB (a smaller one takes its share): it stays there beside a share of the filter"),
	knob.Int(func(k *knobs) *int { return &k.panelFloats }, "TESSERA_CONV_PANEL_FLOATS", 160<<10, 1<<10, 1<<26,
		"float32 of the filter that a job uses at most, for an L2 of 1 MiB (a smaller one takes its share): they stay there while rows of pixels pass"),
	knob.Int(func(k *knobs) *int { return &k.jobsPerWorker }, "TESSERA_CONV_JOBS_PER_WORKER", 4, 1, 1024,
		"jobs per worker of a convolution: a worker that is late then delays the end by a quarter of its share at most"),
	knob.Int(func(k *knobs) *int { return &k.jobMacs }, "TESSERA_CONV_JOB_MACS", 1<<20, 1, 1<<30,
		"multiply-adds of a job of a convolution at least: one of a few microseconds is not worth its start"),
	knob.Int(func(k *knobs) *int { return &k.depthwiseMacs }, "TESSERA_CONV_DEPTHWISE_MACS", 200_000, 1, 1<<30,
		"multiply-adds of a job of a depthwise convolution or of pooling: about 20 microseconds, at some 10 a nanosecond"),
	knob.Int(func(k *knobs) *int { return &k.postFloats }, "TESSERA_CONV_POST_FLOATS", 8<<10, 1, 1<<30,
		"results of a transposed convolution that a job finishes: a few microseconds of work"),
)

// Knobs are thresholds that a program chose, for the plans that it makes with them.
type Knobs struct{ v *knobs }

// NewKnobs returns thresholds by name (docs/knobs.md lists the names; those of this package count). Others keep the value that
// environment, profile or default give them.
func NewKnobs(values map[string]int) (*Knobs, error) {
	v, err := knobTable.With(nil, values)
	if err != nil {
		return nil, fmt.Errorf("conv: %w", err)
	}
	return &Knobs{v}, nil
}

func (k *Knobs) get() (*knobs, error) {
	if k != nil && k.v != nil {
		return k.v, nil
	}
	v, err := knobTable.Get()
	if err != nil {
		return nil, fmt.Errorf("conv: %w", err)
	}
	return v, nil
}
