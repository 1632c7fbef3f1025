package ops

// ByteAdder is a Ranged op of two inputs that adds quantized bytes, so that a backend may compute it in another way, with the same bits.
type ByteAdder interface {
	Ranged
	ByteSum() ByteSum
}

// ByteSum says what the bytes of an op stand for, and what becomes of a sum x: x / Y.Scale, rounded to the nearest even integer, plus Y.Zero,
// limited to Lo and Hi. Numbers too large for that and NaN are beyond Hi.
type ByteSum struct {
	A, B, Y ByteStep
	Lo, Hi  int32
}

// ByteStep is what a byte v stands for: float32(v - Zero) Scale.
type ByteStep struct {
	Scale  float32
	Zero   int32
	Signed bool
}

// ByteQuantizer is a Ranged op that turns f32 into quantized bytes, so that a backend may compute it in another way, with the same bits: a number x
// becomes what a sum x does by a ByteSum whose limits are those of bytes.
type ByteQuantizer interface {
	Ranged
	ByteStep() ByteStep
}
