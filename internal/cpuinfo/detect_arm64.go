//go:build !noasm

package cpuinfo

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/cpu"
)

// detect asks two libraries: cpuid knows of bfloat16, x/sys/cpu of more operating systems.
func detect(in *Info) {
	c := &cpuid.CPU
	in.ISAs = append(in.ISAs, NEON) // part of every arm64 that Go supports
	apple := runtime.GOOS == "darwin"
	in.Features.DotProd = c.Supports(cpuid.ASIMDDP) || cpu.ARM64.HasASIMDDP || apple
	in.Features.I8MM = c.Supports(cpuid.I8MM) || cpu.ARM64.HasI8MM
	in.Features.BF16 = c.Supports(cpuid.BF16)
	if c.Cache.L1D <= 0 {
		l1, l2 := systemCaches()
		in.L1D, in.L2 = clamp(l1, 64<<10, 16<<10, 256<<10), clamp(l2, 1<<20, 128<<10, 4<<20)
	}
	if c.Supports(cpuid.SVE) {
		if bits := sveBits(); bits >= 128 {
			in.SVEBits = bits
			in.ISAs = append(in.ISAs, SVE)
		}
	}
}

func sveBits() int {
	vl, _ := cpuid.CPU.SveLengths()
	return int(vl)
}
