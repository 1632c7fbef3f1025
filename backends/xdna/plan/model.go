package plan

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Measure says how long one product takes on a design, in seconds. The analytic model is one, the emulator another, a chip
// would be a third: the paper's search runs on any of them.
type Measure func(Design, Size) (float64, error)

// Prediction is the analytic model's account of one product.
type Prediction struct {
	Seconds float64 // from the host's call to completion
	TOPS    float64 // useful operations
	Padded  Size
	Useful  float64 // share of the padded work that was asked for, 0 to 1
	Bound   string  // what the steady state waits for: compute, A traffic, B traffic, C traffic, controller

	// Parts of the steady state, each the time that it would take alone.
	Compute, ReadA, ReadB, WriteC, Control float64
	Fill, Tail                             float64 // first block in, last block out
	// Bytes moved between DRAM and the array (equations 6 to 8 on the padded size).
	BytesA, BytesB, BytesC float64
	ChunkCycles            float64 // of one k chunk in a core
	DrainCycles            float64 // of a single C buffer, not overlapped; 0 if C is double-buffered
}

// Native is the size that a design runs without padding: (m_ct rows) x k_mt x (n_ct cols), rows and columns swapped if transposed.
func (d Design) Native() Size {
	m := machine(d.Device)
	k := d.KMT
	if d.Transposed {
		return Size{M: d.Tile.M * m.Cols, N: d.Tile.N * m.Rows, K: k}
	}
	return Size{M: d.Tile.M * m.Rows, N: d.Tile.N * m.Cols, K: k}
}

// Pad rounds a size up to whole native sizes.
func (d Design) Pad(s Size) Size {
	n := d.Native()
	return Size{M: roundUp(s.M, n.M), N: roundUp(s.N, n.N), K: roundUp(s.K, n.K)}
}

// Near is the multiple of the native size nearest to side in each dimension: the paper's "about 4K".
func (d Design) Near(side int) Size {
	n := d.Native()
	near := func(u int) int { return max(1, int(math.Round(float64(side)/float64(u)))) * u }
	return Size{M: near(n.M), N: near(n.N), K: near(n.K)}
}

func roundUp(v, unit int) int { return (v + unit - 1) / unit * unit }

// L1Bytes is the memory of one core that a tile needs (equation 5, with one C buffer unless double): A and B twice, A in bands.
func (d Design) L1Bytes() int {
	t, c := d.Tile, 1
	if d.DoubleC {
		c = 2
	}
	return (2*t.M/d.bands()*t.K*eighths(d.Types.A) + 2*t.K*t.N*eighths(d.Types.B) + c*t.M*t.N*eighths(d.Types.C)) / 8
}

// L2Bytes is the memory of all MemTiles together that the design fills, as the paper counts it: two blocks of A for each broadcast A,
// two of B, one C of all the tiles that are joined in a column. A resident B is counted for problems of depth k.
func (d Design) L2Bytes(k int) int {
	m := machine(d.Device)
	na, nb := m.Rows, m.Cols
	if d.Transposed {
		na, nb = nb, na
	}
	t := d.Tile
	a := na * 2 * t.M * d.KMT * eighths(d.Types.A)
	var b int
	switch {
	case d.ResidentB:
		b = nb * roundUp(k, d.KMT) * t.N * eighths(d.Types.B)
	case d.RowMajorB:
		b = nb * 2 * t.K * t.N * eighths(d.Types.B)
	default:
		b = nb * 2 * d.KMT * t.N * eighths(d.Types.B)
	}
	return (a + b + m.Rows*m.Cols*t.M*t.N*eighths(d.Types.C)) / 8
}

// memTileBytes is the need of the fullest MemTile, neighbours' memory counted where A sits in every second column.
func (d Design) memTileBytes(k int) int {
	m := machine(d.Device)
	t := d.Tile
	a := 2 * t.M * d.KMT * eighths(d.Types.A)
	b := 2 * d.KMT * t.N * eighths(d.Types.B)
	if d.RowMajorB {
		b = 2 * t.K * t.N * eighths(d.Types.B)
	}
	if d.ResidentB {
		b = roundUp(k, d.KMT) * t.N * eighths(d.Types.B)
	}
	c := m.Rows * t.M * t.N * eighths(d.Types.C)
	switch {
	case d.Transposed && m.ShareL2: // B in every second column, A in all
		return (2*a + b + 2*c) / 16
	case m.ShareL2 && !d.ResidentB: // a resident ring stays in its own tile
		return (a + 2*b + 2*c) / 16
	}
	return (a + b + c) / 8
}

