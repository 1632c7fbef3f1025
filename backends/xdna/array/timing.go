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

	// DRAM, bytes a cycle of the core clock. A stretch of run contiguous bytes is read at min(ReadCap, ReadPeak*run/(run+RunOverhead)), at least ReadMin.
	// Columns that read neighbouring stretches (row-major B) help each other: the run counts as run*(1+Neighbour*(columns-1)).
	ReadCap, ReadPeak, ReadMin, RunOverhead, Neighbour float64
	WriteCap                                           float64

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

// DefaultTiming returns the defaults for a device.
func DefaultTiming(d *device.Device) *Timing {
	const i8, i16, i32, bf, f32, bfp = kernel.I8, kernel.I16, kernel.I32, kernel.BF16, kernel.F32, kernel.BFP16
	t := &Timing{
		Lock: 1, BDSetup: 4, ChannelStart: 2, NextBD: 2, MemLatency: 5, Hop: 4, FIFOWords: 16,
		ShimMM2S: 290, ShimS2MM: 171, Token: 10,
		ShimChunk: 512, Chunk: 1 << 16,
		Write: 100, BlockWrite: 100, BlockWord: 13, MaskWrite: 210, Poll: 100, Patch: 203, Sync: 100, Other: 50,
		QueuePush: 0,
		ReadMin:   10e9 / d.ClockHz, RunOverhead: 460, Neighbour: 1,
		Zero: 16, Call: 0, Band: 50, CoreStart: 20,
		Dispatch: 107e-6,
	}
	if d == device.XDNA {
		t.ReadPeak, t.ReadCap, t.WriteCap = 32e9/d.ClockHz, 16.5e9/d.ClockHz, 16e9/d.ClockHz
		t.Kernels = map[Kernel]KernelTime{
			{i8, i8, i8, kernel.Int}:  {256, 0.091},
			{i8, i8, i16, kernel.Int}: {256, 0.148},
			{i8, i8, i32, kernel.Int}: {256, 0.29},
			{bf, bf, bf, kernel.FMA}:  {128, 0.118},
			{bf, bf, f32, kernel.FMA}: {128, 0.29},
		}
		return t
	}
	t.ReadPeak, t.ReadCap, t.WriteCap = 113e9/d.ClockHz, 51e9/d.ClockHz, 57.6e9/d.ClockHz
	t.Kernels = map[Kernel]KernelTime{
		{i8, i8, i8, kernel.Int}:    {512, 0.068},
		{i8, i8, i16, kernel.Int}:   {512, 0.099},
		{i8, i8, i32, kernel.Int}:   {512, 0.155},
		{bf, bf, bf, kernel.BFP}:    {175, 0.087},
		{bf, bf, f32, kernel.BFP}:   {175, 0.155},
		{bf, bfp, bf, kernel.BFP}:   {270, 0.087},
		{bf, bfp, f32, kernel.BFP}:  {270, 0.155},
		{bfp, bfp, bf, kernel.BFP}:  {512, 0.087},
		{bfp, bfp, f32, kernel.BFP}: {512, 0.155},
	}
	return t
}

// readRate is the DRAM rate in bytes a cycle for contiguous stretches of run bytes, with columns neighbouring channels reading side by side.
func (t *Timing) readRate(run, columns int) float64 {
	r := float64(run) * (1 + t.Neighbour*float64(columns-1))
	return math.Min(t.ReadCap, math.Max(t.ReadMin, t.ReadPeak*r/(r+t.RunOverhead)))
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
