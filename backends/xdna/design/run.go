package design

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Problem is one product C[M,N] = A[M,K] x B[K,N] in host memory.
type Problem struct {
	M, K, N int
	// Bytes from one row to the next (of a column-major B: from one column to the next); 0 means no gap. Tiled operands have none.
	PitchA, PitchB, PitchC int64
}

// Run is a run-time stream for one problem on a configured design, with the host's part: which edges it must stage, and where C's ragged tiles land.
// It is a [txn.Stream]; operations are generated while they are read, so its size does not depend on the problem's.
type Run struct {
	Design  *Design
	Problem Problem

	MPad, KPad, NPad int // the product that the array computes
	Chunks           int // of k along K, per output tile
	BlocksM, BlocksN int // output tiles of the whole array along M and N
	Staging          Staging
	BufferBytes      [NumArgs]int64 // sizes of the host buffers; 0 = not used

	row, col *feed
	c        *cPlan
	rings    []ringUse
	resident bool // B stays in the MemTiles in this run
	phases   []phase
	mem      *memory
}

// phase is a part of the output tiles that runs on the same runtime parameters.
type phase struct {
	i0, i1 int // blocks of M; all blocks of N
	uses   int // resident: blocks of M that share one fill of B
}

// ringUse is a variable ring on the MemTiles of one operand; at[p] is the ring of tile position p.
type ringUse struct {
	leg   leg
	ch    int
	at    []ring
	turns int // of the ring per output tile
}

// maxDim keeps every product of two dimensions and an element size inside 64 bits.
const maxDim = 1<<31 - 1

// maxBytes is the shim's address space: 48 bits.
const maxBytes = 1 << 48

// matrixBytes is the size of a matrix of rows x rowBytes at a pitch, or an error that names it.
func matrixBytes(name string, rows, rowBytes, pitch int64) (int64, error) {
	hi, lo := bits.Mul64(uint64(rows-1), uint64(pitch))
	if hi != 0 || lo > maxBytes || lo+uint64(rowBytes) > maxBytes {
		return 0, fmt.Errorf("%s of %d rows at a pitch of %d bytes exceeds the shim's address space of 2^48 bytes", name, rows, pitch)
	}
	return int64(lo) + rowBytes, nil
}

