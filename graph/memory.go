package graph

import (
	"cmp"
	"slices"

	"github.com/tessera-go/tessera/internal/mem"
)

// A block is one piece of memory of the plan: the values that share it live from node first to node last, both inclusive.
type block struct {
	bytes       int
	first, last int
	offset      int
}

// placeBlocks gives every block an offset in one arena such that blocks that live together do not overlap, and returns the
// arena's size. Blocks are placed one after the other, each into the tightest gap that holds it (best fit). With all lifetimes
// known a greedy order comes close to the lower bound, the most bytes that live at one time; which order does differs, so several
// are tried and the best is kept.
func placeBlocks(blocks []*block) int {
	span := func(b *block) int { return b.last - b.first + 1 }
	orders := []func(a, b *block) int{
		func(a, b *block) int { return b.bytes - a.bytes },                                       // largest first
		func(a, b *block) int { return b.bytes*span(b) - a.bytes*span(a) },                       // largest area first
		func(a, b *block) int { return cmp.Or(span(b)-span(a), b.bytes-a.bytes) },                // longest-lived first
		func(a, b *block) int { return cmp.Or(a.first-b.first, b.last-a.last) },                  // in the order of execution
		func(a, b *block) int { return cmp.Or(b.last-a.last, a.first-b.first, b.bytes-a.bytes) }, // backwards
	}
	low := liveBytes(blocks, lastNode(blocks))
	best, offsets := -1, make([]int, len(blocks))
	for _, order := range orders {
		sorted := append([]*block(nil), blocks...)
		slices.SortStableFunc(sorted, order)
		size := bestFit(sorted)
		if best < 0 || size < best {
			best = size
			for i, b := range blocks {
				offsets[i] = b.offset
			}
		}
		if best == low {
			break
		}
	}
	for i, b := range blocks {
		b.offset = offsets[i]
	}
	return max(best, 0)
}

// bestFit places blocks in the given order and returns the size they need.
func bestFit(order []*block) int {
	var placed []*block // sorted by offset
	size := 0
	for _, b := range order {
		best, bestGap, end := -1, 0, 0
		for _, p := range placed {
			if p.last < b.first || p.first > b.last {
				continue
			}
			if gap := p.offset - end; gap >= b.bytes && (best < 0 || gap < bestGap) {
				best, bestGap = end, gap
			}
			end = max(end, p.offset+p.bytes)
		}
		if best < 0 {
			best = end
		}
		b.offset = best
		size = max(size, best+b.bytes)
		at, _ := slices.BinarySearchFunc(placed, b.offset, func(p *block, off int) int { return p.offset - off })
		placed = slices.Insert(placed, at, b)
	}
	return size
}

func lastNode(blocks []*block) int {
	last := 0
	for _, b := range blocks {
		last = max(last, b.last)
	}
	return last
}

// liveBytes returns the most bytes that live at one time: no plan needs less.
func liveBytes(blocks []*block, nodes int) int {
	change := make([]int, nodes+2)
	for _, b := range blocks {
		change[b.first] += b.bytes
		change[b.last+1] -= b.bytes
	}
	live, most := 0, 0
	for _, c := range change {
		live += c
		most = max(most, live)
	}
	return most
}

func aligned(n int) int {
	r, _ := mem.RoundUp(n, mem.Align)
	return r
}
