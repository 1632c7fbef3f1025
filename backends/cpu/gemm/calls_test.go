package gemm

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// seeKernels shows every call of a function of a kernel in assembly until the test ends: what it does, and what of B it goes through as the
// kernel reads it. The calls do only the first steps of what they are asked for, which takes an emulator less long: where a kernel leaves its addresses
// does not depend on the rest.
func seeKernels(t *testing.T, see func(name string, macs, bytes int)) {
	seen := map[unsafe.Pointer]bool{}
	wrap := func(k *kernel, list []func(*kargs), wide []int) {
		at := unsafe.Pointer(unsafe.SliceData(list))
		if at == nil || seen[at] {
			return
		}
		seen[at] = true
		old := append([]func(*kargs){}, list...)
		t.Cleanup(func() { copy(list, old) })
		for h, f := range old {
			if f == nil {
				continue
			}
			together := 1
			if wide != nil {
				together = wide[h]
			}
			list[h] = func(p *kargs) {
				steps, panels := p.k, p.panels*together
				bytes := panels * k.b.nr * p.k * k.a.lane()
				if k.a == aInner || p.bps == 0 {
					bytes /= panels // they are strips
				}
				strips := max(p.strips, 1)
				see(fmt.Sprintf("%s, %d strips of %d rows, %d panels, %d steps", k.name, strips, h, panels, p.k), strips*h*panels*k.b.nr*p.k*k.a.kr, strips*bytes)
				p.k = min(steps, pieceSteps)
				f(p)
				p.k = steps
			}
		}
	}
	for _, k := range allKernels {
		if k.isa == cpuinfo.Portable {
			continue // the runtime interrupts it anywhere
		}
		for _, list := range [][]func(*kargs){k.full, k.half, k.fast, k.fastOnce, k.rows, k.fastDown, k.rowsDown, k.fastDownPack, k.rowsDownPack} {
			wrap(k, list, nil)
		}
		wrap(k, k.wide, k.wideP)
		wrap(k, k.streams, k.streamsP)
		wrap(k, k.pairs, slices.Repeat([]int{2}, len(k.pairs)))
		wrap(k, k.pairsAny, slices.Repeat([]int{2}, len(k.pairsAny)))
		wrap(k, k.pairsFew, slices.Repeat([]int{2}, len(k.pairsFew)))
	}
}

// replace sets a variable until the test ends.
func replace[T any](t *testing.T, at *T, v T) {
	old := *at
	*at = v
	t.Cleanup(func() { *at = old })
}

// seePacking shows what the functions of packing that are called through variables move.
func seePacking(t *testing.T, see func(name string, bytes int)) {
	if f := copyPanels; f != nil {
		replace(t, &copyPanels, func(dst, src unsafe.Pointer, pitch, rows, panels, stride, bytes int) {
			see("copyPanels", rows*panels*bytes)
			f(dst, src, pitch, rows, panels, stride, bytes)
		})
	}
	if f := copyRows; f != nil {
		replace(t, &copyRows, func(dst, src unsafe.Pointer, bytes, pitch, n int) {
			see("copyRows", bytes*n)
			f(dst, src, bytes, pitch, n)
		})
	}
	if f := sumBytes; f != nil {
		replace(t, &sumBytes, func(sums, src unsafe.Pointer, lead, h, n int, unsigned bool) {
			see("sumBytes", h*n)
			f(sums, src, lead, h, n, unsigned)
		})
	}
	if f := sumGroups; f != nil {
		replace(t, &sumGroups, func(sums, src unsafe.Pointer, steps, step, lanes int, unsigned bool) {
			see("sumGroups", steps*step)
			f(sums, src, steps, step, lanes, unsigned)
		})
	}
	if f := sumGroups8; f != nil {
		replace(t, &sumGroups8, func(sums, panel unsafe.Pointer, groups, step, columns int) {
			see("sumGroups8", groups*step)
			f(sums, panel, groups, step, columns)
		})
	}
	if f := transpose4; f != nil {
		replace(t, &transpose4, func(dst, src unsafe.Pointer, lead, n, step int) {
			see("transpose4", 16*n)
			f(dst, src, lead, n, step)
		})
	}
	if f := flipLines; f != nil {
		replace(t, &flipLines, func(dst, src unsafe.Pointer, n int) {
			see("flipLines", n)
			f(dst, src, n)
		})
	}
	for i := range transposeRows {
		if f := transposeRows[i]; f != nil {
			replace(t, &transposeRows[i], func(dst, src unsafe.Pointer, lead, n, step int) {
				see("transposeRows", 16*64*n)
				f(dst, src, lead, n, step)
			})
		}
	}
	for i := range interleave {
		for j := range interleave[i] {
			if f := interleave[i][j]; f != nil {
				replace(t, &interleave[i][j], func(dst, src unsafe.Pointer, pitch, groups, step, bytes int, flip uint32) {
					see("interleave", groups*step)
					f(dst, src, pitch, groups, step, bytes, flip)
				})
			}
		}
	}
	for i := range packRows {
		if f := packRows[i]; f != nil {
			replace(t, &packRows[i], func(dst, src unsafe.Pointer, pitch, groups, step, columns int) {
				see("packRows", groups*step)
				f(dst, src, pitch, groups, step, columns)
			})
		}
	}
	for _, at := range []**[17]func(dst, src unsafe.Pointer, lead, n, step int){&transposeWide, &transposeWiden} {
		if *at == nil {
			continue
		}
		wrapped := **at
		for h, f := range wrapped {
			if f != nil {
				wrapped[h] = func(dst, src unsafe.Pointer, lead, n, step int) {
					see("transposeWide", h*4*n)
					f(dst, src, lead, n, step)
				}
			}
		}
		replace(t, at, &wrapped)
	}
}

