// Package sim is the event engine that the emulated arrays (XDNA, VC1902) are built from: simulated time, processes,
// memories that know which of their words were ever written, strided walks, locks, bounded broadcast streams, shared servers.
//
// It decides how time passes and how data moves, and nothing about a device. Everything runs on one goroutine in
// one order (time, then order of scheduling), so a run is a pure function of its input. Data moves in coalesced runs: a stream hands
// over as many words at once as all its ends allow, so the number of events grows with the number of transfers and not of bytes.
package sim