// ResidentFits says whether B's columns of depth k fit beside A and C in a MemTile.
func (d Design) ResidentFits(k int) bool {
	return d.ResidentB && !d.RowMajorB && d.memTileBytes(k) <= machine(d.Device).L2
}

// Check says what makes a design impossible: multiples of the kernel's block, L1, L2, streams' contiguity.
func (d Design) Check() error {
	m, err := Lookup(d.Device)
	if err != nil {
		return err
	}
	kn, err := m.kernelFor(d.Types)
	if err != nil {
		return err
	}
	t := d.Tile
	if t.M <= 0 || t.K <= 0 || t.N <= 0 {
		return fmt.Errorf("tile %s: every side must be positive", t)
	}
	// Kernels hold 2 x 2 blocks of accumulators, so m and n come in pairs of blocks, and so does each band of A.
	if t.M%(2*kn.R*d.bands()) != 0 || t.K%kn.S != 0 || t.N%(2*kn.T) != 0 {
		return fmt.Errorf("tile %s: want m a multiple of %d, k of %d, n of %d for %s on %s", t, 2*kn.R*d.bands(), kn.S, 2*kn.T, d.Types, d.Device)
	}
	if d.KMT <= 0 || d.KMT%t.K != 0 {
		return fmt.Errorf("k_mt %d is not a multiple of k_ct %d", d.KMT, t.K)
	}
	if l1 := d.L1Bytes(); l1 > m.L1 {
		return fmt.Errorf("tile %s needs %d bytes of L1, %d more than the %d there are", t, l1, l1-m.L1, m.L1)
	}
	if !d.ResidentB {
		if l2 := d.memTileBytes(0); l2 > m.L2 {
			return fmt.Errorf("tile %s with k_mt %d needs %d bytes of a MemTile, %d more than the %d there are", t, d.KMT, l2, l2-m.L2, m.L2)
		}
	}
	return nil
}

// KernelCycles is the time of one k chunk in a core's kernel.
func (m *Machine) KernelCycles(d Design) float64 {
	k := m.Kernels[d.Types]
	t := d.Tile
	mn := float64(t.M) * float64(t.N)
	return mn*float64(t.K)/k.MACs + k.Extra*mn + float64(d.bands()-1)*k.Call
}

// ChunkCycles is the time of one k chunk: the kernel, or the streams that bring its operands if they are slower (equations 1 to 4).
func (m *Machine) ChunkCycles(d Design) float64 {
	t := d.Tile
	a := float64(t.M*t.K) * width(d.Types.A) / m.StreamRate
	b := float64(t.K*t.N) * width(d.Types.B) / m.StreamRate
	return max(m.KernelCycles(d), a, b)
}

// KernelRate is the kernel's MACs a cycle, streams included, as a trace of one core would show.
func (m *Machine) KernelRate(d Design) float64 {
	return float64(d.Tile.M) * float64(d.Tile.K) * float64(d.Tile.N) / m.ChunkCycles(d)
}

// Bandwidth is the rate at which reads with contiguous runs of that many bytes arrive, in bytes a second. Short runs are paid by their
// number (a row activation and a request each), long ones by their bytes; the fourth power makes the knee between the two.
func (m *Machine) Bandwidth(run float64) float64 {
	x := m.RunHalf / run
	x *= x
	return m.DRAM / math.Sqrt(math.Sqrt(1+x*x))
}

// rowMajorBandwidth is the rate of reading a row-major B in runs of that many bytes. The columns read neighbouring runs of the same rows
// at about the same time, so runs are not paid by their number; but where a run begins or ends inside a line of DRAM, part of
// the rest of the line is fetched in vain. That is why bf16, whose runs are whole lines, loses almost nothing.
func (m *Machine) rowMajorBandwidth(run int) float64 {
	over := float64(m.Line-gcd(run, m.Line)) / float64(run)
	return m.DRAM / (1 + m.RowShare*over)
}