// Run plans a product.
func (d *Design) Run(p Problem) (*Run, error) {
	_, err := d.Dev.Mode(d.Types)
	if err != nil {
		return nil, err
	}
	for _, v := range []struct {
		name string
		n    int
	}{{"M", p.M}, {"K", p.K}, {"N", p.N}} {
		if v.n < 1 || v.n > maxDim {
			return nil, fmt.Errorf("run: %s = %d, want 1 to %d", v.name, v.n, maxDim)
		}
	}
	r := &Run{Design: d, Problem: p}
	if r.mem, err = d.memory(); err != nil {
		return nil, err
	}
	nm, _, nn := d.Native()
	r.BlocksM, r.BlocksN = ceil(p.M, nm), ceil(p.N, nn)
	r.MPad, r.NPad = r.BlocksM*nm, r.BlocksN*nn
	row, col := d.legs()
	legA, legB := &row, &col
	if d.Transposed {
		legA, legB = legB, legA
	}
	// Dense pitches, and the operands' extents.
	fill := func(pitch *int64, dense int64, name string) error {
		if *pitch == 0 {
			*pitch = dense
		}
		if *pitch < dense {
			return fmt.Errorf("run: pitch of %s is %d bytes, its rows hold %d", name, *pitch, dense)
		}
		return nil
	}
	rowsB, rowBytesB := int64(p.K), int64(legB.bytes(p.N))
	if legB.order == kMajor {
		rowsB, rowBytesB = int64(p.N), int64(legB.bytes(p.K))
	}
	eC := int64(d.Types.C.Bytes(1))
	if legA.order != tiled {
		if err := fill(&r.Problem.PitchA, int64(legA.bytes(p.K)), "A"); err != nil {
			return nil, err
		}
		if r.BufferBytes[ArgA], err = matrixBytes("A", int64(p.M), int64(legA.bytes(p.K)), r.Problem.PitchA); err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
	}
	if legB.order != tiled {
		if err := fill(&r.Problem.PitchB, rowBytesB, "B"); err != nil {
			return nil, err
		}
		if r.BufferBytes[ArgB], err = matrixBytes("B", rowsB, rowBytesB, r.Problem.PitchB); err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
	}
	if err := fill(&r.Problem.PitchC, int64(p.N)*eC, "C"); err != nil {
		return nil, err
	}
	if r.BufferBytes[ArgC], err = matrixBytes("C", int64(p.M), int64(p.N)*eC, r.Problem.PitchC); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}

	// How K is padded: whole blocks of k_mt, or, where MemTiles append the zeros, whole chunks of k.
	edges := d.Padding == PadMemTile
	if edges {
		if err := r.planEdges(&row, &col); err != nil {
			edges = false
		}
	}
	if !edges {
		r.rings, r.resident = nil, false
		r.KPad = ceil(p.K, d.KMT) * d.KMT
		if err := r.planRings(&row, &col); err != nil {
			return nil, fmt.Errorf("run: %w", err)
		}
	}
	r.Chunks = r.KPad / d.Tile.K
	if int64(r.BlocksM)*int64(r.BlocksN) > math.MaxInt32 {
		return nil, fmt.Errorf("run: %d x %d output tiles per core do not fit its runtime parameter", r.BlocksM, r.BlocksN)
	}
	uRow, uCol := p.M, p.N
	if d.Transposed {
		uRow, uCol = uCol, uRow
	}
	st := &stager{run: r}
	if r.row, err = st.feed(&row, uRow, edges); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	if r.col, err = st.feed(&col, uCol, edges); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	if r.c, err = st.planC(); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	st.finish()
	r.planPhases()
	for arg, n := range r.BufferBytes {
		if n > maxBytes {
			return nil, fmt.Errorf("run: buffer %d of %d bytes exceeds the shim's address space of 2^48 bytes", arg, n)
		}
	}
	return r, nil
}

func ceil(a, b int) int { return (a + b - 1) / b }

// UsefulPercent is the share of the array's multiply-adds that belongs to the problem.
func (r *Run) UsefulPercent() float64 {
	p := r.Problem
	return 100 * float64(p.M) / float64(r.MPad) * float64(p.K) / float64(r.KPad) * float64(p.N) / float64(r.NPad)
}

// planEdges makes rings in which MemTiles append what is missing, or says why they cannot: an edge that is not whole words, more zeros than a
// descriptor appends, more blocks than there are descriptors.
func (r *Run) planEdges(row, col *leg) error {
	d, p := r.Design, r.Problem
	edge := p.K % d.KMT
	r.KPad = ceil(p.K, d.Tile.K) * d.Tile.K
	for ch, l := range []*leg{row, col} {
		extent, pitch := p.M, p.PitchA
		if l.arg == ArgB {
			extent, pitch = p.N, p.PitchB
		}
		u := ringUse{leg: *l, ch: ch, turns: 1}
		resident := d.ResidentB && l.arg == ArgB
		if l.order == tiled || resident && edge != 0 {
			return fmt.Errorf("%s comes in whole blocks only", l.name)
		}
		if l.order == uMajor || resident {
			if err := r.wholeRing(&u); err != nil {
				return err
			}
			r.rings = append(r.rings, u)
			continue
		}
		if l.bands > 1 && edge != 0 {
			return fmt.Errorf("%s arrives in bands", l.name)
		}
		if l.bytes(edge)%4 != 0 || pitch%4 != 0 || pitch/4 > 1<<d.Dev.Tile(device.Shim).Bits.Step {
			return fmt.Errorf("edge or pitch of %s is not whole words, or too long", l.name)
		}
		if edge == 0 {
			if err := r.plainRing(&u); err != nil {
				return err
			}
		}
		for pos := range l.per {
			rows := l.u
			if extent < l.per*l.u && l.bands == 1 { // one block only: a ragged tile can be padded too
				left := extent - pos*l.u
				if left <= 0 && extent < l.u {
					left = extent // beyond the edge tile 0 is sent again
				}
				if left > 0 && left < l.u && l.u-left <= d.Dev.Tile(device.Mem).PadAfter[1] {
					rows = left
				}
			}
			switch {
			case edge != 0:
				u.at = append(u.at, d.blockRing(l, rows, ceil(p.K, d.KMT), edge))
			case rows < l.u:
				u.at[pos] = d.blockRing(l, rows, u.at[pos].blocks, 0)
			}
			if err := d.fits(l, ch, pos, r.mem, &u.at[pos]); err != nil {
				return err
			}
		}
		r.rings = append(r.rings, u)
	}
	return nil
}

