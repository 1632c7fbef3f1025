package elementwise

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/tensor"
)

// Func2 is a function of two numbers.
type Func2 uint8

// The functions of two numbers. Arithmetic takes floats and integers; comparisons take those and booleans and give booleans; And,
// Or and Xor take booleans; the Bit functions and shifts take integers. Integer division truncates; division by zero gives 0, as
// nothing else is representable.
const (
	Add      Func2 = iota
	Sub            //
	Mul            //
	Div            //
	Pow            //
	Min            // NaN wins
	Max            // NaN wins
	Mod            // the sign of the divisor, as Python's
	FMod           // the sign of the dividend, as C's
	Equal          //
	NotEqual       //
	Less           //
	LessEqual
	Greater
	GreaterEqual
	And
	Or
	Xor
	BitAnd
	BitOr
	BitXor
	ShiftLeft
	ShiftRight
	numFuncs2
)

var func2Names = [numFuncs2]string{"add", "sub", "mul", "div", "pow", "min", "max", "mod", "fmod", "equal", "not_equal", "less",
	"less_equal", "greater", "greater_equal", "and", "or", "xor", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"}

func (f Func2) String() string {
	if f < numFuncs2 {
		return func2Names[f]
	}
	return fmt.Sprintf("Func2(%d)", uint8(f))
}

// Funcs2 returns every function of two numbers.
func Funcs2() []Func2 {
	all := make([]Func2, numFuncs2)
	for i := range all {
		all[i] = Func2(i)
	}
	return all
}

// Compares reports whether the function gives a boolean of two numbers.
func (f Func2) Compares() bool { return f >= Equal && f <= GreaterEqual }

// Logical reports whether the function takes and gives booleans.
func (f Func2) Logical() bool { return f >= And && f <= Xor }

// Bitwise reports whether the function takes integers only.
func (f Func2) Bitwise() bool { return f >= BitAnd }

// Apply returns the function of two numbers in float64. Booleans count as 0 and 1.
func (f Func2) Apply(x, y float64) float64 {
	switch f {
	case Add:
		return x + y
	case Sub:
		return x - y
	case Mul:
		return x * y
	case Div:
		return x / y
	case Pow:
		return math.Pow(x, y)
	case Min:
		return min(x, y)
	case Max:
		return max(x, y)
	case Mod:
		m := math.Mod(x, y)
		if m != 0 && (m < 0) != (y < 0) {
			m += y
		}
		return m
	case FMod:
		return math.Mod(x, y)
	case Equal:
		return truth(x == y)
	case NotEqual:
		return truth(x != y)
	case Less:
		return truth(x < y)
	case LessEqual:
		return truth(x <= y)
	case Greater:
		return truth(x > y)
	case GreaterEqual:
		return truth(x >= y)
	case And:
		return truth(x != 0 && y != 0)
	case Or:
		return truth(x != 0 || y != 0)
	case Xor:
		return truth((x != 0) != (y != 0))
	}
	return math.NaN()
}

// ApplyInt is Apply for integers of width bits, held in an int64. The result wraps when it is stored.
func (f Func2) ApplyInt(x, y int64, unsigned bool, width uint) int64 {
	less := x < y
	if unsigned {
		less = uint64(x) < uint64(y)
	}
	flag := func(b bool) int64 { return int64(truth(b)) }
	switch f {
	case Add:
		return x + y
	case Sub:
		return x - y
	case Mul:
		return x * y
	case Div:
		switch {
		case y == 0:
			return 0
		case unsigned:
			return int64(uint64(x) / uint64(y))
		case y == -1:
			return -x // the quotient of the least integer wraps
		}
		return x / y
	case Pow:
		return powInt(x, y, unsigned)
	case Min:
		if less {
			return x
		}
		return y
	case Max:
		if less {
			return y
		}
		return x
	case Mod, FMod:
		switch {
		case y == 0 || y == -1 && !unsigned:
			return 0
		case unsigned:
			return int64(uint64(x) % uint64(y))
		}
		m := x % y
		if f == Mod && m != 0 && (m < 0) != (y < 0) {
			m += y
		}
		return m
	case Equal:
		return flag(x == y)
	case NotEqual:
		return flag(x != y)
	case Less:
		return flag(less)
	case LessEqual:
		return flag(less || x == y)
	case Greater:
		return flag(!less && x != y)
	case GreaterEqual:
		return flag(!less)
	case BitAnd:
		return x & y
	case BitOr:
		return x | y
	case BitXor:
		return x ^ y
	case ShiftLeft:
		if uint64(y) >= uint64(width) {
			return 0
		}
		return x << uint64(y)
	case ShiftRight:
		if uint64(y) >= uint64(width) {
			if x < 0 && !unsigned {
				return -1
			}
			return 0
		}
		if unsigned {
			return int64(uint64(x) >> uint64(y))
		}
		return x >> uint64(y)
	}
	return 0
}

// powInt is x to the y modulo 2^64; for a negative y it is the truncated reciprocal.
func powInt(x, y int64, unsigned bool) int64 {
	if y < 0 && !unsigned {
		switch {
		case x == 1 || x == -1 && y%2 == 0:
			return 1
		case x == -1:
			return -1
		}
		return 0
	}
	result := int64(1)
	for e := uint64(y); e != 0; e >>= 1 {
		if e&1 == 1 {
			result *= x
		}
		x *= x
	}
	return result
}

// Binary applies a function of two numbers with NumPy broadcasting. Operands have one type, or two floating-point types, of
// which the wider is the result's (f16 and bf16 give f32).
type Binary struct{ F Func2 }

// Name is the function's.
func (b Binary) Name() string { return b.F.String() }

// Infer is the shape rule.
func (b Binary) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(b, in, 2, 2); err != nil {
		return nil, err
	}
	if b.F >= numFuncs2 {
		return nil, fmt.Errorf("unknown function %v", b.F)
	}
	x, y := in[0].DType, in[1].DType
	var ok bool
	right := "two equal types, or two floating-point types"
	switch {
	case b.F.Logical():
		ok, right = x == tensor.Bool && y == tensor.Bool, "two of bool"
	case b.F.Bitwise():
		ok, right = x.IsInt() && x == y, "two of one integer type"
	case b.F.Compares():
		ok = x.IsFloat() && y.IsFloat() || x == y && (x.IsInt() || x == tensor.Bool)
	default:
		ok = x.IsFloat() && y.IsFloat() || x == y && x.IsInt()
	}
	if !ok {
		return nil, fmt.Errorf("%s: inputs are %v and %v, %s are right", b.Name(), in[0], in[1], right)
	}
	dims, err := tensor.BroadcastDims(in[0].Shape(), in[1].Shape())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name(), err)
	}
	d := wider(x, y)
	if b.F.Compares() {
		d = tensor.Bool
	}
	return ref.Checked(b, d, dims)
}