// bandwidths are the rates of reading A and B.
func (m *Machine) bandwidths(d Design) (a, b float64) {
	a = m.Bandwidth(float64(d.KMT) * width(d.Types.A))
	switch {
	case d.RowMajorB:
		b = m.rowMajorBandwidth(d.Tile.N * eighths(d.Types.B) / 8)
	case d.Types.B == kernel.BFP16: // packed by the host: whole blocks are contiguous
		b = m.Bandwidth(float64(d.KMT*d.Tile.N) * width(d.Types.B))
	default:
		b = m.Bandwidth(float64(d.KMT) * width(d.Types.B))
	}
	return a, b
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// maxUses is how often a MemTile slot can be read between two fills: a lock counts to 63.
const maxUses = 63

// Predict is the analytic model: time of one product on a design.
func (m *Machine) Predict(d Design, s Size) Prediction {
	pad := d.Pad(s)
	t := d.Tile
	native := d.Native()
	rowBlocks, colBlocks := float64(pad.M/native.M), float64(pad.N/native.N)
	tiles := rowBlocks * colBlocks // output tiles of each core
	chunks := float64(pad.K / t.K)

	p := Prediction{Padded: pad, Useful: s.Ops() / pad.Ops()}
	p.ChunkCycles = m.ChunkCycles(d)
	cBytes := float64(t.M*t.N) * width(d.Types.C)
	drain := cBytes / m.StreamRate
	if !d.DoubleC {
		p.DrainCycles = drain
	}
	tile := chunks*p.ChunkCycles + cBytes/m.StoreBytes + p.DrainCycles
	p.Compute = tiles * tile / m.Clock

	// Equations 6 to 8.
	bytesM, bytesN := float64(pad.M)*float64(pad.K)*width(d.Types.A), float64(pad.N)*float64(pad.K)*width(d.Types.B)
	p.BytesA = bytesM * colBlocks
	p.BytesB = bytesN * rowBlocks
	if d.ResidentFits(pad.K) {
		p.BytesB = bytesN * math.Ceil(rowBlocks/maxUses)
	}
	p.BytesC = float64(pad.M) * float64(pad.N) * width(d.Types.C)
	bwA, bwB := m.bandwidths(d)
	p.ReadA, p.ReadB = p.BytesA/bwA, p.BytesB/bwB
	// C leaves by one shim channel a column; DRAM takes it as fast as it gives.
	p.WriteC = max(p.BytesC/m.DRAM, p.BytesC/(float64(m.Cols)*m.ShimRate*m.Clock))

	// Controller: a triple of descriptors for each output tile. A descriptor is a block write of 8 words, an address patch, a push.
	na, nb := float64(m.Rows), float64(m.Cols)
	if d.Transposed {
		na, nb = nb, na
	}
	descriptors := na + nb + float64(m.Cols)
	perBD := m.Write + 8*m.PerWord + 2*m.Write + m.Push
	p.Control = tiles * descriptors * perBD

	// First block of every operand before any core can start; the last C tiles after all have finished.
	block := na*float64(t.M*d.KMT)*width(d.Types.A)/bwA + nb*float64(t.N*d.KMT)*width(d.Types.B)/bwB
	if d.RowMajorB {
		block = na*float64(t.M*d.KMT)*width(d.Types.A)/bwA + nb*float64(t.N*t.K)*width(d.Types.B)/bwB
	}
	joined := float64(m.Rows) * cBytes / m.ShimRate / m.Clock // from MemTile to DRAM, all columns at once
	p.Fill = block
	p.Tail = drain/m.Clock + joined

	// DRAM serves both operands together; each also has to pass its own shim channels.
	shim := m.ShimRate * m.Clock
	read := max(p.ReadA+p.ReadB, p.BytesA/(na*shim), p.BytesB/(nb*shim))
	if d.Schedule == Serial {
		// Nothing of the next tile moves before the last byte of this one is in DRAM: descriptors, first block, the slower of
		// arithmetic and reading, the chunks of the last block, and the way out, one after the other.
		last := min(float64(d.KMT/t.K), chunks) * p.ChunkCycles / m.Clock
		steady := max(tile/m.Clock, read/tiles-block+last)
		p.Seconds = m.Dispatch + tiles*(m.Cold+descriptors*perBD+block+steady+p.Tail)
	} else {
		p.Seconds = m.Dispatch + p.Fill + max(p.Compute, read, p.WriteC, p.Control) + p.Tail
	}
	p.TOPS = s.Ops() / p.Seconds / 1e12
	switch top := max(p.Compute, read, p.WriteC, p.Control); {
	case top == p.Compute:
		p.Bound = "compute"
	case top == read && p.ReadA >= p.ReadB:
		p.Bound = "A traffic"
	case top == read:
		p.Bound = "B traffic"
	case top == p.WriteC:
		p.Bound = "C traffic"
	default:
		p.Bound = "controller"
	}
	return p
}

// Analytic is the model as a [Measure].
func (m *Machine) Analytic(d Design, s Size) (float64, error) {
	if err := d.Check(); err != nil {
		return 0, err
	}
	return m.Predict(d, s).Seconds, nil
}
