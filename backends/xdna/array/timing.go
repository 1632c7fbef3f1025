package array

import (
	"math"

	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Tick is the unit of simulated time: a thousandth of a core clock cycle.
const Tick = 1000

// Timing holds every cost of the emulator's clock, in core clock cycles unless said. The defaults are those measured on Phoenix (xdna-emu's hardware notes, section
// 8.3 of the project's facts) and the kernel model fitted on arXiv 2512.13282 (section 8.1 there).
type Timing struct {
	// DMA and locks.
	Lock         float64 // acquire or release
	BDSetup      float64 // descriptor fetch and address generator
	ChannelStart float64 // queue entry to descriptor fetch on an idle channel
	NextBD       float64 // from one descriptor to the next
	MemLatency   float64 // last word in a memory to lock release
	Hop          float64 // per switch
	FIFOWords    int     // words between a source and each of its receivers
	ShimMM2S     float64 // start of a shim task that reads DRAM
	ShimS2MM     float64 // start of a shim task that writes DRAM
	Token        float64 // end of a task to the controller

	// Transfer granularity: most words handed over at once. Smaller values share DRAM more finely and cost events.
	ShimChunk int
	Chunk     int

	// Controller, per operation.
	Write, BlockWrite, BlockWord, MaskWrite, Poll, Patch, Sync, Other float64
	QueuePush                                                         float64 // on top of Write, for writes to a task queue
	QueueCold                                                         float64 // instead of QueuePush, for the first one after a wait for a token

	// DRAM, bytes a cycle of the core clock. Stretches of run contiguous bytes are read at ReadCap / (1 + (RunHalf/run)^4)^(1/4): short ones are paid by
	// their number, long ones by their bytes. Channels that read neighbouring stretches of the same rows (a row-major B) pay no number, but a stretch
	// that ends inside a line of DRAM pays for RowShare of the rest of the line.
	ReadCap, RunHalf, RowShare float64
	Line                       int
	WriteCap                   float64

	// Cores. A chunk takes m*k*n/MACs + Element*m*n + Call cycles, plus Band for each band after the first.
	Kernels   map[Kernel]KernelTime
	Zero      float64 // bytes a cycle of the kernel that zeroes C
	Call      float64
	Band      float64
	CoreStart float64 // barrier to first acquire

	Dispatch float64 // seconds per dispatch outside the array: driver, firmware, completion
}

// Kernel names a kernel for its speed.
type Kernel struct {
	A, B, C kernel.Type
	Arith   kernel.Arith
}

// KernelTime is the model of one kernel: cycles per chunk = m k n / MACs + Element m n.
type KernelTime struct{ MACs, Element float64 }

// DefaultTiming returns the defaults for a device. DRAM and kernels are those of the planner's model (package plan, which fits them to published runs and
// tests that both agree); the rest is measured on Phoenix, times of the controller scaled to what is known of Strix.
func DefaultTiming(d *device.Device) *Timing {
	const i8, i16, i32, bf, f32, bfp = kernel.I8, kernel.I16, kernel.I32, kernel.BF16, kernel.F32, kernel.BFP16
	t := &Timing{
		Lock: 1, BDSetup: 4, ChannelStart: 2, NextBD: 2, MemLatency: 5, Hop: 4, FIFOWords: 16,
		ShimMM2S: 290, ShimS2MM: 171, Token: 10,
		ShimChunk: 512, Chunk: 1 << 16,
		Write: 100, BlockWrite: 100, BlockWord: 13, MaskWrite: 210, Poll: 100, Patch: 203, Sync: 100, Other: 50,
		QueuePush: 420, QueueCold: 2950,
		RunHalf: 284.6,
		Zero:    float64(d.Tile(device.Core).CoreStoreBytesPerCycle), Call: 0, Band: 50, CoreStart: 20,
		Dispatch: 107e-6,
	}
	if d == device.XDNA {
		t.ReadCap, t.WriteCap, t.Line, t.RowShare = 16.930e9/d.ClockHz, 16.930e9/d.ClockHz, 64, 0.9425
		t.Kernels = map[Kernel]KernelTime{
			{i8, i8, i8, kernel.Int}:  {256, 0.10035},
			{i8, i8, i16, kernel.Int}: {256, 0.15576},
			{i8, i8, i32, kernel.Int}: {256, 0.26685},
			{bf, bf, bf, kernel.FMA}:  {128, 0.12716},
			{bf, bf, f32, kernel.FMA}: {128, 0.26685}, // not published: as much C as int32
		}
		return t
	}
	// A register write takes 66 ns on Strix (amd/IRON), 100 on Phoenix: the controller's times are scaled by that.
	for _, v := range []*float64{&t.Write, &t.BlockWrite, &t.BlockWord, &t.MaskWrite, &t.Poll, &t.Patch, &t.Sync, &t.Other, &t.QueuePush, &t.QueueCold} {
		*v *= 0.66e-9 * d.ClockHz
	}
	t.ReadCap, t.WriteCap, t.Line, t.RowShare = 54.666e9/d.ClockHz, 54.666e9/d.ClockHz, 128, 0.6081
	t.Kernels = map[Kernel]KernelTime{
		{i8, i8, i8, kernel.Int}:    {512, 0.07217},
		{i8, i8, i16, kernel.Int}:   {512, 0.11711},
		{i8, i8, i32, kernel.Int}:   {512, 0.15827},
		{bf, bf, bf, kernel.BFP}:    {170.06, 0.09052},
		{bf, bf, f32, kernel.BFP}:   {170.06, 0.15827},
		{bf, bfp, bf, kernel.BFP}:   {400, 0.09052},
		{bf, bfp, f32, kernel.BFP}:  {400, 0.15827},
		{bfp, bfp, bf, kernel.BFP}:  {512, 0.09052},
		{bfp, bfp, f32, kernel.BFP}: {512, 0.15827},
	}
	return t
}

// readRate is the DRAM rate in bytes a cycle for contiguous stretches of run bytes, of which several channels read neighbouring ones.
func (t *Timing) readRate(run, channels int) float64 {
	if channels == 1 {
		x := t.RunHalf / float64(run)
		x *= x
		return t.ReadCap / math.Sqrt(math.Sqrt(1+x*x))
	}
	align := min(run&-run, t.Line) // the largest power of two that divides the run; a line is one
	return t.ReadCap / (1 + t.RowShare*float64(t.Line-align)/float64(run))
}

// ticks converts cycles.
func ticks(cycles float64) sim.Time { return sim.Time(math.Round(cycles * Tick)) }

// bandCycles is the time of one band of a chunk.
func (t *Timing) bandCycles(r *kernel.Record, k KernelTime, band int) float64 {
	rows := float64(r.M / r.Bands)
	c := rows*float64(r.K)*float64(r.N)/k.MACs + k.Element*rows*float64(r.N)
	if band == 0 {
		return c + t.Call
	}
	return c + t.Band
}