func wider(x, y tensor.DType) tensor.DType {
	switch {
	case x == y:
		return x
	case x == tensor.F64 || y == tensor.F64:
		return tensor.F64
	}
	return tensor.F32
}

// Reference computes element by element.
func (b Binary) Reference(out, in []tensor.Tensor) error {
	x, err := in[0].Broadcast(out[0].Shape()...)
	if err != nil {
		return err
	}
	y, err := in[1].Broadcast(out[0].Shape()...)
	if err != nil {
		return err
	}
	if x.DType.IsInt() {
		v, w := x.Ints(), y.Ints()
		unsigned := x.DType.Kind() == tensor.Unsigned
		for i := range v {
			v[i] = b.F.ApplyInt(v[i], w[i], unsigned, uint(8*x.DType.Size()))
		}
		out[0].SetInts(v)
		return nil
	}
	v, w := x.Floats(), y.Floats()
	for i := range v {
		v[i] = b.F.Apply(v[i], w[i])
	}
	out[0].SetFloats(v)
	return nil
}

// InPlace is true except for comparisons, which change the type.
func (b Binary) InPlace(int) bool { return !b.F.Compares() }

// Flops counts one operation an element.
func (b Binary) Flops(in []tensor.Spec) float64 {
	out, err := b.Infer(in)
	if err != nil {
		return 0
	}
	return float64(out[0].Elems())
}

// Where takes input 1 where input 0 (Bool) is true, else input 2, with NumPy broadcasting. Inputs 1 and 2 have one type.
type Where struct{}

// Name is "where".
func (Where) Name() string { return "where" }

// Infer is the shape rule.
func (w Where) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(w, in, 3, 3); err != nil {
		return nil, err
	}
	if in[0].DType != tensor.Bool {
		return nil, fmt.Errorf("where: condition (input 0) is %v, bool is right", in[0])
	}
	if in[1].DType != in[2].DType || in[1].DType.IsBlock() {
		return nil, fmt.Errorf("where: inputs are %v and %v, two of one plain type are right", in[1], in[2])
	}
	dims, err := tensor.BroadcastDims(in[0].Shape(), in[1].Shape(), in[2].Shape())
	if err != nil {
		return nil, fmt.Errorf("where: %w", err)
	}
	return ref.Checked(w, in[1].DType, dims)
}

// Reference selects element by element.
func (w Where) Reference(out, in []tensor.Tensor) error {
	cond, err := ref.Spread(in[0], out[0].Shape())
	if err != nil {
		return err
	}
	x, err := in[1].Broadcast(out[0].Shape()...)
	if err != nil {
		return err
	}
	y, err := in[2].Broadcast(out[0].Shape()...)
	if err != nil {
		return err
	}
	if x.DType.IsInt() {
		v, u := x.Ints(), y.Ints()
		for i := range v {
			if cond[i] == 0 {
				v[i] = u[i]
			}
		}
		out[0].SetInts(v)
		return nil
	}
	v, u := x.Floats(), y.Floats()
	for i := range v {
		if cond[i] == 0 {
			v[i] = u[i]
		}
	}
	out[0].SetFloats(v)
	return nil
}

