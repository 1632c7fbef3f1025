//go:build arm64 && !noasm

package gemm

import "github.com/tessera-go/tessera/internal/cpuinfo"

// Panels of NEON have twelve columns, those of SVE three vectors. The integer products of both read groups of eight bytes, as
// SMMLA does; SDOT takes them apart again while it loads.
func archKernels() []*kernel {
	bf16 := func(f *cpuinfo.Features) bool { return f.BF16 }
	i8mm := func(f *cpuinfo.Features) bool { return f.I8MM }
	dot := func(f *cpuinfo.Features) bool { return f.DotProd }
	// A low strip takes several panels at once, so that at least eight sums are in flight.
	wide, wideLow := []int{0, 4, 4, 2}, []int{0, 4, 2}
	var list []*kernel
	if bits := cpuinfo.Get().SVEBits; bits > 0 {
		nr := 3 * bits / 32
		list = []*kernel{
			{
				name: "f32_f32_8x3vk1__sve", isa: cpuinfo.SVE, a: aF32, b: format{F32, nr, 1}, acc: F32, mr: 8,
				full: f32SVEfull[:], fast: f32SVEfast[:], rows: f32SVErows[:], wide: f32SVEwide[:], wideP: wide,
				axpy: axpy8NEON, // bound by memory
			},
			{
				name: "f32_bf16_6x3vk4__sve", isa: cpuinfo.SVE, a: aF32, b: format{BF16, nr, 4}, acc: F32, mr: 6,
				full: bf16SVEfull[:], wide: bf16SVEwide[:], wideP: wideLow,
			},
			{
				name: "f32_f16_8x3vk1__sve", isa: cpuinfo.SVE, a: aF32, b: format{F16, nr, 1}, acc: F32, mr: 8,
				full: f16SVEfull[:], wide: f16SVEwide[:], wideP: wide,
			},
			{
				name: "bf16_bf16_8x3vk4__svebf16", isa: cpuinfo.SVE, need: bf16, a: aBF16, b: format{BF16, nr, 4}, acc: F32, mr: 8,
				full: matBF16SVEfull[:], fast: matBF16SVEfast[:], rows: matBF16SVErows[:], wide: matBF16SVEwide[:], wideP: wide,
			},
			{
				name: "s8_s8_8x3vk8__svei8mm", isa: cpuinfo.SVE, need: i8mm, a: aS8, b: format{S8, nr, 8}, acc: S32, mr: 8,
				full: mat8SVEfull[:], fast: mat8SVEfast[:], rows: mat8SVErows[:], wide: mat8SVEwide[:], wideP: wide,
			},
			{
				name: "s8_s8_8x3vk8__sve", isa: cpuinfo.SVE, a: aS8, b: format{S8, nr, 8}, acc: S32, mr: 8,
				full: dot8SVEfull[:], fast: dot8SVEfast[:], rows: dot8SVErows[:], wide: dot8SVEwide[:], wideP: wideLow,
			},
		}
	}
	return append(list,
		&kernel{
			name: "f32_f32_8x12k1__neon", isa: cpuinfo.NEON, a: aF32, b: format{F32, 12, 1}, acc: F32, mr: 8,
			full: f32NEONfull[:], fast: f32NEONfast[:], rows: f32NEONrows[:], wide: f32NEONwide[:], wideP: wide,
			axpy: axpy8NEON,
		},
		&kernel{
			name: "f32_bf16_6x12k4__neon", isa: cpuinfo.NEON, a: aF32, b: format{BF16, 12, 4}, acc: F32, mr: 6,
			full: bf16NEONfull[:], wide: bf16NEONwide[:], wideP: wideLow,
		},
		&kernel{
			name: "f32_f16_8x12k1__neon", isa: cpuinfo.NEON, a: aF32, b: format{F16, 12, 1}, acc: F32, mr: 8,
			full: f16NEONfull[:], wide: f16NEONwide[:], wideP: wide,
		},
		&kernel{
			name: "bf16_bf16_8x12k4__neonbf16", isa: cpuinfo.NEON, need: bf16, a: aBF16, b: format{BF16, 12, 4}, acc: F32, mr: 8,
			full: matBF16NEONfull[:], fast: matBF16NEONfast[:], rows: matBF16NEONrows[:], wide: matBF16NEONwide[:], wideP: wide,
		},
		&kernel{
			name: "s8_s8_8x12k8__neoni8mm", isa: cpuinfo.NEON, need: i8mm, a: aS8, b: format{S8, 12, 8}, acc: S32, mr: 8,
			full: mat8NEONfull[:], fast: mat8NEONfast[:], rows: mat8NEONrows[:], wide: mat8NEONwide[:], wideP: wide,
		},
		&kernel{
			name: "s8_s8_8x12k8__neondot", isa: cpuinfo.NEON, need: dot, a: aS8, b: format{S8, 12, 8}, acc: S32, mr: 8,
			full: dot8NEONfull[:], fast: dot8NEONfast[:], rows: dot8NEONrows[:], wide: dot8NEONwide[:], wideP: wideLow,
		},
		&kernel{
			name: "s16_s8_8x12k2__neon", isa: cpuinfo.NEON, a: aS16, b: format{S8, 12, 2}, acc: S32, mr: 8,
			full: wide8NEONfull[:], fast: wide8NEONfast[:], rows: wide8NEONrows[:], wide: wide8NEONwide[:], wideP: wideLow,
		},
	)
}
