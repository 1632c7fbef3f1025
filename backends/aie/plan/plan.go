// Package plan decides how a product is laid over a Versal device: grid of tiles, blocks, what lies in which memory and in what
// order it moves, and what that costs. It has the seed's design and a better one, and says for both which limit binds.
//
// The problem is the seed's: C[M,N] += A[M,K] B[K,N] with A the weights, prepacked off-line, and B the activations. The product of
// the house (activations times weights) is its transpose, C^T = B^T A^T, so M here counts output channels and N rows of activations.
package plan

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
)

// Problem is a product in the seed's orientation.
type Problem struct {
	M, N, K int
	Type    core.Type
	Out     core.Out
	Narrow  core.Narrow
}

// MACs counts its multiply-adds.
func (p *Problem) MACs() float64 { return float64(p.M) * float64(p.N) * float64(p.K) }

// Check returns an error unless the problem can be posed.
func (p *Problem) Check() error {
	if p.M < 1 || p.N < 1 || p.K < 1 {
		return fmt.Errorf("product of M=%d N=%d K=%d: sizes of at least 1 are right", p.M, p.N, p.K)
	}
	const most = 1 << 24
	if p.M > most || p.N > most || p.K > most {
		return fmt.Errorf("product of M=%d N=%d K=%d: sizes up to %d are right", p.M, p.N, p.K, most)
	}
	if p.Narrow.Shift > 47 {
		return fmt.Errorf("shift %d: a lane has 48 bits, 0 to 47 is right", p.Narrow.Shift)
	}
	return p.Type.CheckOut(p.Out)
}

// Design is a way to lay a product over the device.
type Design uint8

// The designs.
const (
	Best  Design = iota // blocks of C stay on a grid of tiles for the whole of K
	Paper               // the seed: five loops, one tile (up to 16), C read and written every k_c
)

// ParseDesign returns the design of a name.
func ParseDesign(s string) (Design, error) {
	switch s {
	case "best":
		return Best, nil
	case "paper":
		return Paper, nil
	}
	return 0, fmt.Errorf("unknown design %q: one of best, paper is right", s)
}

func (d Design) String() string {
	if d == Paper {
		return "paper"
	}
	return "best"
}

// Options narrow the search.
type Options struct {
	Design  Design
	Tiles   int     // most cores to use; 0 means all (best) or 1 (paper)
	ClockHz float64 // 0 means the device's
	// Blocking of the paper's design; 0 means as the seed sets it.
	MC, KC, NC int
	// Block of a tile in the best design, grid of tiles; 0 means as the search finds.
	MB, NB, KB, Rows, Chain, Groups int
	// StreamWeights keeps A out of the FPGA RAM, to see what that costs.
	StreamWeights bool
}

// Feed is how an operand reaches the streams of the array in the best design.
type Feed uint8

// The feeds.
const (
	Resident   Feed = iota // in FPGA RAM since before the run
	Stationary             // staged from DDR once for each outer iteration, used by all inner ones
	Hold                   // staged from DDR during the first outer iteration, kept for all others
	Stream                 // staged from DDR every time it is used
)

func (f Feed) String() string { return [...]string{"resident", "stationary", "hold", "stream"}[f] }

// Buffers is where things lie in a core's data memory.
type Buffers struct {
	A, B    [2]int // ping and pong
	Partial int    // -1 where K is a single step
	Out     [2]int
	Outs    int // 1 or 2 result buffers
	Stack   int
	Bytes   int // in use, stack included
	Banks   int
}

const stackBytes = 1024

// Plan is a product laid over a device.
type Plan struct {
	Problem
	Device device.Device
	Design Design
	Kernel core.Kernel
	Tiles  int

	// Paper: strides of the loops, and A_c blocks that do not fit the FPGA RAM.
	MC, KC, NC     int
	ResidentBlocks int // A_c blocks in FPGA RAM, of Blocks
	Blocks         int

	// Best. Rows of tiles share M, Groups of Chain columns share N, the columns of a group share K.
	Rows, Groups, Chain  int
	MB, KB, NB           int
	Steps, PassM, PassN  int  // steps of K in a pass; passes over C
	OuterN               bool // the outer loop goes over N (B stationary), else over M
	FeedA, FeedB         Feed
	SlotsA, SlotsB       int // slabs of FPGA RAM for staging
	Local                Buffers
	CLanes               int // streams out of each column
	Start                int // first column of the grid
	cLoad, cStreams      int // tiles that share a stream of results at most; streams of results
	FPGABytes            int64
	Reasons              []string
	Searched, Considered int
}

