package kernel

import (
	"encoding/binary"
	"math"

	"github.com/tessera-go/tessera/backends/cpu/gemm/ordered"
	"github.com/tessera-go/tessera/quant/bfp16"
)

// Tile runs a record's kernel on the bytes of one core. Between chunks it keeps the C tile in the accumulators' type, already narrowed to C's type, and
// stores it in the blocked layout at the end: nobody else may touch a C buffer that the core has acquired, so the difference to loading and storing it in each chunk
// cannot be seen. A Tile is used by one goroutine at a time.
type Tile struct {
	r      *Record
	rows   int // rows of a band
	padded int // rows of a band in the scratch
	ld     int // columns of the scratch

	ints   []int32
	floats []float32

	a8   []byte
	b8   []int8
	bias []int32
	af   []float32
	bf   []float32
	row  []float32 // a row of the operand that is being packed
	rawB []byte    // the B chunk, for products that leave float32's normal range
	expB expRange
	bits []byte // scratch of the slow path
}

// expRange is the range of shared exponents among blocks that are not zero and not special.
type expRange struct{ lo, hi int }

// NewTile prepares to run r, which must be valid.
func NewTile(r *Record) *Tile {
	t := &Tile{r: r, rows: r.M / r.Bands, ld: ordered.PaddedN(r.N)}
	switch r.Arith {
	case Int:
		t.padded = ordered.PaddedM(t.rows, ordered.MRS8)
		t.ints = make([]int32, t.padded*r.Bands*t.ld)
		t.a8 = make([]byte, t.padded*quads(r.K))
		t.b8 = make([]int8, t.ld*quads(r.K))
		t.bias = make([]int32, t.ld)
	default:
		t.padded = ordered.PaddedM(t.rows, ordered.MR)
		t.floats = make([]float32, t.padded*r.Bands*t.ld)
		t.af = make([]float32, t.padded*r.K)
		t.bf = make([]float32, t.ld*r.K)
		t.row = make([]float32, r.K)
	}
	return t
}

// quads rounds k up to whole groups of 4.
func quads(k int) int { return (k + 3) &^ 3 }

// Zero begins an output tile.
func (t *Tile) Zero() {
	clear(t.ints)
	clear(t.floats)
}

// LoadB takes the B buffer of a chunk ([Record.BBytes]). The bytes must not change before the chunk's last Band.
func (t *Tile) LoadB(b []byte) {
	r := t.r
	b = b[:r.BBytes()]
	if r.Arith == Int {
		t.packB8(b)
		return
	}
	t.rawB = b
	t.expB = expRange{math.MaxInt32, math.MinInt32}
	wide, _ := ordered.Panels(r.N)
	if t.quickB(b, wide) {
		return
	}
	t.expB = expRange{math.MaxInt32, math.MinInt32}
	for j := range r.N {
		t.readB(t.row, b, j)
		if r.Arith == BFP && r.BType != BFP16 {
			t.expB.add(Quantize(t.row, r.Rounding))
		}
		j0, w := panel(j, wide)
		out := t.bf[j0*r.K+j-j0:]
		for p, v := range t.row {
			out[p*w] = v
		}
	}
}

// Band multiplies the A buffer of a band ([Record.ABytes]) by the loaded B, adds to the band's rows of C and narrows them.
func (t *Tile) Band(band int, a []byte) {
	r := t.r
	a = a[:r.ABytes()]
	if r.Arith == Int {
		t.packA8(a)
		c := t.ints[band*t.padded*t.ld : (band+1)*t.padded*t.ld]
		ordered.S8(c, t.ld, t.a8, ordered.MRS8*quads(r.K), t.b8, quads(r.K), t.bias, t.rows, r.N, quads(r.K))
		t.narrowInts(c)
		return
	}
	exps, quick := t.quickA(a)
	if !quick {
		exps = t.packA(a)
	}
	c := t.floats[band*t.padded*t.ld : (band+1)*t.padded*t.ld]
	if r.Arith == BFP && exps.outside(t.expB) {
		t.slowBFP(c, a)
		return
	}
	ordered.F32(c, t.ld, t.af, ordered.MR*r.K, t.bf, r.K, t.rows, r.N, 1, r.K, r.Arith == BFP, r.narrow())
}

