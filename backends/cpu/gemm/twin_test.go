package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// usable lists the kernels that this processor and the pin allow.
func usable() []*kernel {
	var list []*kernel
	for _, isa := range isas() {
		for _, k := range allKernels {
			if k.isa == isa && k.a != aInner && (k.need == nil || k.need(&cpuinfo.Get().Features)) {
				list = append(list, k)
			}
		}
	}
	return list
}

// rawCall is one call of a kernel on memory of its own: h rows, cols columns and steps of A, read from packed strips or with a gap
// between rows.
type rawCall struct {
	h, cols, steps int
	acc, gap       bool
	short          bool // in calls as short as can be
	strips         int  // of h rows in one call, where the kernel goes down them; 0 is one
}

// compareWithTwin runs a kernel and its Go twin on the same arguments and demands the same bits of all of C, what lies beside the
// product included.
func compareWithTwin(t *testing.T, r *rand.Rand, k *kernel, x rawCall) {
	panels, tail := ceilDiv(x.cols, k.b.nr), (x.cols-1)%k.b.nr+1
	stride := ceilDiv(x.steps*k.a.kr, k.b.kr) * k.b.step()
	ars, acs := 4, 4*stepRows(x.h)
	aps := x.steps * acs
	if k.tile > 0 {
		ars, acs = 4*k.tile, 4*x.h
		aps = roundUp(x.steps, k.tile) * acs
	}
	if x.gap {
		ars, acs = 4*x.steps+8, 4
		aps = x.h * ars
	}
	strips := max(x.strips, 1)
	aw, bw := make([]byte, strips*aps), make([]byte, panels*stride)
	for _, w := range [][]byte{aw, bw} {
		for i := range w {
			w[i] = byte(r.Uint32())
		}
	}
	finite(aw, k.a.elem)
	finite(bw, k.b.elem)
	ldc := panels*k.b.nr + 3
	c0 := make([]float32, strips*x.h*ldc)
	for i := range c0 {
		c0[i] = float32(r.IntN(9) - 4)
	}
	comp, rows := make([]int32, panels*k.b.nr), make([]int32, strips*x.h)
	for i := range comp {
		comp[i] = int32(r.IntN(1000) - 500)
	}
	for i := range rows {
		rows[i] = int32(r.IntN(1000) - 500)
	}
	call := func(run func(*kargs)) []float32 {
		c := append([]float32{}, c0...)
		p := &kargs{a: unsafe.Pointer(&aw[0]), b: unsafe.Pointer(&bw[0]), c: unsafe.Pointer(&c[0]), ars: ars, acs: acs,
			bks: k.b.step(), bps: stride, ldc: 4 * ldc, k: x.steps, cStep: 4 * k.b.nr, aps: aps}
		p.ahead, p.nextA = uintptr(p.a), uintptr(p.a)
		if x.acc {
			p.acc = 1
		}
		if k.acc == S32 {
			p.comp, p.fold = unsafe.Pointer(&comp[0]), 3
			if k.b.flip() != 0 {
				p.rows = unsafe.Pointer(&rows[0])
			}
		}
		run(p)
		return c
	}
	most := maxInt
	if x.short {
		most = 1
	}
	type way struct {
		pairs, inPlace, once, streams bool
		aheadLine                     int
	}
	ways := []way{{}}
	if k.pairs != nil {
		ways = []way{{}, {pairs: true, aheadLine: 16}, {pairs: true, aheadLine: 64}, {once: true}, {inPlace: true}}
	}
	if k.streams != nil {
		ways = append(ways, way{streams: true})
	}
	want := call(func(p *kargs) {
		for s := range strips {
			q := *p
			q.a, q.c, q.panels, q.tail = unsafe.Add(p.a, s*aps), unsafe.Add(p.c, s*x.h*q.ldc), panels, tail
			if p.rows != nil {
				q.rows = unsafe.Pointer(&rows[s*x.h])
			}
			k.twin(x.h)(&q)
		}
	})
	for _, w := range ways {
		got := call(func(p *kargs) {
			p.pairs, p.inPlace, p.once, p.streams, p.aheadLine = w.pairs, w.inPlace, w.once, w.streams, w.aheadLine
			if strips == 1 {
				k.run(p, x.h, panels, tail, most)
				return
			}
			k.runAtOnce(p, strips, x.h, panels, tail)
		})
		for i := range want {
			if !same(want[i], got[i]) && math.Float32bits(want[i]) != math.Float32bits(got[i]) {
				t.Fatalf("%s %+v, %+v: element %d, %d of C is %v, twin %v", k.name, x, w, i/ldc, i%ldc, got[i], want[i])
			}
		}
	}
}

