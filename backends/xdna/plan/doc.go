// Package plan decides which tile an NPU should run and says how long a product will take.
//
// It holds the method of "Striking the Balance: GEMM Performance Optimization Across Generations of Ryzen AI NPUs"
// (arXiv 2512.13282): the single-core integer program (equations 1 to 5), the DRAM traffic of an output-stationary product (6 to 8), the
// two times that balance each other (9 and 10), the iterative search for the point where they meet, and the contiguity parameter k_mt.
// In place of the paper's measurement on a chip stands a [Model], or anything else that is a [Measure]: the emulator, or a device.
//
// Beyond the paper it plans three changes: A in bands (asymmetric tile buffering), B resident in the MemTiles, and bfp16 weights;
// and it chooses one design for all products of a network, or several where a reconfiguration pays ([Choose]).
//
// Every time is predicted. The published figures that it is compared with are in points.json, copied from the paper's
// tables; which of them were used to fit a parameter is stated in [Fits] and printed by "tessera xdna tables".
package plan
