// Package txn reads and writes the NPU's control code: the instruction stream ("TXN") that the array's command processor executes, and
// the words inside it, that is buffer descriptors, queue entries and transfers.
//
// It decides the encoding and nothing else: which transfers there are is the design's matter. Both binary dialects are read and written:
// 0.1, which compilers emit today, and 1.0, the "optimised" one with shorter operations. A value that does not fit its bits is an error that
// names the field.
//
// A [Stream] is a header and a sequence of operations; [Program] holds one in memory, generators produce one on the fly.
// [Encode] and [Decode] are inverse to each other, and so are [Format] and [Parse] for the readable form.
package txn
