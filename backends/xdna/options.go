package xdna

import (
	"fmt"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Mode is how products are computed.
type Mode uint8

// The modes. Fast gives the bits that Emulate gives.
const (
	Fast Mode = iota
	Emulate
)

// String names the mode.
func (m Mode) String() string {
	if m == Emulate {
		return "emulate"
	}
	return "fast"
}

// Precision is the array's type for products of float32 activations and weights.
type Precision uint8

// The precisions. BF16 rounds both operands to bfloat16. Int8 quantizes weights per output channel and activations per row, symmetrically, and accumulates in int32. BFP16
// (XDNA2) keeps activations in bfloat16 and weights in bfp16.
const (
	BF16 Precision = iota
	Int8
	BFP16
)

var precisionNames = []string{"bf16", "int8", "bfp16"}

// String names the precision.
func (p Precision) String() string { return precisionNames[p] }

// Options choose how a backend works. The zero value is the default.
type Options struct {
	Mode      Mode
	Precision Precision
	F32Out    bool // accumulators of float products stay float32 in the core, instead of bfloat16 after each chunk
	Rounding  kernel.Rounding
	Overflow  kernel.Overflow
	RowMajorB bool // keep weights row-major in memory; the default is column-major, in which DRAM is read in longer runs
	Schedule  design.Schedule
	Padding   design.Padding
	Threads   int                             // host workers; 0 = GOMAXPROCS
	CPURate   float64                         // operations a second that the cost model assumes of the CPU; 0 = DefaultCPURate
	Rows      int                             // products of fewer rows are left to the CPU; 0 = as the cost model says
	Designs   map[device.Types]*design.Design // overrides of DefaultDesign

	node, xclbin, manifest string // a chip instead of the emulator
}

// DefaultCPURate is what the cost model takes one core of the processors around these NPUs to reach in float32: an 8-wide FMA pair at 4 GHz gives
// 128 GFLOP/s at most, and the small products at which the decision falls reach less than half of it.
const DefaultCPURate = 50e9

func parse(dev *device.Device, o *backends.Options) (Options, error) {
	var opt Options
	if o.String("mode", "fast", "fast", "emulate") == "emulate" {
		opt.Mode = Emulate
	}
	names := precisionNames[:2]
	if dev == device.XDNA2 {
		names = precisionNames
	}
	switch o.String("precision", "bf16", names...) {
	case "int8":
		opt.Precision = Int8
	case "bfp16":
		opt.Precision = BFP16
	}
	opt.F32Out = o.String("output", "bf16", "bf16", "f32") == "f32"
	if o.String("rounding", "even", "even", "floor") == "floor" {
		opt.Rounding = kernel.Floor
	}
	if o.String("overflow", "wrap", "wrap", "saturate") == "saturate" {
		opt.Overflow = kernel.Saturate
	}
	opt.RowMajorB = o.String("layout", "col", "col", "row") == "row"
	var err error
	if opt.Schedule, err = design.ParseSchedule(o.String("schedule", "overlapped", "overlapped", "pingpong", "serial")); err != nil && o.Err() == nil {
		return opt, err
	}
	if o.String("padding", "stage", "stage", "memtile") == "memtile" {
		opt.Padding = design.PadMemTile
	}
	opt.Threads = o.Int("threads", 0, 0, 1024)
	opt.CPURate = 1e9 * float64(o.Int("cpu_gops", int(DefaultCPURate/1e9), 1, 1e6))
	opt.Rows = o.Int("rows", 0, 0, 1<<30)
	opt.node, opt.xclbin, opt.manifest = o.String("device", ""), o.String("xclbin", ""), o.String("manifest", "")
	if opt.node == "" && (opt.xclbin != "" || opt.manifest != "") {
		o.Conflict("xclbin, manifest: they configure a chip, and no device is given")
	}
	if opt.node != "" && opt.Mode == Emulate {
		o.Conflict("device=%s, mode=emulate: the chip computes, or the emulator", opt.node)
	}
	if opt.node != "" && o.String("rounding", "") != "" {
		o.Conflict("device=%s, rounding: the chip rounds as the manifest of its configuration says", opt.node)
	}
	if opt.Precision == Int8 && opt.F32Out {
		o.Conflict("precision=int8, output=f32: int8 products are summed in int32 whatever the output of float products")
	}
	if opt.Precision == BFP16 && opt.RowMajorB {
		o.Conflict("precision=bfp16, layout=row: bfp16 weights are tiled on the host, in no other order")
	}
	return opt, o.Err()
}

// describeOptions lists the options for people.
func describeOptions() []string {
	return []string{
		"mode=fast: fast or emulate; both give the same bits",
		"precision=bf16: array type for float32 products, bf16 or int8, on xdna2 also bfp16",
		"output=bf16: what a core keeps between chunks of K in float products, bf16 or f32",
		"rounding=even: even or floor",
		"overflow=wrap: wrap or saturate, for int8 and int16 results",
		"layout=col: order of weights in memory, col or row",
		"schedule=overlapped: of the shim's descriptors, overlapped, pingpong or serial",
		"padding=stage: where ragged edges get zeros, stage (host) or memtile",
		"threads=0: host workers; 0 means GOMAXPROCS",
		fmt.Sprintf("cpu_gops=%d: rate of the CPU for the cost model", int(DefaultCPURate/1e9)),
		"device=, xclbin=, manifest=: run on the chip behind this node of the amdxdna driver, configured by this xclbin, which the manifest describes",
		"rows=0: products of fewer rows stay on the CPU; 0 leaves it to the cost model",
	}
}