// InPlace is true for inputs 1 and 2.
func (Where) InPlace(i int) bool { return i > 0 }

// Clamp limits input 0 from below by the optional scalar input 1 and from above by the optional scalar input 2. NaN stays NaN.
// Where the limits cross, the upper one wins.
type Clamp struct{}

// Name is "clamp".
func (Clamp) Name() string { return "clamp" }

// Infer is the shape rule: the first input's spec.
func (c Clamp) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(c, in, 1, 3); err != nil {
		return nil, err
	}
	if d := in[0].DType; !d.IsFloat() && !d.IsInt() {
		return nil, fmt.Errorf("clamp: input is %v, a floating-point or integer type is right", in[0])
	}
	for i := 1; i < 3; i++ {
		if ref.Has(in, i) && (in[i].DType != in[0].DType || in[i].Elems() != 1) {
			return nil, fmt.Errorf("clamp: limit (input %d) is %v, one element of %v is right", i, in[i], in[0].DType)
		}
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference computes element by element.
func (c Clamp) Reference(out, in []tensor.Tensor) error {
	lo, hi := ref.Present(in, 1), ref.Present(in, 2)
	if in[0].DType.IsInt() {
		v := in[0].Ints()
		unsigned := in[0].DType.Kind() == tensor.Unsigned
		for i := range v {
			if lo {
				v[i] = Max.ApplyInt(v[i], in[1].Ints()[0], unsigned, 64)
			}
			if hi {
				v[i] = Min.ApplyInt(v[i], in[2].Ints()[0], unsigned, 64)
			}
		}
		out[0].SetInts(v)
		return nil
	}
	v := in[0].Floats()
	for i, x := range v {
		if lo {
			if l := in[1].Floats()[0]; x < l {
				x = l
			}
		}
		if hi {
			if h := in[2].Floats()[0]; x > h {
				x = h
			}
		}
		v[i] = x
	}
	out[0].SetFloats(v)
	return nil
}

// InPlace is true for the first input.
func (Clamp) InPlace(i int) bool { return i == 0 }

// Cast converts the element type as tensor.Copy does: floats are rounded to nearest even; float to integer truncates and NaN gives
// 0; narrower integers wrap; to Bool is "not zero". Block types are decoded; nothing is cast to one (package quant encodes).
type Cast struct{ To tensor.DType }

// Name is "cast".
func (Cast) Name() string { return "cast" }

// Infer is the shape rule: the input's shape.
func (c Cast) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(c, in, 1, 1); err != nil {
		return nil, err
	}
	if c.To.IsBlock() || c.To.Size() == 0 {
		return nil, fmt.Errorf("cast: %v to %v: a plain type is right", in[0], c.To)
	}
	if in[0].DType.IsBlock() && !c.To.IsFloat() {
		return nil, fmt.Errorf("cast: %v to %v: blocks are decoded to floating-point types", in[0], c.To)
	}
	return ref.Checked(c, c.To, in[0].Shape())
}

// Reference converts element by element.
func (c Cast) Reference(out, in []tensor.Tensor) error {
	if in[0].DType.IsBlock() {
		v, err := ref.Floats(in[0])
		if err != nil {
			return err
		}
		out[0].SetFloats(v)
		return nil
	}
	return tensor.Copy(out[0], in[0])
}

// GLU is a gated unit: Act(input 0) times input 1, of one shape and floating-point type. With SiLU it is SwiGLU, with GELU GeGLU.
type GLU struct{ Act ops.Act }

// Name is "glu" with the activation's name.
func (g GLU) Name() string { return "glu_" + g.Act.Kind.String() }

// Infer is the shape rule: the inputs' common spec.
func (g GLU) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(g, in, 2, 2); err != nil {
		return nil, err
	}
	if err := g.Act.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", g.Name(), err)
	}
	if !in[0].DType.IsFloat() || in[0] != in[1] {
		return nil, fmt.Errorf("%s: gate is %v, up is %v; two of one floating-point type and shape are right", g.Name(), in[0], in[1])
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference computes element by element.
func (g GLU) Reference(out, in []tensor.Tensor) error {
	gate, up := in[0].Floats(), in[1].Floats()
	for i := range gate {
		gate[i] = g.Act.Apply(gate[i]) * up[i]
	}
	out[0].SetFloats(gate)
	return nil
}

// InPlace is true for the gate: it is read before the element is written, where input 1 may still be needed.
func (GLU) InPlace(i int) bool { return i == 0 }

// Flops counts an activation and a multiplication an element.
func (GLU) Flops(in []tensor.Spec) float64 { return 2 * float64(in[0].Elems()) }
