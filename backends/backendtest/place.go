package backendtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/tessera-go/tessera/tensor"
)

// style is how a tensor lies in memory.
type style uint8

const (
	plain     style = iota // contiguous, aligned as buffers are
	offset                 // contiguous, one element off every alignment
	gapped                 // rows of a wider parent
	permuted               // dimensions in another order
	everyTwo               // every second element of the rows
	broadcast              // one dimension repeated with stride 0; inputs only
	numStyles
)

var styleNames = [numStyles]string{"plain", "offset", "gapped", "permuted", "every second", "broadcast"}

// sentinel is the byte around every tensor; as a float it is a number that spoils any sum, so that reading it shows too.
const sentinel = 0x7e

// margin is the number of bytes before and after a tensor's extent.
const margin = 192

// placed is a tensor in memory of its own, every other byte of which is a sentinel.
type placed struct {
	tensor.Tensor
	bytes []byte
	own   []bool // bytes of the tensor's elements
	copy  []byte
}

// place puts a tensor of a spec into memory in a style. A style that the spec does not allow becomes plain.
func place(r *rand.Rand, s tensor.Spec, st style) *placed {
	rank := int(s.Rank)
	block := s.DType.IsBlock()
	parent := s
	var order []int // of the parent's dimensions
	switch {
	case st == gapped && rank > 0 && !block:
		parent.Dims[rank-1] += 3
	case st == gapped && rank > 1: // rows of blocks are whole: gaps between them
		parent.Dims[rank-1] += s.DType.Block()
	case st == permuted && rank > 1 && !block:
		order = r.Perm(rank)
		for order[rank-1] == rank-1 && rank > 1 {
			order = r.Perm(rank)
		}
		for i, o := range order {
			parent.Dims[i] = s.Dims[o]
		}
	case st == everyTwo && rank > 0 && !block:
		parent.Dims[rank-1] *= 2
	case st == broadcast && rank > 0 && !(block && rank == 1):
		d := r.IntN(rank)
		if block {
			d = r.IntN(rank - 1)
		}
		if s.Dims[d] > 0 {
			parent.Dims[d] = 1
		}
	}
	size := parent.Bytes()
	raw := bytes.Repeat([]byte{sentinel}, size+2*margin+64)
	off := margin
	if st == offset {
		off += s.DType.Size()
		if block {
			off++
		}
	}
	t, err := tensor.At(tensor.WrapBytes(raw), off, parent)
	if err != nil {
		panic(err)
	}
	switch {
	case order != nil:
		inverse := make([]int, rank)
		for i, o := range order {
			inverse[o] = i
		}
		t, err = t.Permute(inverse...)
	case parent.Dims != s.Dims && st == gapped:
		t.Dims = s.Dims // rows keep the parent's stride
		t.Spec = s
	case parent.Dims != s.Dims && st == everyTwo:
		t, err = t.Slice(rank-1, 0, parent.Dims[rank-1], 2)
	case parent.Dims != s.Dims:
		t, err = t.Broadcast(s.Shape()...)
	}
	if err != nil {
		panic(err)
	}
	p := &placed{Tensor: t, bytes: raw, own: make([]bool, len(raw))}
	p.mark()
	return p
}

// mark notes the bytes of elements.
func (p *placed) mark() {
	t := p.Tensor
	size := t.DType.Size()
	if b := t.DType.Block(); b > 1 { // walk blocks instead of elements
		last := int(t.Rank) - 1
		t.Dims[last] /= b
		for i := range last {
			t.Strides[i] /= b
		}
	}
	t.DType = tensor.U8
	t.Each(func(_, off int) {
		at := p.Off + off*size
		for i := range size {
			p.own[at+i] = true
		}
	})
}

// keep remembers the memory, to see later what has changed.
func (p *placed) keep() { p.copy = bytes.Clone(p.bytes) }

// changed says which byte has changed that must not have: any byte of an input, the bytes that are not elements of a result.
func (p *placed) changed(result bool) string {
	for i, b := range p.bytes {
		if b == p.copy[i] || result && p.own[i] {
			continue
		}
		where := "inside its extent"
		if i < p.Off {
			where = fmt.Sprintf("%d bytes before it", p.Off-i)
		} else if end := p.Off + p.Extent(); i >= end {
			where = fmt.Sprintf("%d bytes behind it", i-end+1)
		}
		return fmt.Sprintf("a byte was changed %s (%v)", where, p.Tensor)
	}
	return ""
}

// garbage fills the elements of a result with what no kernel would leave there.
func (p *placed) garbage() {
	for i := range p.bytes {
		if p.own[i] {
			p.bytes[i] = 0xff
		}
	}
}
