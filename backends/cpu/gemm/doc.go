// Package gemm multiplies matrices on the CPU: C[M,N] = A[M,K] B[K,N], with A the activations, B the weights and C row-major.
// It is usable alone and imports nothing of Tessera but internal/.
//
// There is one driver for all types and instruction sets. A kernel is data (see kernel.go): its type, its instruction set, the
// tile MR x NR, how many k it takes at once, and its functions. Kernels broadcast elements of A, which they read from any
// strides, against vectors of B, which lie in panels of NR columns; so activations are mostly read in place and only weights
// are packed, once, by PackB. Kernels of tiles (AMX) read rows of A and the same panels instead. Block sizes come from the
// caches in block.go, thresholds from knobs.go.
//
// # Calls of assembly
//
// The runtime cannot interrupt assembly, so a call of it takes some tens of microseconds at most, whatever the shape: a kernel goes through
// call-bytes of B, packing moves some hundred KiB, an operation on a row takes some thousand elements, and more of either are several calls.
//
// # Order of sums
//
// A float32 element of C is one chain of fused multiply-adds in ascending k, each rounded once: c = fma(a[k], b[k], c). That
// holds for every entry point, shape, stride, number of workers, blocking and instruction set, the portable kernels included,
// so that all give the same bits. With Accumulate the chain starts from the old C instead of zero: calls over consecutive
// chunks of k give the bits of one call over all of k. Integer sums are exact modulo 2^32. Dot products of bf16, where
// [BF16Mode] allows them, have an order of their own at each level.
package gemm

//go:generate go run -C _gen . -o ..
