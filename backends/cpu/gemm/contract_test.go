package gemm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
)

// pairs are the products of which the contract holds: what A, B and the sums are.
var pairs = []struct {
	a, b, c Type
	mode    BF16Mode
}{{F32, F32, F32, Auto}, {F32, BF16, F32, Auto}, {F32, F16, F32, Auto}, {BF16, BF16, F32, Widen}, {BF16, BF16, F32, Dot}, {F16, F32, F32, Auto},
	{S8, S8, S32, Auto}, {U8, S8, S32, Auto}}

// guarded returns n bytes whose last one is followed by an unreadable page.
func guarded(t *testing.T, n int) []byte {
	data, release, err := mem.Guarded(n)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no guard pages here")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, release()) })
	return data
}

// small fills a matrix with integers that every type holds, so that all sums are exact.
func small(r *rand.Rand, m Matrix) {
	for i := range m.Rows {
		for j := range m.Cols {
			v := r.IntN(7) - 3
			p := m.at(i, j)
			switch m.typ {
			case F32:
				*(*float32)(p) = float32(v)
			case BF16:
				*(*uint16)(p) = toBF16(float32(v))
			case F16:
				*(*uint16)(p) = toF16(float32(v))
			case S8:
				*(*int8)(p) = int8(v)
			case U8:
				*(*uint8)(p) = uint8(v + 3)
			}
		}
	}
}

// whole gives element (i, j) of a matrix that small filled.
func whole(m Matrix, i, j int) int {
	p := m.at(i, j)
	switch m.typ {
	case F32:
		return int(*(*float32)(p))
	case S8:
		return int(*(*int8)(p))
	case U8:
		return int(*(*uint8)(p))
	case S32:
		return int(*(*int32)(p))
	}
	return int(m.value(i, j))
}

// layouts are ways for rows x cols elements to lie in memory: the strides and the number of elements.
func layouts(rows, cols int) [][3]int {
	return [][3]int{
		{cols, 1, rows * cols},
		{cols + 3, 1, (rows-1)*(cols+3) + cols},
		{1, rows, rows * cols},
		{2 * cols, 2, (rows-1)*2*cols + 2*cols - 1},
		{0, 1, cols},
		{1, 0, rows},
	}
}

// Every pair of types, at every level, from every layout, with operands and C that end where memory ends, at every offset of an
// element: exact sums, nothing written beside C, nothing read past an end.
func TestContract(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	const sentinel = 0xA5
	for _, isa := range isas() {
		for _, ty := range pairs {
			for _, s := range append(edgeShapes(r, 14), [3]int{1, 33, 70}, [3]int{2, 70, 33}, [3]int{15, 97, 131}) {
				m, n, k := s[0], s[1], s[2]
				la, lb := layouts(m, k), layouts(k, n)
				al, bl := la[r.IntN(len(la))], lb[r.IntN(len(lb))]
				mem := func(t1 Type, rows, cols int, l [3]int) Matrix {
					return Raw(t1, guarded(t, l[2]*t1.Size()), rows, cols, l[0], l[1])
				}
				A, B := mem(ty.a, m, k, al), mem(ty.b, k, n, bl)
				small(r, A)
				small(r, B)
				// C has a gap after each row, but ends with its last element.
				gap := r.IntN(3)
				data := guarded(t, ((m-1)*(n+gap)+n)*4)
				for i := range data {
					data[i] = sentinel
				}
				C := Raw(ty.c, data, m, n, n+gap, 1)
				o := &Options{ISA: isa, Threads: 1 + r.IntN(3), BF16: ty.mode}
				name := fmt.Sprintf("%v %v x %v mode %d, %v, layouts %v %v", isa, ty.a, ty.b, ty.mode, s, al, bl)
				want := refInt(A, B, 0)
				pb, err := PackB(B, o)
				require.NoError(t, err)
				for how, f := range map[string]func() error{
					"plain": func() error { return Mul(C, A, B, o) }, "packed": func() error { return MulPacked(C, A, pb, o) },
				} {
					require.NoError(t, f(), name)
					for i := range m {
						for j := range n {
							if got := whole(C, i, j); got != int(want[i*n+j]) {
								t.Fatalf("%s %s: element %d, %d is %d, want %d", how, name, i, j, got, want[i*n+j])
							}
						}
						if i+1 < m {
							for _, v := range data[(i*(n+gap)+n)*4 : (i+1)*(n+gap)*4] {
								if v != sentinel {
									t.Fatalf("%s %s: written after row %d", how, name, i)
								}
							}
						}
					}
				}
				require.NoError(t, pb.Close())
			}
		}
	}
}

