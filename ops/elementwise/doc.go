// Package elementwise decides the operations whose every output element depends on one element of each input: functions of one
// number (Unary, Activate, Scale), of two with NumPy broadcasting (Binary), selection (Where), limits (Clamp), conversion (Cast),
// and gated units (GLU). Floating-point results are those of float64 arithmetic rounded once; integers are exact and wrap.
package elementwise
