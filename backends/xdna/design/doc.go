// Package design turns a choice of tile, types and layouts into everything that runs on the array: the static configuration (switch routes,
// descriptors, locks, the kernel of each core) and, for any M, K and N on that one configuration, the run-time stream.
// Both are control code, so an executor needs no other input.
//
// The mapping is the whole-array one of arXiv 2512.13282: every core owns an m x n tile of C; A tiles are broadcast along rows,
// B tiles down columns, MemTiles hold k_mt columns of K so that DRAM is read in long runs, the C tiles of a column are
// joined in its MemTile.
package design
