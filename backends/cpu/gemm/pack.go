package gemm

import "unsafe"

// Packing copies a block of an operand into the order in which a kernel reads it: panels of `width` leading elements (rows of
// A, columns of B), in each panel the groups of kr consecutive k one after another, in each group the kr values of each
// leading element together. Elements past the end of the operand are zero. There is one such order per format, whatever the
// strides of the source, so the packed bytes do not depend on the path that wrote them.

// packTile is the number of k that a strided source is read along before the next leading element is taken: one cache line of
// f32, so that each line of the source is used whole while it is in L1, and the tile of the destination stays in L1 too.
const packTile = 16

type word interface{ uint8 | uint16 | uint32 }

// packPanel packs one panel: depth values of k for live of width leading elements. lead and deep are the strides of the source
// in elements. Each value is xored with flip, which turns s8 into u8 with an offset of 128.
func packPanel[T word](dst, src unsafe.Pointer, lead, deep, live, width, depth, kr int, flip T) {
	size := int(unsafe.Sizeof(flip))
	groups := (depth + kr - 1) / kr
	out := unsafe.Slice((*T)(dst), groups*width*kr)
	if live < width || depth%kr != 0 {
		clearPad(out, live, width, depth, kr)
	}
	if live == 0 || depth == 0 {
		return
	}
	if lead == 1 && kr == 1 {
		for t := range depth {
			row := unsafe.Slice((*T)(unsafe.Add(src, t*deep*size)), live)
			copy(out[t*width:], row)
			if flip != 0 {
				for i := range row {
					out[t*width+i] ^= flip
				}
			}
		}
		return
	}
	for t0 := 0; t0 < depth; t0 += packTile {
		t1 := min(t0+packTile, depth)
		for i := range live {
			s := unsafe.Add(src, (i*lead+t0*deep)*size)
			if kr == 1 {
				o := t0*width + i
				for t := t0; ; {
					out[o] = *(*T)(s) ^ flip
					o += width
					if t++; t == t1 {
						break
					}
					s = unsafe.Add(s, deep*size)
				}
				continue
			}
			for t := t0; ; {
				out[(t/kr*width+i)*kr+t%kr] = *(*T)(s) ^ flip
				if t++; t == t1 {
					break
				}
				s = unsafe.Add(s, deep*size)
			}
		}
	}
}

// clearPad zeroes the places of a panel that have no source.
func clearPad[T word](out []T, live, width, depth, kr int) {
	groups := len(out) / (width * kr)
	if depth%kr != 0 {
		clear(out[(groups-1)*width*kr:])
	}
	if live == width {
		return
	}
	for g := range groups {
		clear(out[(g*width+live)*kr : (g+1)*width*kr])
	}
}

// packStrip packs h rows of A from row on, depth values of k from k0 on, as the kernel reads them: for each step the groups of
// its rows, 4 bytes each.
func packStrip(dst unsafe.Pointer, a *Matrix, kern *kernel, row, h, k0, depth int) {
	src := a.at(row, k0)
	lead, deep := a.RowStride, a.ColStride
	f := kern.a
	switch {
	case f.elem == a.typ && f.elem == F32:
		packPanel[uint32](dst, src, lead, deep, h, h, depth, 1, 0)
	case f.elem == F32:
		convert := fromBF16
		if a.typ == F16 {
			convert = fromF16
		}
		out := unsafe.Slice((*float32)(dst), depth*h)
		for i := range h {
			for t := range depth {
				out[t*h+i] = convert(*(*uint16)(unsafe.Add(src, (i*lead+t*deep)*2)))
			}
		}
	case f.elem == BF16:
		packPanel[uint16](dst, src, lead, deep, h, h, depth, f.kr, 0)
	case f.elem == U8:
		var flip uint8
		if a.typ == S8 {
			flip = 0x80
		}
		packPanel(dst, src, lead, deep, h, h, depth, f.kr, flip)
	default: // s16 pairs
		steps := ceilDiv(depth, 2)
		out := unsafe.Slice((*int16)(dst), steps*h*2)
		clear(out[(steps-1)*h*2:])
		for i := range h {
			for t := range depth {
				s := unsafe.Add(src, i*lead+t*deep)
				v := int16(*(*uint8)(s))
				if a.typ == S8 {
					v = int16(*(*int8)(s))
				}
				out[(t/2*h+i)*2+t%2] = v
			}
		}
	}
}

// packPanelB packs the panel of B that starts at column j, depth values of k from k0 on. bf16 and f16 are widened when f is f32.
func packPanelB(dst unsafe.Pointer, b *Matrix, f format, j, k0, depth int) {
	live := min(f.nr, b.Cols-j)
	src := b.at(k0, j)
	switch {
	case f.elem != b.typ:
		convert := fromBF16
		if b.typ == F16 {
			convert = fromF16
		}
		out := unsafe.Slice((*float32)(dst), depth*f.nr)
		if live < f.nr {
			clearPad(out32(out), live, f.nr, depth, 1)
		}
		for t := range depth {
			for i := range live {
				out[t*f.nr+i] = convert(*(*uint16)(unsafe.Add(src, (i*b.ColStride+t*b.RowStride)*2)))
			}
		}
	case b.typ == F32:
		packPanel[uint32](dst, src, b.ColStride, b.RowStride, live, f.nr, depth, f.kr, 0)
	case b.typ == S8:
		packPanel[uint8](dst, src, b.ColStride, b.RowStride, live, f.nr, depth, f.kr, 0)
	default:
		packPanel[uint16](dst, src, b.ColStride, b.RowStride, live, f.nr, depth, f.kr, 0)
	}
}

func out32(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// columnSums adds the columns of a packed int8 panel into sums, one int32 a column.
func columnSums(sums, panel unsafe.Pointer, f format, depth int) {
	out := unsafe.Slice((*int32)(sums), f.nr)
	clear(out)
	in := unsafe.Slice((*int8)(panel), ceilDiv(depth, f.kr)*f.step())
	for len(in) > 0 {
		for j := range out {
			for t := range f.kr {
				out[j] += int32(in[j*f.kr+t])
			}
		}
		in = in[f.step():]
	}
}
