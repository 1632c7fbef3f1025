package xdna

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/gemm/ordered"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/quant/bfp16"
	"github.com/tessera-go/tessera/tensor"
)

// signed views bytes as int8.
func signed(b []byte) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(b))), len(b))
}

// fastB is a weight in the panels of the CPU's kernels. Integers are exact in any order, so they use the engine's product, in chunks of k only where
// partial sums saturate. Floats use the ordered kernels, with K padded to what the array computes and bfp16 operands replaced by their blocks' values.
type fastB struct {
	ints   []*gemm.PackedB // one for all of K, or one for each chunk
	chunk  int
	floats []float32
	kPad   int
	exps   expRange
}

// expRange is a range of shared exponents; lo > hi means none.
type expRange struct{ lo, hi int }

func noExps() expRange { return expRange{math.MaxInt32, math.MinInt32} }

func (e *expRange) add(lo, hi int) { e.lo, e.hi = min(e.lo, lo), max(e.hi, hi) }

// exact reports whether sums of groups with these exponents stay exact in float32: between 2^-149 and 2^127 with 17 bits of sum.
func (e expRange) exact(o expRange) bool {
	return e.lo > e.hi || o.lo > o.hi || e.lo+o.lo >= 117 && e.hi+o.hi <= 376
}

func (f *fastB) bytes() int {
	n := 4 * len(f.floats)
	for _, b := range f.ints {
		n += b.Bytes()
	}
	return n
}

func (f *fastB) close() error {
	var errs []error
	for _, b := range f.ints {
		errs = append(errs, b.Close())
	}
	f.ints, f.floats = nil, nil
	return errors.Join(errs...)
}

// paddedK is K as the array computes it with padding in whole blocks of k_mt. With zeros appended in the MemTiles there are fewer chunks, and a chunk of zeros
// changes nothing but the sign of a zero.
func paddedK(d *design.Design, k int) int {
	unit := d.KMT
	if d.Padding == design.PadMemTile {
		unit = d.Tile.K
	}
	return (k + unit - 1) / unit * unit
}

func newFastB(p *packed, threads int) (*fastB, error) {
	f := &fastB{exps: noExps()}
	d := p.d
	if p.types.B == kernel.I8 {
		f.chunk = p.k
		if d.Overflow == kernel.Saturate && p.types.C != kernel.I32 {
			f.chunk = d.Tile.K
		}
		for k := 0; k < p.k; k += f.chunk {
			n := min(f.chunk, p.k-k)
			var m gemm.Matrix
			if d.BLayout == design.ColMajor {
				m = gemm.Raw(gemm.S8, p.data[k:], n, p.n, 1, p.pitch)
			} else {
				m = gemm.Raw(gemm.S8, p.data[k*p.pitch:], n, p.n, p.pitch, 1)
			}
			b, err := gemm.PackB(m, &gemm.Options{Threads: threads})
			if err != nil {
				return nil, err
			}
			f.ints = append(f.ints, b)
		}
		p.data = nil
		return f, nil
	}
	f.kPad = paddedK(d, p.k)
	f.floats = make([]float32, ordered.PaddedN(p.n)*f.kPad)
	wide, slim := ordered.Panels(p.n)
	ranges := make([]expRange, wide+slim)
	par.Run(threads, wide+slim, jobs(func(_, q int) {
		j0, w := panelAt(q, wide)
		col := make([]float32, f.kPad)
		out := f.floats[j0*f.kPad:]
		ranges[q] = noExps()
		for j := j0; j < min(j0+w, p.n); j++ {
			p.column(col, j, &ranges[q])
			for k, v := range col {
				out[k*w+j-j0] = v
			}
		}
	}))
	for _, r := range ranges {
		if r.lo <= r.hi {
			f.exps.add(r.lo, r.hi)
		}
	}
	if !p.bfp {
		p.data = nil
	}
	return f, nil
}

// panelAt is the first column and the width of panel q.
func panelAt(q, wide int) (j0, w int) {
	if q < wide {
		return 48 * q, 48
	}
	return 48*wide + 32*(q-wide), 32
}

