package tensor

import "fmt"

// DType is the type of a tensor's elements. Block types (Q8_0, ...) store runs of Block elements of the innermost dimension
// together in Size bytes.
type DType uint8

// The element types. Q and IQ types are the GGML block formats; MXFP4 is the OCP microscaling format as GGML stores it;
// BFP16 is AMD's block floating point with one exponent for 8 signed mantissas (bfp16ebs8).
const (
	Invalid DType = iota
	F32
	F64
	F16
	BF16
	I8
	U8
	I16
	U16
	I32
	U32
	I64
	U64
	Bool // one byte, 0 or 1
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	IQ4_NL
	MXFP4
	BFP16
	numDTypes
)

// Kind sorts element types by how they are computed with.
type Kind uint8

// The kinds of element types.
const (
	NoKind Kind = iota
	Float
	Signed
	Unsigned
	Boolean
	Blocked
)

var dtypes = [numDTypes]struct {
	name  string
	block int // elements stored together
	size  int // bytes of a block
	kind  Kind
}{
	Invalid: {"invalid", 1, 0, NoKind},
	F32:     {"f32", 1, 4, Float},
	F64:     {"f64", 1, 8, Float},
	F16:     {"f16", 1, 2, Float},
	BF16:    {"bf16", 1, 2, Float},
	I8:      {"i8", 1, 1, Signed},
	U8:      {"u8", 1, 1, Unsigned},
	I16:     {"i16", 1, 2, Signed},
	U16:     {"u16", 1, 2, Unsigned},
	I32:     {"i32", 1, 4, Signed},
	U32:     {"u32", 1, 4, Unsigned},
	I64:     {"i64", 1, 8, Signed},
	U64:     {"u64", 1, 8, Unsigned},
	Bool:    {"bool", 1, 1, Boolean},
	Q4_0:    {"q4_0", 32, 18, Blocked},
	Q4_1:    {"q4_1", 32, 20, Blocked},
	Q5_0:    {"q5_0", 32, 22, Blocked},
	Q5_1:    {"q5_1", 32, 24, Blocked},
	Q8_0:    {"q8_0", 32, 34, Blocked},
	Q2_K:    {"q2_k", 256, 84, Blocked},
	Q3_K:    {"q3_k", 256, 110, Blocked},
	Q4_K:    {"q4_k", 256, 144, Blocked},
	Q5_K:    {"q5_k", 256, 176, Blocked},
	Q6_K:    {"q6_k", 256, 210, Blocked},
	IQ4_NL:  {"iq4_nl", 32, 18, Blocked},
	MXFP4:   {"mxfp4", 32, 17, Blocked},
	BFP16:   {"bfp16", 8, 9, Blocked},
}

func (d DType) info() int {
	if d >= numDTypes {
		return int(Invalid)
	}
	return int(d)
}

// String returns the type's name, in lower case, as flags and files of this project spell it.
func (d DType) String() string { return dtypes[d.info()].name }

// Block returns the number of elements stored together: 1 except for block types.
func (d DType) Block() int { return dtypes[d.info()].block }

// Size returns the bytes of one block, which for plain types is the bytes of one element.
func (d DType) Size() int { return dtypes[d.info()].size }

// Kind returns the kind of the type.
func (d DType) Kind() Kind { return dtypes[d.info()].kind }

// IsFloat reports whether the type is a plain floating-point type.
func (d DType) IsFloat() bool { return d.Kind() == Float }

// IsInt reports whether the type is a plain integer type, signed or not.
func (d DType) IsInt() bool { k := d.Kind(); return k == Signed || k == Unsigned }

// IsBlock reports whether elements are stored in blocks.
func (d DType) IsBlock() bool { return d.Kind() == Blocked }

// ParseDType returns the type with the given name.
func ParseDType(name string) (DType, error) {
	for d := F32; d < numDTypes; d++ {
		if dtypes[d].name == name {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q", name)
}

// DTypes returns every element type.
func DTypes() []DType {
	all := make([]DType, 0, numDTypes-1)
	for d := F32; d < numDTypes; d++ {
		all = append(all, d)
	}
	return all
}
