// Package ordered multiplies matrices with a fixed order of sums: the result is defined to the last bit, which the general engine does not promise
// for floating point. The NPU backends use it to compute what an array's cores compute.
//
// It decides three things. Accumulators start from C and take one fused multiply-add per k in ascending order, or, with groups, one addition per exact group of
// 8 products. K is cut in chunks, after each of which the accumulators may be narrowed to bfloat16 and widened again without leaving the registers. And operands arrive packed:
// A in micropanels of MR rows, B in panels of 48 or 32 columns (see [Panels]), C in a row-major scratch whose rows are whole panels.
//
// Integers need no order; [S8] is here because a tile job of a core is too small for the general engine's packing and dispatch.
package ordered

//go:generate go run -C _gen . -o ..
