package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// innerKernel returns the kernel of Winograd's inner product, where the pin allows it.
func innerKernel(t *testing.T) *kernel {
	levels := isas()
	k := find(levels[len(levels)-1], aInner, format{elem: s16})
	if k == nil {
		t.Skip("no kernel of Winograd's inner product here")
	}
	return k
}

func words(r *rand.Rand, n int) []int16 {
	v := make([]int16, n)
	for i := range v {
		v[i] = int16(r.Uint32())
	}
	return v
}

// The kernels give the bits of their twin: heights, short panels, runs of strips, one C or two.
func TestInnerKernelsMatchTwin(t *testing.T) {
	kern := innerKernel(t)
	r := rand.New(rand.NewPCG(51, 52))
	for trial := range 400 {
		h, strips, steps, tail := 1+r.IntN(kern.mr), 1+r.IntN(4), 1+r.IntN(9), 1+r.IntN(kern.b.nr)
		two := trial%2 == 0
		if two {
			tail = kern.b.nr
		}
		a, b := words(r, strips*roundUp(steps, 4)*innerStep/2), words(r, steps*kern.b.step()/2)
		ldc := kern.b.nr + r.IntN(5)
		c := make([]int32, (2*strips*h-1)*ldc+kern.b.nr)
		comp, rows := make([]int32, kern.b.nr), make([]int32, strips*innerRowsMax)
		for _, v := range [][]int32{c, comp, rows} {
			for i := range v {
				v[i] = int32(r.Uint32())
			}
		}
		acc, mode := r.IntN(2), r.IntN(3)-1
		call := func(run func(*kargs)) []int32 {
			c := append([]int32{}, c...)
			p := &kargs{a: unsafe.Pointer(&a[0]), ars: 8, acs: innerStep, aps: innerBytes(steps), k: steps, b: unsafe.Pointer(&b[0]), bks: kern.b.step(),
				c: unsafe.Pointer(&c[0]), ldc: 4 * ldc, panels: strips, tail: tail, acc: acc, comp: unsafe.Pointer(&comp[0]), fold: trial % 3,
				rows: unsafe.Pointer(&rows[0])}
			if two {
				p.c2, p.mode = unsafe.Pointer(&c[strips*h*ldc]), mode
			}
			run(p)
			// Pointers stay in their memory, where the collector looks for them.
			for _, at := range []uintptr{uintptr(p.c) - uintptr(unsafe.Pointer(&c[0])), uintptr(p.c2) - uintptr(unsafe.Pointer(&c[0]))} {
				require.True(t, at < uintptr(4*len(c)) || p.c2 == nil)
			}
			require.Less(t, uintptr(p.a)-uintptr(unsafe.Pointer(&a[0])), uintptr(2*len(a)))
			require.Less(t, uintptr(p.rows)-uintptr(unsafe.Pointer(&rows[0])), uintptr(4*len(rows)))
			return c
		}
		cols, run := kern.b.nr, kern.full[h]
		if tail <= cols/2 {
			cols, run = cols/2, kern.half[h]
		}
		equal(t, call(twinInner(h, cols, kern.b)), call(run), "%d strips of %d rows, %d steps, %d columns, two %v", strips, h, steps, tail, two)
	}
}

// What packs gives the bytes and terms of its twin, and writes no more.
func TestInnerPackingMatchesTwins(t *testing.T) {
	innerKernel(t)
	r := rand.New(rand.NewPCG(53, 54))
	for _, unsigned := range []bool{false, true} {
		for j := range innerRowsS8 {
			for _, n := range []int{16, 32, 48, 160} {
				for h := 1; h <= innerRowsMax; h++ {
					lead, zero := n+r.IntN(9), int32(r.IntN(384)-128)
					src := ints8(r, 2*h*lead)
					run := func(f innerRows) ([]int16, []int32) {
						dst, terms := make([]int16, innerRowsMax*n+16), []int32{1, 2, 3, 4, 5}
						f(unsafe.Pointer(&terms[0]), unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), unsafe.Pointer(&src[h*lead]), lead, h, n, zero)
						return dst, terms
					}
					f := innerRowsS8[j]
					if unsigned {
						f = innerRowsU8[j]
					}
					dst, terms := run(f)
					wantDst, wantTerms := run(twinInnerRows(unsigned, join(j)))
					equal(t, wantDst, dst)
					equal(t, wantTerms, terms)
				}
			}
		}
	}
	for j, f := range innerPanels {
		for pairs := range 9 {
			src := ints8(r, 2*32*max(pairs, 1))
			run := func(f innerPanel) ([]int16, []int32) {
				dst, terms := make([]int16, 32*10), make([]int32, 17)
				f(unsafe.Pointer(&terms[0]), unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), unsafe.Pointer(&src[32*pairs]), pairs)
				return dst, terms
			}
			dst, terms := run(f)
			wantDst, wantTerms := run(twinInnerPanel(join(j)))
			equal(t, wantDst, dst)
			equal(t, wantTerms, terms)
		}
	}
}

