package ordered

import "github.com/tessera-go/tessera/internal/cpuinfo"

// levels are the instruction sets whose kernels multiply floats, multiply bytes and pack blocks.
type levels struct{ f32, s8, blocks cpuinfo.ISA }

var use = func() levels {
	isa, err := cpuinfo.Pinned()
	if err != nil { // the engine that the caller also opens reports it
		isa = cpuinfo.Portable
	}
	return choose(isa, cpuinfo.Get().Features)
}()
