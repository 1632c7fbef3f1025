package onnx

import (
	"slices"
	"strings"

	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/tensor"
)

func init() { register("Einsum", since(12), einsum) }

// einsum multiplies its inputs along named dimensions. Two inputs with nothing repeated become a matrix product; everything else
// is a product of broadcast views, summed.
func einsum(c *call) {
	eq := strings.ReplaceAll(c.attrString("equation", ""), " ", "")
	left, right, explicit := strings.Cut(eq, "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(c.ins) {
		c.fail("equation %q for %d inputs", eq, len(c.ins))
	}
	// Dimensions behind "..." get names of their own: A, B, ... aligned from the innermost.
	widest := 0
	for i, t := range terms {
		if strings.Contains(t, "...") {
			widest = max(widest, int(c.in(i).spec.Rank)-len(t)+3)
		}
	}
	if widest < 0 || widest > tensor.MaxRank {
		c.fail("equation %q for inputs of these ranks", eq)
	}
	names := []rune("\x01\x02\x03\x04\x05\x06\x07\x08")[:widest]
	var labels [][]rune
	sizes := map[rune]int{}
	count := map[rune]int{}
	for i, t := range terms {
		x := c.in(i)
		n := int(x.spec.Rank) - len(t) + 3
		var l []rune
		if before, after, ok := strings.Cut(t, "..."); ok {
			if n < 0 || n > widest {
				c.fail("term %q for %v", t, x)
			}
			l = append(append([]rune(before), names[widest-n:]...), []rune(after)...)
		} else {
			l = []rune(t)
		}
		if len(l) != int(x.spec.Rank) {
			c.fail("term %q for %v", t, x)
		}
		for d, r := range l {
			size := x.spec.Dims[d]
			if r > ' ' && (r < 'A' || r > 'z') {
				c.fail("equation %q", eq)
			}
			if have, ok := sizes[r]; ok && have != size && have != 1 && size != 1 {
				c.fail("dimension %q is %d and %d", r, have, size)
			}
			sizes[r] = max(sizes[r], size)
			if size == 0 {
				sizes[r] = 0
			}
			count[r]++
		}
		labels = append(labels, l)
	}
	var out []rune
	if explicit {
		before, after, ok := strings.Cut(right, "...")
		out = []rune(before)
		if ok {
			out = append(append(out, names...), []rune(after)...)
		}
	} else {
		out = slices.Clone(names)
		var once []rune
		for r, n := range count {
			if n == 1 && r > ' ' {
				once = append(once, r)
			}
		}
		slices.Sort(once)
		out = append(out, once...)
	}
	for i, r := range out {
		if count[r] == 0 || slices.Contains(out[:i], r) {
			c.fail("equation %q: %q in the result", eq, r)
		}
	}
	vs := make([]*value, len(terms))
	for i := range vs {
		vs[i], labels[i] = c.diagonals(c.in(i), labels[i])
	}
	y, l := vs[0], labels[0]
	for i := 1; i < len(vs); i++ {
		later := slices.Concat(labels[i+1:]...)
		y, l = c.contract(y, l, vs[i], labels[i], append(slices.Clone(out), later...))
	}
	y, l = c.sumOut(y, l, out)
	c.out(c.permute(y, order(l, out)...))
}

// order returns where each label of want stands in have.
func order(have, want []rune) []int {
	o := make([]int, len(want))
	for i, r := range want {
		o[i] = slices.Index(have, r)
	}
	return o
}