// packA brings A from blocks to micropanels element by element.
func (t *Tile) packA(a []byte) expRange {
	r := t.r
	exps := expRange{math.MaxInt32, math.MinInt32}
	for i := range t.rows {
		if e, ok := t.readA(t.row, a, i); ok {
			exps.join(e)
		} else if r.Arith == BFP {
			exps.add(Quantize(t.row, r.Rounding))
		}
		out := t.af[i/ordered.MR*ordered.MR*r.K+i%ordered.MR:]
		for p, v := range t.row {
			out[p*ordered.MR] = v
		}
	}
	return exps
}

// narrow is what happens to float accumulators after each chunk.
func (r *Record) narrow() ordered.Narrow { return Narrowing(r.CType, r.Rounding) }

// Narrowing is what happens to float accumulators of a product with this C after each chunk.
func Narrowing(c Type, r Rounding) ordered.Narrow {
	switch {
	case c == F32:
		return ordered.Keep
	case r == Floor:
		return ordered.BF16Floor
	}
	return ordered.BF16Even
}

// narrowInts applies what narrowing to C's type and widening again does to accumulators. Wrapping needs no work before the store: sums modulo 2^32 agree modulo 2^16 and 2^8.
func (t *Tile) narrowInts(c []int32) {
	if t.r.Overflow == Saturate {
		SaturateInts(c, t.r.CType)
	}
}

// SaturateInts clips accumulators to the range of an integer type.
func SaturateInts(c []int32, to Type) {
	var lo, hi int32
	switch to {
	case I8:
		lo, hi = math.MinInt8, math.MaxInt8
	case I16:
		lo, hi = math.MinInt16, math.MaxInt16
	default:
		return
	}
	for i, v := range c {
		c[i] = max(lo, min(hi, v))
	}
}

// Store writes the C tile in the blocked layout ([Record.CBytes]).
func (t *Tile) Store(c []byte) {
	r := t.r
	c = c[:r.CBytes()]
	at := 0
	for i0 := 0; i0 < r.M; i0 += r.R {
		for j0 := 0; j0 < r.N; j0 += r.T {
			for i := i0; i < i0+r.R; i++ {
				base := (i/t.rows*t.padded+i%t.rows)*t.ld + j0
				switch r.CType {
				case I8:
					for _, v := range t.ints[base : base+r.T] {
						c[at] = byte(v)
						at++
					}
				case I16:
					for _, v := range t.ints[base : base+r.T] {
						binary.LittleEndian.PutUint16(c[at:], uint16(v))
						at += 2
					}
				case I32:
					for _, v := range t.ints[base : base+r.T] {
						binary.LittleEndian.PutUint32(c[at:], uint32(v))
						at += 4
					}
				case BF16:
					for _, v := range t.floats[base : base+r.T] {
						binary.LittleEndian.PutUint16(c[at:], uint16(math.Float32bits(v)>>16))
						at += 2
					}
				case F32:
					for _, v := range t.floats[base : base+r.T] {
						binary.LittleEndian.PutUint32(c[at:], math.Float32bits(v))
						at += 4
					}
				}
			}
		}
	}
}

// panel returns the first column and the width of the panel that holds column j.
func panel(j, wide int) (j0, w int) {
	if j < 48*wide {
		return j / 48 * 48, 48
	}
	return 48*wide + (j-48*wide)/32*32, 32
}

// packA8 brings A from blocks to micropanels of 8 rows in groups of 4 k, with 128 added.
func (t *Tile) packA8(a []byte) {
	r := t.r
	kq := quads(r.K)
	if r.S == 8 && t.rows%8 == 0 && (r.R == 4 || r.R == 8) {
		half, step := 32, 64
		if r.R == 4 {
			half, step = 4*r.K, 32
		}
		done := true
		for i := 0; i < t.rows && done; i += 8 {
			done = ordered.PackA8(t.a8[i*kq:], a[i*r.K:], half, step, r.K/8)
		}
		if done {
			return
		}
	}
	if r.S == 8 {
		for i0 := 0; i0 < t.rows; i0 += r.R {
			for k := 0; k < r.K; k += 8 {
				for i := i0; i < i0+r.R; i++ {
					v := binary.LittleEndian.Uint64(a) ^ 0x8080808080808080
					a = a[8:]
					out := t.a8[i>>3*8*kq+k*8+(i&7)*4:]
					binary.LittleEndian.PutUint32(out, uint32(v))
					binary.LittleEndian.PutUint32(out[32:], uint32(v>>32))
				}
			}
		}
		return
	}
	for i := range t.a8 {
		t.a8[i] = 128
	}
	for i := range t.rows {
		for p := range r.K {
			t.a8[i/8*8*kq+p/4*32+i%8*4+p%4] = a[r.indexA(i, p)] + 128
		}
	}
}

