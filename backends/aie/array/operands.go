package array

import (
	"encoding/binary"
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/core"
)

// Matrix is a matrix in DDR as the host has it: element (i,j) of Bytes bytes lies at (i*RowStride + j*ColStride) * Bytes.
type Matrix struct {
	Data                 []byte
	Rows, Cols           int
	RowStride, ColStride int
	Bytes                int
}

// Check returns an error unless the matrix lies inside its memory.
func (m *Matrix) Check(what string, rows, cols, bytes int) error {
	if m.Rows != rows || m.Cols != cols || m.Bytes != bytes {
		return fmt.Errorf("%s is %d x %d of %d bytes, %d x %d of %d is right", what, m.Rows, m.Cols, m.Bytes, rows, cols, bytes)
	}
	if m.RowStride < 0 || m.ColStride < 0 {
		return fmt.Errorf("%s: strides %d and %d, not negative is right", what, m.RowStride, m.ColStride)
	}
	if last := ((rows-1)*m.RowStride + (cols-1)*m.ColStride + 1) * bytes; last > len(m.Data) {
		return fmt.Errorf("%s: needs %d bytes, has %d", what, last, len(m.Data))
	}
	return nil
}

// Source is where B comes from: it fills packed blocks, so that packing is part of moving and no other copy of B ever exists. An
// activation matrix is one source; an image seen through a convolution is another.
type Source interface {
	// PackB fills dst with rows p0 to p0+kb-1 and columns j0 to j0+nb-1 in the kernel's layout, zero outside of the matrix.
	PackB(dst []byte, k core.Kernel, p0, kb, j0, nb int)
	// Size is the number of rows and columns.
	Size() (rows, cols int)
	// ElemBytes is the size of an element.
	ElemBytes() int
}

// Size returns the number of rows and columns.
func (m *Matrix) Size() (rows, cols int) { return m.Rows, m.Cols }

// ElemBytes is the size of an element.
func (m *Matrix) ElemBytes() int { return m.Bytes }

// PackB implements Source.
func (m *Matrix) PackB(dst []byte, k core.Kernel, p0, kb, j0, nb int) {
	m.pack(dst, kb, nb, p0, j0, m.Rows, m.Cols, m.RowStride, m.ColStride, k, true)
}

// PackA fills dst with rows i0 to i0+mb-1 and columns p0 to p0+kb-1 in the layout of A.
func (m *Matrix) PackA(dst []byte, k core.Kernel, i0, mb, p0, kb int) {
	m.pack(dst, kb, mb, p0, i0, m.Cols, m.Rows, m.ColStride, m.RowStride, k, false)
}

// pack serves both operands: p runs along K, x along M or N.
func (m *Matrix) pack(dst []byte, kb, xb, p0, x0, pEnd, xEnd, pStride, xStride int, k core.Kernel, isB bool) {
	switch m.Bytes {
	case 1:
		packElems(dst, m.Data, kb, xb, p0, x0, pEnd, xEnd, pStride, xStride, k, isB, func(d, s []byte) { d[0] = s[0] }, 1)
	case 2:
		packElems(dst, m.Data, kb, xb, p0, x0, pEnd, xEnd, pStride, xStride, k, isB, func(d, s []byte) { copy(d[:2], s[:2]) }, 2)
	default:
		packElems(dst, m.Data, kb, xb, p0, x0, pEnd, xEnd, pStride, xStride, k, isB,
			func(d, s []byte) { binary.LittleEndian.PutUint32(d, binary.LittleEndian.Uint32(s)) }, 4)
	}
}

func packElems(dst, src []byte, kb, xb, p0, x0, pEnd, xEnd, pStride, xStride int, k core.Kernel, isB bool, move func(d, s []byte), e int) {
	clear(dst[:kb*xb*e])
	np, nx := min(kb, pEnd-p0), min(xb, xEnd-x0)
	for x := range nx {
		at := ((x0+x)*xStride + p0*pStride) * e
		for p := range np {
			var i int
			if isB {
				i = k.BIndex(p, x, kb)
			} else {
				i = k.AIndex(x, p, kb)
			}
			move(dst[i*e:], src[at:])
			at += pStride * e
		}
	}
}

