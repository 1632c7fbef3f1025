// Package core decides what one AI Engine of the first generation computes and how many cycles that takes: the accumulator
// registers lane by lane (48 bits, wrapping; shift-round-saturate on the way out), the micro-kernels for int16, int8 and fp32 with their
// register budgets, the layouts in which they want their operands, and a cycle model.
//
// The seed's micro-kernel (int16, 16x4) is modelled from its published cycles; everything that is fitted is a named constant with the
// figure it was fitted to. The problem is the seed's, C += A B with A the weights (m x k) and B the activations (k x n).
package core