// packB8 brings B from blocks to panels in groups of 4 k, and sums its columns.
func (t *Tile) packB8(b []byte) {
	r := t.r
	kq := quads(r.K)
	wide, _ := ordered.Panels(r.N)
	clear(t.bias)
	if r.S == 8 && r.T == 8 {
		layout, next, step := ordered.Rows8, 8*r.K, 64
		if !r.BTransposed {
			layout, next, step = ordered.Columns8, 64, 8*r.N
		}
		done := true
		var sums [8]int32
		for j := 0; j < r.N && done; j += 8 {
			j0, w := panel(j, wide)
			if done = ordered.PackB8(t.b8[j0*kq+(j-j0)*4:], w, b[j/8*next:], step, r.K/8, layout, &sums); done {
				for c, s := range sums {
					t.bias[j+c] = -128 * s
				}
			}
		}
		if done {
			return
		}
		clear(t.bias)
	}
	if r.S == 8 && r.BTransposed {
		for j1 := 0; j1 < r.N; j1 += r.T {
			for k := 0; k < r.K; k += 8 {
				for j := j1; j < j1+r.T; j++ {
					v := binary.LittleEndian.Uint64(b)
					b = b[8:]
					j0, w := panel(j, wide)
					at := j0*kq + k*w + (j-j0)*4
					put4(t.b8[at:], uint32(v))
					put4(t.b8[at+4*w:], uint32(v>>32))
					t.bias[j] -= 128 * sum8(v)
				}
			}
		}
		return
	}
	if r.S == 8 && r.T == 8 && !r.BTransposed {
		for k := 0; k < r.K; k += 8 {
			for j := 0; j < r.N; j += 8 {
				j0, w := panel(j, wide) // panels are multiples of 8 wide
				for half := range 2 {
					x0 := binary.LittleEndian.Uint64(b)
					x1 := binary.LittleEndian.Uint64(b[8:])
					x2 := binary.LittleEndian.Uint64(b[16:])
					x3 := binary.LittleEndian.Uint64(b[24:])
					b = b[32:]
					at := j0*kq + (k+4*half)*w + (j-j0)*4
					for c := range 8 {
						s := 8 * c
						v := uint32(x0>>s&0xFF) | uint32(x1>>s&0xFF)<<8 | uint32(x2>>s&0xFF)<<16 | uint32(x3>>s)<<24
						put4(t.b8[at+4*c:], v)
						t.bias[j+c] -= 128 * (int32(int8(v)) + int32(int8(v>>8)) + int32(int8(v>>16)) + int32(int8(v>>24)))
					}
				}
			}
		}
		return
	}
	clear(t.b8)
	for j := range r.N {
		j0, w := panel(j, wide)
		for p := range r.K {
			v := int8(b[r.indexB(p, j)])
			t.b8[j0*kq+p/4*w*4+(j-j0)*4+p%4] = v
			t.bias[j] -= 128 * int32(v)
		}
	}
}

func put4(b []int8, v uint32) {
	b = b[:4]
	b[0], b[1], b[2], b[3] = int8(v), int8(v>>8), int8(v>>16), int8(v>>24)
}

// sum8 adds the 8 signed bytes of v: with 128 added to each they are unsigned and add up in 16-bit lanes.
func sum8(v uint64) int32 {
	v ^= 0x8080808080808080
	v = v&0x00FF00FF00FF00FF + v>>8&0x00FF00FF00FF00FF
	return int32(v*0x0001000100010001>>48) - 8*128
}

