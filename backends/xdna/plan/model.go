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
	Compute, Read, WriteC, Control float64
	Fill, Tail                     float64 // first block in, last block out
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

// Near is the smallest multiple of the native size with at least side in each dimension. With [About] that is the paper's "about 4K": it gives the sizes
// of all 16 rows of its tables.
func (d Design) Near(side int) Size { return d.Pad(Size{M: side, N: side, K: side}) }

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

// memTile is what the fullest MemTile needs in bytes: for A, for B (one block of it where B is resident), for C.
func (d Design) memTile() (a, b, c int) {
	m := machine(d.Device)
	t := d.Tile
	a = 2 * t.M * d.KMT * eighths(d.Types.A) / 8
	b = 2 * d.KMT * t.N * eighths(d.Types.B) / 8
	switch {
	case d.ResidentB:
		b /= 2
	case d.RowMajorB:
		b = 2 * t.K * t.N * eighths(d.Types.B) / 8
	}
	c = m.Rows * t.M * t.N * eighths(d.Types.C) / 8
	if d.DoubleC {
		c *= 2
	}
	switch {
	case !m.ShareL2:
	case d.Transposed: // B in every second column, the other buffer next door
		b /= 2
	default:
		a /= 2
	}
	return a, b, c
}

// Limits of a resident B in a MemTile: two locks a slot beside those of A, B and C, and two of the descriptors of one half, which two of C share.
const (
	slotLocks = (64 - 12) / 2
	slotBDs   = (24 - 2) / 2
)

// ResidentSlots is how many blocks of B, each k_mt deep, a MemTile keeps.
func (d Design) ResidentSlots() int {
	if !d.ResidentB || d.RowMajorB || d.Transposed {
		return 0
	}
	a, b, c := d.memTile()
	left := machine(d.Device).L2 - a - c
	if left <= 0 || b == 0 {
		return 0
	}
	bds := slotBDs
	if d.DoubleC {
		bds--
	}
	return min(left/b, slotLocks, bds)
}

// Stays reports whether B of that depth stays in the MemTiles. One that is too deep is read again for each row block, as without residency.
func (d Design) Stays(k int) bool {
	return d.ResidentB && roundUp(k, d.KMT)/d.KMT <= d.ResidentSlots()
}

