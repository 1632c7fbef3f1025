package txn

// Pattern is a descriptor's addressing in true values, the same for all kinds of tiles. Addresses and lengths count 32-bit words.
type Pattern struct {
	Base   int64
	Length int64 // words of one run, with padding
	// Dims, innermost first. Size 0 takes all that is left; so does the last one always.
	Dims          []Dim
	Before, After [3]int // zero padding of dimensions 0 to 2
	// A run with iteration counter i starts at Base + i*IterStep. The counter starts at IterCurrent and returns to 0 after IterCount.
	IterCurrent, IterCount, IterStep int
}

func fieldDims(wraps, steps []uint32) []Dim {
	out := make([]Dim, len(steps))
	for i, s := range steps {
		out[i].Step = int(s) + 1
		if i < len(wraps) {
			out[i].Size = int(wraps[i])
		}
	}
	return out
}

// Pattern gives the descriptor's addressing.
func (d *ShimBD) Pattern() Pattern {
	return Pattern{
		Base: int64(d.Addr / 4), Length: int64(d.Length),
		Dims:        fieldDims([]uint32{d.D0Wrap, d.D1Wrap}, []uint32{d.D0Step, d.D1Step, d.D2Step}),
		IterCurrent: int(d.IterCurrent), IterCount: int(d.IterWrap) + 1, IterStep: int(d.IterStep) + 1,
	}
}

// Pattern gives the descriptor's addressing.
func (d *MemBD) Pattern() Pattern {
	p := Pattern{
		Base: int64(d.Base), Length: int64(d.Length),
		Dims:        fieldDims([]uint32{d.D0Wrap, d.D1Wrap, d.D2Wrap}, []uint32{d.D0Step, d.D1Step, d.D2Step, d.D3Step}),
		IterCurrent: int(d.IterCurrent), IterCount: int(d.IterWrap) + 1, IterStep: int(d.IterStep) + 1,
	}
	for i := range 3 {
		p.Before[i], p.After[i] = int(d.Before[i]), int(d.After[i])
	}
	return p
}

// Pattern gives the descriptor's addressing.
func (d *CoreBD) Pattern() Pattern {
	return Pattern{
		Base: int64(d.Base), Length: int64(d.Length),
		Dims:        fieldDims([]uint32{d.D0Wrap, d.D1Wrap}, []uint32{d.D0Step, d.D1Step, d.D2Step}),
		IterCurrent: int(d.IterCurrent), IterCount: int(d.IterWrap) + 1, IterStep: int(d.IterStep) + 1,
	}
}

// Zero is the address that Runs gives for padding.
const Zero = -1

// Runs calls yield with the stretches of consecutive words of the run with iteration counter iter, in stream order: their first word address, or Zero for
// padding, and their length. It stops early if yield returns false. Neighbouring stretches that happen to touch are joined only inside a dimension.
func (p *Pattern) Runs(iter int, yield func(addr, n int64) bool) {
	base := p.Base + int64(iter)*int64(p.IterStep)
	left := p.Length
	dims := p.Dims
	// Size 0 ends the pattern: that dimension takes everything, so those above it never advance.
	for i := range dims {
		if dims[i].Size == 0 {
			dims = dims[:i+1]
			break
		}
	}
	emit := func(addr, n int64) bool {
		n = min(n, left)
		if n <= 0 {
			return left > 0
		}
		left -= n
		return yield(addr, n) && left > 0
	}
	// row emits dimension 0.
	row := func(start int64, size int64, step int64) bool {
		if step == 1 {
			return emit(start, size)
		}
		for i := int64(0); i < size; i++ {
			if !emit(start+i*step, 1) {
				return false
			}
		}
		return true
	}
	// blockLen is the padded length of one block of dimension d-1, which padding of dimension d counts in.
	var blockLen [4]int64
	blockLen[0] = 1
	for d := 0; d < len(dims) && d < 3; d++ {
		blockLen[d+1] = blockLen[d] * int64(p.Before[d]+dims[d].Size+p.After[d])
	}
	var walk func(d int, start int64) bool
	walk = func(d int, start int64) bool {
		size := int64(dims[d].Size)
		if d == len(dims)-1 {
			size = left // enough: the length ends it
		}
		step := int64(dims[d].Step)
		if d < 3 && p.Before[d] > 0 {
			if !emit(Zero, int64(p.Before[d])*blockLen[d]) {
				return false
			}
		}
		if d == 0 {
			if !row(start, size, step) {
				return false
			}
		} else {
			for i := int64(0); i < size; i++ {
				if !walk(d-1, start+i*step) {
					return false
				}
			}
		}
		if d < 3 && p.After[d] > 0 {
			return emit(Zero, int64(p.After[d])*blockLen[d])
		}
		return left > 0
	}
	if left > 0 && len(dims) > 0 {
		walk(len(dims)-1, base)
	}
}