// exactProduct is refInt for larger matrices.
func exactProduct(a, b Matrix, zero int32) []int32 {
	ints := func(m Matrix, zero int32) []int32 {
		v := make([]int32, m.Rows*m.Cols)
		for i := range m.Rows {
			for j := range m.Cols {
				v[i*m.Cols+j] = int32(m.value(i, j)) - zero
			}
		}
		return v
	}
	x, y, c := ints(a, zero), ints(b, 0), make([]int32, a.Rows*b.Cols)
	for i := range a.Rows {
		sums := c[i*b.Cols:][:b.Cols]
		for t, v := range x[i*a.Cols:][:a.Cols] {
			for j, w := range y[t*b.Cols:][:b.Cols] {
				sums[j] += v * w
			}
		}
	}
	return c
}

// Products in many chunks, with Strassen's algorithm and without, are exact: rests of rows, columns and k beside its blocks, values at the
// ends of the range, zero points, weights packed before and by the call, any number of workers, sums in C and in scratch memory.
func TestInnerProductsAreExact(t *testing.T) {
	innerKernel(t)
	r := rand.New(rand.NewPCG(55, 56))
	for trial := range 24 {
		m, n, k := 9+r.IntN(140), 1+r.IntN(300), 1+r.IntN(900)
		if trial%3 == 0 { // certainly blocks for Strassen's algorithm
			m, n, k = 96+r.IntN(9), 160+r.IntN(40), 450+r.IntN(300)
		}
		at := []Type{S8, U8}[trial%2]
		a, b := operand(r, at, m, k), operand(r, S8, k, n)
		if a.ColStride != 1 && trial%4 != 0 {
			a = Matrix{Rows: m, Cols: k, RowStride: k, ColStride: 1, typ: at, ptr: a.ptr, len: a.len}
		}
		if trial%5 == 0 { // extremes
			for i := range unsafe.Slice((*uint8)(a.ptr), a.len) {
				unsafe.Slice((*uint8)(a.ptr), a.len)[i] = map[Type]uint8{S8: 0x80, U8: 0xff}[at]
			}
			for i := range unsafe.Slice((*uint8)(b.ptr), b.len) {
				unsafe.Slice((*uint8)(b.ptr), b.len)[i] = 0x80
			}
		}
		zero := []int32{0, 0, 128, -7, 255, -128}[r.IntN(6)]
		want := exactProduct(a, b, zero)
		kn, err := NewKnobs(map[string]int{"inner-steps": []int{56, 64, 128, 8}[r.IntN(4)], "inner-rows": 8, "inner-depth": 0})
		require.NoError(t, err)
		o := &Options{ISA: cpuinfo.AVX2, Threads: 1 + r.IntN(3), AZero: zero, Knobs: kn}
		name := fmt.Sprintf("%v %dx%dx%d zero %d threads %d", at, m, n, k, zero, o.Threads)
		p, err := PackB(b, o)
		require.NoError(t, err)
		for _, mul := range []func(c Matrix) error{func(c Matrix) error { return Mul(c, a, b, o) }, func(c Matrix) error { return MulPacked(c, a, p, o) }} {
			c := make([]int32, m*(n+3))
			o.Accumulate = false
			require.NoError(t, mul(View(c, m, n, n+3, 1)))
			for i := range m {
				equal(t, want[i*n:(i+1)*n], c[i*(n+3):][:n], "%s row %d", name, i)
			}
			o.Accumulate = true
			require.NoError(t, mul(View(c, m, n, n+3, 1)))
			for i := range m {
				for j := range n {
					if c[i*(n+3)+j] != 2*want[i*n+j] {
						t.Fatalf("%s accumulated: row %d, column %d is %d, want %d", name, i, j, c[i*(n+3)+j], 2*want[i*n+j])
					}
				}
			}
			o.Accumulate = false
			ct := make([]int32, m*n)
			require.NoError(t, mul(View(ct, m, n, 1, m)))
			for i := range m {
				for j := range n {
					if ct[j*m+i] != want[i*n+j] {
						t.Fatalf("%s column-major: row %d, column %d is %d, want %d", name, i, j, ct[j*m+i], want[i*n+j])
					}
				}
			}
		}
	}
}
