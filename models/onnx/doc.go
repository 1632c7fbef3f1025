// Package onnx runs ONNX models: it decides how a file is read (protobuf by the official wire-format library, tensors used where
// they lie in the mapped file), what each operator of the standard means in terms of package ops (one small file an operator,
// opsets 1 to 21), and how a model is executed.
//
// An operator is defined once, by a function that receives its inputs and emits operations (see call). Two machines run those
// functions. The lowering machine emits into a graph, for input shapes that are known: whatever depends on constants and shapes
// alone is folded, and the rest is compiled for the backends, with their passes. The eager machine computes at once, and so can
// run what no fixed graph can: control flow, sequences, strings, and shapes that depend on data. A session lowers a model for
// each combination of input shapes that it meets and keeps the result; nodes that no graph can hold, and those that read what they give,
// run on the eager machine after it.
package onnx
