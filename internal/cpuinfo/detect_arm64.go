//go:build !noasm

package cpuinfo

import (
	"runtime"

	"github.com/klauspost/cpuid/v2"
)

func detect(in *Info) {
	c := &cpuid.CPU
	in.ISAs = append(in.ISAs, NEON) // part of every arm64 that Go supports
	apple := runtime.GOOS == "darwin"
	in.Features.DotProd = c.Supports(cpuid.ASIMDDP) || apple
	in.Features.I8MM = c.Supports(cpuid.I8MM)
	in.Features.BF16 = c.Supports(cpuid.BF16)
	if c.Cache.L1D <= 0 {
		in.L1D, in.L2 = 64<<10, 1<<20
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
