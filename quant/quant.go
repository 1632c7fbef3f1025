// Package quant decides how numbers of less than 16 bits are stored: the GGML block formats, and affine int8.
package quant

import (
	"fmt"

	"github.com/tessera-go/tessera/tensor"
)

// Decode returns a contiguous f32 copy of a tensor of any block type; a plain float type is widened.
func Decode(t tensor.Tensor) (tensor.Tensor, error) {
	return tensor.Tensor{}, fmt.Errorf("quant: no decoder for %v", t.Spec)
}