// diagonals takes the diagonal of dimensions that have the same label.
func (c *call) diagonals(x *value, l []rune) (*value, []rune) {
	for {
		i, j := -1, -1
		for k, r := range l {
			if f := slices.Index(l, r); f < k {
				i, j = f, k
				break
			}
		}
		if i < 0 {
			return x, l
		}
		n := x.spec.Dims[i]
		if x.spec.Dims[j] != n {
			c.fail("diagonal of %v", x)
		}
		// Behind each other, the two dimensions are one in which the diagonal is every (n+1)th element.
		ord := []int{}
		for k := range l {
			if k != i && k != j {
				ord = append(ord, k)
			}
		}
		rest := make([]int, len(ord))
		for k, o := range ord {
			rest[k] = x.spec.Dims[o]
		}
		moved := c.permute(x, append(slices.Clone(ord), i, j)...)
		idx := make([]int64, n)
		for k := range idx {
			idx[k] = int64(k * (n + 1))
		}
		flat := c.reshape(moved, append(slices.Clone(rest), n*n)...)
		diag := c.emit(gatherOp(len(rest)), flat, knownValue(tensor.Of(idx, n)))
		var nl []rune
		for _, o := range ord {
			nl = append(nl, l[o])
		}
		x, l = diag, append(nl, l[i])
	}
}

// sumOut sums dimensions whose label is not kept.
func (c *call) sumOut(x *value, l, keep []rune) (*value, []rune) {
	var axes []int
	var rest []rune
	for i, r := range l {
		if slices.Contains(keep, r) {
			rest = append(rest, r)
		} else {
			axes = append(axes, i)
		}
	}
	if len(axes) == 0 {
		return x, l
	}
	return c.reduce(reduce.Sum, x, axes, false), rest
}

// contract multiplies two tensors and sums the labels that nobody needs later, as a batched matrix product.
func (c *call) contract(a *value, la []rune, b *value, lb []rune, keep []rune) (*value, []rune) {
	onlyA, onlyB := slices.Clone(keep), slices.Clone(keep)
	a, la = c.sumOut(a, la, append(onlyA, lb...))
	b, lb = c.sumOut(b, lb, append(onlyB, la...))
	var batch, m, n, k []rune
	for _, r := range la {
		switch inB := slices.Contains(lb, r); {
		case inB && slices.Contains(keep, r):
			batch = append(batch, r)
		case inB:
			k = append(k, r)
		default:
			m = append(m, r)
		}
	}
	for _, r := range lb {
		if !slices.Contains(la, r) {
			n = append(n, r)
		}
	}
	dim := func(x *value, l []rune, r rune) int { return x.spec.Dims[slices.Index(l, r)] }
	same := true
	for _, r := range append(slices.Clone(batch), k...) {
		same = same && dim(a, la, r) == dim(b, lb, r)
	}
	all := slices.Concat(batch, m, n, k)
	if !same || !a.spec.DType.IsFloat() || len(all) > tensor.MaxRank { // sizes of 1 broadcast
		spread := func(x *value, l []rune) *value {
			var have []rune
			dims := make([]int, len(all))
			for i, r := range all {
				dims[i] = 1
				if slices.Contains(l, r) {
					have = append(have, r)
					dims[i] = dim(x, l, r)
				}
			}
			return c.reshape(c.permute(x, order(l, have)...), dims...)
		}
		y := c.binary(elementwise.Mul, spread(a, la), spread(b, lb))
		return c.sumOut(y, all, append(slices.Clone(keep), slices.Concat(batch, m, n)...))
	}
	size := func(x *value, l, of []rune) int {
		p := 1
		for _, r := range of {
			p *= dim(x, l, r)
		}
		return p
	}
	var dims []int
	for _, r := range batch {
		dims = append(dims, dim(a, la, r))
	}
	am := c.reshape(c.permute(a, order(la, slices.Concat(batch, m, k))...), append(slices.Clone(dims), size(a, la, m), size(a, la, k))...)
	bm := c.reshape(c.permute(b, order(lb, slices.Concat(batch, k, n))...), append(slices.Clone(dims), size(b, lb, k), size(b, lb, n))...)
	y := c.product(am, bm, narrowOut(a.spec.DType))
	for _, r := range m {
		dims = append(dims, dim(a, la, r))
	}
	for _, r := range n {
		dims = append(dims, dim(b, lb, r))
	}
	return c.reshape(y, dims...), slices.Concat(batch, m, n)
}
