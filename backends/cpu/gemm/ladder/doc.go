// Package ladder climbs from three plain loops to the product engine, step by step: C = A B in float32, all three column-major,
// dense and on one thread. Each stage adds one idea, so that what the idea is worth can be seen in one table.
//
//	1 naive      one dot product an element, summed in a register
//	2 unrolled   four columns and four k at once: independent chains, and each element of A serves four columns
//	3 simd128    four rows at once, in 128-bit registers
//	4 simd       as many rows at once as the widest registers hold; a last, shorter vector by predicate where there is one
//	5 packed     A in panels of that many rows, B in rows of four columns: every load is contiguous, none is masked
//	6 tiled      packs only what a cache holds, tile by tile, in the order that repeats the smaller copy
//	7 engine     package gemm
//
// Stages 3 and 4 compute one column at a time, so that all of A passes once for every column of C: what vectors gain, that costs. Packing
// is what lets an element of A serve several columns again.
//
// Stages 3 to 6 run on assembly (written by ../_gen) where this build and processor have it, else on the same kernels in Go.
// TESSERA_ISA lowers the level, as everywhere.
package ladder
