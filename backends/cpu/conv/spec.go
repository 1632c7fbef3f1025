package conv

import "fmt"

// Spec is a convolution of images [N, H, W, C] by M filters, or a transposed one. All sizes are those of one call; OH and OW follow
// from the others and are given. With a Depth images are [N, Depth, H, W, C].
type Spec struct {
	N, H, W, C, M  int
	KH, KW         int
	SH, SW, DH, DW int
	Top, Left      int // padding before; what is needed behind follows from the output
	OH, OW         int
	Depth          Dim // the zero value: there is none
	Groups         int
	Transposed     bool
	Type           Type
	Signed         bool  // of Int8: images are signed
	XZero          int32 // of Int8: the zero point of images, which padding has, too
	Tile           int   // 0: by the definition; 2 or 4 (of Int8 4): by Winograd's algorithm with tiles of so many pixels in each direction
}

// dims returns the spatial dimensions, of which the first may not be there.
func (s *Spec) dims() [3]Dim {
	return [3]Dim{s.Depth.or(one), {In: s.H, Out: s.OH, Kernel: s.KH, Stride: s.SH, Dilation: s.DH, Before: s.Top},
		{In: s.W, Out: s.OW, Kernel: s.KW, Stride: s.SW, Dilation: s.DW, Before: s.Left}}
}

// Fold returns the convolution with fewer spatial dimensions where these say the same: images, filters and results are what they were.
func (s Spec) Fold() Spec {
	n, d := fold(s.N, s.dims(), s.Transposed)
	s.N, s.Depth = n, d[0]
	if d[0].single() {
		s.Depth = Dim{}
	}
	s.H, s.OH, s.KH, s.SH, s.DH, s.Top = d[1].In, d[1].Out, d[1].Kernel, d[1].Stride, d[1].Dilation, d[1].Before
	s.W, s.OW, s.KW, s.SW, s.DW, s.Left = d[2].In, d[2].Out, d[2].Kernel, d[2].Stride, d[2].Dilation, d[2].Before
	return s
}

// Sized returns the spec with the sizes of another, which a filter does not depend on.
func (s Spec) sized(as *Spec) Spec {
	s.N, s.H, s.W, s.OH, s.OW, s.Depth.In, s.Depth.Out = as.N, as.H, as.W, as.OH, as.OW, as.Depth.In, as.Depth.Out
	return s
}

// Unsized returns the spec of all convolutions that may share a packed filter.
func (s Spec) Unsized() Spec {
	t := Spec{N: 1, H: 1, W: 1, OH: 1, OW: 1}
	if s.Depth != (Dim{}) {
		t.Depth.In, t.Depth.Out = 1, 1
	}
	return s.sized(&t)
}

// taps returns the size of a kernel.
func (s *Spec) taps() int { return s.Depth.or(one).Kernel * s.KH * s.KW }

// planes returns how many planes of results there are, of all images.
func (s *Spec) planes() int { return s.N * s.Depth.or(one).Out }

// Weights returns the size of the filter.
func (s *Spec) Weights() int { return s.M * (s.C / s.Groups) * s.taps() }

// Depthwise reports whether every channel has a filter of its own.
func (s *Spec) Depthwise() bool { return s.Groups == s.C && s.M == s.C && s.C > 1 && !s.Transposed }

// Check returns why a spec cannot be computed here.
func (s *Spec) Check() error {
	if s.Groups < 1 || s.C%s.Groups != 0 || s.M%s.Groups != 0 || s.N < 0 || s.C < 1 || s.M < 1 {
		return fmt.Errorf("conv: %+v", *s)
	}
	for _, d := range s.dims() {
		if err := d.check(); err != nil {
			return err
		}
	}
	lo, hi := int32(0), int32(255)
	if s.Signed {
		lo, hi = -128, 127
	}
	switch {
	case s.Type > Int8 || s.Type != Int8 && (s.Signed || s.XZero != 0) || s.Type != F32 && (s.Transposed || s.Depthwise()) || s.Type == BF16 && s.Tile != 0:
		return fmt.Errorf("conv: type and what is said of it do not fit: %+v", *s)
	case s.Type == BF16 && !s.CanBF16():
		return fmt.Errorf("conv: odd runs of bfloat16: %+v", *s)
	case s.Type == Int8 && (s.XZero < lo || s.XZero > hi):
		return fmt.Errorf("conv: zero point %d, %d to %d is right", s.XZero, lo, hi)
	}
	if _, ok := s.form(s.Tile); s.Tile != 0 && !ok {
		return fmt.Errorf("conv: Winograd's algorithm for %+v: strides and groups of 1, and filters of 3x3 with tiles of 2 or 4, or of 1x3 or 1x5 with tiles of 4 are right; for bytes 3x3 with tiles of 4", *s)
	}
	return nil
}
