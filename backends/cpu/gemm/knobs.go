package gemm

import (
	"fmt"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/knob"
)

// knobs are the thresholds that decide between ways to compute the same result; docs/knobs.md lists them.
type knobs struct {
	kcMin, kcMax  int
	stripPercent  int
	bPercent      int
	cPercent      int
	panelPercent  int
	aPercent      int
	panelStrips   int
	panelBytes    int
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
	callBytes     int
	batchJobs     int
	batchMacs     int
	bInPlaceBytes int
	packTogether  int
	conflictRows  int
	pairWays      int
	pairRows      int
	streamBytes   int
	innerRows     int
	innerDepth    int
	innerSteps    int
	tileRows      int
}

var knobTable = knob.NewTable("backends/cpu/gemm", (*knobs).check,
	knob.Int(func(k *knobs) *int { return &k.kcMin }, "TESSERA_KC_MIN", 128, 8, 1<<20,
		"steps of k in a chunk at least: below it, loading and storing C shows"),
	knob.Int(func(k *knobs) *int { return &k.kcMax }, "TESSERA_KC_MAX", 512, 8, 1<<20,
		"steps of k in a chunk at most: 512 steps already hide C, and more push B out of L2"),
	knob.Int(func(k *knobs) *int { return &k.stripPercent }, "TESSERA_STRIP_PERCENT", 75, 1, 90,
		"share of L1 for a strip of A: the rest is for the stream of B and lines of C"),
	knob.Int(func(k *knobs) *int { return &k.bPercent }, "TESSERA_B_PERCENT", 35, 1, 90, "share of L2 for a chunk of B; the next one comes while it is in use"),
	knob.Int(func(k *knobs) *int { return &k.cPercent }, "TESSERA_C_PERCENT", 26, 1, 90, "share of L2 for a block of C"),
	knob.Int(func(k *knobs) *int { return &k.panelPercent }, "TESSERA_PANEL_PERCENT", 13, 1, 45,
		"share of L2 for a panel of B in products that go by panels, at most 2 kc-max steps of it: longer chunks of k bring C less often; the next one comes while it is in use"),
	knob.Int(func(k *knobs) *int { return &k.aPercent }, "TESSERA_A_PERCENT", 40, 1, 90, "share of L2 for a block of A in products that go by panels; the next one comes while it is in use"),
	knob.Int(func(k *knobs) *int { return &k.panelBytes }, "TESSERA_PANEL_BYTES", 0, 0, 1<<30,
		"bytes of a chunk of B that meets all blocks of A before the next one comes, in products that go by panels: it stays in a share of L3; 0 is eight times L2, 4 MiB at most"),
	knob.Int(func(k *knobs) *int { return &k.panelStrips }, "TESSERA_PANEL_STRIPS", 8, 1, 1<<30,
		"strips of A from which kernels with few registers go by panels: fewer do not pay for bringing a panel to L1"),
	knob.Int(func(k *knobs) *int { return &k.jobsPerWorker }, "TESSERA_JOBS_PER_WORKER", 8, 1, 1024,
		"blocks of C per worker at most that are made to divide the work evenly: more would share less of what each fetches"),
	knob.Int(func(k *knobs) *int { return &k.macsPerWorker }, "TESSERA_MACS_PER_WORKER", 400_000, 1, maxInt,
		"multiply-adds per worker at least: about five microseconds, several times the cost of a fork and join"),
	knob.Int(func(k *knobs) *int { return &k.packLimit }, "TESSERA_PACK_LIMIT", 32<<20, 1<<16, maxInt,
		"bytes of a packed operand at most: larger ones are packed and used in parts"),
	knob.Int(func(k *knobs) *int { return &k.aPackReuse }, "TESSERA_A_PACK_REUSE", 8, 1, 1<<30,
		"panels of B that must use a strip of a row-major A before packing it can pay"),
	knob.Int(func(k *knobs) *int { return &k.aPackStride }, "TESSERA_A_PACK_STRIDE", 2048, 1, 1<<30,
		"bytes between columns of A from which a column-major A is considered for packing: half a page, where every step is a new page"),
	knob.Int(func(k *knobs) *int { return &k.aPackSpan }, "TESSERA_A_PACK_SPAN", 0, 0, maxInt,
		"bytes that one chunk of k spans in a column-major A from which it is packed: below it the lines stay cached between strips; 0 is L2, since lines a power of two apart then fill the sets that they fall into"),
	knob.Int(func(k *knobs) *int { return &k.aPackPanels }, "TESSERA_A_PACK_PANELS", 16, 1, 1<<30,
		"panels of B that must use a strip of a column-major A before packing pays"),
	knob.Int(func(k *knobs) *int { return &k.bPackRows }, "TESSERA_B_PACK_ROWS", 48, 1, 1<<30,
		"rows of A from which a row-major B is packed: with fewer, reading it in place costs less than the copy"),
	knob.Int(func(k *knobs) *int { return &k.bInPlaceBytes }, "TESSERA_B_IN_PLACE_BYTES", 24<<10, 0, 1<<30,
		"bytes of a row-major f32 B of whole panels up to which it is read in place for any number of rows: it stays in L1"),
	knob.Int(func(k *knobs) *int { return &k.packTogether }, "TESSERA_PACK_TOGETHER", 32, 1, 1<<20,
		"panels of B that are packed together: 32 of f32 take a page of each row, which prefetchers and page tables like"),
	knob.Int(func(k *knobs) *int { return &k.conflictRows }, "TESSERA_CONFLICT_ROWS", 0, 0, 64,
		"rows of a strip at most when they compete for the sets of L1; 0 is two fewer than L1 has ways, which leaves lines for B and C"),
	knob.Int(func(k *knobs) *int { return &k.pairWays }, "TESSERA_PAIR_WAYS", 0, 0, 64,
		"ways of L1 up to which strips of at most six rows take panels of a packed B in pairs with AVX-512: with few ways most strips are that low, and two panels halve the loads for a multiply-add; 0 is 8 on Zen 4 and none elsewhere"),
	knob.Int(func(k *knobs) *int { return &k.pairRows }, "TESSERA_PAIR_ROWS", 0, 0, 1<<30,
		"rows of A from which all strips have at most six rows and take panels in pairs, of a packed B and, for f32, of a small one in place, with AVX-512: ten loads for 24 multiply-adds instead of 16 for 28; 0 is 29 on processors that load about one vector in a cycle and never elsewhere"),
	knob.Int(func(k *knobs) *int { return &k.streamBytes }, "TESSERA_STREAM_BYTES", 0, 0, maxInt,
		"bytes of a packed B from which a single strip of at most six rows reads as many panels side by side as there are registers for, with AVX-512: each has prefetchers of its own, and together they bring more from memory; 0 is L2 on Ice Lake servers and never elsewhere, where it was not measured"),
	knob.Int(func(k *knobs) *int { return &k.bLocalRows }, "TESSERA_B_LOCAL_ROWS", 512, 0, 1<<30,
		"rows of A up to which a B that must be packed is packed by its user, a chunk at a time in L2: with more, blocks share it"),
	knob.Int(func(k *knobs) *int { return &k.kcInPlace }, "TESSERA_KC_IN_PLACE", 0, 0, 1<<30,
		"rows of a large row-major B that are read side by side in place: about as many streams as the prefetchers follow; 0 is 32, or 12 on Zen 4"),
	knob.Int(func(k *knobs) *int { return &k.lowRows }, "TESSERA_LOW_ROWS", 16, 0, 1<<30,
		"rows of A up to which bf16 and f16 weights are widened in registers: with more, widening a chunk once is cheaper"),
	knob.Int(func(k *knobs) *int { return &k.innerRows }, "TESSERA_INNER_ROWS", 48, 0, 1<<30,
		"rows of A up to which AVX2 without dot products multiplies int8 from the packed bytes: with more, chunks of words and Winograd's inner product are faster"),
	knob.Int(func(k *knobs) *int { return &k.innerDepth }, "TESSERA_INNER_DEPTH", 48, 0, 1<<30,
		"k up to which the same multiplies from the packed bytes: each sum is short, and packing shows"),
	knob.Int(func(k *knobs) *int { return &k.innerSteps }, "TESSERA_INNER_STEPS", 128, 4, 1<<20,
		"steps of four k in a chunk of Winograd's inner product at most: a panel of 16 KiB, so that enough panels for one copy of A fit in L2"),
	knob.Int(func(k *knobs) *int { return &k.tileRows }, "TESSERA_TILE_ROWS", 4, 0, 1<<30,
		"rows of A from which processors with tiles multiply int8 by them: with fewer, reading B takes the time, and vectors read it as fast (counted, not measured)"),
	knob.Int(func(k *knobs) *int { return &k.callBytes }, "TESSERA_CALL_BYTES", 1<<20, 1<<12, 1<<26,
		"bytes of B that one call of a kernel goes through at most, because a call cannot be interrupted: some tens of microseconds"),
	knob.Int(func(k *knobs) *int { return &k.batchJobs }, "TESSERA_BATCH_JOBS", 4, 1, 1<<20,
		"products of a batch per worker from which they run side by side, each on one worker: the last ones then leave little time unused"),
	knob.Int(func(k *knobs) *int { return &k.batchMacs }, "TESSERA_BATCH_MACS", 3_200_000, 1, maxInt,
		"multiply-adds of a product below which a batch of fewer, but of one per worker at least, runs side by side too: larger ones are cut well"),
)

