package onnx

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("NonZero", since(9, 13), func(c *call) {
		t := c.data(c.in(0))
		rank := int(t.Rank)
		var at [][]int64
		for i, v := range t.Floats() {
			if v == 0 {
				continue
			}
			pos := make([]int64, rank)
			rest := i
			for d := rank - 1; d >= 0; d-- {
				pos[d] = int64(rest % t.Dims[d])
				rest /= t.Dims[d]
			}
			at = append(at, pos)
		}
		out := c.alloc(tensor.I64, rank, len(at))
		for j, pos := range at {
			for d, p := range pos {
				tensor.Data[int64](out)[d*len(at)+j] = p
			}
		}
		c.out(knownValue(out))
	})
	register("NonMaxSuppression", since(10, 11), nonMaxSuppression)
	register("Unique", since(11), unique)
}

func nonMaxSuppression(c *call) {
	boxes, scores := c.data(c.in(0)), c.data(c.in(1))
	if boxes.Rank != 3 || boxes.Dims[2] != 4 || scores.Rank != 3 || scores.Dims[0] != boxes.Dims[0] || scores.Dims[2] != boxes.Dims[1] {
		c.fail("boxes %v, scores %v", c.in(0), c.in(1))
	}
	most, threshold, floor := 0, 0.0, math.Inf(-1)
	if c.has(2) {
		most = c.int(c.in(2))
	}
	if c.has(3) {
		threshold = c.scalar(c.in(3))
	}
	if c.has(4) {
		floor = c.scalar(c.in(4))
	}
	center := c.attrInt("center_point_box", 0) == 1
	b, s := boxes.Floats(), scores.Floats()
	n, classes := boxes.Dims[1], scores.Dims[1]
	corners := func(i int) (y0, x0, y1, x1 float64) {
		v := b[4*i : 4*i+4]
		if center {
			return v[1] - v[3]/2, v[0] - v[2]/2, v[1] + v[3]/2, v[0] + v[2]/2
		}
		return min(v[0], v[2]), min(v[1], v[3]), max(v[0], v[2]), max(v[1], v[3])
	}
	overlap := func(i, j int) float64 {
		ay0, ax0, ay1, ax1 := corners(i)
		by0, bx0, by1, bx1 := corners(j)
		inter := max(min(ay1, by1)-max(ay0, by0), 0) * max(min(ax1, bx1)-max(ax0, bx0), 0)
		union := (ay1-ay0)*(ax1-ax0) + (by1-by0)*(bx1-bx0) - inter
		if union <= 0 {
			return 0
		}
		return inter / union
	}
	var picked []int64
	for batch := range boxes.Dims[0] {
		for cls := range classes {
			row := s[(batch*classes+cls)*n : (batch*classes+cls+1)*n]
			var order []int
			for i, v := range row {
				if v > floor {
					order = append(order, i)
				}
			}
			sort.SliceStable(order, func(a, b int) bool { return row[order[a]] > row[order[b]] })
			var kept []int
			for _, i := range order {
				if len(kept) >= most {
					break
				}
				if !slices.ContainsFunc(kept, func(j int) bool { return overlap(batch*n+i, batch*n+j) > threshold }) {
					kept = append(kept, i)
					picked = append(picked, int64(batch), int64(cls), int64(i))
				}
			}
		}
	}
	out := c.alloc(tensor.I64, len(picked)/3, 3)
	copy(tensor.Data[int64](out), picked)
	c.out(knownValue(out))
}

// slicesOrder compares slices along an axis of n elements, element by element.
func slicesOrder[T cmp.Ordered](v []T, outer, n, inner int) func(a, b int) int {
	return func(a, b int) int {
		for o := range outer {
			p, q := v[(o*n+a)*inner:][:inner], v[(o*n+b)*inner:][:inner]
			if c := slices.Compare(p, q); c != 0 {
				return c
			}
		}
		return 0
	}
}

// unique finds the different elements, or the different slices along an axis.
func unique(c *call) {
	x := c.in(0)
	t := c.data(x)
	sorted := c.attrBool("sorted", true)
	flat := c.n.Attr("axis") == nil
	axis, outer, n, inner := 0, 1, t.Elems(), 1
	if !flat {
		axis = c.axis(c.attrInt("axis", 0), int(t.Rank))
		n = t.Dims[axis]
		for i, d := range t.Shape() {
			if i < axis {
				outer *= d
			} else if i > axis {
				inner *= d
			}
		}
	}
	order := identity(n)
	var compare func(a, b int) int
	if t.DType.IsInt() { // 64 bits are more than a float64 holds
		compare = slicesOrder(t.Ints(), outer, n, inner)
	} else {
		compare = slicesOrder(t.Floats(), outer, n, inner)
	}
	sort.SliceStable(order, func(a, b int) bool { return compare(order[a], order[b]) < 0 })
	var first []int // index of the first occurrence of each different slice
	group := make([]int, n)
	for k, i := range order {
		if k == 0 || compare(order[k-1], i) != 0 {
			first = append(first, i)
		}
		group[i] = len(first) - 1
	}
	rank := identity(len(first)) // position in the output of each group
	if !sorted {
		slices.Sort(first)
		for pos, i := range first {
			rank[group[i]] = pos
		}
	}
	counts, inverse := make([]int64, len(first)), make([]int64, n)
	for i := range n {
		inverse[i] = int64(rank[group[i]])
		counts[inverse[i]]++
	}
	dims := []int{len(first)}
	if !flat {
		dims = t.Shape()
		dims[axis] = len(first)
	}
	out := c.alloc(t.DType, dims...)
	src, dst := elementsOf(t), elementsOf(out)
	where := make([]int64, len(first))
	for pos, i := range first {
		where[pos] = int64(i)
		for o := range outer {
			for j := range inner {
				copy(dst.at((o*len(first)+pos)*inner+j), src.at((o*n+i)*inner+j))
			}
		}
	}
	c.out(knownValue(out), knownValue(tensor.Of(where, len(where))), knownValue(tensor.Of(inverse, n)), knownValue(tensor.Of(counts, len(counts))))
}
