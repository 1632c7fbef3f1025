//go:build (amd64 || arm64) && !noasm

package qgemm

// fusedForm is what of a format a fused kernel is chosen by.
type fusedForm struct {
	bits   bits
	table  bool
	hasMin bool
	super  bool
	bf16   bool
}