// Every kernel function gives the bits of its twin: all heights, one panel and several, short last panels, rests of k.
func TestKernelsMatchTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, k := range usable() {
		if k.isa == cpuinfo.Portable {
			continue // they are the twins
		}
		t.Log(k.name)
		nr := k.b.nr
		for h := 1; h <= k.mr; h++ {
			for _, cols := range []int{1, nr/2 + 1, nr - 1, nr, nr + 1, 5*nr - 2, 4 * nr, 6*nr + 1, 12 * nr} {
				for _, gap := range []bool{false, true} {
					compareWithTwin(t, r, k, rawCall{h: h, cols: cols, steps: 1 + r.IntN(11), acc: r.IntN(2) == 0, gap: gap})
				}
			}
			for steps := 1; steps <= 9; steps++ {
				compareWithTwin(t, r, k, rawCall{h: h, cols: nr + 3, steps: steps, acc: steps%2 == 0})
			}
			compareWithTwin(t, r, k, rawCall{h: h, cols: 2 * nr, steps: 67})
			for cols := 1; k.downStrips && cols <= 5*nr; cols += nr/2 - 1 {
				compareWithTwin(t, r, k, rawCall{h: h, cols: cols, steps: 1 + r.IntN(9), acc: r.IntN(2) == 0, gap: r.IntN(2) == 0, strips: 2 + r.IntN(3)})
			}
			for _, cols := range []int{nr - 1, 2*nr + 1, 5 * nr} {
				compareWithTwin(t, r, k, rawCall{h: h, cols: cols, steps: 1 + r.IntN(150), acc: r.IntN(2) == 0, gap: r.IntN(2) == 0, short: true})
			}
		}
	}
}

// Kernels that go down the strips of a panel give the bits of one strip after another, A packed or in rows, touch no other row of C, and pack
// as many rows of another panel as they say, if they do.
func TestKernelsDownMatchTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	for _, k := range usable() {
		for h := range k.rowsDown {
			if k.rowsDown[h] == nil {
				continue
			}
			for _, steps := range []int{1, 3, 7, 8, 9, 8*h - 1, 8 * h, 8*h + 1, 64, 131} {
				for _, strips := range []int{1, 2, 5} {
					for _, packed := range []bool{false, true} {
						nr, ldc, ldb := k.b.nr, k.b.nr+5, k.b.nr+3
						p := kargs{ars: 4 * (steps + 3), acs: 4, bks: k.b.step(), ldc: 4 * ldc, k: steps, acc: strips % 2, tail: nr, cStep: 4 * h * ldc}
						f, pack := k.rowsDown[h], k.rowsDownPack[h]
						p.aStep = h * p.ars
						if packed {
							p.ars, p.acs, p.aStep, f, pack = 4, 4*stepRows(h), 4*stepRows(h)*steps, k.fastDown[h], k.fastDownPack[h]
						}
						a, b, c0 := floats(r, strips*p.aStep/4), floats(r, steps*nr), floats(r, strips*h*ldc)
						want := append([]float32{}, c0...)
						for s := range strips {
							q := p
							q.a, q.b, q.c, q.panels = unsafe.Pointer(&a[s*p.aStep/4]), unsafe.Pointer(&b[0]), unsafe.Pointer(&want[s*h*ldc]), 1
							k.twin(h)(&q)
						}
						for _, way := range []string{"near", "ahead", "pack"} {
							got := append([]float32{}, c0...)
							hold := make([]float32, holdBytes/4+1)
							hold[holdBytes/4] = 7
							q := p
							q.a, q.b, q.c, q.panels, q.hold = unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), unsafe.Pointer(&got[0]), strips, unsafe.Pointer(&hold[0])
							if way == "ahead" {
								q.ahead, q.nextA, q.aheadLine, q.nextAStep = uintptr(q.b), uintptr(q.a), 7, 128
							}
							if way != "pack" {
								f(&q)
							} else {
								rows := strips * (steps / 8)
								other, into := floats(r, max(rows, 1)*ldb), make([]float32, (rows+1)*nr)
								q.bks, q.packFrom, q.packTo = 4*ldb, uintptr(unsafe.Pointer(&other[0])), uintptr(unsafe.Pointer(&into[0]))
								pack(&q)
								for i := range rows {
									equal(t, other[i*ldb:][:nr], into[i*nr:][:nr], "%s: %d rows, %d steps, packed row %d", k.name, h, steps, i)
								}
								require.Equal(t, make([]float32, nr), into[rows*nr:])
								runtime.KeepAlive(other)
							}
							equal(t, want, got, "%s: %d rows, %d steps, %d strips, packed %v, %s", k.name, h, steps, strips, packed, way)
							require.Zero(t, q.heldC)
							require.Equal(t, float32(7), hold[holdBytes/4])
						}
					}
				}
			}
		}
	}
}

