// Package check proves properties of control code from its words alone: that a run-time stream keeps the rules of the shim's descriptors and queues, and
// that it moves every byte that it has to.
//
// It knows nothing of how package design makes streams. From the configuration it reads what the cores consume and produce and how the MemTiles
// forward it; from the stream it follows descriptors, queues, tokens and addresses. It counts in rectangles, not in bytes, so that products of
// 70,000 a side are checked in about the time that it takes to read their streams.
package check