// planRings makes rings of whole blocks for the variable operands.
func (r *Run) planRings(row, col *leg) error {
	d := r.Design
	for ch, l := range []*leg{row, col} {
		if !d.variable(l) {
			continue
		}
		u := ringUse{leg: *l, ch: ch, turns: 1}
		if err := r.wholeRing(&u); err != nil {
			return err
		}
		r.rings = append(r.rings, u)
	}
	return nil
}

// wholeRing gives every position a ring of whole blocks: a resident one for a resident B, unless K is too long for it to stay.
func (r *Run) wholeRing(u *ringUse) error {
	d, l := r.Design, &u.leg
	n, slots := r.KPad/l.kmt, d.ResidentSlots()
	switch {
	case !d.ResidentB || l.arg != ArgB:
		return r.plainRing(u)
	case n > slots && slots < 2:
		return fmt.Errorf("K = %d needs %d blocks of B in a MemTile, one fits: too few to stay or to alternate", r.Problem.K, n)
	case n > slots:
		return r.plainRing(u)
	}
	r.resident = true
	for range l.per {
		u.at = append(u.at, d.residentRing(l, n, 1)) // uses are the phase's
	}
	return nil
}

// plainRing gives every position a ring of whole blocks whose turns make up an output tile: two buffers in turn, over the longest divisor of the
// number of blocks that the descriptors hold.
func (r *Run) plainRing(u *ringUse) error {
	d, l := r.Design, &u.leg
	nb := r.KPad / l.kmt
	_, max := d.bds().ring(u.ch)
	err := error(nil)
	for n := min(nb, max/2); n >= 1; n-- {
		if nb%n != 0 {
			continue
		}
		u.at, err = nil, nil
		for pos := range l.per {
			rg := d.blockRing(l, l.u, n, 0)
			if e := d.fits(l, u.ch, pos, r.mem, &rg); e != nil {
				err = e
			}
			u.at = append(u.at, rg)
		}
		if err == nil {
			u.turns = nb / n
			return nil
		}
	}
	return err
}

// maxUses bounds the row blocks that share a resident block of B: the lock counts them.
const maxUses = 63

// planPhases splits the blocks of M where a resident B cannot be used often enough in one go.
func (r *Run) planPhases() {
	if !r.resident {
		r.phases = []phase{{0, r.BlocksM, 0}}
		return
	}
	if whole := r.BlocksM / maxUses * maxUses; whole > 0 {
		r.phases = append(r.phases, phase{0, whole, maxUses})
	}
	if rest := r.BlocksM % maxUses; rest > 0 {
		r.phases = append(r.phases, phase{r.BlocksM - rest, r.BlocksM, rest})
	}
}

// Header implements [txn.Stream].
func (r *Run) Header() txn.Header { return txn.NewHeader(r.Design.Dev) }