// Takes says why a design cannot run a problem, or nil: a B that does not stay needs two slots to alternate.
func (d Design) Takes(s Size) error {
	if d.ResidentB && !d.Stays(s.K) && d.ResidentSlots() < 2 {
		return fmt.Errorf("K = %d needs %d blocks of B in a MemTile, %d fits: too few to stay or to alternate", s.K, d.Pad(s).K/d.KMT, d.ResidentSlots())
	}
	return nil
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
	if d.ResidentB && (d.RowMajorB || d.Transposed) {
		return fmt.Errorf("resident B needs a column-major B that goes down the columns")
	}
	a, b, c := d.memTile()
	if l2 := a + b + c; l2 > m.L2 {
		return fmt.Errorf("tile %s with k_mt %d needs %d bytes of a MemTile, %d more than the %d there are", t, d.KMT, l2, l2-m.L2, m.L2)
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

// readTime is the time in which both operands are read, na shim channels bringing A and nb B, and which operand ends last. DRAM serves one channel after
// the other, so all channels advance alike until one operand's buffers are full; the other then goes on alone, as fast as its own channels can.
// On XDNA2, where A has half as many channels as B, this is what keeps tiles from being wide in m.
func (m *Machine) readTime(a, b, bwA, bwB, na, nb float64) (seconds float64, last string) {
	shim := m.ShimRate * m.Clock
	round := max(na/bwA+nb/bwB, 1/shim) // every channel brings a byte
	rounds := min(a/na, b/nb)
	seconds = rounds * round
	if a/na >= b/nb {
		return seconds + (a-rounds*na)/min(bwA, na*shim), "A"
	}
	return seconds + (b-rounds*nb)/min(bwB, nb*shim), "B"
}

// Predict is the analytic model: time of one product on a design. A problem that the design does not take ([Design.Takes]) takes for ever.
func (m *Machine) Predict(d Design, s Size) Prediction {
	pad := d.Pad(s)
	if d.Takes(s) != nil {
		return Prediction{Padded: pad, Seconds: math.Inf(1), Bound: "B does not fit"}
	}
	native := d.Native()
	p := m.predict(d, float64(pad.M/native.M), float64(pad.N/native.N), float64(pad.K/d.Tile.K))
	p.Padded, p.Useful = pad, s.Ops()/pad.Ops()
	p.TOPS = s.Ops() / p.Seconds / 1e12
	return p
}

// Rate is the predicted rate in TOPS on a product of exactly side in each dimension, as if tiles could be cut anywhere: what is left when the luck of
// how a size divides is taken out. Designs are compared by it.
func (m *Machine) Rate(d Design, side int) float64 {
	if d.Takes(Size{M: side, N: side, K: side}) != nil {
		return 0
	}
	n, v := d.Native(), float64(side)
	return 2 * v * v * v / m.predict(d, v/float64(n.M), v/float64(n.N), v/float64(d.Tile.K)).Seconds / 1e12
}

// predict is the model on a number of blocks along M and N, native to the array, and of chunks along K.
func (m *Machine) predict(d Design, rowBlocks, colBlocks, chunks float64) Prediction {
	t := d.Tile
	native := d.Native()
	padM, padN, padK := rowBlocks*float64(native.M), colBlocks*float64(native.N), chunks*float64(t.K)
	tiles := rowBlocks * colBlocks // output tiles of each core

	var p Prediction
	p.ChunkCycles = m.ChunkCycles(d)
	cBytes := float64(t.M*t.N) * width(d.Types.C)
	drain := cBytes / m.StreamRate
	if !d.DoubleC {
		p.DrainCycles = drain
	}
	tile := chunks*p.ChunkCycles + cBytes/m.StoreBytes + p.DrainCycles
	p.Compute = tiles * tile / m.Clock

	// Equations 6 to 8.
	bytesM, bytesN := padM*padK*width(d.Types.A), padN*padK*width(d.Types.B)
	p.BytesA = bytesM * colBlocks
	p.BytesB = bytesN * rowBlocks
	stays := d.ResidentB && int(math.Ceil(padK/float64(d.KMT))) <= d.ResidentSlots()
	if stays {
		p.BytesB = bytesN * math.Ceil(rowBlocks/maxUses)
	}
	p.BytesC = padM * padN * width(d.Types.C)
	bwA, bwB := m.bandwidths(d)
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

	var last string
	p.Read, last = m.readTime(p.BytesA, p.BytesB, bwA, bwB, na, nb)
	if d.Schedule == Serial {
		// Nothing of the next tile moves before the last byte of this one is in DRAM: descriptors, first block, the slower of
		// arithmetic and reading, the chunks of the last block, and the way out, one after the other.
		ends := min(float64(d.KMT/t.K), chunks) * p.ChunkCycles / m.Clock
		steady := max(tile/m.Clock, p.Read/tiles-block+ends)
		p.Seconds = m.Dispatch + tiles*(m.Cold+descriptors*perBD+block+steady+p.Tail)
	} else {
		steady := max(p.Compute, p.Read)
		if stays {
			// The slots of B are refilled for the next columns while the last row block uses them: that block waits for the whole of B beside its A.
			fills := colBlocks * math.Ceil(rowBlocks/maxUses)
			one, _ := m.readTime(p.BytesA/tiles, 0, bwA, bwB, na, nb)
			both, _ := m.readTime(p.BytesA/tiles, p.BytesB/fills, bwA, bwB, na, nb)
			each := tile / m.Clock
			p.Read = (tiles-fills)*one + fills*both
			steady = (tiles-fills)*max(each, one) + fills*max(each, both)
		}
		p.Seconds = m.Dispatch + p.Fill + max(steady, p.WriteC, p.Control) + p.Tail
	}
	switch top := max(p.Compute, p.Read, p.WriteC, p.Control); {
	case top == p.Compute:
		p.Bound = "compute"
	case top == p.Read:
		p.Bound = last + " traffic"
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
	if err := d.Takes(s); err != nil {
		return 0, err
	}
	return m.Predict(d, s).Seconds, nil
}
