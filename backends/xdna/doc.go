// Package xdna is the backend for the NPUs of AMD Ryzen AI: XDNA and XDNA2. Import it for its names:
//
//	import _ "github.com/tessera-go/tessera/backends/xdna"
//
//	b, err := backends.Open("xdna2:mode=fast,precision=bf16")
//
// It decides what of a graph goes to the array (products with constant weights, where the cost model says that they gain), how operands are brought into the array's types, which
// design serves a type pair, and what the report counts. One configuration per type pair serves every size.
//
// In mode=emulate the control code runs on the emulated array of package array; in mode=fast the CPU's kernels compute the same bits without moving data through
// it, for big models. Times are simulated in both.
package xdna
