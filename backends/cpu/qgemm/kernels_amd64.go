//go:build amd64 && !noasm

package qgemm

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

//go:generate sh -c "cd _gen && go run . -o .."

// archKernels returns the implementations of this processor, the best first.
func archKernels() []*kernels {
	var list []*kernels
	info := cpuinfo.Get()
	avx512.alone, lean.alone = info.Features.FetchesAlone, info.Features.FetchesAlone
	if info.Features.AMXInt8 && info.Features.AVX512VNNI {
		list = append(list, &amx)
	}
	if info.Features.AVX512VNNI {
		if info.Features.OneWideLoad {
			list = append(list, &lean, &avx512)
		} else {
			list = append(list, &avx512, &lean)
		}
	}
	for _, k := range []*kernels{&avxvnni, &avx2Kernels} {
		if info.Has(k.isa) {
			list = append(list, k)
		}
	}
	return list
}

// byFormat returns the kernels of a table by the number of a format: a product should not hash its form.
func byFormat[T any](table map[fusedForm]T) func() []T {
	return sync.OnceValue(func() []T {
		list := make([]T, len(formats))
		for _, f := range formats {
			list[f.id] = table[fusedForm{f.bits, f.table != nil, f.hasMin, f.super, f.bf16}]
		}
		return list
	})
}

var (
	avx512Few = byFormat(avx512Fused)
	vnniFew   = byFormat(fusedVNNI)
	avx2Few   = byFormat(fusedAVX2)
	avx2Four  = byFormat(streamsAVX2)

	avx512Four = byFormat(avx512Streams)
)

// widest is the number of panels that the AVX-512 dot kernels take at once for a number of rows: as many as registers hold the sums of.
var widest = [maxRows + 1]int{0, 4, 4, 2, 2, 2, 2}

var avx512 = kernels{
	name:   "avx512_vnni",
	isa:    cpuinfo.AVX512,
	dot:    dotAVX512,
	panels: widest,
	rows:   maxRows,
	height: 12,
	few:    fewRows,
	fused: func(f *format, rows int) func(*dotArgs) {
		return avx512Few()[f.id][rows]
	},
	streams: func(f *format) func(*dotArgs) {
		return avx512Four()[f.id]
	},
	spread:   spreadAVX512,
	halfs:    halfsAVX512,
	bhalfs:   bhalfsAVX512,
	supers:   supersAVX512,
	quantize: quantizeAVX512,
}

func dotAVX512(p *dotArgs, f *format, rows, panels int) {
	b, m := f.dotKind()
	runPanels(p, &avx512Dot[b][m][rows], panels, widest[rows])
}

// lean is avx512 for processors that load about one vector of 64 bytes a cycle: its dot kernels load less for each VPDPBUSD. Measured on Ice Lake
// (2,048 and 768 columns, 512 rows, operands from the second-level cache): 61 % of the peak with Q4_0 and 56 with Q4_K, where those of avx512 reach
// 54 to 57 and 46.
var lean = func() kernels {
	k := avx512
	k.name, k.dot, k.panels = "avx512_vnni_lean", dotLean, [maxRows + 1]int{1: leanPanels, 2: leanPanels, 3: leanPanels}
	k.rows, k.strips, k.bf16 = 3, 64, &avx512
	return k
}()

// leanPanels is the number of panels that lean dot kernels take at once.
const leanPanels = 4

// dotLean runs the kernels for four panels, or those for one.
func dotLean(p *dotArgs, f *format, rows, panels int) {
	b, m := f.dotKind()
	runPanels(p, &avx512Lean[b][m][rows], panels, leanPanels)
}

// dotKind is where tables of dot kernels have those of a format: by block (0: 32, 1: 16), and by minimums.
func (f *format) dotKind() (block, min int) {
	if f.block == 16 {
		block = 1
	}
	if f.hasMin {
		min = 1
	}
	return block, min
}

