package gemm

import (
	"fmt"
	"os"
	"strconv"
	"sync"
)

// knobs are the thresholds that decide between ways to compute the same result. Each can be set by an environment variable,
// which is read once; a value that is no number or out of range is reported on standard error and ignored.
type knobs struct {
	kcMin, kcMax  int
	stripPercent  int
	bPercent      int
	cPercent      int
	jobsPerWorker int
	macsPerWorker int
	packLimit     int
	aPackReuse    int
	aPackStride   int
	aPackSpan     int
	aPackPanels   int
	bPackRows     int
	lowRows       int
	kcInPlace     int
	bLocalRows    int
}

// knob describes one field: its variable, default, bounds, and why the default is what it is.
type knob struct {
	field     func(*knobs) *int
	env       string
	value     int
	low, high int
	why       string
}

var knobTable = []knob{
	{func(k *knobs) *int { return &k.kcMin }, "TESSERA_KC_MIN", 128, 8, 1 << 20,
		"steps of k in a chunk at least: below it, loading and storing C shows"},
	{func(k *knobs) *int { return &k.kcMax }, "TESSERA_KC_MAX", 512, 8, 1 << 20,
		"steps of k in a chunk at most: 512 steps already hide C, and more push B out of L2"},
	{func(k *knobs) *int { return &k.stripPercent }, "TESSERA_STRIP_PERCENT", 75, 1, 90,
		"share of L1 for a strip of A: the rest is for the stream of B and lines of C"},
	{func(k *knobs) *int { return &k.bPercent }, "TESSERA_B_PERCENT", 40, 1, 90, "share of L2 for a chunk of B"},
	{func(k *knobs) *int { return &k.cPercent }, "TESSERA_C_PERCENT", 30, 1, 90, "share of L2 for a block of C"},
	{func(k *knobs) *int { return &k.jobsPerWorker }, "TESSERA_JOBS_PER_WORKER", 4, 1, 1024,
		"blocks of C per worker where they do not divide evenly: a worker that is late then delays the end by a quarter of its share at most"},
	{func(k *knobs) *int { return &k.macsPerWorker }, "TESSERA_MACS_PER_WORKER", 400_000, 1, maxInt,
		"multiply-adds per worker at least: about five microseconds, several times the cost of a fork and join"},
	{func(k *knobs) *int { return &k.packLimit }, "TESSERA_PACK_LIMIT", 32 << 20, 1 << 16, maxInt,
		"bytes of a packed operand at most: larger ones are packed and used in parts"},
	{func(k *knobs) *int { return &k.aPackReuse }, "TESSERA_A_PACK_REUSE", 8, 1, 1 << 30,
		"panels of B that must use a strip of a row-major A before packing it can pay"},
	{func(k *knobs) *int { return &k.aPackStride }, "TESSERA_A_PACK_STRIDE", 2048, 1, 1 << 30,
		"bytes between columns of A from which a column-major A is considered for packing: half a page, where every step is a new page"},
	{func(k *knobs) *int { return &k.aPackSpan }, "TESSERA_A_PACK_SPAN", 4 << 20, 1, maxInt,
		"bytes that one chunk of k spans in a column-major A from which it is packed: below it the lines stay cached between strips"},
	{func(k *knobs) *int { return &k.aPackPanels }, "TESSERA_A_PACK_PANELS", 16, 1, 1 << 30,
		"panels of B that must use a strip of a column-major A before packing pays"},
	{func(k *knobs) *int { return &k.bPackRows }, "TESSERA_B_PACK_ROWS", 48, 1, 1 << 30,
		"rows of A from which a row-major B is packed: with fewer, reading it in place costs less than the copy"},
	{func(k *knobs) *int { return &k.bLocalRows }, "TESSERA_B_LOCAL_ROWS", 1024, 0, 1 << 30,
		"rows of A up to which a B that must be packed is packed by its user, a chunk at a time in L2: with more, blocks share it"},
	{func(k *knobs) *int { return &k.kcInPlace }, "TESSERA_KC_IN_PLACE", 32, 1, 1 << 30,
		"rows of a large row-major B that are read side by side in place: about as many streams as the prefetchers follow"},
	{func(k *knobs) *int { return &k.lowRows }, "TESSERA_LOW_ROWS", 16, 0, 1 << 30,
		"rows of A up to which bf16 and f16 weights are widened in registers: with more, widening a chunk once is cheaper"},
}

var readKnobs = sync.OnceValue(func() *knobs {
	k := defaultKnobs()
	for _, d := range knobTable {
		text := os.Getenv(d.env)
		if text == "" {
			continue
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < d.low || v > d.high {
			fmt.Fprintf(os.Stderr, "tessera: %s=%q ignored: want a number from %d to %d\n", d.env, text, d.low, d.high)
			continue
		}
		*d.field(k) = v
	}
	return k
})

func defaultKnobs() *knobs {
	k := &knobs{}
	for _, d := range knobTable {
		*d.field(k) = d.value
	}
	return k
}