var onHeap struct { // the address of what lies on a stack may change
	worker
	after [8192]byte
}

// Sums are held where no load of the tile's part of C looks like a load of them.
func TestHoldFor(t *testing.T) {
	w := &onHeap.worker
	first, size := uintptr(unsafe.Pointer(&w.hold)), unsafe.Sizeof(w.hold)
	for off := range 8192 {
		c := first + uintptr(off)
		at := uintptr(w.holdFor(unsafe.Add(unsafe.Pointer(&w.hold), off)))
		require.True(t, at%64 == 0 && at >= first && at+holdBytes <= first+size)
		for b := uintptr(0); b < holdBytes; b += 4 {
			if (at+b-c)%4096 < 64 {
				t.Fatalf("tile at %d: the sums at %d look like it", off, b)
			}
		}
	}
}

// The ceiling of each product that has assembly is measured by a loop.
func TestPeaks(t *testing.T) {
	for _, b := range []Type{F32, BF16, F16, S8} {
		e, err := engineFor(isas()[len(isas())-1], map[Type]Type{S8: S8, F32: F32, BF16: BF16, F16: F32}[b], b, format{}, Auto)
		require.NoError(t, err)
		require.Equal(t, e.main.isa != cpuinfo.Portable, Peak(b, 1, nil) > 0, "%v by %s", b, e.main.name)
	}
}

// FuzzKernels compares each kernel with its Go twin on raw arguments.
func FuzzKernels(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(40), uint16(17), true, false)
	f.Add(uint64(2), uint8(14), uint8(32), uint16(1), false, true)
	r := rand.New(rand.NewPCG(45, 46)) // more, for where seeds are all that runs: under emulation
	for i := range 30 {
		f.Add(r.Uint64(), uint8(r.Uint32()), uint8(r.Uint32()), uint16(r.Uint32()), i%2 == 0, i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, seed uint64, h, cols uint8, steps uint16, acc, gap bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		for _, k := range usable() {
			x := rawCall{h: 1 + int(h)%k.mr, cols: 1 + int(cols), steps: 1 + int(steps)%200, acc: acc, gap: gap}
			if k.downStrips {
				x.strips = r.IntN(4)
			}
			compareWithTwin(t, r, k, x)
		}
	})
}

// The sums of BFMMLA: what lies between two float32 becomes the odd one of them.
func TestAddOdd(t *testing.T) {
	up := math.Nextafter32(1, 2)
	for _, x := range []struct{ a, b, want float32 }{
		{1, 1, 2}, {1, 0x1p-23, up}, {1, 0x1p-24, up}, {1, 0x1p-60, up}, {1, -0x1p-60, math.Nextafter32(1, 0)},
		{up, 0x1p-24, up}, {up, 0x1p-60, up}, {-1, -0x1p-60, -up}, {up, -0x1p-60, up}, {1, -1, 0},
		{math.MaxFloat32, 0x1p100, math.MaxFloat32}, {math.MaxFloat32, math.MaxFloat32, float32(math.Inf(1))},
		{0x1p-130, 1, 1}, {0x1p-126, -0x1p-127 * 1.5, 0x1p-126}, {0x1.8p-126, -0x1p-126, 0},
	} {
		require.Equal(t, x.want, addOdd(x.a, x.b), fmt.Sprint(x))
		require.Equal(t, x.want, addOdd(x.b, x.a), fmt.Sprint(x))
	}
	require.True(t, math.IsNaN(float64(addOdd(float32(math.Inf(1)), float32(math.Inf(-1))))))
}
