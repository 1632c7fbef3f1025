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
	if !p.bfp() {
		p.data = nil
	}
	return f, nil
}

// bfp reports whether the product runs on the block floating point path.
func (p *packed) bfp() bool {
	mode, err := p.e.dev.Mode(p.types)
	return err == nil && mode.Arith == kernel.BFP
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
	case p.d.BLayout == design.ColMajor:
		widen(col[:p.k], p.data[j*p.pitch:])
	default:
		for k := range p.k {
			col[k] = tensor.BF16ToF32(binary.LittleEndian.Uint16(p.data[k*p.pitch+2*j:]))
		}
	}
	if p.bfp() {
		exps.add(kernel.Quantize(col, p.d.Rounding))
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
	c      []float32 // rows of whole panels
	ints   []int32
	ranges []expRange
	rows   [][]float32 // by worker
}

// rowsPerJob is how many rows of A one job takes: enough to reuse a panel of B from cache, few enough to balance.
const rowsPerJob = 64

// floatProduct computes C for float types into run.c, whose rows are ld apart.
func (p *mmPlan) floatProduct(run *fastRun, w *packed, a []byte) (ld int) {
	threads := p.e.opt.Threads
	f := w.fast
	kPad, k := f.kPad, p.spec.K
	rows := ordered.PaddedM(p.rows, ordered.MR)
	ld = ordered.PaddedN(p.spec.N)
	run.a = grow(run.a, rows*kPad)
	run.c = grow(run.c, rows*ld)
	clear(run.c)
	blocks := (rows + rowsPerJob - 1) / rowsPerJob
	run.ranges = grow(run.ranges, blocks)
	for n := par.Workers(threads, blocks); len(run.rows) < n; {
		run.rows = append(run.rows, nil)
	}
	isBFP := w.bfp()
	par.Run(threads, blocks, jobs(func(worker, job int) {
		row := grow(run.rows[worker], kPad)
		run.rows[worker] = row
		e := noExps()
		for i := job * rowsPerJob; i < min((job+1)*rowsPerJob, rows); i++ {
			clear(row)
			if i < p.rows {
				switch {
				case p.how.types.A == kernel.BFP16:
					n := (k + 7) / 8
					decodeBlocks(row[:8*n], a[i*n*bfp16.Bytes:][:n*bfp16.Bytes], &e)
				default:
					widen(row[:k], a[i*p.pitchA:])
					if isBFP {
						e.add(kernel.Quantize(row, p.d.Rounding))
					}
				}
			}
			out := run.a[i/ordered.MR*ordered.MR*kPad+i%ordered.MR:]
			for q, v := range row {
				out[q*ordered.MR] = v
			}
		}
		run.ranges[job] = e
	}))
	exact := true
	for _, e := range run.ranges[:blocks] {
		exact = exact && (!isBFP || e.exact(f.exps))
	}
	narrow := kernel.Narrowing(p.how.types.C, p.d.Rounding)
	wide, slim := ordered.Panels(p.spec.N)
	chunk := p.d.Tile.K
	if !exact {
		p.slowProduct(run, w, a, ld, narrow)
		return ld
	}
	par.Run(threads, (wide+slim)*blocks, jobs(func(_, job int) {
		q, block := job/blocks, job%blocks
		j0, n := panelAt(q, wide)
		i := block * rowsPerJob
		m := min(rowsPerJob, rows-i)
		ordered.F32(run.c[i*ld+j0:], ld, run.a[i*kPad:], ordered.MR*kPad, f.floats[j0*kPad:], kPad, m, n, kPad/chunk, chunk, isBFP, narrow)
	}))
	return ld
}

// slowProduct is the bfp path from the blocks themselves, for values so large or small that sums of a group would leave float32.
func (p *mmPlan) slowProduct(run *fastRun, w *packed, a []byte, ld int, narrow ordered.Narrow) {
	kPad, k := w.fast.kPad, p.spec.K
	line := kPad / 8 * bfp16.Bytes
	encode := func(dst []byte, typ kernel.Type, src []byte, values []float32) {
		clear(dst)
		if typ == kernel.BFP16 {
			copy(dst, src[:(k+7)/8*bfp16.Bytes])
			return
		}
		clear(values)
		widen(values[:k], src)
		bfp16.Encode(dst, values, bfp16.Rounding(p.d.Rounding))
	}
	values := make([]float32, kPad)
	b := make([]byte, p.spec.N*line)
	for j := range p.spec.N {
		switch {
		case w.types.B == kernel.BFP16:
			encode(b[j*line:][:line], kernel.BFP16, w.data[j*((k+7)/8*bfp16.Bytes):], values)
		case p.d.BLayout == design.ColMajor:
			encode(b[j*line:][:line], kernel.BF16, w.data[j*w.pitch:], values)
		default:
			clear(values)
			for q := range k {
				values[q] = tensor.BF16ToF32(binary.LittleEndian.Uint16(w.data[q*w.pitch+2*j:]))
			}
			bfp16.Encode(b[j*line:][:line], values, bfp16.Rounding(p.d.Rounding))
		}
	}
	pitch := p.pitchA
	if p.how.types.A == kernel.BFP16 {
		pitch = (k + 7) / 8 * bfp16.Bytes
	}
	par.Run(p.e.opt.Threads, p.rows, jobs(func(_, i int) {
		row := make([]byte, line)
		encode(row, p.how.types.A, a[i*pitch:], make([]float32, kPad))
		for j := range p.spec.N {
			var acc float32
			for g := 0; g < line; g += bfp16.Bytes {
				acc += bfp16.Dot(row[g:g+bfp16.Bytes], b[j*line+g:][:bfp16.Bytes])
				if q := g/bfp16.Bytes*8 + 8; q%p.d.Tile.K == 0 {
					acc = narrow.Round(acc)
				}
			}
			run.c[i*ld+j] = acc
		}
	}))
}

// intProduct computes C for int8 operands, as int32 rows of N, already clipped where the core would clip.
func (p *mmPlan) intProduct(c []int32, ld int, w *packed, a []byte, space *gemm.Workspace) error {
	f := w.fast
	opt := gemm.Options{Threads: p.e.opt.Threads, Workspace: space}
	n := p.spec.N
	if len(f.ints) == 1 {
		if err := gemm.MulPacked(gemm.View(c, p.rows, n, ld, 1), gemm.Raw(gemm.S8, a, p.rows, p.spec.K, p.pitchA, 1), f.ints[0], &opt); err != nil {
			return err
		}
		if p.d.Overflow == kernel.Saturate {
			kernel.SaturateInts(c[:(p.rows-1)*ld+n], p.how.types.C)
		}
		return nil
	}
	for i, b := range f.ints {
		opt.Accumulate = i > 0
		k := i * f.chunk
		if err := gemm.MulPacked(gemm.View(c, p.rows, n, ld, 1), gemm.Raw(gemm.S8, a[k:], p.rows, min(f.chunk, p.spec.K-k), p.pitchA, 1), b, &opt); err != nil {
			return err
		}
		kernel.SaturateInts(c[:(p.rows-1)*ld+n], p.how.types.C)
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
