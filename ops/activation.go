package ops

import (
	"fmt"
	"math"
)

// Activation is a function of one number that may be fused into the operation before it.
type Activation uint8

// The activations. Their parameters, where they have any, are P and Q of Act.
const (
	NoActivation Activation = iota
	ReLU
	LeakyReLU       // x < 0: P x
	GELU            // x Phi(x), by erf
	GELUTanh        // the tanh approximation of GELU
	QuickGELU       // x sigmoid(1.702 x)
	SiLU            // x sigmoid(x)
	Tanh            //
	Sigmoid         //
	HardSigmoid     // max(0, min(1, P x + Q))
	HardSwish       // x max(0, min(1, x/6 + 1/2))
	Clip            // min(max(x, P), Q)
	ELU             // x < 0: P (exp x - 1)
	Softplus        // log(1 + exp x)
	Mish            // x tanh(log(1 + exp x))
	HardSwishAffine // P x max(0, min(1, x/6 + 1/2)) + Q
	numActivations
)

var activationNames = [numActivations]string{"none", "relu", "leaky_relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "sigmoid",
	"hard_sigmoid", "hard_swish", "clip", "elu", "softplus", "mish", "hard_swish_affine"}

func (a Activation) String() string {
	if a < numActivations {
		return activationNames[a]
	}
	return fmt.Sprintf("Activation(%d)", uint8(a))
}

// Act is an activation with its parameters.
type Act struct {
	Kind Activation
	P, Q float32
}

// Check returns an error if the kind is none of the activations.
func (a Act) Check() error {
	if a.Kind >= numActivations {
		return fmt.Errorf("unknown activation %v", a.Kind)
	}
	return nil
}

// Apply returns the activation of x, in float64. NaN stays NaN in every kind.
func (a Act) Apply(x float64) float64 {
	p, q := float64(a.P), float64(a.Q)
	switch a.Kind {
	case ReLU:
		if x < 0 {
			return 0
		}
		return x
	case LeakyReLU:
		if x < 0 {
			return p * x
		}
		return x
	case GELU:
		if math.IsInf(x, -1) {
			return 0
		}
		return 0.5 * x * math.Erfc(-x/math.Sqrt2)
	case GELUTanh:
		if math.IsInf(x, -1) {
			return 0
		}
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	case QuickGELU:
		if math.IsInf(x, -1) {
			return 0
		}
		return x * sigmoid(1.702*x)
	case SiLU:
		if math.IsInf(x, -1) {
			return 0
		}
		return x * sigmoid(x)
	case Tanh:
		return math.Tanh(x)
	case Sigmoid:
		return sigmoid(x)
	case HardSigmoid:
		return clamp(p*x+q, 0, 1)
	case HardSwish:
		if math.IsInf(x, -1) {
			return 0
		}
		return x * clamp(x/6+0.5, 0, 1)
	case HardSwishAffine:
		if math.IsInf(x, -1) {
			return q
		}
		return p*(x*clamp(x/6+0.5, 0, 1)) + q
	case Clip:
		return clamp(x, p, q)
	case ELU:
		if x < 0 {
			return p * math.Expm1(x)
		}
		return x
	case Softplus:
		return softplus(x)
	case Mish:
		if math.IsInf(x, -1) {
			return 0
		}
		return x * math.Tanh(softplus(x))
	}
	return x
}

func sigmoid(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

func softplus(x float64) float64 {
	if x > 0 {
		return x + math.Log1p(math.Exp(-x))
	}
	return math.Log1p(math.Exp(x))
}

func clamp(x, lo, hi float64) float64 {
	if x < lo {
		x = lo
	}
	if x > hi { // also where the limits cross
		x = hi
	}
	return x
}
