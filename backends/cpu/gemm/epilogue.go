package gemm

import (
	"errors"
	"fmt"
	"unsafe"
)

// Activation is a function applied to each element. All are computed in float32 with the same operations on every instruction
// set, so fused and separate application (Activate) give the same bits.
type Activation uint8

// The activations; P and Q are the parameters in Epilogue.
const (
	None        Activation = iota
	ReLU                   // max(x, 0)
	Clip                   // min(max(x, P), Q); ReLU6 is Clip with 0, 6
	LeakyReLU              // x if x > 0, else P x
	HardSwish              // x min(max(x + 3, 0), 6) / 6
	HardSigmoid            // min(max(P x + Q, 0), 1)
	Sigmoid                // 1 / (1 + e^-x)
	SiLU                   // x / (1 + e^-x)
	Tanh                   // tanh x
	GELU                   // x (1 + erf(x / sqrt 2)) / 2
	GELUTanh               // x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2
	QuickGELU              // x / (1 + e^(-1.702 x))
	numActivations
)

var activationNames = [numActivations]string{"none", "relu", "clip", "leaky_relu", "hard_swish", "hard_sigmoid", "sigmoid", "silu",
	"tanh", "gelu", "gelu_tanh", "quick_gelu"}

func (a Activation) String() string {
	if a < numActivations {
		return activationNames[a]
	}
	return fmt.Sprintf("Activation(%d)", uint8(a))
}

// Epilogue is what happens to an element between its sum and C, in this order, each step rounded to float32:
//
//	x = sum * RowScale[i] * ColScale[j] + Bias[j] + Before[i][j]
//	x = Act(x) + After[i][j]
//	C = x, or x rounded to bf16 or f16, or saturate(round(x * OutScale) + OutZero) for s8 and u8
//
// Integer sums become float32 first (rounded to nearest even); a product into s32 has no epilogue. NaN becomes the lowest s8
// or u8. Steps whose field is nil or zero are left out.
type Epilogue struct {
	RowScale []float32 // length M, or 1 for all rows
	ColScale []float32 // length N, or 1 for all columns
	Bias     []float32 // length N
	Before   Matrix    // f32, M x N, column stride 1; row stride 0 repeats a row
	Act      Activation
	P, Q     float32
	After    Matrix  // f32 like Before; it may be C itself
	OutScale float32 // 0 means 1
	OutZero  int32
}

// check returns an error unless the epilogue fits a product of m x n into c.
func (e *Epilogue) check(c *Matrix, m, n int) error {
	if e.Act >= numActivations {
		return fmt.Errorf("gemm: activation %d is unknown", e.Act)
	}
	if c.typ == S32 {
		return errors.New("gemm: a product into s32 takes no epilogue")
	}
	if l := len(e.RowScale); l > 1 && l != m {
		return fmt.Errorf("gemm: RowScale has length %d, want 1 or M = %d", l, m)
	}
	if l := len(e.ColScale); l > 1 && l != n {
		return fmt.Errorf("gemm: ColScale has length %d, want 1 or N = %d", l, n)
	}
	if l := len(e.Bias); l != 0 && l != n {
		return fmt.Errorf("gemm: Bias has length %d, want N = %d", l, n)
	}
	for _, r := range []struct {
		name string
		m    *Matrix
	}{{"Before", &e.Before}, {"After", &e.After}} {
		if r.m.typ == 0 {
			continue
		}
		if r.m.typ != F32 || r.m.Rows != m || r.m.Cols != n || n > 1 && r.m.ColStride != 1 {
			return fmt.Errorf("gemm: residual %s is %v, %d x %d, column stride %d, want f32, %d x %d, column stride 1", r.name,
				r.m.typ, r.m.Rows, r.m.Cols, r.m.ColStride, m, n)
		}
		if err := r.m.check(r.name); err != nil {
			return err
		}
		same := r.m.ptr == c.ptr && r.m.RowStride == c.RowStride && c.typ == F32
		if r.name == "Before" || !same {
			if c.overlaps(r.m) {
				return fmt.Errorf("gemm: C overlaps the residual %s", r.name)
			}
		}
	}
	return nil
}