// runPanels runs the second function, which takes most panels at once, or the first for one after the other. The arguments stay as they were.
func runPanels(p *dotArgs, fns *[2]func(*dotArgs), panels, most int) {
	if panels == most {
		fns[1](p)
		return
	}
	whole := *p
	for v := range panels {
		p.w = unsafe.Add(whole.w, v*p.wPanel)
		p.scale = unsafe.Add(whole.scale, v*p.scaleSize)
		p.c = unsafe.Add(whole.c, v*4*nr)
		p.mask = whole.mask >> (16 * v)
		fns[0](p)
	}
	p.w, p.scale, p.c, p.mask = whole.w, whole.scale, whole.c, whole.mask
}

func spreadAVX512(dst, src unsafe.Pointer, f *format, n, per, stride int, less uint8) {
	kind := int(f.bits)
	if f.table != nil {
		kind = len(avx512Spread) - 1
	}
	avx512Spread[kind](dst, src, n, per, stride, less, f.table)
}

func quantizeAVX512(q, meta, x unsafe.Pointer, n, block int, zero int32, slots int) {
	if block == 16 {
		quantize16AVX512(q, meta, x, n/16, zero, slots)
		return
	}
	quantize32AVX512(q, meta, x, n/32, zero, slots)
}

// avxvnni has the VEX-encoded dot product, avx2Kernels sums of products of bytes in 16 bits.
var avxvnni = kernels{
	name:   "avxvnni",
	isa:    cpuinfo.AVXVNNI,
	dot:    dotAVXVNNI,
	panels: [maxRows + 1]int{0, 1, 1, 1, 1, 1, 1},
	rows:   maxRows,
	height: 12,
	few:    2,
	fused: func(f *format, rows int) func(*dotArgs) {
		return vnniFew()[f.id][rows]
	},
	spread:   spreadAVX2,
	halfs:    halfsAVX2,
	bhalfs:   bhalfsAVX2,
	supers:   supersAVX2,
	quantize: quantizeAVX2,
}

var avx2Kernels = kernels{
	name:   "avx2",
	isa:    cpuinfo.AVX2,
	dot:    dotAVX2,
	panels: [maxRows + 1]int{0, 4, 4, 4, 4, 4, 4},
	rows:   maxRows,
	height: 12,
	few:    2,
	fused: func(f *format, rows int) func(*dotArgs) {
		return avx2Few()[f.id][rows]
	},
	streams: func(f *format) func(*dotArgs) {
		return avx2Four()[f.id]
	},
	signed: true,
	pairs:  true,
	wide:   wideAVX2,
	widen:  widenAVX2,
	spread: func(dst, src unsafe.Pointer, f *format, n, per, stride int, less uint8) {
		switch {
		case !wideAVX2(f):
			spreadAVX2(dst, src, f, n, per, stride, less)
		case f.table != nil:
			spreadTableWide(dst, src, n, per, stride, less, f.table)
		default:
			spreadU8Wide(dst, src, n, per, stride, less, nil)
		}
	},
	halfs:  halfsAVX2,
	bhalfs: bhalfsAVX2,
	supers: supersAVX2,
	quantize: func(q, meta, x unsafe.Pointer, n, block int, zero int32, slots int) {
		if block == 16 {
			quantize16Pairs(q, meta, x, n/16, zero, slots)
			return
		}
		quantize32Pairs(q, meta, x, n/32, zero, slots)
	},
}

// wideAVX2 reports whether integers of a format, and the activations that they meet, are widened to 16 bits for many rows: products of 8 bits
// need sums of 32.
func wideAVX2(f *format) bool { return f.zero == 128 }

