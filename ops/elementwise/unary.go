package elementwise

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Func is a function of one number.
type Func uint8

// The functions of one number. Those marked int also take integers; Not takes booleans; IsNaN and IsInf give booleans.
const (
	Neg  Func = iota // int
	Abs              // int
	Sign             // int; NaN stays NaN, a zero is +0
	Sqr              // int
	Exp
	Expm1
	Log
	Log1p
	Sqrt
	Rsqrt
	Reciprocal
	Floor
	Ceil
	Round // to nearest, ties to even
	Trunc
	Sin
	Cos
	Tan
	Asin
	Acos
	Atan
	Sinh
	Cosh
	Asinh
	Acosh
	Atanh
	Erf
	Not
	BitNot // int only
	IsNaN
	IsInf
	numFuncs
)

var funcNames = [numFuncs]string{"neg", "abs", "sign", "sqr", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal",
	"floor", "ceil", "round", "trunc", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf",
	"not", "bit_not", "is_nan", "is_inf"}

func (f Func) String() string {
	if f < numFuncs {
		return funcNames[f]
	}
	return fmt.Sprintf("Func(%d)", uint8(f))
}

// Funcs returns every function of one number.
func Funcs() []Func {
	all := make([]Func, numFuncs)
	for i := range all {
		all[i] = Func(i)
	}
	return all
}

// Apply returns the function of x in float64. Booleans count as 0 and 1.
func (f Func) Apply(x float64) float64 {
	switch f {
	case Neg:
		return -x
	case Abs:
		return math.Abs(x)
	case Sign:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		case x == 0:
			return 0
		}
		return x
	case Sqr:
		return x * x
	case Exp:
		return math.Exp(x)
	case Expm1:
		return math.Expm1(x)
	case Log:
		return math.Log(x)
	case Log1p:
		return math.Log1p(x)
	case Sqrt:
		return math.Sqrt(x)
	case Rsqrt:
		return 1 / math.Sqrt(x)
	case Reciprocal:
		return 1 / x
	case Floor:
		return math.Floor(x)
	case Ceil:
		return math.Ceil(x)
	case Round:
		return math.RoundToEven(x)
	case Trunc:
		return math.Trunc(x)
	case Sin:
		return math.Sin(x)
	case Cos:
		return math.Cos(x)
	case Tan:
		return math.Tan(x)
	case Asin:
		return math.Asin(x)
	case Acos:
		return math.Acos(x)
	case Atan:
		return math.Atan(x)
	case Sinh:
		return math.Sinh(x)
	case Cosh:
		return math.Cosh(x)
	case Asinh:
		return math.Asinh(x)
	case Acosh:
		return math.Acosh(x)
	case Atanh:
		return math.Atanh(x)
	case Erf:
		return math.Erf(x)
	case Not:
		return truth(x == 0)
	case IsNaN:
		return truth(x != x)
	case IsInf:
		return truth(math.IsInf(x, 0))
	}
	return x
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// applyInt is Apply for the functions that take integers. It wraps as Go's integers do.
func (f Func) applyInt(x int64, unsigned bool) int64 {
	switch f {
	case Neg:
		return -x
	case Abs:
		if x < 0 && !unsigned {
			return -x
		}
	case Sign:
		switch {
		case x == 0:
		case x < 0 && !unsigned:
			return -1
		default:
			return 1
		}
	case Sqr:
		return x * x
	case BitNot:
		return ^x
	}
	return x
}

// Unary applies a function of one number to every element.
type Unary struct{ F Func }

// Name is the function's.
func (u Unary) Name() string { return u.F.String() }

// Infer is the shape rule: the input's shape; IsNaN and IsInf give Bool.
func (u Unary) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(u, in, 1, 1); err != nil {
		return nil, err
	}
	if u.F >= numFuncs {
		return nil, fmt.Errorf("unknown function %v", u.F)
	}
	d := in[0].DType
	ok, right := d.IsFloat(), "a floating-point type"
	switch u.F {
	case Neg, Abs, Sign, Sqr:
		ok, right = ok || d.IsInt(), "a floating-point or integer type"
	case Not:
		ok, right = d == tensor.Bool, "bool"
	case BitNot:
		ok, right = d.IsInt(), "an integer type"
	}
	if !ok {
		return nil, fmt.Errorf("%s: input is %v, %s is right", u.Name(), in[0], right)
	}
	if u.F == IsNaN || u.F == IsInf {
		return []tensor.Spec{in[0].With(tensor.Bool)}, nil
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference computes element by element.
func (u Unary) Reference(out, in []tensor.Tensor) error {
	if in[0].DType.IsInt() {
		v := in[0].Ints()
		for i := range v {
			v[i] = u.F.applyInt(v[i], in[0].DType.Kind() == tensor.Unsigned)
		}
		out[0].SetInts(v)
		return nil
	}
	return mapFloats(out[0], in[0], u.F.Apply)
}

// InPlace is true for functions that keep the type.
func (u Unary) InPlace(int) bool { return u.F != IsNaN && u.F != IsInf }

// Flops counts one operation an element.
func (u Unary) Flops(in []tensor.Spec) float64 { return float64(in[0].Elems()) }

func mapFloats(out, in tensor.Tensor, f func(float64) float64) error {
	v := in.Floats()
	for i := range v {
		v[i] = f(v[i])
	}
	out.SetFloats(v)
	return nil
}

// Activate applies an activation to every element.
type Activate struct{ Act ops.Act }

// Name is the activation's.
func (a Activate) Name() string { return a.Act.Kind.String() }

// Infer is the shape rule: the input's spec.
func (a Activate) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := a.Act.Check(); err != nil {
		return nil, err
	}
	return floatMap(a, in)
}

// Reference computes element by element.
func (a Activate) Reference(out, in []tensor.Tensor) error {
	return mapFloats(out[0], in[0], a.Act.Apply)
}

// InPlace is always true.
func (Activate) InPlace(int) bool { return true }

// Flops counts one operation an element.
func (Activate) Flops(in []tensor.Spec) float64 { return float64(in[0].Elems()) }

// Scale is Mul x + Add.
type Scale struct{ Mul, Add float32 }

// Name is "scale".
func (Scale) Name() string { return "scale" }

// Infer is the shape rule: the input's spec.
func (s Scale) Infer(in []tensor.Spec) ([]tensor.Spec, error) { return floatMap(s, in) }

// Reference computes element by element.
func (s Scale) Reference(out, in []tensor.Tensor) error {
	mul, add := float64(s.Mul), float64(s.Add)
	return mapFloats(out[0], in[0], func(x float64) float64 { return mul*x + add })
}

// InPlace is always true.
func (Scale) InPlace(int) bool { return true }

// Flops counts a multiplication and an addition an element.
func (Scale) Flops(in []tensor.Spec) float64 { return 2 * float64(in[0].Elems()) }

func floatMap(op ops.Op, in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(op, in, 1, 1); err != nil {
		return nil, err
	}
	if !in[0].DType.IsFloat() {
		return nil, fmt.Errorf("%s: input is %v, a floating-point type is right", op.Name(), in[0])
	}
	return []tensor.Spec{in[0]}, nil
}