// indexA is the element index of A(i, p) of a band in its blocked layout.
func (r *Record) indexA(i, p int) int {
	return i/r.R*r.R*r.K + p/r.S*r.R*r.S + i%r.R*r.S + p%r.S
}

// indexB is the element index of B(p, j) in its blocked layout.
func (r *Record) indexB(p, j int) int {
	if r.BTransposed {
		return j/r.T*r.T*r.K + p/r.S*r.T*r.S + j%r.T*r.S + p%r.S
	}
	return p/r.S*r.S*r.N + j/r.T*r.S*r.T + p%r.S*r.T + j%r.T
}

// readA reads row i of a band as float32. For bfp16 it returns the exponents, and the values are what the blocks hold.
func (t *Tile) readA(row []float32, a []byte, i int) (expRange, bool) {
	r := t.r
	if r.AType == BFP16 {
		e := expRange{math.MaxInt32, math.MinInt32}
		for p := 0; p < r.K; p += 8 {
			block := a[r.indexA(i, p)/8*9:][:9]
			bfp16.Decode(row[p:p+8], block)
			e.add(blockExp(block))
		}
		return e, true
	}
	for p := 0; p < r.K; p += r.S {
		src := a[2*r.indexA(i, p):][:2*r.S]
		for q := range row[p : p+r.S] {
			row[p+q] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*q:])) << 16)
		}
	}
	return expRange{}, false
}

// readB reads column j as float32.
func (t *Tile) readB(col []float32, b []byte, j int) {
	r := t.r
	switch {
	case r.BType == BFP16:
		for p := 0; p < r.K; p += 8 {
			block := b[r.indexB(p, j)/8*9:][:9]
			bfp16.Decode(col[p:p+8], block)
			t.expB.add(blockExp(block))
		}
	case r.BTransposed:
		for p := 0; p < r.K; p += r.S {
			src := b[2*r.indexB(p, j):][:2*r.S]
			for q := range col[p : p+r.S] {
				col[p+q] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*q:])) << 16)
			}
		}
	default:
		for p := range col {
			col[p] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*r.indexB(p, j):])) << 16)
		}
	}
}

// quant is what packing does to bf16 operands.
func (r *Record) quant() ordered.Quant {
	switch {
	case r.Arith != BFP:
		return ordered.Plain
	case r.Rounding == Floor:
		return ordered.Floor
	}
	return ordered.Even
}

// quickA packs a band of bf16 with the processor's kernels, where they apply.
func (t *Tile) quickA(a []byte) (expRange, bool) {
	r := t.r
	exps := expRange{math.MaxInt32, math.MinInt32}
	if r.AType != BF16 || r.S != 8 || t.rows%8 != 0 || r.R != 4 && r.R != 8 {
		return exps, false
	}
	half, step := 64, 128
	if r.R == 4 {
		half, step = 8*r.K, 64
	}
	for i := 0; i < t.rows; i += 8 {
		e, ok := ordered.PackA16(t.af[i*r.K:], ordered.MR*r.K, a[2*i*r.K:], half, step, r.K/8, ordered.Rows8, r.quant())
		if !ok {
			return exps, false
		}
		if e.Lo <= e.Hi {
			exps.add(e.Lo, e.Hi)
		}
	}
	return exps, true
}

// quickB packs a chunk of bf16 B likewise.
func (t *Tile) quickB(b []byte, wide int) bool {
	r := t.r
	if r.BType != BF16 || r.S != 8 || r.N%8 != 0 || r.T != 4 && r.T != 8 {
		return false
	}
	layout, next, half, step := ordered.Rows8, 16*r.K, 64, 128
	switch {
	case r.BTransposed && r.T == 4:
		half, step = 8*r.K, 64
	case !r.BTransposed && r.T == 4:
		layout, next, step = ordered.Columns4, 128, 16*r.N
	case !r.BTransposed:
		layout, next, step = ordered.Columns8, 128, 16*r.N
	}
	for j := 0; j < r.N; j += 8 {
		j0, w := panel(j, wide)
		e, ok := ordered.PackB16(t.bf[j0*r.K+j-j0:], w, b[j/8*next:], half, step, r.K/8, layout, r.quant())
		if !ok {
			return false
		}
		if e.Lo <= e.Hi {
			t.expB.add(e.Lo, e.Hi)
		}
	}
	return true
}