// Operands and C may begin at any element (OpenBLAS issue 1137).
func TestEveryOffset(t *testing.T) {
	r := rand.New(rand.NewPCG(45, 46))
	const m, n, k = 14, 33, 20
	for _, isa := range isas() {
		for _, ty := range pairs {
			for off := range 16 {
				view := func(t1 Type, rows, cols int) Matrix {
					return Raw(t1, make([]byte, (off+rows*cols)*t1.Size())[off*t1.Size():], rows, cols, cols, 1)
				}
				A, B, C := view(ty.a, m, k), view(ty.b, k, n), view(ty.c, m, n)
				small(r, A)
				small(r, B)
				require.NoError(t, Mul(C, A, B, &Options{ISA: isa, BF16: ty.mode}))
				for i, want := range refInt(A, B, 0) {
					if got := whole(C, i/n, i%n); got != int(want) {
						t.Fatalf("%v %v x %v, offset %d: element %d, %d is %d, want %d", isa, ty.a, ty.b, off, i/n, i%n, got, want)
					}
				}
			}
		}
	}
}

// Long sums of all types: bounds for floats, the exact sum modulo 2^32 for integers, and the same bits when operands are packed.
func TestLongSumsOfAllTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(47, 48))
	ks := []int{1<<16 + 3}
	if !testing.Short() {
		ks = append(ks, 1<<20)
	}
	random := func(t1 Type, rows, cols int) Matrix {
		switch t1 {
		case F32:
			return Of(floats(r, rows*cols), rows, cols)
		case BF16:
			return Of(bf16s(r, rows*cols), rows, cols)
		case F16:
			return Of(f16s(r, rows*cols), rows, cols)
		case S8:
			return Of(ints8(r, rows*cols), rows, cols)
		}
		return Of(uints8(r, rows*cols), rows, cols)
	}
	for _, ty := range pairs {
		for _, k := range ks {
			rows, cols := 5, 3
			if k < 1<<20 && isas()[len(isas())-1] != cpuinfo.Portable {
				rows, cols = 15, 35
				if testing.Short() { // under emulation: panels of NEON and of SVE with 256 bits, and a rest
					rows, cols = 7, 27
				}
			}
			wholeA, wholeB := random(ty.a, rows, k), random(ty.b, k, cols)
			var sums, bounds []float64 // once for all levels: they take longer than the products
			var ints []int32
			if ty.c == S32 {
				ints = refInt(wholeA, wholeB, 0)
			} else {
				sums, bounds = sums64(wholeA, wholeB)
			}
			for _, isa := range isas() {
				if isa == cpuinfo.Portable && k > 1<<17 {
					continue
				}
				A, B, m, n := wholeA, wholeB, rows, cols
				if isa == cpuinfo.Portable {
					m, n = 5, 3
					A.Rows, B = m, B.columns(0, n)
				}
				C := Raw(ty.c, make([]byte, m*n*4), m, n, n, 1)
				o := &Options{ISA: isa, BF16: ty.mode}
				require.NoError(t, Mul(C, A, B, o))
				pa, err := PackA(A, ty.b, o)
				require.NoError(t, err)
				pb, err := PackB(B, o)
				require.NoError(t, err)
				for name, mul := range map[string]func(c Matrix) error{
					"B packed": func(c Matrix) error { return MulPacked(c, A, pb, o) }, "A packed": func(c Matrix) error { return MulPackedA(c, pa, B, o) },
					"packed": func(c Matrix) error { return MulPackedAB(c, pa, pb, o) },
				} {
					c := Raw(ty.c, make([]byte, m*n*4), m, n, n, 1)
					require.NoError(t, mul(c), name)
					for i := range m {
						require.Equal(t, C.bytes(i), c.bytes(i), "%v %v x %v, k %d, %s: row %d", isa, ty.a, ty.b, k, name, i)
					}
				}
				for i := range m {
					for j := range n {
						if ty.c == S32 {
							require.Equal(t, int(ints[i*cols+j]), whole(C, i, j), "%v %v x %v", isa, ty.a, ty.b)
							continue
						}
						got := float64(*(*float32)(C.at(i, j)))
						require.InDelta(t, sums[i*cols+j], got, bounds[i*cols+j], "%v %v x %v, k %d", isa, ty.a, ty.b, k)
					}
				}
			}
		}
	}
}

