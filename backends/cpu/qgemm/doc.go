// Package qgemm multiplies float32 activations by weights in the GGML block formats: C[M,N] = A[M,K] W^T, where W[N,K] has rows of
// blocks as GGUF files hold them.
//
// Weights are repacked once (see format.go) into panels of 16 rows of W, in which the bits of four consecutive k of 16 rows lie
// together, so that one instruction multiplies them by four activations (VPDPBUSD and its kin). No bits are added: a panel of Q4_0
// takes 4.5 bits an element as the file does.
//
// Activations are quantized per row and block to int8 with a scale, as the formats demand; the integer dot product of a block is
// exact, and its product with both scales joins a float32 sum:
//
//	C[i,j] = sum over blocks b, ascending, of float32(q_a . (q_w - zero)) * scale_w * scale_a + min_w * (scale_a sum q_a)
//
// Every element is one such chain of one rounded multiplication and fused multiply-adds, whatever the number of rows, workers or
// the blocking, so results do not depend on them. Only where scale_w is infinite some kernels give NaN, where others may give infinity, and they take the
// product of a sum of 0 and a negative scale for +0.
//
// A call works through a panel in chunks that stay in the first-level cache: bits are spread to bytes there (unpack), then the
// rows of A meet them in strips of up to 6 rows, or 3 that take more panels where loads are scarce (dot). For one row this is limited by reading memory, for many by arithmetic, and
// the same two kernels serve both.
//
// Where there are tiles (AMX), groups of 16 rows take the place of these strips: a product of tiles for each block, whose integers
// vectors scale as above, so that packed weights and results are the same. By counts of what a core issues in a cycle (two loads, two
// vector operations, one store of 64 bytes; 16 cycles for a product of tiles), a block of 32 of 16 by 16 elements takes 29 cycles,
// limited by loads, against 98 of VPDPBUSD and what belongs to it by llvm-mca; 37 against 110 with minimums, 27 against 61 and 35
// against 72 for blocks of 16. This has not been measured.
package qgemm