// Conv is the geometry of a convolution over images in NCHW order.
type Conv struct {
	N, C, H, W           int
	KH, KW               int
	StrideH, StrideW     int
	DilationH, DilationW int
	PadTop, PadLeft      int
	OutH, OutW           int
}

// Check returns an error unless the geometry makes sense for data of len bytes.
func (c *Conv) Check(elems int) error {
	for _, v := range []int{c.N, c.C, c.H, c.W, c.KH, c.KW, c.StrideH, c.StrideW, c.DilationH, c.DilationW, c.OutH, c.OutW} {
		if v < 1 {
			return fmt.Errorf("convolution %+v: sizes, strides and dilations of at least 1 are right", *c)
		}
	}
	if c.PadTop < 0 || c.PadLeft < 0 {
		return fmt.Errorf("convolution %+v: padding of at least 0 is right", *c)
	}
	if c.N*c.C*c.H*c.W > elems {
		return fmt.Errorf("convolution %+v: images need %d elements, have %d", *c, c.N*c.C*c.H*c.W, elems)
	}
	return nil
}

// Im2Row is B seen through a convolution: row p is a position (channel, kernel row, kernel column) of the filter, column j an output
// pixel. The lowered matrix exists only block by block, on its way into the FPGA RAM or into B_c.
type Im2Row struct {
	Conv
	Data  []byte
	Bytes int
}

// Size returns the size of the lowered matrix.
func (m *Im2Row) Size() (rows, cols int) { return m.C * m.KH * m.KW, m.N * m.OutH * m.OutW }

// ElemBytes is the size of an element.
func (m *Im2Row) ElemBytes() int { return m.Bytes }

// PackB implements Source.
func (m *Im2Row) PackB(dst []byte, k core.Kernel, p0, kb, j0, nb int) {
	e := m.Bytes
	clear(dst[:kb*nb*e])
	rows, cols := m.Size()
	for p := range min(kb, rows-p0) {
		q := p0 + p
		kw := q % m.KW
		kh := q / m.KW % m.KH
		ch := q / (m.KW * m.KH)
		for x := range min(nb, cols-j0) {
			j := j0 + x
			ow, oh, n := j%m.OutW, j/m.OutW%m.OutH, j/(m.OutW*m.OutH)
			h, w := oh*m.StrideH+kh*m.DilationH-m.PadTop, ow*m.StrideW+kw*m.DilationW-m.PadLeft
			if h < 0 || h >= m.H || w < 0 || w >= m.W {
				continue
			}
			at := (((n*m.C+ch)*m.H+h)*m.W + w) * e
			copy(dst[k.BIndex(p, x, kb)*e:][:e], m.Data[at:at+e])
		}
	}
}

// unpackC writes the valid part of a packed block of C into the matrix.
func unpackC(dst *Matrix, block []byte, k core.Kernel, i0, mb, j0, nb int) {
	e := dst.Bytes
	for j := range min(nb, dst.Cols-j0) {
		for i := range min(mb, dst.Rows-i0) {
			at := ((i0+i)*dst.RowStride + (j0+j)*dst.ColStride) * e
			copy(dst.Data[at:at+e], block[k.CIndex(i, j, mb)*e:])
		}
	}
}

// packC reads the micro-tiles of C that the paper's design starts from.
func packC(block []byte, src *Matrix, k core.Kernel, i0, mb, j0, nb int) {
	e := src.Bytes
	clear(block[:mb*nb*e])
	for j := range min(nb, src.Cols-j0) {
		for i := range min(mb, src.Rows-i0) {
			at := ((i0+i)*src.RowStride + (j0+j)*src.ColStride) * e
			copy(block[k.CIndex(i, j, mb)*e:], src.Data[at:at+e])
		}
	}
}
