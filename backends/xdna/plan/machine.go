package plan

import (
	"fmt"
	"sync"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Machine is what the model knows of one NPU.
//
// The rate of a stream is one decision for planner, emulator and C drain, taken from [device]: 4 bytes a cycle on XDNA, 8 inside the array of XDNA2,
// 4 at its shim. The 8 is not documented; table 1 of the paper needs it, since at 4 bytes every XDNA2 row would break the
// paper's own equation 4 (64x232x64: 3,712 cycles to bring A against 2,109 of arithmetic).
type Machine struct {
	Name       string
	Rows, Cols int     // cores that a design uses; columns without a shim DMA are left out
	Clock      float64 // Hz, turbo
	StreamRate float64 // bytes a cycle of a stream between MemTiles and cores
	ShimRate   float64 // bytes a cycle of a shim DMA channel
	L1, L2     int     // bytes for buffers in a core (64 KB less 1 KB of stack) and in a MemTile
	ShareL2    bool    // A sits in every second column, so that neighbours' MemTiles may be used
	StoreBytes float64 // bytes a core stores in one cycle, for zeroing C

	DRAM     float64 // bytes/s that reads reach with long runs; fitted
	RunHalf  float64 // bytes: runs shorter than this are paid by their number; fitted
	Line     int     // bytes that DRAM delivers together; a run that ends inside a line pays for a share of the rest
	RowShare float64 // that share for a row-major B; fitted
	Dispatch float64 // seconds from the host's call to completion of an empty product
	Write    float64 // seconds of a register write by the controller
	PerWord  float64 // seconds more for each word of a block write
	Push     float64 // seconds between two queue pushes
	Cold     float64 // seconds of the first push after the controller has had to wait
	Reconfig float64 // seconds to load another configuration

	Kernels map[Types]Kernel
}

// Kernel is the time model of a core's kernel: a chunk costs m k n / MACs + Extra m n + (bands-1) Call cycles.
// Extra stands for what a chunk spends on loading, storing and narrowing C, and for stalls on banks that DMAs are using;
// it is fitted on whole-array runs, where the DMAs do run.
type Kernel struct {
	R, S, T int     // block of the multiply unit
	MACs    float64 // per cycle in the inner loop
	Extra   float64 // cycles per element of C and chunk
	Call    float64 // cycles of one more call, for each band beyond the first
}

// stackBytes is what a core keeps back from its 64 KB of data memory (equation 5 of the paper).
const stackBytes = 1 << 10

// callCycles is the cost of entering the kernel for one more band of A. Nothing is published; 50 cycles is our assumption, the lower
// end of the 50 to 100 that loops of this kind take to fill and drain. Designs with bands depend on it little: 3 calls of 50 in 5,000.
const callCycles = 50

// dispatchTime is the floor of one dispatch through the driver: about 107 us, measured on Strix by the authors of amd/IRON
// (iron/operators/flm/gemm/README.md). We use it for both devices; on XDNA it is under 1 % of any published row.
const dispatchTime = 107e-6

// What does not follow from the device tables. Parameters marked "fitted" there are checked against [Refit] by a test.
var calibration = map[string]Machine{
	"xdna": {
		DRAM: 16.930e9, RunHalf: 284.6, Line: 64, RowShare: 0.9425,
		// Phoenix: 100 cycles a register write, 203 a block write of 8 words, pushes 520 apart or 3,050 cold (measured by the xdna-emu project).
		Dispatch: dispatchTime, Write: 100e-9, PerWord: 13e-9, Push: 520e-9, Cold: 3050e-9,
		Kernels: map[Types]Kernel{},
	},
	"xdna2": {
		DRAM: 54.666e9, RunHalf: 284.6, Line: 128, RowShare: 0.6081,
		// Strix: 66 ns a register write (amd/IRON); the rest is XDNA's in the same proportion.
		Dispatch: dispatchTime, Write: 66e-9, PerWord: 8.6e-9, Push: 343e-9, Cold: 2013e-9,
	},
}

// kernels holds MACs where the device's peak is not reached by design, and the fitted Extra.
var kernels = map[string]map[string]struct{ macs, extra float64 }{
	"xdna": {
		"int8-int8":  {0, 0.10035},
		"int8-int16": {0, 0.15576},
		"int8-int32": {0, 0.26685},
		"bf16-bf16":  {0, 0.12716},
		"bf16-f32":   {0, 0.26685}, // not published: as much C as int8-int32
	},
	"xdna2": {
		"int8-int8":  {0, 0.07217},
		"int8-int16": {0, 0.11711},
		"int8-int32": {0, 0.15827},
		// Both operands are converted to bfp16 in the core, which takes two thirds of its time.
		"bf16-bf16": {170.06, 0.09052},
		// Only A is converted. Extra is bf16's (the same C); MACs is what the published 27.33 TFLOPS of asymmetric buffering on Krackan ask for at
		// least (128x64x128, four bands, 4096x4096x2048; arXiv 2511.16041), rounded down.
		"bf16-bfp16": {400, 0.09052},
		// Nothing is converted.
		"bfp16-bfp16": {0, 0.09052},
		// f32 output is not published: as much C as int8-int32.
		"bf16-f32":        {170.06, 0.15827},
		"bf16-bfp16-f32":  {400, 0.15827},
		"bfp16-bfp16-f32": {0, 0.15827},
	},
}

var machines = sync.OnceValue(func() map[string]*Machine {
	ms := make(map[string]*Machine)
	for _, dev := range device.All() {
		m, ok := calibration[dev.Name]
		if !ok {
			continue
		}
		core := dev.Tile(device.Core)
		m.Name, m.Rows, m.Cols, m.Clock = dev.Name, dev.CoreRows, dev.Cols, dev.ClockHz
		m.StreamRate, m.ShimRate = float64(core.StreamBytesPerCycle), float64(dev.Tile(device.Shim).StreamBytesPerCycle)
		m.L1, m.L2, m.ShareL2 = core.MemoryBytes-stackBytes, dev.Tile(device.Mem).MemoryBytes, dev.ShareL2
		m.StoreBytes, m.Reconfig = float64(core.CoreStoreBytesPerCycle), dev.ReconfigSec
		m.Kernels = make(map[Types]Kernel)
		for _, mode := range dev.Modes {
			k, ok := kernels[dev.Name][mode.Types.String()]
			if !ok {
				continue
			}
			if k.macs == 0 {
				k.macs = float64(mode.PeakMACs)
			}
			m.Kernels[mode.Types] = Kernel{R: mode.R, S: mode.S, T: mode.T, MACs: k.macs, Extra: k.extra, Call: callCycles}
		}
		ms[dev.Name] = &m
	}
	return ms
})

// Devices are the names of the machines that can be planned for.
var Devices = []string{"xdna", "xdna2"}

// Lookup returns the machine of that device name or alias. It is shared and must not be changed; see [Machine.Clone].
func Lookup(name string) (*Machine, error) {
	dev, err := device.Lookup(name)
	if err != nil {
		return nil, err
	}
	return machines()[dev.Name], nil
}

// machine returns the machine of a design that has been checked.
func machine(name string) *Machine {
	m, err := Lookup(name)
	if err != nil {
		panic("plan: " + err.Error())
	}
	return m
}

// Clone returns a copy whose parameters may be changed.
func (m *Machine) Clone() *Machine {
	c := *m
	c.Kernels = make(map[Types]Kernel, len(m.Kernels))
	for k, v := range m.Kernels {
		c.Kernels[k] = v
	}
	return &c
}

// kernelFor returns the kernel model of a type triple or says why there is none.
func (m *Machine) kernelFor(t Types) (Kernel, error) {
	k, ok := m.Kernels[t]
	if !ok {
		dev, err := device.Lookup(m.Name)
		if err != nil {
			return Kernel{}, err
		}
		if _, err := dev.Mode(t); err != nil {
			return Kernel{}, err
		}
		return Kernel{}, errNoModel(m.Name, t)
	}
	return k, nil
}

func errNoModel(name string, t Types) error {
	return fmt.Errorf("%s multiplies %s, but the planner has no time model for it", name, t)
}