// NaN and infinity in either operand come through in their row or column and nowhere else, whatever the type and path.
func TestNotFiniteOperands(t *testing.T) {
	r := rand.New(rand.NewPCG(49, 50))
	bits := map[Type][2]uint32{F32: {0x7fc00000, 0x7f800000}, BF16: {0x7fc0, 0x7f80}, F16: {0x7e00, 0x7c00}}
	put := func(m Matrix, i, j int, v uint32) {
		if m.typ == F32 {
			*(*uint32)(m.at(i, j)) = v
		} else {
			*(*uint16)(m.at(i, j)) = uint16(v)
		}
	}
	for _, isa := range isas() {
		for _, ty := range pairs {
			if ty.c != F32 {
				continue
			}
			for _, s := range append(edgeShapes(r, 10), [3]int{1, 40, 9}, [3]int{16, 64, 33}) {
				m, n, k := s[0], s[1], s[2]
				A, B := operand(r, ty.a, m, k), operand(r, ty.b, k, n)
				small(r, A)
				small(r, B)
				o := &Options{ISA: isa, BF16: ty.mode}
				for _, inA := range []bool{true, false} {
					for kind := range 2 {
						a, b := A, B
						i0, j0, q0 := r.IntN(m), r.IntN(n), r.IntN(k)
						var keep unsafe.Pointer
						size := ty.a.Size()
						if inA {
							keep = a.at(i0, q0)
						} else {
							keep, size = b.at(q0, j0), ty.b.Size()
						}
						saved := append([]byte{}, unsafe.Slice((*byte)(keep), size)...)
						if inA {
							put(a, i0, q0, bits[ty.a][kind])
						} else {
							put(b, q0, j0, bits[ty.b][kind])
						}
						pb, err := PackB(b, o)
						require.NoError(t, err)
						for _, packed := range []bool{false, true} {
							c := make([]float32, m*n)
							if packed {
								require.NoError(t, MulPacked(Of(c, m, n), a, pb, o))
							} else {
								require.NoError(t, Mul(Of(c, m, n), a, b, o))
							}
							for i := range m {
								for j := range n {
									// One factor is NaN or infinite: the element is too, or NaN where the other factor is zero.
									hit := inA && i == i0 || !inA && j == j0
									finite := c[i*n+j]-c[i*n+j] == 0
									if finite == hit {
										t.Fatalf("%v %v x %v %v, in A %v, kind %d, packed %v: element %d, %d is %v", isa, ty.a, ty.b, s, inA, kind, packed, i, j, c[i*n+j])
									}
								}
							}
						}
						copy(unsafe.Slice((*byte)(keep), size), saved)
					}
				}
			}
		}
	}
}

// A pinned or asked-for level is the one that computes.
func TestLevelIsTheOneAskedFor(t *testing.T) {
	for _, isa := range isas() {
		for _, ty := range pairs {
			asked, err := (&Options{ISA: isa}).isa()
			require.NoError(t, err)
			e, err := engineFor(asked, ty.a, ty.b, format{}, ty.mode)
			require.NoError(t, err)
			require.LessOrEqual(t, e.main.isa, isa)
			require.LessOrEqual(t, e.low.isa, isa)
			if isa == cpuinfo.Portable {
				require.Equal(t, cpuinfo.Portable, e.main.isa)
				require.Equal(t, cpuinfo.Portable, e.low.isa)
			}
		}
	}
}