// chunkBytes returns the bytes of a chunk of B in products that go by panels.
func (k *knobs) chunkBytes(in *cpuinfo.Info) int {
	if k.panelBytes > 0 {
		return k.panelBytes
	}
	return min(8*in.L2, 4<<20)
}

// spanA returns the bytes that one chunk of k spans in a column-major A from which it is packed.
func (k *knobs) spanA(in *cpuinfo.Info) int {
	if k.aPackSpan > 0 {
		return k.aPackSpan
	}
	return in.L2
}

// rowsInPlace returns kcInPlace, or its default for this processor. On Zen 4 twelve rows are read up to twice as fast as 32, wherever they lie.
func (k *knobs) rowsInPlace(in *cpuinfo.Info) int {
	switch {
	case k.kcInPlace > 0:
		return k.kcInPlace
	case in.Features.Zen4:
		return 12
	}
	return 32
}

// inPairs says whether low strips take panels in pairs, where there are kernels that do. By default that is so on Zen 4, where it was measured: others with
// L1 caches of as many ways load twice as much in a cycle.
func (k *knobs) inPairs(in *cpuinfo.Info) bool {
	if k.pairWays > 0 {
		return in.L1DWays <= k.pairWays
	}
	return in.Features.Zen4 && in.L1DWays <= 8
}