// New plans a product.
func New(dev *device.Device, prob Problem, opt Options) (*Plan, error) {
	if err := prob.Check(); err != nil {
		return nil, err
	}
	d := *dev
	if opt.ClockHz != 0 {
		if !(opt.ClockHz >= 1e8 && opt.ClockHz <= 2e9) {
			return nil, fmt.Errorf("clock of %.3g Hz: 0.1 to 2 GHz is right", opt.ClockHz)
		}
		d.ClockHz = opt.ClockHz
	}
	if opt.Tiles < 0 || opt.Tiles > d.Tiles() {
		return nil, fmt.Errorf("tiles=%d: %s has %d", opt.Tiles, d.Name, d.Tiles())
	}
	for name, v := range map[string]int{"mc": opt.MC, "nc": opt.NC, "kc": opt.KC, "kb": opt.KB, "mb": opt.MB, "nb": opt.NB, "rows": opt.Rows, "chain": opt.Chain, "groups": opt.Groups} {
		if v < 0 {
			return nil, fmt.Errorf("%s=%d: 0 (search) or a positive number is right", name, v)
		}
	}
	if opt.Design == Paper {
		return newPaper(d, prob, opt)
	}
	return newBest(d, prob, opt)
}

func ceil(a, b int) int    { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceil(a, b) * b }

// newPaper sets the strides as section 6 of the seed does.
func newPaper(d device.Device, prob Problem, opt Options) (*Plan, error) {
	k := core.KernelFor(prob.Type)
	p := &Plan{Problem: prob, Device: d, Design: Paper, Kernel: k, Tiles: max(opt.Tiles, 1)}
	e := prob.Type.Bytes()
	if p.Tiles > len(d.NoCCols) {
		return nil, fmt.Errorf("design=paper with %d tiles: each needs two GMIO channels in and one out, and %s has DMA in %d columns", p.Tiles, d.Name, len(d.NoCCols))
	}
	if prob.Type == core.FP32 && prob.K > 0 && prob.Out != core.F32 {
		return nil, prob.Type.CheckOut(prob.Out)
	}

	local := (d.Core.MemoryBytes - stackBytes) / (k.NR * e) / k.KS * k.KS
	p.KC = 290
	if opt.KC != 0 {
		p.KC = opt.KC
	}
	if p.KC < 1 || p.KC > local {
		return nil, fmt.Errorf("k_c=%d: B_r needs %d bytes of local memory, %d are there (k_c up to %d)", p.KC, p.KC*k.NR*e, d.Core.MemoryBytes-stackBytes, local)
	}
	p.KC = min(roundUp(p.KC, k.KS), roundUp(prob.K, k.KS))
	p.why("k_c = %d: the seed's choice of 290 (it gives the capacity of the local memory as the reason; B_r of %d bytes fills %.0f %% of it), bounded by K",
		p.KC, p.KC*k.NR*e, 100*float64(p.KC*k.NR*e)/float64(d.Core.MemoryBytes))

	fits := int(d.FPGABytes()/int64(p.KC*e)) / k.MR * k.MR
	p.MC = fits
	if opt.MC != 0 {
		if p.MC = roundUp(opt.MC, k.MR); p.MC < k.MR || p.MC > fits {
			return nil, fmt.Errorf("m_c=%d: A_c needs %d bytes of FPGA RAM, %d are there (m_c up to %d)", opt.MC, int64(opt.MC)*int64(p.KC*e), d.FPGABytes(), fits)
		}
	}
	p.MC = min(p.MC, roundUp(prob.M, k.MR))
	p.why("m_c = %d: A_c of m_c x k_c in %d bytes of FPGA RAM, bounded by M; large, because B_r is copied once for m_c/m_r = %d kernels", p.MC, d.FPGABytes(), p.MC/k.MR)

	fitsN := int(min((d.DDRBytes/2)/int64(p.KC*e), 1<<24)) / k.NR * k.NR
	p.NC = fitsN
	if opt.NC != 0 {
		if p.NC = roundUp(opt.NC, k.NR); p.NC < k.NR || p.NC > fitsN {
			return nil, fmt.Errorf("n_c=%d: B_c needs %d bytes of DDR, %d are set aside (n_c up to %d)", opt.NC, int64(opt.NC)*int64(p.KC*e), d.DDRBytes/2, fitsN)
		}
	}
	p.NC = min(p.NC, roundUp(prob.N, k.NR))
	p.why("n_c = %d: B_c of k_c x n_c in DDR, bounded by N", p.NC)

	need := p.BytesB() + p.BytesC() + p.BytesA()
	if need > d.DDRBytes {
		return nil, fmt.Errorf("product needs %d bytes of DDR for A, B_c and C, %s has %d", need, d.Name, d.DDRBytes)
	}

	// A is laid out block by block in the order of use; the first ones, as many as fit, stay in FPGA RAM, the others stream from DDR.
	for pc := 0; pc < prob.K; pc += p.KC {
		for ic := 0; ic < prob.M; ic += p.MC {
			bytes := int64(p.mcAt(ic)) * int64(p.kcAt(pc)*e)
			if !opt.StreamWeights && p.ResidentBlocks == p.Blocks && p.FPGABytes+bytes <= d.FPGABytes() {
				p.FPGABytes += bytes
				p.ResidentBlocks++
			}
			p.Blocks++
		}
	}
	if p.ResidentBlocks < p.Blocks {
		p.why("%d of %d A_c blocks do not fit the %d bytes of FPGA RAM and are streamed from DDR", p.Blocks-p.ResidentBlocks, p.Blocks, d.FPGABytes())
	} else {
		p.why("A is prepacked whole into FPGA RAM (%d of %d bytes); no copy of it is read during a run", p.FPGABytes, d.FPGABytes())
	}
	p.Local = Buffers{B: [2]int{0, -1}, Partial: -1, Out: [2]int{-1, -1}, Stack: d.Core.MemoryBytes - stackBytes, Bytes: p.KC*k.NR*e + stackBytes}
	return p, nil
}