// column reads column j of the packed weights as the kernel computes with it, padded with zeros.
func (p *packed) column(col []float32, j int, exps *expRange) {
	clear(col[p.k:])
	switch {
	case p.types.B == kernel.BFP16:
		groups := (p.k + 7) / 8
		decodeBlocks(col[:8*groups], p.data[j*groups*bfp16.Bytes:][:groups*bfp16.Bytes], exps)
		return
	default:
		p.bf16Column(col[:p.k], j)
	}
	if p.bfp {
		exps.add(kernel.Quantize(col, p.d.Rounding))
	}
}

// bf16Column reads column j of bfloat16 weights.
func (p *packed) bf16Column(col []float32, j int) {
	if p.d.BLayout == design.ColMajor {
		widen(col, p.data[j*p.pitch:])
		return
	}
	for k := range col {
		col[k] = tensor.BF16ToF32(binary.LittleEndian.Uint16(p.data[k*p.pitch+2*j:]))
	}
}

func widen(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// decodeBlocks gives the values of bfp16 blocks and notes the exponents of those that are finite and not zero.
func decodeBlocks(dst []float32, src []byte, exps *expRange) {
	bfp16.Decode(dst, src)
	for ; len(src) > 0; src = src[bfp16.Bytes:] {
		if src[0] != 255 && binary.LittleEndian.Uint64(src[1:]) != 0 {
			exps.add(int(src[0]), int(src[0]))
		}
	}
}

// fastRun is the scratch memory of a product in fast mode.
type fastRun struct {
	a      []float32 // micropanels
	c      []float32 // rows of whole panels, ld apart
	ld     int
	ints   []int32
	ranges []expRange
	rows   [][]float32 // by worker
	blocks int         // of rows

	// The slow path: bfp16 blocks of B, and of a row of A by worker.
	b    []byte
	line int // bytes of a row of blocks
}

// rowsPerJob is how many rows of A one job takes: enough to reuse a panel of B from cache, few enough to balance.
const rowsPerJob = 64

// floatProduct computes C for float types into s.fast.c.
func (p *mmPlan) floatProduct(s *space) {
	run, w := &s.fast, s.w
	kPad := w.fast.kPad
	rows := ordered.PaddedM(p.rows, ordered.MR)
	run.ld = ordered.PaddedN(p.spec.N)
	run.a = grow(run.a, rows*kPad)
	run.c = grow(run.c, rows*run.ld)
	clear(run.c)
	run.blocks = (rows + rowsPerJob - 1) / rowsPerJob
	run.ranges = grow(run.ranges, run.blocks)
	for n := par.Workers(p.e.opt.Threads, run.blocks); len(run.rows) < n; {
		run.rows = append(run.rows, nil)
	}
	s.region(p, doPack, run.blocks)
	if w.bfp {
		for _, e := range run.ranges[:run.blocks] {
			if !e.exact(w.fast.exps) {
				p.slowProduct(s)
				return
			}
		}
	}
	wide, slim := ordered.Panels(p.spec.N)
	s.region(p, doMultiply, (wide+slim)*run.blocks)
}

// packRows brings a block of rows of A into micropanels, as the kernel computes with them.
func (s *space) packRows(worker, job int) {
	p, run := s.p, &s.fast
	kPad, k := s.w.fast.kPad, p.spec.K
	row := grow(run.rows[worker], kPad)
	run.rows[worker] = row
	rows := ordered.PaddedM(p.rows, ordered.MR)
	bfp := s.w.bfp
	e := noExps()
	for i := job * rowsPerJob; i < min((job+1)*rowsPerJob, rows); i++ {
		clear(row)
		switch {
		case i >= p.rows:
		case p.how.types.A == kernel.BFP16:
			n := (k + 7) / 8
			decodeBlocks(row[:8*n], s.operand[i*n*bfp16.Bytes:][:n*bfp16.Bytes], &e)
		default:
			widen(row[:k], s.operand[i*p.pitchA:])
			if bfp {
				e.add(kernel.Quantize(row, p.d.Rounding))
			}
		}
		out := run.a[i/ordered.MR*ordered.MR*kPad+i%ordered.MR:]
		for q, v := range row {
			out[q*ordered.MR] = v
		}
	}
	run.ranges[job] = e
}

// multiply computes a panel's columns of a block of rows.
func (s *space) multiply(job int) {
	p, run, f := s.p, &s.fast, s.w.fast
	wide, _ := ordered.Panels(p.spec.N)
	q, block := job/run.blocks, job%run.blocks
	j0, n := panelAt(q, wide)
	i := block * rowsPerJob
	m := min(rowsPerJob, ordered.PaddedM(p.rows, ordered.MR)-i)
	ordered.F32(run.c[i*run.ld+j0:], run.ld, run.a[i*f.kPad:], ordered.MR*f.kPad, f.floats[j0*f.kPad:], f.kPad, m, n,
		f.kPad/p.d.Tile.K, p.d.Tile.K, s.w.bfp, kernel.Narrowing(p.how.types.C, p.d.Rounding))
}

// slowProduct is the bfp path from the blocks themselves, for values so large or small that sums of a group would leave float32.
func (p *mmPlan) slowProduct(s *space) {
	w, run := s.w, &s.fast
	kPad, k := w.fast.kPad, p.spec.K
	run.line = kPad / 8 * bfp16.Bytes
	run.b = grow(run.b, p.spec.N*run.line)
	values := make([]float32, kPad)
	for j := range p.spec.N {
		dst := run.b[j*run.line:][:run.line]
		switch {
		case w.types.B == kernel.BFP16:
			p.encodeRow(dst, kernel.BFP16, w.data[j*((k+7)/8*bfp16.Bytes):], values)
		case p.d.BLayout == design.ColMajor:
			p.encodeRow(dst, kernel.BF16, w.data[j*w.pitch:], values)
		default:
			clear(values)
			for q := range k {
				values[q] = tensor.BF16ToF32(binary.LittleEndian.Uint16(w.data[q*w.pitch+2*j:]))
			}
			bfp16.Encode(dst, values, bfp16.Rounding(p.d.Rounding))
		}
	}
	s.region(p, doSlow, p.rows)
	run.b = nil // as large as the weights, and seldom needed again
}

// encodeRow gives the blocks of K elements of an operand, padded with zeros.
func (p *mmPlan) encodeRow(dst []byte, typ kernel.Type, src []byte, values []float32) {
	k := p.spec.K
	if typ == kernel.BFP16 {
		clear(dst)
		copy(dst, src[:(k+7)/8*bfp16.Bytes])
		return
	}
	clear(values)
	widen(values[:k], src)
	bfp16.Encode(dst, values, bfp16.Rounding(p.d.Rounding))
}

// slowRow computes a row of C from blocks.
func (s *space) slowRow(i int) {
	p, run := s.p, &s.fast
	pitch := p.pitchA
	if p.how.types.A == kernel.BFP16 {
		pitch = (p.spec.K + 7) / 8 * bfp16.Bytes
	}
	row := make([]byte, run.line)
	p.encodeRow(row, p.how.types.A, s.operand[i*pitch:], make([]float32, s.w.fast.kPad))
	narrow := kernel.Narrowing(p.how.types.C, p.d.Rounding)
	for j := range p.spec.N {
		var acc float32
		for g := 0; g < run.line; g += bfp16.Bytes {
			acc += bfp16.Dot(row[g:g+bfp16.Bytes], run.b[j*run.line+g:][:bfp16.Bytes])
			if q := g/bfp16.Bytes*8 + 8; q%p.d.Tile.K == 0 {
				acc = narrow.Round(acc)
			}
		}
		run.c[i*run.ld+j] = acc
	}
}

// intProduct computes C for int8 operands, as int32 rows ld apart, already clipped where the core would clip.
func (p *mmPlan) intProduct(s *space, c []int32, ld int) error {
	f, n := s.w.fast, p.spec.N
	s.opt = gemm.Options{Threads: p.e.opt.Threads}
	for i, b := range f.ints {
		s.opt.Accumulate = i > 0
		k := i * f.chunk
		a := gemm.Raw(gemm.S8, s.operand[k:], p.rows, min(f.chunk, p.spec.K-k), p.pitchA, 1)
		if err := gemm.MulPacked(gemm.View(c, p.rows, n, ld, 1), a, b, &s.opt); err != nil {
			return err
		}
		if p.d.Overflow == kernel.Saturate {
			kernel.SaturateInts(c[:(p.rows-1)*ld+n], p.how.types.C)
		}
	}
	return nil
}

// grow returns a slice of n elements, in the memory of s if that is enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
