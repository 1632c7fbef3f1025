package conv

// Args are the operands of a run: images and results contiguous, [N, H, W, C] and [N, OH, OW, M], or with a depth before the rows. Bias has M numbers; it and Residual
// may be nil.
type Args struct {
	X        []float32
	X16      []uint16 // instead of X, of Type BF16
	X8       []byte   // instead of X, of Type Int8
	Y        []float32
	Residual []float32
	Bias     []float32
	Act      Act
	Scale    []float32 // M factors of the sums of Types BF16 and Int8, applied before the bias, or nil
	Raw      bool      // of Type Int8: Y takes the bits of the int32 sums, and nothing is done to them
	// Post, if not nil, is applied to finished pixels of Y, one or several neighbours with all of their channels at a time; i is the
	// position of the first. It may not depend on how many come at once.
	Post func(i int, y []float32)
	// Load, if not nil, stands for X: it copies n floats from position i of the image on.
	Load func(dst []float32, i int)
	// Store, if not nil, takes the pixels that would go to Y, one or several neighbours, at position i on.
	Store func(i int, y []float32)
	// Bytes, if not nil, takes the pixels as Quant makes bytes of them, of Type Int8: at once where kernels can, else by way of Store, which is to do the
	// same number by number, and may get some channels of a pixel only. Whether they can also depends on Post, which sees numbers.
	Bytes []byte
	Quant Quant
	// Narrow, if not nil, sets bytes to numbers as Quant makes them, many at a time.
	Narrow func(dst []byte, x []float32)
	// Stop, if not nil, is asked between blocks whether the run shall end.
	Stop func() bool
}

// Quant makes bytes of results: times Scale, rounded to nearest even, plus Zero and limited to Low and High. Signed bytes are their bits.
type Quant struct {
	Scale           float32
	Zero, Low, High int32
}

// Act is what happens to a sum, after the residual is added.
type Act struct {
	Mode   Mode
	P, Q   float32
	S, T   float32 // of SwishAffine
	Lo, Hi float32 // limits, applied last
}

// Mode is the form of an activation.
type Mode int

// The modes.
const (
	Plain  Mode = plain
	Linear Mode = linear // P x + Q
	Swish  Mode = swish  // x times P x + Q limited to 0 and 1
	Leaky  Mode = leaky  // max(x, 0) + P min(x, 0)

	SwishAffine Mode = affine // Swish, then S x + T
)

// NoAct changes nothing.
var NoAct = Act{Lo: least, Hi: most}
