package gguf

import (
	"fmt"

	"github.com/tessera-go/tessera/tensor"
)

// Type is a tensor's element type by its number in the file.
type Type uint32

type typeInfo struct {
	name  string
	block int // elements stored together
	size  int // bytes of a block
	dtype tensor.DType
}

// types holds every type that GGML can write today. Those without an element type of ours are listed and measured, not decoded.
// Numbers 4, 5, 31 to 33 and 36 to 38 have been withdrawn.
var types = map[Type]typeInfo{
	0: {"f32", 1, 4, tensor.F32}, 1: {"f16", 1, 2, tensor.F16}, 30: {"bf16", 1, 2, tensor.BF16}, 28: {"f64", 1, 8, tensor.F64},
	24: {"i8", 1, 1, tensor.I8}, 25: {"i16", 1, 2, tensor.I16}, 26: {"i32", 1, 4, tensor.I32}, 27: {"i64", 1, 8, tensor.I64},
	2: {"q4_0", 32, 18, tensor.Q4_0}, 3: {"q4_1", 32, 20, tensor.Q4_1}, 6: {"q5_0", 32, 22, tensor.Q5_0}, 7: {"q5_1", 32, 24, tensor.Q5_1},
	8: {"q8_0", 32, 34, tensor.Q8_0}, 9: {"q8_1", 32, 36, 0},
	10: {"q2_k", 256, 84, tensor.Q2_K}, 11: {"q3_k", 256, 110, tensor.Q3_K}, 12: {"q4_k", 256, 144, tensor.Q4_K},
	13: {"q5_k", 256, 176, tensor.Q5_K}, 14: {"q6_k", 256, 210, tensor.Q6_K}, 15: {"q8_k", 256, 292, 0},
	16: {"iq2_xxs", 256, 66, 0}, 17: {"iq2_xs", 256, 74, 0}, 18: {"iq3_xxs", 256, 98, 0}, 19: {"iq1_s", 256, 50, 0},
	20: {"iq4_nl", 32, 18, tensor.IQ4_NL}, 21: {"iq3_s", 256, 110, 0}, 22: {"iq2_s", 256, 82, 0}, 23: {"iq4_xs", 256, 136, 0},
	29: {"iq1_m", 256, 56, 0}, 34: {"tq1_0", 256, 54, 0}, 35: {"tq2_0", 256, 66, 0},
	39: {"mxfp4", 32, 17, tensor.MXFP4}, 40: {"nvfp4", 64, 36, 0}, 41: {"q1_0", 128, 18, 0}, 42: {"q2_0", 64, 18, 0},
}

// String returns the type's name in lower case.
func (t Type) String() string {
	if info, ok := types[t]; ok {
		return info.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Known reports whether the number stands for a type whose size is known.
func (t Type) Known() bool { _, ok := types[t]; return ok }

// DType returns the element type of ours, or tensor.Invalid where there is none.
func (t Type) DType() tensor.DType { return types[t].dtype }

// Block returns the number of elements stored together.
func (t Type) Block() int { return types[t].block }

// Size returns the bytes of one block.
func (t Type) Size() int { return types[t].size }

// TypeOf returns the number of an element type of ours.
func TypeOf(d tensor.DType) (Type, error) {
	if d != tensor.Invalid {
		for t, info := range types {
			if info.dtype == d {
				return t, nil
			}
		}
	}
	return 0, fmt.Errorf("gguf: no type for elements of %v", d)
}
