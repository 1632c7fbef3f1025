//go:build !noasm

package cpuinfo

import "github.com/klauspost/cpuid/v2"

func detect(in *Info) {
	c := &cpuid.CPU
	detectFrom(in, c.Supports, permitTiles)
	in.Features.OneWideLoad = isIceLakeServer(c.VendorID, c.Family, c.Model)
	if in.Features.AVX512BF16 {
		// Measured: one VDPBF16PS every two cycles on Emerald Rapids against two VFMADD231PS a cycle; AMD documents full
		// rate from Zen 4 on.
		in.Features.VPDPFast = c.IsVendor(cpuid.AMD)
		in.Features.Zen4 = isZen4(c.VendorID, c.Family)
		// Measured: one core of Zen 4 reads weights of 4 to 6 bits at 28 to 32 GB/s, and at 21 to 25 where kernels ask for lines half a KiB to
		// 8 KiB ahead.
		in.Features.FetchesAlone = in.Features.Zen4
	}
}

// isIceLakeServer reports whether a processor is a server of Intel's Ice Lake (models 106 and 108). Measured: 1.1 loads of 512 bits a cycle, broadcasts
// and operands in memory included, where 256 bits are loaded twice a cycle and there are two multiply-adds of 512 bits.
func isIceLakeServer(vendor cpuid.Vendor, family, model int) bool {
	return vendor == cpuid.Intel && family == 6 && (model == 106 || model == 108)
}

// isZen4 reports whether a processor with AVX-512's bf16 is a Zen 4: Zen 3, of the same family, has no AVX-512, and Zen 5 is of the next. A hypervisor may
// hide the caches, by which they differ too.
func isZen4(vendor cpuid.Vendor, family int) bool { return vendor == cpuid.AMD && family == 0x19 }

// detectFrom takes over what supports says of the processor and of what the system saves. The permission to use tiles is asked for once, here,
// where the processor has them.
func detectFrom(in *Info, supports func(...cpuid.FeatureID) bool, permitTiles func() bool) {
	if !supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.BMI2) {
		return
	}
	in.ISAs = append(in.ISAs, AVX2)
	if supports(cpuid.AVXVNNI) {
		in.ISAs = append(in.ISAs, AVXVNNI)
	}
	if !supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL) {
		return
	}
	in.ISAs = append(in.ISAs, AVX512)
	in.Features.AVX512VNNI = supports(cpuid.AVX512VNNI)
	in.Features.AVX512BF16 = supports(cpuid.AVX512BF16)
	in.Features.AVX512VBMI = supports(cpuid.AVX512VBMI)
	bytes, halves := supports(cpuid.AMXINT8), supports(cpuid.AMXBF16)
	if supports(cpuid.AMXTILE) && (bytes || halves) && permitTiles() {
		in.ISAs = append(in.ISAs, AMX)
		in.Features.AMXInt8, in.Features.AMXBF16 = bytes, halves
	}
}