// TestCallsAreShort: a call of assembly cannot be interrupted, so that its work is bounded, whatever the shape: a kernel goes through call-bytes of B and
// does as many multiply-adds as take some tens of microseconds, and packing moves what takes as long.
func TestCallsAreShort(t *testing.T) {
	name := ""
	calls := 0
	defaults := knobTable.Defaults()
	seeKernels(t, func(call string, macs, bytes int) {
		calls++
		most := 4 << 20
		if bytes > defaults.callBytes || macs > most && macs > 16*bytes {
			t.Errorf("%s: a call of %s goes through %d bytes with %d multiply-adds", name, call, bytes, macs)
		}
	})
	seePacking(t, func(call string, bytes int) {
		if bytes > 2*packCallBytes {
			t.Errorf("%s: a call of %s moves %d bytes", name, call, bytes)
		}
	})
	shapes := [][3]int{{1, 40, 1 << 16}, {5, 33, 1 << 15}, {6, 1 << 15, 33}, {1, 1 << 16, 8}, {3, 1 << 14, 65}, {16, 30, 1 << 15}, {20, 1 << 14, 20},
		{70, 70, 5000}, {600, 600, 700}, {5000, 40, 70}}
	if testing.Short() {
		shapes = shapes[:6]
	}
	for _, isa := range isas() {
		if isa == cpuinfo.Portable {
			continue
		}
		for _, ty := range pairs {
			for _, s := range shapes {
				m, n, k := s[0], s[1], s[2]
				zeros := func(typ Type, rows, cols int) Matrix {
					return Raw(typ, make([]byte, rows*cols*typ.Size()), rows, cols, cols, 1)
				}
				a, at, b, bt, c := zeros(ty.a, m, k), zeros(ty.a, k, m).T(), zeros(ty.b, k, n), zeros(ty.b, n, k).T(), zeros(ty.c, m, n)
				o := &Options{ISA: isa, Threads: 1, BF16: ty.mode}
				name = fmt.Sprintf("%v %v x %v %v, packing B", isa, ty.a, ty.b, s)
				pb, err := PackB(b, o)
				require.NoError(t, err)
				pbt, err := PackB(bt, o)
				require.NoError(t, err)
				pa, err := PackA(a, ty.b, o)
				require.NoError(t, err)
				for how, f := range map[string]func() error{
					"plain": func() error { return Mul(c, a, b, o) }, "packed B": func() error { return MulPacked(c, a, pb, o) },
					"columns": func() error { return Mul(c, at, bt, o) }, "packed": func() error { return MulPackedAB(c, pa, pbt, o) },
				} {
					name = fmt.Sprintf("%v %v x %v %v, %s", isa, ty.a, ty.b, s, how)
					require.NoError(t, f(), name)
				}
				require.NoError(t, pb.Close())
				require.NoError(t, pbt.Close())
			}
		}
	}
	require.Equal(t, isas()[0] != cpuinfo.Portable || len(isas()) > 1, calls > 0)
}