// dotAVX2 runs the kernels for one panel after the other, so that a tile of A, which comes from afar, meets several; the panels are read from the
// second-level cache meanwhile. There are kernels for 6 rows, and for up to 3.
func dotAVX2(p *dotArgs, f *format, rows, panels int) {
	fns := &dotWide
	if !wideAVX2(f) {
		b, what := 0, 0
		if f.block == 16 {
			b = 1
		}
		switch {
		case f.hasMin && f.bits == u5:
			what = 2
		case f.hasMin:
			what = 1
		}
		fns = &dotPairs[b][what]
	}
	whole := *p
	for v := range panels {
		p.w = unsafe.Add(whole.w, v*p.wPanel)
		p.scale = unsafe.Add(whole.scale, v*p.scaleSize)
		p.mask = whole.mask >> (16 * v)
		for done := 0; done < rows; {
			n := rows - done
			if fns[n] == nil {
				n = (n + 1) / 2
			}
			p.a, p.meta = unsafe.Add(whole.a, done*p.aStride), unsafe.Add(whole.meta, 4*done)
			p.c = unsafe.Add(whole.c, done*p.ldc+v*4*nr)
			fns[n](p)
			done += n
		}
	}
	p.a, p.meta, p.w, p.scale, p.c, p.mask = whole.a, whole.meta, whole.w, whole.scale, whole.c, whole.mask
}

// dotAVXVNNI runs the kernels for one panel. 16 registers do not hold sums of both kinds, so those of float32 are in memory at p.buf.
func dotAVXVNNI(p *dotArgs, f *format, rows, _ int) {
	b, m := 0, 0
	if f.block == 16 {
		b = 1
	}
	if f.hasMin {
		m = 1
	}
	sums := unsafe.Slice((*float32)(p.buf), rows*nr)
	if p.acc == 0 {
		clear(sums)
	} else {
		moveTile(sums, p.c, p.ldc, p.mask, true)
	}
	dotVNNI[b][m][rows](p)
	moveTile(sums, p.c, p.ldc, p.mask, false)
}

// moveTile copies the columns of a panel in the mask between rows of C and rows of sums.
func moveTile(sums []float32, c unsafe.Pointer, ldc int, mask uint64, load bool) {
	for i := 0; i < len(sums); i += nr {
		for j := range nr {
			if mask>>j&1 == 0 {
				break
			}
			at := (*float32)(unsafe.Add(c, i/nr*ldc+j*4))
			if load {
				sums[i+j] = *at
			} else {
				*at = sums[i+j]
			}
		}
	}
}

func spreadAVX2(dst, src unsafe.Pointer, f *format, n, per, stride int, less uint8) {
	kind := int(f.bits)
	if f.table != nil {
		kind = len(avx2Spread) - 1
	}
	avx2Spread[kind](dst, src, n, per, stride, less, f.table)
}

func quantizeAVX2(q, meta, x unsafe.Pointer, n, block int, zero int32, slots int) {
	if block == 16 {
		quantize16AVX2(q, meta, x, n/16, zero, slots)
		return
	}
	quantize32AVX2(q, meta, x, n/32, zero, slots)
}

// archPack returns the function that packs panels of 16 whole rows of a type, or nil for the general way.
func archPack(d tensor.DType) func(dst, src unsafe.Pointer, rows *[nr]int32, blocks int) {
	i := slices.Index(packTypes[:], d)
	isa, err := cpuinfo.Pinned()
	switch {
	case i < 0 || err != nil:
	case isa >= cpuinfo.AVX512:
		return packsAVX512[i]
	case isa >= cpuinfo.AVX2:
		return packsAVX2[i]
	}
	return nil
}

var (
	packTypes = [...]tensor.DType{tensor.Q4_0, tensor.IQ4_NL, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0, tensor.MXFP4,
		tensor.Q2_K, tensor.Q3_K, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K}
	packsAVX512 = [len(packTypes)]func(dst, src unsafe.Pointer, rows *[nr]int32, blocks int){packQ4_0AVX512, packQ4_0AVX512, packQ4_1AVX512,
		packQ5_0AVX512, packQ5_1AVX512, packQ8_0AVX512, packMXFP4AVX512, packQ2KAVX512, packQ3KAVX512, packQ4KAVX512, packQ5KAVX512, packQ6KAVX512}
	packsAVX2 = [len(packTypes)]func(dst, src unsafe.Pointer, rows *[nr]int32, blocks int){packQ4_0AVX2, packQ4_0AVX2, packQ4_1AVX2,
		packQ5_0AVX2, packQ5_1AVX2, packQ8_0AVX2, packMXFP4AVX2, packQ2KAVX2, packQ3KAVX2, packQ4KAVX2, packQ5KAVX2, packQ6KAVX2}
)
