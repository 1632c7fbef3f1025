package design

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// TileB writes a row- or column-major B of the problem's size, with the given pitch in bytes, into dst in the order that a design with tiled B
// reads: for every column tile the k chunks in turn, each in the blocked layout of the core's memory. dst has BufferBytes[ArgB] bytes. Elements keep their
// type; B in bfp16 is made of blocks along K, so its source is column-major with 9 bytes for 8 values, K a multiple of 8.
func (r *Run) TileB(dst, src []byte, layout Layout, pitch int64) error {
	f := r.feedN()
	return r.tile(f, dst, src, layout == ColMajor, pitch, r.Problem.N)
}

// TileA does the same for an A of bfp16: rows of blocks along K.
func (r *Run) TileA(dst, src []byte, pitch int64) error {
	return r.tile(r.feedM(), dst, src, true, pitch, r.Problem.M)
}

func (r *Run) tile(f *feed, dst, src []byte, kMajor bool, pitch int64, extent int) error {
	l := f.leg
	if l.order != tiled {
		return fmt.Errorf("design: %s of this design is not tiled on the host", l.name)
	}
	if want := r.BufferBytes[l.arg]; int64(len(dst)) < want {
		return fmt.Errorf("design: tiled %s needs %d bytes, the buffer has %d", l.name, want, len(dst))
	}
	K := r.Problem.K
	group := 1 // elements that stay together
	if l.typ == kernel.BFP16 {
		if !kMajor || K%8 != 0 {
			return fmt.Errorf("design: %s in bfp16 has blocks of 8 along K = %d: want whole blocks, K contiguous", l.name, K)
		}
		group = 8
	}
	e := int64(l.bytes(group)) // bytes of one group
	rows, rowBytes := int64(extent), int64(K/group)*e
	if !kMajor {
		rows, rowBytes = int64(K), int64(extent)*e
	}
	if pitch < rowBytes || (rows-1)*pitch+rowBytes > int64(len(src)) {
		return fmt.Errorf("design: %s of %d rows at a pitch of %d bytes does not fit its %d bytes", l.name, rows, pitch, len(src))
	}
	clear(dst[:r.BufferBytes[l.arg]])
	bands := l.u / l.bands
	at := int64(0)
	for u0 := 0; u0 < f.full*l.u; u0 += l.u {
		for k0 := 0; k0 < r.KPad; k0 += l.k {
			for band := 0; band < l.u; band += bands {
				r.tileBlocks(l, dst[at:], src, kMajor, pitch, u0+band, bands, k0, extent, group, e)
				at += int64(l.bytes(bands * l.k))
			}
		}
	}
	return nil
}

// tileBlocks writes one band of one chunk: [u/ub][k/s][ub][s] for K-contiguous blocks (A, bfp16 B), [k/s][u/ub][s][ub] for others.
func (r *Run) tileBlocks(l *leg, dst, src []byte, kMajor bool, pitch int64, u0, rows, k0, extent, group int, e int64) {
	K := r.Problem.K
	put := func(at int64, u, k int) int64 {
		if u < extent && k < K {
			from := int64(u)*pitch + int64(k/group)*e
			if !kMajor {
				from = int64(k)*pitch + int64(u)*e
			}
			copy(dst[at:at+e], src[from:from+e])
		}
		return at + e
	}
	at := int64(0)
	if l.arg == ArgB && l.typ != kernel.BFP16 {
		for ks := 0; ks < l.k; ks += l.s {
			for us := 0; us < rows; us += l.ub {
				for k := range l.s {
					for u := range l.ub {
						at = put(at, u0+us+u, k0+ks+k)
					}
				}
			}
		}
		return
	}
	for us := 0; us < rows; us += l.ub {
		for ks := 0; ks < l.k; ks += l.s {
			for u := range l.ub {
				for k := 0; k < l.s; k += group {
					at = put(at, u0+us+u, k0+ks+k)
				}
			}
		}
	}
}
