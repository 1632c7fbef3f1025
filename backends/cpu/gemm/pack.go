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
