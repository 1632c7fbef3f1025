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

// buildPaper writes the seed's five loops down. The processor packs B_c, then for each micro-panel copies B_r by GMIO and lets the micro-kernels
// of loop L5 run, whose C comes and goes by GMIO.
func buildPaper(p *plan.Plan) (*Program, error) {
	pr := &Program{Plan: p, Device: &p.Device, Regs: regs.Program{Device: p.Device.Name}}
	d, k := pr.Device, p.Kernel
	e, ce := p.Type.Bytes(), p.Out.Bytes()
	mPad, nPad, _ := p.Padded()
	params := p.Local.Stack

	// DDR: B_c, C in micro-tiles, the part of A that does not fit the FPGA RAM.
	align := func(n int64) int64 { return (n + 63) &^ 63 }
	bAt := int64(0)
	cAt := align(p.BytesB())
	aDDR := cAt + align(p.BytesC())
	pr.ABase = aDDR

	type tile struct{ col, row int }
	tiles := make([]tile, p.Tiles)
	for t := range tiles {
		tiles[t] = tile{d.NoCCols[t], 1}
		col, row := tiles[t].col, tiles[t].row
		rec := Record{Streamed: true, Type: p.Type, Out: p.Out, Narrow: p.Narrow, M: k.MR, KB: p.KC, N: k.NR, B: [2]int{p.Local.B[0], -1}, A: [2]int{-1, -1}, Partial: -1,
			O: [2]int{-1, -1}, Params: params}
		pr.Regs.Block(d.Addr(col, row, device.ProgramMemory), rec.Encode(), fmt.Sprintf("core (%d,%d): kernel record", col, row))
		pr.Regs.Write(d.Addr(col, row, device.CoreControl), 1, "enable")
		control, _ := coreChannel(true, 0)
		pr.Regs.Write(d.Addr(col, row, control), 1, "enable channel")
		for _, c := range []struct {
			s2mm bool
			ch   int
		}{{false, 0}, {false, 1}, {true, 0}} {
			control, _, _ := shimChannel(c.s2mm, c.ch)
			pr.Regs.Write(d.Addr(col, 0, control), 1, "enable channel")
		}
		pr.Movers = append(pr.Movers, Mover{})
		pr.Links = append(pr.Links,
			Link{From: Port{ShimMM2S, col, 0, 0}, To: []Port{{CoreS2MM, col, row, 0}}, Ticks: 1000 * 4 * plan.CopyCyclesPerByte, Depth: fifoWords},
			Link{From: Port{ShimMM2S, col, 0, 1}, To: []Port{{CoreIn, col, row, 0}}, Wide: cWide(ce)},
			Link{From: Port{Kind: PLIn, Chan: t}, To: []Port{{CoreIn, col, row, 1}}, Wide: seedAWords},
			Link{From: Port{CoreOut, col, row, 0}, To: []Port{{ShimS2MM, col, 0, 0}}, Wide: cWide(ce)})
	}
	task := func(t Task, note string) {
		pr.Tasks = append(pr.Tasks, t)
		pr.Regs.Host(len(pr.Tasks)-1, note)
	}
	task(Task{Kind: LoadC, Addr: cAt, Rows: mPad}, "C into micro-tiles in DDR")

	// A_c blocks in the order of use, each where the plan put it.
	var at [2]int64
	at[DDR] = aDDR
	var where []Extent
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
			where = append(where, x)
		}
	}
	pr.FPGA, pr.DDR = at[FPGA], at[DDR]

	lastK, lastKernels := -1, -1
	for jc := 0; jc < p.N; jc += p.NC { // L1
		nc := min(p.NC, nPad-jc)
		block := 0
		for pc := 0; pc < p.K; pc += p.KC { // L2
			kc := ceilTo(min(p.KC, p.K-pc), k.KS)
			task(Task{Kind: PackBPanel, K0: pc, K: kc, N0: jc, N: nc, Addr: bAt}, fmt.Sprintf("B_c: rows %d to %d, columns %d to %d of B", pc, pc+kc-1, jc, jc+nc-1))
			for ic := 0; ic < p.M; ic += p.MC { // L3
				kernels := ceilTo(min(p.MC, p.M-ic), k.MR) / k.MR
				if kc != lastK || kernels != lastKernels {
					for _, t := range tiles {
						if kc != lastK {
							bd := regs.CoreBD{LockA: lockPair(lockB, true), BaseA: p.Local.B[0] / 4, X: regs.LinearX, Y: regs.LinearY, Valid: true, UseNext: false, Length: kc * k.NR * e / 4}
							w, err := bd.Encode()
							if err != nil {
								return nil, err
							}
							pr.Regs.Block(d.Addr(t.col, t.row, device.BDBase), w[:], fmt.Sprintf("core (%d,%d): B_r of k_c = %d", t.col, t.row, kc))
						}
						pr.Regs.Block(d.Addr(t.col, t.row, uint32(params)), []uint32{uint32(kc), uint32(kernels)}, "k_c and kernels of a panel")
					}
					lastK, lastKernels = kc, kernels
				}
				panels := nc / k.NR
				for jr := 0; jr < panels; jr += len(tiles) { // L4, shared by the tiles
					n := min(len(tiles), panels-jr)
					for t := range n {
						col, row := tiles[t].col, tiles[t].row
						cTile := cAt + int64(((jc/k.NR+jr+t)*(mPad/k.MR)+ic/k.MR)*k.MR*k.NR*ce)
						cWords := int64(kernels * k.MR * k.NR * ce / 4)
						for _, x := range []struct {
							bd, ch int
							s2mm   bool
							addr   int64
							words  int64
							note   string
						}{
							{bdB, 0, false, bAt + int64((jr+t)*kc*k.NR*e), int64(kc * k.NR * e / 4), "B_r"},
							{bdCIn, 1, false, cTile, cWords, "C in"},
							{bdCOut, 0, true, cTile, cWords, "C out"},
						} {
							bd := regs.ShimBD{Address: x.addr, Length: x.words, Valid: true, Burst: 2}
							w, err := bd.Encode()
							if err != nil {
								return nil, fmt.Errorf("%s of shim %d: %w", x.note, col, err)
							}
							pr.Regs.Block(d.Addr(col, 0, device.BDBase+uint32(x.bd)*device.ShimBDStride), w[:], fmt.Sprintf("shim %d: %s, panel %d", col, x.note, jc/k.NR+jr+t))
							_, queue, _ := shimChannel(x.s2mm, x.ch)
							pr.Regs.Write(d.Addr(col, 0, queue), uint32(x.bd), "push")
						}
						_, q := coreChannel(true, 0)
						pr.Regs.Write(d.Addr(col, row, q), 0, "expect B_r")
						pr.Movers[t].List = append(pr.Movers[t].List, where[block])
					}
					for t := range n {
						_, _, status := shimChannel(true, 0)
						pr.Regs.Poll(d.Addr(tiles[t].col, 0, status), 0, statusMask(0), "panel done")
					}
				}
				block++
			}
		}
	}
	task(Task{Kind: StoreC, Addr: cAt, Rows: mPad}, "micro-tiles into C")
	return pr, nil
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