// vecOps are the row operations of epilogues for one instruction set. Slices of one call have equal length.
type vecOps struct {
	fromS32 func(x []float32)            // reads int32 bits, in place
	scale   func(x []float32, s float32) // x *= s
	mul     func(x, y []float32)         // x *= y
	add     func(x, y []float32)         // x += y
	act     [numActivations]func(x []float32, p, q float32)
	bf16    func(dst []uint16, x []float32) // to nearest even, NaN stays NaN
	f16     func(dst []uint16, x []float32)
	// widenPanel turns kc values of k of a bf16 or f16 panel of format f into an f32 panel of the same width.
	widenPanel func(dst, src unsafe.Pointer, f format, kc int)
	fromHalf   func(dst []float32, src unsafe.Pointer, t Type) // bf16 or f16 side by side
	quant      func(dst []uint8, x []float32, scale float32, zero int32, low, high int32)
}

// apply runs the steps up to the conversion on n columns of row i from column j on; x holds float32 sums.
func (e *Epilogue) apply(v *vecOps, x []float32, i, j int) {
	n := len(x)
	switch len(e.RowScale) {
	case 0:
	case 1:
		v.scale(x, e.RowScale[0])
	default:
		v.scale(x, e.RowScale[i])
	}
	switch len(e.ColScale) {
	case 0:
	case 1:
		v.scale(x, e.ColScale[0])
	default:
		v.mul(x, e.ColScale[j:j+n])
	}
	if e.Bias != nil {
		v.add(x, e.Bias[j:j+n])
	}
	if e.Before.typ != 0 {
		v.add(x, e.Before.row(i, j, n))
	}
	if e.Act != None {
		v.act[e.Act](x, e.P, e.Q)
	}
}

// row returns n float32 elements of row i from column j on; the column stride is 1.
func (m *Matrix) row(i, j, n int) []float32 {
	return unsafe.Slice((*float32)(m.at(i, j)), n)
}

// store converts finished elements into c. The column stride of c may be any.
func store(v *vecOps, c *Matrix, x []float32, i, j int, scale float32, zero int32) {
	if c.ColStride != 1 {
		storeStrided(v, c, x, i, j, scale, zero)
		return
	}
	dst := c.at(i, j)
	n := len(x)
	switch c.typ {
	case F32:
		copy(unsafe.Slice((*float32)(dst), n), x)
	case BF16:
		v.bf16(unsafe.Slice((*uint16)(dst), n), x)
	case F16:
		v.f16(unsafe.Slice((*uint16)(dst), n), x)
	case S8:
		v.quant(unsafe.Slice((*uint8)(dst), n), x, scale, zero, -128, 127)
	case U8:
		v.quant(unsafe.Slice((*uint8)(dst), n), x, scale, zero, 0, 255)
	}
}

func storeStrided(v *vecOps, c *Matrix, x []float32, i, j int, scale float32, zero int32) {
	var tmp [64]uint32
	for len(x) > 0 {
		n := min(len(x), len(tmp))
		t := Matrix{Rows: 1, Cols: n, RowStride: n, ColStride: 1, typ: c.typ, ptr: unsafe.Pointer(&tmp), len: n}
		store(v, &t, x[:n], 0, 0, scale, zero)
		size := c.typ.Size()
		for o := range n {
			s, d := t.at(0, o), c.at(i, j+o)
			switch size {
			case 1:
				*(*uint8)(d) = *(*uint8)(s)
			case 2:
				*(*uint16)(d) = *(*uint16)(s)
			default:
				*(*uint32)(d) = *(*uint32)(s)
			}
		}
		x, j = x[n:], j+n
	}
}

// Activate applies an activation in place, with the bits that a fused epilogue gives.
func Activate(a Activation, x []float32, p, q float32) error {
	if a >= numActivations {
		return fmt.Errorf("gemm: activation %d is unknown", a)
	}
	if a != None {
		bestVec().act[a](x, p, q)
	}
	return nil
}

// Quantize stores x * scale, rounded to nearest even, plus zero and limited to low and high, with the bits that a fused epilogue gives. Signed
// bytes are stored as their bits.
func Quantize(dst []uint8, x []float32, scale float32, zero, low, high int32) {
	bestVec().quant(dst[:len(x)], x, scale, zero, low, high)
}
