// Package kernel is the work of one NPU core: the record that tells a core what to run, and the
// arithmetic that it then does on the bytes of its L1 memory.
//
// On silicon a compiled program stands in a core's program memory. Here a [Record] stands in its place: sixteen
// words that name the kernel, its tile, its buffers, its locks and its modes. A design writes it with an ordinary
// block write, so the configuration of the emulated array is control code like everything else.
//
// The arithmetic is bit-exact by contract: integers modulo 2^32 narrowed after each k chunk, bf16 as one f32 fused
// multiply-add per k in ascending order, bfp16 as an integer dot product of 8 scaled and added once per group.
// Every kernel exists twice: a quick form that [Run] uses, and a slow one ([RunReference]) written from the definition.
package kernel
