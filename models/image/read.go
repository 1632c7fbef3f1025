// Package image brings pictures into models and results back into pictures: it decides how files are decoded (PNG and JPEG, and the
// IDX files of MNIST), how a picture is resized and becomes a tensor in a model's layout, and how boxes and text are drawn.
package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // registers the decoder
	_ "image/png"  // registers the decoder
	"io"

	"github.com/tessera-go/tessera/internal/regular"
)

// MaxPixels bounds a picture: a file of a few bytes may claim a size that no memory holds.
const MaxPixels = 1 << 28

// ReadFile decodes a file: one picture of a PNG or JPEG, all those of an IDX file (gzipped or not). The file is a
// regular one or a stream that the process holds, such as /dev/stdin.
func ReadFile(path string) ([]image.Image, error) {
	f, err := regular.OpenStream(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	pictures, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return pictures, nil
}

// Read is ReadFile for a stream. The format follows from the first bytes.
func Read(r io.Reader) ([]image.Image, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(4)
	if err != nil {
		return nil, fmt.Errorf("no picture: %w", noEOF(err))
	}
	switch {
	case head[0] == 0x1f && head[1] == 0x8b:
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		defer z.Close()
		return ReadIDX(z)
	case head[0] == 0 && head[1] == 0:
		return ReadIDX(b)
	}
	data, err := io.ReadAll(b)
	if err != nil {
		return nil, err
	}
	cfg, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("neither PNG, JPEG nor IDX: %w", err)
	}
	if cfg.Width <= 0 || cfg.Height <= 0 || cfg.Width > MaxPixels/cfg.Height {
		return nil, fmt.Errorf("%s of %d x %d pixels: at most %d are supported", format, cfg.Width, cfg.Height, MaxPixels)
	}
	img, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", format, err)
	}
	return []image.Image{img}, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReadIDX decodes the images of an IDX file: unsigned bytes in three dimensions (number, rows, columns).
func ReadIDX(r io.Reader) ([]image.Image, error) {
	dims, err := idxHeader(r, 3)
	if err != nil {
		return nil, err
	}
	n, h, w := dims[0], dims[1], dims[2]
	if h < 1 || w < 1 || h > 1<<14 || w > 1<<14 {
		return nil, fmt.Errorf("idx: images of %d x %d pixels", w, h)
	}
	var list []image.Image
	for i := range n { // one after the other: the header bounds nothing, the stream does
		g := image.NewGray(image.Rect(0, 0, w, h))
		if _, err := io.ReadFull(r, g.Pix); err != nil {
			return nil, fmt.Errorf("idx: image %d of %d: %w", i, n, noEOF(err))
		}
		list = append(list, g)
	}
	return list, nil
}

// ReadLabels decodes the labels of an IDX file, gzipped or not: unsigned bytes in one dimension.
func ReadLabels(path string) ([]int, error) {
	f, err := regular.OpenStream(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := bufio.NewReader(f)
	var r io.Reader = b
	if head, _ := b.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		defer z.Close()
		r = z
	}
	dims, err := idxHeader(r, 1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, int64(dims[0])))
	if err == nil && len(raw) < dims[0] {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%s: idx: %w", path, err)
	}
	labels := make([]int, len(raw))
	for i, v := range raw {
		labels[i] = int(v)
	}
	return labels, nil
}

func idxHeader(r io.Reader, rank int) ([]int, error) {
	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, fmt.Errorf("idx: header: %w", noEOF(err))
	}
	if magic[0] != 0 || magic[1] != 0 || magic[2] != 8 || int(magic[3]) != rank {
		return nil, fmt.Errorf("idx: magic %x, 000008%02x is right (unsigned bytes in %d dimensions)", magic, rank, rank)
	}
	dims := make([]int, rank)
	for i := range dims {
		var n uint32
		if err := binary.Read(r, binary.BigEndian, &n); err != nil {
			return nil, fmt.Errorf("idx: dimension %d: %w", i, noEOF(err))
		}
		if n > 1<<30 {
			return nil, fmt.Errorf("idx: dimension %d is %d", i, n)
		}
		dims[i] = int(n)
	}
	return dims, nil
}