func (e *expRange) add(lo, hi int) {
	e.lo, e.hi = min(e.lo, lo), max(e.hi, hi)
}

func (e *expRange) join(o expRange) { e.add(o.lo, o.hi) }

// outside reports whether a product of blocks with these exponents might have a partial sum that float32 does not hold exactly: units of
// 2^(ea+eb-266), of which a group's sum has at most 2^17, must stay above 2^-149 and below 2^127.
func (e expRange) outside(o expRange) bool {
	if e.lo > e.hi || o.lo > o.hi {
		return false // all zero, or special: NaN comes out of either path
	}
	return e.lo+o.lo < 117 || e.hi+o.hi > 376
}

// blockExp is the contribution of an encoded block to a range.
func blockExp(block []byte) (lo, hi int) {
	if block[0] == 255 || binary.LittleEndian.Uint64(block[1:9]) == 0 {
		return math.MaxInt32, math.MinInt32
	}
	return int(block[0]), int(block[0])
}

// Quantize replaces each group of 8 values by what its bfp16 block holds, and returns the range of shared exponents
// (lo > hi if no group counts: all are zero or not finite). len(v) is a multiple of 8.
func Quantize(v []float32, r Rounding) (lo, hi int) {
	lo, hi = math.MaxInt32, math.MinInt32
	for ; len(v) >= 8; v = v[8:] {
		g := v[:8:8]
		var most uint32
		for _, x := range g {
			most = max(most, math.Float32bits(x)&0x7F800000)
		}
		e := int(most >> 23)
		switch {
		case e == 0:
			clear(g)
			continue
		case e == 255:
			nan := float32(math.NaN())
			for i := range g {
				g[i] = nan
			}
			continue
		case e < 24 || e > 230:
			// The quick way below leaves float32's normal range.
			var block [9]byte
			bfp16.Encode(block[:], g, bfp16.Rounding(r))
			bfp16.Decode(g, block[:])
		default:
			// Adding 1.5 * 2^23 units and taking them away rounds to whole units, to nearest even.
			unit := math.Float32frombits(uint32(e-6) << 23)
			magic := math.Float32frombits(uint32(e-6+23)<<23 | 0x400000)
			for i, x := range g {
				if math.Float32bits(x)&0x7F800000 == 0 {
					g[i] = 0 // subnormals count as zero
					continue
				}
				y := x + magic
				y -= magic
				if r == Floor && y > x {
					y -= unit
				}
				g[i] = max(-128*unit, min(127*unit, y)) + 0 // + 0 makes a negative zero positive
			}
		}
		lo, hi = min(lo, e), max(hi, e)
	}
	return lo, hi
}

// slowBFP is the chunk for a band whose products leave float32's normal range: group by group, from the encoded blocks.
func (t *Tile) slowBFP(c []float32, a []byte) {
	r := t.r
	n := r.K / 8 * 9
	if t.bits == nil {
		t.bits = make([]byte, 2*n)
	}
	encode := func(dst, src []byte, typ Type, index func(p int) int, values []float32) {
		for p := 0; p < r.K; p += 8 {
			if typ == BFP16 {
				copy(dst[p/8*9:], src[index(p)/8*9:][:9])
				continue
			}
			for q := range 8 {
				values[q] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*index(p+q):])) << 16)
			}
			bfp16.Encode(dst[p/8*9:][:9], values[:8], bfp16.Rounding(r.Rounding))
		}
	}
	row, col := t.bits[:n], t.bits[n:2*n]
	for i := range t.rows {
		encode(row, a, r.AType, func(p int) int { return r.indexA(i, p) }, t.row)
		for j := range r.N {
			encode(col, t.rawB, r.BType, func(p int) int { return r.indexB(p, j) }, t.row)
			acc := c[i*t.ld+j]
			for g := 0; g < n; g += 9 {
				acc += bfp16.Dot(row[g:g+9], col[g:g+9])
			}
			c[i*t.ld+j] = r.narrow().Round(acc)
		}
	}
}