// pairsFrom returns the rows of A from which all strips are low enough for pairs.
func (k *knobs) pairsFrom(in *cpuinfo.Info) int {
	switch {
	case k.pairRows > 0:
		return k.pairRows
	case in.Features.OneWideLoad:
		return 29
	}
	return maxInt
}

// streamFrom returns the bytes of B from which a single low strip reads many panels side by side.
func (k *knobs) streamFrom(in *cpuinfo.Info) int {
	switch {
	case k.streamBytes > 0:
		return k.streamBytes
	case in.Features.OneWideLoad:
		return in.L2
	}
	return maxInt
}

// check returns an error for values that contradict each other.
func (k *knobs) check() error {
	if k.kcMin > k.kcMax {
		return fmt.Errorf("threshold kc-min is %d, more than kc-max, which is %d", k.kcMin, k.kcMax)
	}
	return nil
}

// Knobs are thresholds that a program chose, for the calls whose Options hold them.
type Knobs struct{ v *knobs }

// NewKnobs returns thresholds by name (docs/knobs.md lists the names; those of this package count). Others keep the value that
// environment, profile or default give them.
func NewKnobs(values map[string]int) (*Knobs, error) {
	v, err := knobTable.With(nil, values)
	if err != nil {
		return nil, fmt.Errorf("gemm: %w", err)
	}
	return &Knobs{v}, nil
}

// knobs returns the thresholds of a call.
func (o *Options) knobs() (*knobs, error) {
	if o != nil && o.Knobs != nil && o.Knobs.v != nil {
		return o.Knobs.v, nil
	}
	v, err := knobTable.Get()
	if err != nil {
		return nil, fmt.Errorf("gemm: %w", err)
	}
	return v, nil
}