func (p *Plan) why(format string, args ...any) {
	p.Reasons = append(p.Reasons, fmt.Sprintf(format, args...))
}

// mcAt and kcAt are the padded sizes of the blocks that start at ic and pc.
func (p *Plan) mcAt(ic int) int { return roundUp(min(p.MC, p.M-ic), p.Kernel.MR) }
func (p *Plan) kcAt(pc int) int { return roundUp(min(p.KC, p.K-pc), p.Kernel.KS) }
func (p *Plan) ncAt(jc int) int { return roundUp(min(p.NC, p.N-jc), p.Kernel.NR) }

// BytesA, BytesB and BytesC are the sizes of the packed operands, padding included.
func (p *Plan) BytesA() int64 {
	e := int64(p.Type.Bytes())
	if p.Design == Paper {
		k := int64(0)
		for pc := 0; pc < p.K; pc += p.KC {
			k += int64(p.kcAt(pc))
		}
		return int64(roundUp(p.M, p.Kernel.MR)) * k * e
	}
	return int64(p.PassM) * int64(p.Steps) * p.SlabA()
}

// BytesB is the packed size of B: in the paper's design that of the largest B_c.
func (p *Plan) BytesB() int64 {
	if p.Design == Paper {
		return int64(p.KC) * int64(p.NC) * int64(p.Type.Bytes())
	}
	return int64(p.PassN) * int64(p.Steps) * p.SlabB()
}

// BytesC is the size of C where the array writes it: whole micro-tiles in the paper's design, the matrix itself in the best one.
func (p *Plan) BytesC() int64 {
	if p.Design == Paper {
		return int64(roundUp(p.M, p.Kernel.MR)) * int64(roundUp(p.N, p.Kernel.NR)) * int64(p.Out.Bytes())
	}
	return int64(p.M) * int64(p.N) * int64(p.Out.Bytes())
}

// SlabA is the bytes of A that the whole grid takes in one step: a block for each row and each column of a chain.
func (p *Plan) SlabA() int64 { return int64(p.Rows*p.Chain) * p.BlockA() }

// SlabB is the same for B: a block for each column.
func (p *Plan) SlabB() int64 { return int64(p.Groups*p.Chain) * p.BlockB() }

// BlockA, BlockB and BlockC are the bytes of the blocks of one tile.
func (p *Plan) BlockA() int64 { return int64(p.MB*p.KB) * int64(p.Type.Bytes()) }

// BlockB is the bytes of a block of B.
func (p *Plan) BlockB() int64 { return int64(p.KB*p.NB) * int64(p.Type.Bytes()) }

// BlockC is the bytes of a block of results.
func (p *Plan) BlockC() int64 { return int64(p.MB*p.NB) * int64(p.Out.Bytes()) }

// Outer and Inner are the trip counts of the two loops over passes.
func (p *Plan) Outer() int {
	if p.OuterN {
		return p.PassN
	}
	return p.PassM
}

// Inner is the trip count of the inner loop.
func (p *Plan) Inner() int {
	if p.OuterN {
		return p.PassM
	}
	return p.PassN
}

// Passes is the number of passes.
func (p *Plan) Passes() int { return p.PassM * p.PassN }

// PassAt returns the pass coordinates of pass number t.
func (p *Plan) PassAt(t int) (passM, passN int) {
	o, i := t/p.Inner(), t%p.Inner()
	if p.OuterN {
		return i, o
	}
	return o, i
}

// Padded is the size that the array computes.
func (p *Plan) Padded() (m, n, k int) {
	if p.Design == Paper {
		k := 0
		for pc := 0; pc < p.K; pc += p.KC {
			k += p.kcAt(pc)
		}
		return roundUp(p.M, p.Kernel.MR), roundUp(p.N, p.Kernel.NR), k
	}
	return p.PassM * p.Rows * p.MB, p.PassN * p.Groups * p.NB, p.Steps * p.Chain * p.KB
}

// Useful is the share of the computed multiply-adds that belong to the product.
func (p *Plan) Useful() float64 {
	m, n, k := p.Padded()
	return p.MACs() / (float64(m) * float64(n) * float64(k))
}

// CoreAt returns the tile of grid row r (from 0), group z and column q of the chain.
func (p *Plan) CoreAt(r, z, q int) (col, row int) { return p.Start + z*p.Chain + q, r + 1 }

// Streams is the number of PLIO streams into and out of the array.
func (p *Plan) Streams() (in, out int) { return (p.Rows + p.Groups) * p.Chain, p.cStreams }

// ChainOrder returns the column of the chain that stands at a position of the cascade in a row: it runs east in odd rows and west in even ones.
func (p *Plan) ChainOrder(row, position int) int {
	if p.Device.CascadeEast(row) {
		return position
	}
	return p.Chain - 1 - position
}
