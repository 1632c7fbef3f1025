package cpu

import (
	"sync"

	"github.com/tessera-go/tessera/internal/knob"
)

// knobs are the thresholds of the backend itself; docs/knobs.md lists them.
type knobs struct {
	smallProduct   int
	smallAttention int
}

var knobTable = knob.NewTable("backends/cpu", nil,
	knob.Int(func(k *knobs) *int { return &k.smallProduct }, "TESSERA_SMALL_PRODUCT", 1<<21, 0, 1<<30,
		"multiply-adds of a product up to which those of a batch run side by side, each on one worker: larger ones are cut well"),
	knob.Int(func(k *knobs) *int { return &k.smallAttention }, "TESSERA_SMALL_ATTENTION", 1<<18, 0, 1<<30,
		"multiply-adds below which attention stays on one worker: some 20 microseconds"),
)

// thresholds are those of environment and profile. Illegal ones keep the backend from being opened.
var thresholds = sync.OnceValue(func() *knobs {
	k, err := knobTable.Get()
	if err != nil {
		return knobTable.Defaults()
	}
	return k
})
