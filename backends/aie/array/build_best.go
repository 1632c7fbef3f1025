package array

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/backends/aie/regs"
)

// fifoWords is the buffering of a circuit between a mover and a tile: the 16 words of a stream FIFO (AM020, as the notes of section 1.3 give it).
const fifoWords = 16

// buildBest writes the best design down. Each core gets rings of descriptors that take A and B into ping and pong and send results, and one
// record; after that nothing is programmed any more, whatever the size of the product.
func buildBest(p *plan.Plan) (*Program, error) {
	pr := &Program{Plan: p, Device: &p.Device, Regs: regs.Program{Device: p.Device.Name}}
	l := &p.Local
	a, b, c := int(p.BlockA()), int(p.BlockB()), int(p.BlockC())
	for r := range p.Rows {
		for z := range p.Groups {
			for q := range p.Chain {
				col, row := p.CoreAt(r, z, q)
				if err := pr.Device.CheckTile(col, row); err != nil {
					return nil, err
				}
				last := p.ChainOrder(row, p.Chain-1) == q
				for i := range 2 {
					if err := pr.coreBD(col, row, i, l.A[i], a, 1-i, lockPair(lockA+i, true), fmt.Sprintf("core (%d,%d): A into buffer %d", col, row, i)); err != nil {
						return nil, err
					}
					if err := pr.coreBD(col, row, 2+i, l.B[i], b, 3-i, lockPair(lockB+i, true), fmt.Sprintf("core (%d,%d): B into buffer %d", col, row, i)); err != nil {
						return nil, err
					}
				}
				if last {
					for i := range l.Outs {
						if err := pr.coreBD(col, row, 4+i, l.Out[i], c, 4+(i+1)%l.Outs, lockPair(lockO+i, false), fmt.Sprintf("core (%d,%d): C out of buffer %d", col, row, i)); err != nil {
							return nil, err
						}
					}
				}
				rec := Record{Type: p.Type, Out: p.Out, Narrow: p.Narrow, M: p.MB, KB: p.KB, N: p.NB, Steps: p.Steps, Passes: p.Passes(), A: l.A, B: l.B,
					Partial: l.Partial, O: l.Out, Outs: l.Outs, CascadeIn: p.ChainOrder(row, 0) != q, CascadeOut: !last}
				pr.Regs.Block(pr.Device.Addr(col, row, device.ProgramMemory), rec.Encode(), fmt.Sprintf("core (%d,%d): kernel record", col, row))
				pr.start(col, row, true, 0, 0, "start A")
				pr.start(col, row, true, 1, 2, "start B")
				if last {
					pr.start(col, row, false, 0, 4, "start C")
				}
				pr.Regs.Write(pr.Device.Addr(col, row, device.CoreControl), 1, "enable")
			}
		}
	}

	slow := 1000 * float64(p.Device.Core.StreamBytes) / p.Device.PLIOBytes()
	feed := func(f plan.Feed, base int64, slots int, slab, block int64, own, users int) *Feed {
		return &Feed{Mode: f, Base: base, Slots: slots, Slab: int(slab), Block: int(block), Outer: p.Outer(), Inner: p.Inner(), Steps: p.Steps, OuterIsOwn: own == 1, Users: users}
	}
	ownA, ownB := 1, 0
	if p.OuterN {
		ownA, ownB = 0, 1
	}
	sizeA := int64(p.SlotsA) * p.SlabA()
	if p.FeedA == plan.Resident {
		sizeA = p.BytesA()
	}
	pr.Feeds[0] = feed(p.FeedA, 0, p.SlotsA, p.SlabA(), p.BlockA(), ownA, p.Rows*p.Chain)
	pr.Feeds[1] = feed(p.FeedB, sizeA, p.SlotsB, p.SlabB(), p.BlockB(), ownB, p.Groups*p.Chain)
	pr.FPGA = p.FPGABytes
	mover := func(f *Feed, block int) Port {
		pr.Movers = append(pr.Movers, Mover{Feed: f, Offset: block * f.Block})
		return Port{Kind: PLIn, Chan: len(pr.Movers) - 1}
	}
	for r := range p.Rows {
		for q := range p.Chain {
			link := Link{From: mover(pr.Feeds[0], r*p.Chain+q), Ticks: slow, Depth: fifoWords}
			for z := range p.Groups {
				col, row := p.CoreAt(r, z, q)
				link.To = append(link.To, Port{CoreS2MM, col, row, 0})
			}
			pr.Links = append(pr.Links, link)
		}
	}
	for z := range p.Groups {
		for q := range p.Chain {
			link := Link{From: mover(pr.Feeds[1], z*p.Chain+q), Ticks: slow, Depth: fifoWords}
			for r := range p.Rows {
				col, row := p.CoreAt(r, z, q)
				link.To = append(link.To, Port{CoreS2MM, col, row, 1})
			}
			pr.Links = append(pr.Links, link)
		}
	}
	for z := range p.Groups {
		for r := range p.Rows {
			q := p.ChainOrder(r+1, p.Chain-1)
			col, row := p.CoreAt(r, z, q)
			pr.Sinks = append(pr.Sinks, Sink{r, z})
			plCol, lane := p.Lane(r, z)
			pr.Links = append(pr.Links, Link{From: Port{CoreMM2S, col, row, 0}, To: []Port{{Kind: PLOut, Chan: len(pr.Sinks) - 1}},
				Ticks: slow, Depth: fifoWords, Lane: 1 + plCol*p.Device.PLOut + lane})
		}
	}
	return pr, nil
}
