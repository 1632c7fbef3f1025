//go:build !noasm

package cpuinfo

import "github.com/klauspost/cpuid/v2"

func detect(in *Info) {
	c := &cpuid.CPU
	if !c.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.BMI2) {
		return
	}
	in.ISAs = append(in.ISAs, AVX2)
	if c.Supports(cpuid.AVXVNNI) {
		in.ISAs = append(in.ISAs, AVXVNNI)
	}
	if c.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL) {
		in.ISAs = append(in.ISAs, AVX512)
		in.Features.AVX512VNNI = c.Supports(cpuid.AVX512VNNI)
		in.Features.AVX512BF16 = c.Supports(cpuid.AVX512BF16)
		in.Features.AVX512VBMI = c.Supports(cpuid.AVX512VBMI)
		// Measured: one VDPBF16PS every two cycles on Emerald Rapids against two VFMADD231PS a cycle; AMD documents full
		// rate from Zen 4 on.
		in.Features.VPDPFast = in.Features.AVX512BF16 && c.IsVendor(cpuid.AMD)
	}
}
