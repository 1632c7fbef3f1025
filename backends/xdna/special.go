package xdna

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/quant/bfp16"
	"github.com/tessera-go/tessera/tensor"
)

// This file decides what becomes of NaN and infinity where the array's numbers hold none: int8, and blocks of bfp16, all of whose values one such operand
// spoils. An infinite operand makes its whole row or column of C infinite or NaN, whatever the other operand. So the host notes these rows of A and columns of B
// when it converts them, and computes their results itself, as float32; no other result is touched.

// bf16Inf is the bit pattern of infinity in bfloat16.
const bf16Inf = 0x7f80

// finite reports whether a number is one.
func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

// findSpecials keeps the columns that hold a NaN or an infinity. Read gives the K elements of a column as they came.
func (p *packed) findSpecials(read func(col []float32, j int)) {
	var mu sync.Mutex
	const group = 16
	par.Run(p.e.opt.Threads, (p.n+group-1)/group, jobs(func(_, g int) {
		col := make([]float32, p.k)
		for j := g * group; j < min((g+1)*group, p.n); j++ {
			read(col, j)
			var most uint32
			for _, v := range col {
				most = max(most, math.Float32bits(v)&0x7fffffff)
			}
			if most < 0x7f800000 {
				continue
			}
			mu.Lock()
			if p.specials == nil {
				p.specials = map[int][]float32{}
			}
			p.specials[j] = append([]float32(nil), col...)
			mu.Unlock()
		}
	}))
}

// specialRows are the rows of A with a NaN or an infinity, of one run.
type specialRows struct {
	any  atomic.Bool
	mark []bool
	c    map[int][]float32 // their rows of C, but for the columns that are special themselves
}

func (r *specialRows) reset(rows int) {
	if r.any.Swap(false) || len(r.mark) != rows {
		r.mark = grow(r.mark, rows)
		clear(r.mark)
	}
	r.c = nil
}

// note marks a row. Workers mark rows of their own.
func (r *specialRows) note(i int) {
	r.mark[i] = true
	r.any.Store(true)
}

// find marks the rows of a bfloat16 matrix that hold a NaN or an infinity.
func (r *specialRows) find(in rows, n, k int) {
	for i := range n {
		row := in.data[i*in.pitch:][:2*k]
		most := uint16(0)
		for ; len(row) > 1; row = row[2:] {
			most = max(most, binary.LittleEndian.Uint16(row)&0x7fff)
		}
		if most >= bf16Inf {
			r.note(i)
		}
	}
}

// rowOfA reads a row of activations as it came, rounded to the array's float type where that may overflow.
func (s *space) rowOfA(row []float32, i int) {
	readFloats(row, s.in.typ, s.in.data[i*s.in.pitch:])
	if s.p.how.types.A == kernel.BF16 {
		for k, v := range row {
			row[k] = tensor.BF16ToF32(tensor.F32ToBF16(v))
		}
	}
}

// computeSpecials computes the rows of C of the special rows of A. Only products of what is not finite count: the rest of the sum changes nothing.
func (p *mmPlan) computeSpecials(ctx context.Context, s *space) error {
	if !s.special.any.Load() {
		return nil
	}
	n, k := p.spec.N, p.spec.K
	s.special.c = map[int][]float32{}
	infinite := make(map[int]map[int]float32) // by position along K, then by row
	row := make([]float32, k)
	for i, special := range s.special.mark {
		if !special {
			continue
		}
		c := make([]float32, n)
		s.special.c[i] = c
		s.rowOfA(row, i)
		for q, v := range row {
			switch {
			case v != v: // the whole row is NaN
				for j := range c {
					c[j] = v
				}
			case !finite(v):
				if infinite[q] == nil {
					infinite[q] = map[int]float32{}
				}
				infinite[q][i] = v
			}
		}
	}
	b := make([]float32, n)
	for q, byRow := range infinite {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.w.row(b, q, p.e.opt.Threads); err != nil {
			return err
		}
		for i, v := range byRow {
			for j, c := 0, s.special.c[i]; j < n; j++ {
				c[j] += v * b[j]
			}
		}
	}
	return nil
}

// putSpecials puts the results with special operands into row i of C, before the epilogue.
func (s *space) putSpecials(x []float32, i int) {
	if s.p.run == nil {
		return
	}
	count := len(s.w.specials)
	if c := s.special.c[i]; c != nil {
		copy(x, c)
		count = len(c)
	}
	if count == 0 {
		return
	}
	if len(s.w.specials) > 0 {
		row := make([]float32, s.p.spec.K)
		s.rowOfA(row, i)
		for j, col := range s.w.specials {
			x[j] = 0
			for k, v := range row {
				x[j] += float32(v * col[k])
			}
		}
	}
	s.p.e.hostResults.Add(int64(count))
}

// row reads row k of B, up to a positive factor for each column.
func (p *packed) row(dst []float32, k, threads int) error {
	switch {
	case p.types.B == kernel.BFP16:
		line := (p.k + bfp16.Values - 1) / bfp16.Values * bfp16.Bytes
		for j := range dst {
			block := p.data[j*line+k/bfp16.Values*bfp16.Bytes:]
			dst[j] = float32(int8(block[1+k%bfp16.Values])) * bfp16.Scale(block[0])
		}
	case p.types.B == kernel.BF16:
		for j := range dst {
			dst[j] = tensor.BF16ToF32(binary.LittleEndian.Uint16(p.at(k, j, 2)))
		}
	case p.fast == nil:
		for j := range dst {
			dst[j] = float32(int8(p.at(k, j, 1)[0]))
		}
	default: // the panels are the kernels' business, but a product with a row of the identity gives what they hold
		part := p.fast.ints[k/p.fast.chunk]
		one := make([]int8, min(p.fast.chunk, p.k-k/p.fast.chunk*p.fast.chunk))
		one[k%p.fast.chunk] = 1
		c := make([]int32, len(dst))
		if err := gemm.MulPacked(gemm.Of(c, 1, len(c)), gemm.Of(one, 1, len(one)), part, &gemm.Options{Threads: threads}); err != nil {
			return err
		}
		for j, v := range c {
			dst[j] = float32(v)
		}
	}
	return nil
}

// at is the memory of element k of column j, of so many bytes.
func (p *packed) at(k, j, size int) []byte {
	if p.d.BLayout == design.RowMajor {
		return p.data[k*p.pitch+j*size:]
	}
	return p.data[j*p.pitch+k*size:]
}
