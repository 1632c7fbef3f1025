// Package npy reads and writes NumPy's .npy files of any number of dimensions. Known libraries write one- and two-dimensional
// arrays only.
package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Array is the content of a file: elements in row-major (C) order, little-endian.
type Array struct {
	Descr string // NumPy's type: "f4", "i8", "u1", "b1", "f2", ...
	Shape []int
	Data  []byte
}

const magic = "\x93NUMPY"

// maxHeader bounds the text of a header; real ones have some hundred bytes.
const maxHeader = 1 << 16

var (
	reDescr   = regexp.MustCompile(`'descr'\s*:\s*'([<>|=]?)([a-z]\d+)'`)
	reFortran = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	reShape   = regexp.MustCompile(`'shape'\s*:\s*\(([\d,\sL]*)\)`)
)

// Read reads a file of at most limit bytes of data. Big-endian and column-major arrays are brought to the order of Array.
func Read(r io.Reader, limit int) (*Array, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:6]) != magic {
		return nil, fmt.Errorf("npy: no NumPy file: it must begin with %q", magic)
	}
	var size int
	switch head[6] {
	case 1:
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return nil, fmt.Errorf("npy: header: %w", err)
		}
		size = int(binary.LittleEndian.Uint16(b[:]))
	case 2, 3:
		var b [4]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return nil, fmt.Errorf("npy: header: %w", err)
		}
		size = int(min(binary.LittleEndian.Uint32(b[:]), math.MaxInt32))
	default:
		return nil, fmt.Errorf("npy: format version %d; 1 to 3 are known", head[6])
	}
	if size > maxHeader {
		return nil, fmt.Errorf("npy: header of %d bytes, at most %d are sensible", size, maxHeader)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, fmt.Errorf("npy: header: %w", err)
	}
	descr, fortran, shape := reDescr.FindSubmatch(text), reFortran.FindSubmatch(text), reShape.FindSubmatch(text)
	if descr == nil || fortran == nil || shape == nil {
		return nil, fmt.Errorf("npy: header %q lacks a plain descr, fortran_order or shape", text)
	}
	a := &Array{Descr: string(descr[2])}
	width, _ := strconv.Atoi(a.Descr[1:])
	if width < 1 || width > 16 {
		return nil, fmt.Errorf("npy: elements of %d bytes", width)
	}
	total := width
	for _, field := range strings.Split(string(shape[1]), ",") {
		field = strings.TrimSuffix(strings.TrimSpace(field), "L")
		if field == "" {
			continue
		}
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 || n > 0 && total > limit/n {
			return nil, fmt.Errorf("npy: shape (%s) with elements of %d bytes is over the limit of %d bytes", shape[1], width, limit)
		}
		total *= n
		a.Shape = append(a.Shape, n)
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(total)))
	if err != nil {
		return nil, err
	}
	if len(data) != total {
		return nil, fmt.Errorf("npy: %d bytes of data, the shape %v needs %d", len(data), a.Shape, total)
	}
	a.Data = data
	if string(descr[1]) == ">" {
		swap(a.Data, width)
	}
	if string(fortran[1]) == "True" && len(a.Shape) > 1 {
		a.Data = rowMajor(a.Data, a.Shape, width)
	}
	return a, nil
}

func swap(data []byte, width int) {
	for i := 0; i+width <= len(data); i += width {
		for l, r := i, i+width-1; l < r; l, r = l+1, r-1 {
			data[l], data[r] = data[r], data[l]
		}
	}
}

func rowMajor(data []byte, shape []int, width int) []byte {
	out := make([]byte, len(data))
	idx := make([]int, len(shape))
	for i := 0; i < len(data); i += width {
		at := 0
		for d, n := range shape {
			at = at*n + idx[d]
		}
		copy(out[at*width:][:width], data[i:])
		for d := 0; d < len(shape); d++ { // the first index runs fastest
			if idx[d]++; idx[d] < shape[d] {
				break
			}
			idx[d] = 0
		}
	}
	return out
}

// Write writes a file of format version 1.
func Write(w io.Writer, a *Array) error {
	dims := make([]string, len(a.Shape))
	for i, n := range a.Shape {
		dims[i] = strconv.Itoa(n)
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += ","
	}
	order := "<"
	if strings.HasSuffix(a.Descr, "1") {
		order = "|"
	}
	text := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, a.Descr, shape)
	pad := 64 - (len(magic)+4+len(text)+1)%64
	text += strings.Repeat(" ", pad%64) + "\n"
	head := append([]byte(magic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(text)))
	for _, part := range [][]byte{head, []byte(text), a.Data} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}
