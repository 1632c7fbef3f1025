package gemm

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Packed bytes depend on the format alone, not on the layout of the source and so not on the path that packed it; places without a
// source hold the pad.
func TestPackedBytesAreThoseOfTheFormat(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	seen := map[format]bool{}
	for _, kern := range allKernels {
		f := kern.b
		if seen[f] {
			continue
		}
		seen[f] = true
		for _, n := range []int{1, 5, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100} {
			ks := []int{1, 2, 3, 4, 7, 8, 9, 15, 16, 33, 64, 67}
			if n == 17 || n == 64 {
				ks = append(ks, 2*packSteps+67)
			}
			for _, k := range ks {
				for _, l := range [][2]int{{n, 1}, {n + 5, 1}, {1, k}, {1, k + 3}, {2 * n, 2}, {0, 1}} {
					size := f.elem.Size()
					raw := make([]byte, ((k-1)*l[0]+(n-1)*l[1]+1)*size+3)[3:]
					for i := range raw {
						raw[i] = byte(r.Uint32())
					}
					b := Raw(f.elem, raw, k, n, l[0], l[1])
					k0 := r.IntN(min(k, 100))
					depth := 1 + r.IntN(k-k0)
					for j := 0; j < n; j += f.nr {
						groups := ceilDiv(depth, f.kr)
						got, want := make([]byte, groups*f.step()), make([]byte, groups*f.step())
						for i := range want {
							want[i] = f.flip()
							got[i] = 0x77
						}
						for q := range depth {
							for c := range min(f.nr, n-j) {
								at := (q/f.kr*f.nr*f.kr + c*f.kr + q%f.kr) * size
								copy(want[at:at+size], unsafe.Slice((*byte)(b.at(k0+q, j+c)), size))
								if size == 1 {
									want[at] ^= f.flip()
								}
							}
						}
						packPanelB(unsafe.Pointer(&got[0]), &b, f, j, k0, depth)
						equal(t, want, got, "%v: %d x %d, strides %v, panel %d, k from %d, %d of them", f, k, n, l, j, k0, depth)
						if f.elem == S8 {
							sums := make([]int32, f.nr)
							columnSums(unsafe.Pointer(&sums[0]), unsafe.Pointer(&got[0]), f, depth)
							for c := range min(f.nr, n-j) {
								var sum int32
								for q := range depth {
									sum += int32(*(*int8)(b.at(k0+q, j+c)))
								}
								require.Equal(t, sum, sums[c])
							}
						}
					}
				}
			}
		}
	}
}

// FuzzPack compares packing with its plain form.
func FuzzPack(f *testing.F) {
	f.Add(uint64(1), uint8(0), uint8(33), uint8(17), uint8(3), true)
	f.Add(uint64(2), uint8(4), uint8(64), uint8(70), uint8(0), false)
	f.Fuzz(func(t *testing.T, seed uint64, kern, n8, k8, gap uint8, columns bool) {
		fm := allKernels[int(kern)%len(allKernels)].b
		n, k, size := 1+int(n8), 1+int(k8), fm.elem.Size()
		rs, cs := n+int(gap), 1
		if columns {
			rs, cs = 1, k+int(gap)
		}
		raw := make([]byte, ((k-1)*rs+(n-1)*cs+1)*size+8)
		r := rand.New(rand.NewPCG(seed, 1))
		for i := 0; i+8 <= len(raw); i += 8 {
			binary.LittleEndian.PutUint64(raw[i:], r.Uint64())
		}
		b := Raw(fm.elem, raw, k, n, rs, cs)
		dense := make([]byte, k*n*size)
		for q := range k {
			for c := range n {
				copy(dense[(q*n+c)*size:], unsafe.Slice((*byte)(b.at(q, c)), size))
			}
		}
		// A source with gaps of three elements in both directions takes the path that is plain Go.
		wide := make([]byte, 3*k*3*n*size)
		w := Raw(fm.elem, wide, k, n, 3*3*n, 3)
		for q := range k {
			for c := range n {
				copy(unsafe.Slice((*byte)(w.at(q, c)), size), dense[(q*n+c)*size:(q*n+c+1)*size])
			}
		}
		for j := 0; j < n; j += fm.nr {
			got, want := make([]byte, ceilDiv(k, fm.kr)*fm.step()), make([]byte, ceilDiv(k, fm.kr)*fm.step())
			packPanelB(unsafe.Pointer(&got[0]), &b, fm, j, 0, k)
			packPanelB(unsafe.Pointer(&want[0]), &w, fm, j, 0, k)
			equal(t, want, got, "%v, panel %d", fm, j)
		}
	})
}

// Sums of rows for every length of a rest, next to memory that must not count.
func TestRowSums(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 54))
	for k := 1; k < 200; k++ {
		const h = 5
		pitch := k + r.IntN(4)
		raw := make([]byte, (h-1)*pitch+k)
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		for _, typ := range []Type{S8, U8} {
			a := Raw(typ, raw, h, k, pitch, 1)
			got := make([]int32, h)
			sumRows(unsafe.Pointer(&got[0]), &a, 0, h)
			for i := range h {
				var sum int32
				for q := range k {
					v := int32(int8(raw[i*pitch+q]))
					if typ == U8 {
						v = int32(raw[i*pitch+q]) - 128
					}
					sum += v
				}
				require.Equal(t, -128*sum, got[i], "%v, k %d, row %d", typ, k, i)
			}
		}
	}
}
