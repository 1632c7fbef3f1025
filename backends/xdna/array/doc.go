// Package array emulates an NPU array: it executes control code on tiles, memories, DMA channels, locks, switches and cores, moves real bytes, and accounts for time.
//
// Its input is control code and host buffers, nothing else. [Array.Configure] runs a configuration (routes, static descriptors, locks, kernel records, core enables) and
// [Array.Dispatch] a run-time stream; both go through the same interpreter. Streams are the circuit-switched routes found in the switch registers, descriptors are the
// words in their registers, and a core runs the kernel record that stands in its program memory.
//
// It works at the granularity of transfers: a channel fetches a descriptor, takes its lock, and hands over as many words at once as the ends of its stream allow. What hardware
// leaves undefined or does silently wrong is an error here, with the tile, channel and descriptor: see [Error]. After a run everything must be at rest.
//
// Time is simulated, in the clock of the cores. The costs are in [Timing]; they come from published measurements and a calibration of package plan, never from this host.
package array
