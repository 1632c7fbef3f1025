// Package design turns a choice of tile, types and layouts into everything that runs on the array: the static configuration (switch routes,
// descriptors, locks, the kernel of each core) and, for any M, K and N on that one configuration, the run-time stream.
// Both are control code, so an executor needs no other input.
//
// The mapping is the whole-array one of arXiv 2512.13282: every core owns an m x n tile of C; A tiles are broadcast along rows,
// B tiles down columns, MemTiles hold k_mt columns of K so that DRAM is read in long runs, the C tiles of a column are
// joined in its MemTile. DMA addressing transforms layouts on the way, so that A, B and C stay row- or column-major in DRAM.
//
// [Design.Config] is loaded once. [Design.Run] plans one product: it pads every dimension to the native size, decides which ragged edges the host stages
// and where C's ragged tiles land ([Staging]), and is itself the stream. A stream writes the cores' two runtime parameters and barrier locks,
// descriptors and queues of the shims, and nothing else, unless the design pads in the MemTiles ([PadMemTile]) or keeps B there (ResidentB): then the MemTiles'
// descriptors for the operands belong to the stream too, and run on counted tasks, so that they are at rest between products.
//
// Beyond the paper: A in bands (asymmetric tile buffering), resident B, operands tiled on the host (and with them bfp16), and the transposed mapping are
// fields of [Design]; they combine, except that a resident B needs the normal mapping.
package design
