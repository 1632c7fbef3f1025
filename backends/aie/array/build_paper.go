package array

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/backends/aie/regs"
)

// The shim descriptors of one tile in the paper's design.
const (
	bdB = iota
	bdCIn
	bdCOut
)

// seedAWords is the words of A that a core takes a cycle: 16 bytes, which is what 2 cycles for 16 int16 values imply. The seed does not say how they
// get there; a tile has two streams to the core and two DMA channels of 4 bytes each, so that it is just possible.
const seedAWords = 4

// bcAt is where B_c lies in DDR.
const bcAt = 0

// paperBuild is a program of the paper's design while it is written.
type paperBuild struct {
	*Program
	cores      [][2]int // column and row of each tile
	cAt        int64    // C in micro-tiles, in DDR
	blocks     []Extent // A_c, in the order of use
	mPad, nPad int
}

// buildPaper writes the seed's five loops down. The processor packs B_c, then for each micro-panel copies B_r by GMIO and lets the micro-kernels
// of loop L5 run, whose C comes and goes by GMIO.
func buildPaper(p *plan.Plan) (*Program, error) {
	b := &paperBuild{Program: &Program{Plan: p, Device: &p.Device, Regs: regs.Program{Device: p.Device.Name}}}
	b.mPad, b.nPad, _ = p.Padded()
	b.configure()
	b.place()
	b.task(Task{Kind: LoadC, Addr: b.cAt, Rows: b.mPad}, "C into micro-tiles in DDR")
	if err := b.loops(); err != nil {
		return nil, err
	}
	b.task(Task{Kind: StoreC, Addr: b.cAt, Rows: b.mPad}, "micro-tiles into C")
	return b.Program, nil
}

func (b *paperBuild) task(t Task, note string) {
	b.Tasks = append(b.Tasks, t)
	b.Regs.Host(len(b.Tasks)-1, note)
}

// configure loads the cores, enables channels and sets up the links.
func (b *paperBuild) configure() {
	d, p := b.Device, b.Plan
	ce := p.Out.Bytes()
	for t := range p.Tiles {
		col, row := d.NoCCols[t], 1
		b.cores = append(b.cores, [2]int{col, row})
		rec := Record{Streamed: true, Type: p.Type, Out: p.Out, Narrow: p.Narrow, M: p.Kernel.MR, KB: p.KC, N: p.Kernel.NR, B: [2]int{p.Local.B[0], -1}, A: [2]int{-1, -1}, Partial: -1,
			O: [2]int{-1, -1}, Params: p.Local.Stack}
		b.Regs.Block(d.Addr(col, row, device.ProgramMemory), rec.Encode(), fmt.Sprintf("core (%d,%d): kernel record", col, row))
		b.Regs.Write(d.Addr(col, row, device.CoreControl), 1, "enable")
		control, _ := coreChannel(true, 0)
		b.Regs.Write(d.Addr(col, row, control), 1, "enable channel")
		for _, c := range []struct {
			s2mm bool
			ch   int
		}{{false, 0}, {false, 1}, {true, 0}} {
			control, _, _ := shimChannel(c.s2mm, c.ch)
			b.Regs.Write(d.Addr(col, 0, control), 1, "enable channel")
		}
		b.Movers = append(b.Movers, Mover{})
		b.Links = append(b.Links,
			Link{From: Port{ShimMM2S, col, 0, 0}, To: []Port{{CoreS2MM, col, row, 0}}, Ticks: 1000 * 4 * plan.CopyCyclesPerByte, Depth: fifoWords},
			Link{From: Port{ShimMM2S, col, 0, 1}, To: []Port{{CoreIn, col, row, 0}}, Wide: cWide(ce)},
			Link{From: Port{Kind: PLIn, Chan: t}, To: []Port{{CoreIn, col, row, 1}}, Wide: seedAWords},
			Link{From: Port{CoreOut, col, row, 0}, To: []Port{{ShimS2MM, col, 0, 0}}, Wide: cWide(ce)})
	}
}

// place lays out memory: B_c, C in micro-tiles and the part of A that does not fit the FPGA RAM lie in DDR; each block of A_c lies where the plan put it.
func (b *paperBuild) place() {
	p := b.Plan
	align := func(n int64) int64 { return (n + 63) &^ 63 }
	b.cAt = align(p.BytesB())
	b.ABase = b.cAt + align(p.BytesC())
	var at [2]int64
	at[DDR] = b.ABase
	left := p.ResidentBlocks
	for pc := 0; pc < p.K; pc += p.KC {
		for ic := 0; ic < p.M; ic += p.MC {
			bytes := sizeAc(p, ic, pc)
			x := Extent{Mem: DDR, Bytes: bytes}
			if left > 0 {
				x.Mem = FPGA
				left--
			}
			x.Addr = at[x.Mem]
			at[x.Mem] += int64(bytes)
			b.blocks = append(b.blocks, x)
		}
	}
	b.FPGA, b.DDR = at[FPGA], at[DDR]
}

