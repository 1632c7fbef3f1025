package gemm

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tessera-go/tessera/internal/fma"
)

// TestPortableKernelsMatchDefinition compares the portable kernels, which take several columns and steps at once, with one element
// after another: all heights, short panels, rests of k, sums that go on, numbers at their bounds.
func TestPortableKernelsMatchDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	for _, k := range portableKernels() {
		for h := 1; h <= k.mr; h++ {
			for _, cols := range []int{1, 3, 4, 5, k.b.nr, 2*k.b.nr - 1, 3 * k.b.nr} {
				for _, steps := range []int{1, 2, 7, 8, 9, 127, 129, 260} {
					comparePortable(t, r, k, h, cols, steps)
				}
			}
		}
	}
}

func comparePortable(t *testing.T, r *rand.Rand, k *kernel, h, cols, steps int) {
	t.Helper()
	nr, lane := k.b.nr, k.a.lane()
	panels := ceilDiv(cols, nr)
	group := k.b.kr / k.a.kr // steps in a group of B
	bps := ceilDiv(steps, group) * k.b.step()
	a, b := make([]byte, h*steps*lane), make([]byte, panels*bps)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for i := range a {
		a[i] = byte(r.Uint32())
	}
	extreme := r.IntN(4) == 0
	if k.acc == F32 {
		for i := range h * steps {
			*(*float32)(unsafe.Pointer(&a[4*i])) = r.Float32()*2 - 1
		}
		if !extreme { // else all bits, with subnormals, infinities and NaN
			for i := 0; i < len(b); i += k.b.elem.Size() {
				x := r.Float32() - 0.5
				switch k.b.elem {
				case F32:
					*(*float32)(unsafe.Pointer(&b[i])) = x
				case BF16:
					*(*uint16)(unsafe.Pointer(&b[i])) = uint16(math.Float32bits(x) >> 16)
				default:
					*(*uint16)(unsafe.Pointer(&b[i])) = uint16(r.Uint32N(0x3c00)) | uint16(r.Uint32()&0x8000)
				}
			}
		}
	} else if extreme { // every product the largest of its sign
		for i := range a {
			a[i] = 0x80 - byte(i/lane%2)
		}
		for i := range b {
			b[i] = 255
		}
	}
	c0 := make([]uint32, h*cols)
	for i := range c0 {
		c0[i] = math.Float32bits(r.Float32())
	}
	comp, rows := make([]int32, panels*nr), make([]int32, h)
	for i := range comp {
		comp[i] = int32(r.Uint32())
	}
	for i := range rows {
		rows[i] = int32(r.Uint32())
	}
	got := append([]uint32{}, c0...)
	p := &kargs{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), c: unsafe.Pointer(&got[0]), ars: steps * lane, acs: lane, bks: k.b.step(), bps: bps,
		ldc: 4 * cols, k: steps, panels: panels, tail: cols - (panels-1)*nr, acc: r.IntN(2)}
	if k.acc == S32 {
		p.comp, p.fold, p.rows = unsafe.Pointer(&comp[0]), r.IntN(3), unsafe.Pointer(&rows[0])
	}
	acc, fold := p.acc != 0, int32(p.fold)
	k.full[h](p)
	for i := range h {
		for j := range cols {
			at := func(kk int) int { // the byte of B's element
				return j/nr*bps + kk/k.b.kr*k.b.step() + (j%nr*k.b.kr+kk%k.b.kr)*k.b.elem.Size()
			}
			var want uint32
			if acc {
				want = c0[i*cols+j]
			}
			if k.acc == S32 {
				s := int32(want) + rows[i] + fold*comp[j]
				for kk := range 4 * steps {
					s += int32(int8(a[i*steps*lane+kk])) * int32(b[at(kk)])
				}
				want = uint32(s)
			} else {
				s := math.Float32frombits(want)
				for kk := range steps {
					x := *(*float32)(unsafe.Pointer(&a[(i*steps+kk)*4]))
					y := unsafe.Pointer(&b[at(kk)])
					switch k.b.elem {
					case F32:
						s = fma.F32(x, *(*float32)(y), s)
					case BF16:
						s = fma.F32(x, fromBF16(*(*uint16)(y)), s)
					default:
						s = fma.F32(x, fromF16(*(*uint16)(y)), s)
					}
				}
				want = math.Float32bits(s)
				if s != s && math.Float32frombits(got[i*cols+j]) != math.Float32frombits(got[i*cols+j]) {
					continue // any NaN is as good
				}
			}
			if want != got[i*cols+j] {
				t.Fatalf("%s, %d rows, %d columns, %d steps: element %d, %d is %x, want %x", k.name, h, cols, steps, i, j, got[i*cols+j], want)
			}
		}
	}
}