// loops writes loops L1 to L4.
func (b *paperBuild) loops() error {
	p, k := b.Plan, b.Plan.Kernel
	lastK, lastKernels := -1, -1
	for jc := 0; jc < p.N; jc += p.NC { // L1
		nc := min(p.NC, b.nPad-jc)
		block := 0
		for pc := 0; pc < p.K; pc += p.KC { // L2
			kc := ceilTo(min(p.KC, p.K-pc), k.KS)
			b.task(Task{Kind: PackBPanel, K0: pc, K: kc, N0: jc, N: nc, Addr: bcAt}, fmt.Sprintf("B_c: rows %d to %d, columns %d to %d of B", pc, pc+kc-1, jc, jc+nc-1))
			for ic := 0; ic < p.M; ic += p.MC { // L3
				kernels := ceilTo(min(p.MC, p.M-ic), k.MR) / k.MR
				if kc != lastK || kernels != lastKernels {
					if err := b.setSizes(kc, kernels, kc != lastK); err != nil {
						return err
					}
					lastK, lastKernels = kc, kernels
				}
				panels := nc / k.NR
				for jr := 0; jr < panels; jr += len(b.cores) { // L4, shared by the tiles
					n := min(len(b.cores), panels-jr)
					for t := range n {
						if err := b.microPanel(t, jr+t, jc/k.NR+jr+t, ic/k.MR, kc, kernels); err != nil {
							return err
						}
						b.Movers[t].List = append(b.Movers[t].List, b.blocks[block])
					}
					for t := range n {
						_, _, status := shimChannel(true, 0)
						b.Regs.Poll(b.Device.Addr(b.cores[t][0], 0, status), 0, statusMask(0), "panel done")
					}
				}
				block++
			}
		}
	}
	return nil
}

// setSizes tells all cores k_c and the kernels of a panel, and, where k_c is another, how much of B_r comes.
func (b *paperBuild) setSizes(kc, kernels int, newK bool) error {
	d, p := b.Device, b.Plan
	for _, core := range b.cores {
		col, row := core[0], core[1]
		if newK {
			bd := regs.CoreBD{LockA: lockPair(lockB, true), BaseA: p.Local.B[0] / 4, X: regs.LinearX, Y: regs.LinearY, Valid: true, UseNext: false, Length: kc * p.Kernel.NR * p.Type.Bytes() / 4}
			w, err := bd.Encode()
			if err != nil {
				return err
			}
			b.Regs.Block(d.Addr(col, row, device.BDBase), w[:], fmt.Sprintf("core (%d,%d): B_r of k_c = %d", col, row, kc))
		}
		b.Regs.Block(d.Addr(col, row, uint32(p.Local.Stack)), []uint32{uint32(kc), uint32(kernels)}, "k_c and kernels of a panel")
	}
	return nil
}

// microPanel starts tile t on a micro-panel, which is number inB of B_c and number panel of B, from micro-tile row strip of C on.
func (b *paperBuild) microPanel(t, inB, panel, strip, kc, kernels int) error {
	d, p, k := b.Device, b.Plan, b.Plan.Kernel
	e, ce := p.Type.Bytes(), p.Out.Bytes()
	col, row := b.cores[t][0], b.cores[t][1]
	cTile := b.cAt + int64((panel*(b.mPad/k.MR)+strip)*k.MR*k.NR*ce)
	cWords := int64(kernels * k.MR * k.NR * ce / 4)
	for _, x := range []struct {
		bd, ch int
		s2mm   bool
		addr   int64
		words  int64
		note   string
	}{
		{bdB, 0, false, bcAt + int64(inB*kc*k.NR*e), int64(kc * k.NR * e / 4), "B_r"},
		{bdCIn, 1, false, cTile, cWords, "C in"},
		{bdCOut, 0, true, cTile, cWords, "C out"},
	} {
		bd := regs.ShimBD{Address: x.addr, Length: x.words, Valid: true, Burst: 2}
		w, err := bd.Encode()
		if err != nil {
			return fmt.Errorf("%s of shim %d: %w", x.note, col, err)
		}
		b.Regs.Block(d.Addr(col, 0, device.BDBase+uint32(x.bd)*device.ShimBDStride), w[:], fmt.Sprintf("shim %d: %s, panel %d", col, x.note, panel))
		_, queue, _ := shimChannel(x.s2mm, x.ch)
		b.Regs.Write(d.Addr(col, 0, queue), uint32(x.bd), "push")
	}
	_, q := coreChannel(true, 0)
	b.Regs.Write(d.Addr(col, row, q), 0, "expect B_r")
	return nil
}

// statusMask selects what tells a channel idle with an empty queue in the status registers, which the two channels of a direction share:
// state [1:0] and [3:2], stalled [4] and [5], queue size [8:6] and [11:9] for channels 0 and 1 (aie-rt, xaiegbl_params.h, DMAS2MMSTA).
func statusMask(ch int) uint32 {
	return 3<<(2*ch) | 1<<(4+ch) | 7<<(6+3*ch)
}

// cWide is the streams over which results travel, so that a micro-tile takes the seed's 32 cycles.
func cWide(cBytes int) int {
	if cBytes == 4 {
		return 2
	}
	return 1
}

func sizeAc(p *plan.Plan, ic, pc int) int {
	return ceilTo(min(p.MC, p.M-ic), p.Kernel.MR) * ceilTo(min(p.KC, p.K-pc), p.Kernel.KS) * p.Type.Bytes()
}

func ceilTo(n, unit int) int { return (n + unit - 1) / unit * unit }
