//go:build amd64 && !noasm

// Packing of operands that lie in the blocks of an NPU core, for AVX-512 with VBMI.

#include "textflag.h"

// Dwords 0, 2, ..., 14, 1, 3, ..., 15: the even ones are k 0 to 3 of 8 rows, the odd ones k 4 to 7.
DATA evenOdd<>+0(SB)/8, $0x0000000200000000
DATA evenOdd<>+8(SB)/8, $0x0000000600000004
DATA evenOdd<>+16(SB)/8, $0x0000000A00000008
DATA evenOdd<>+24(SB)/8, $0x0000000E0000000C
DATA evenOdd<>+32(SB)/8, $0x0000000300000001
DATA evenOdd<>+40(SB)/8, $0x0000000700000005
DATA evenOdd<>+48(SB)/8, $0x0000000B00000009
DATA evenOdd<>+56(SB)/8, $0x0000000F0000000D
GLOBL evenOdd<>(SB), RODATA|NOPTR, $64

// func packA8(dst, src *byte, half, step, n int)
TEXT ·packA8(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ half+16(FP), R8
	MOVQ step+24(FP), R9
	MOVQ n+32(FP), CX
	VMOVDQU32 evenOdd<>(SB), Z30
	MOVL $0x80808080, AX
	VPBROADCASTD AX, Z31
block:
	VMOVDQU (SI), Y0
	VINSERTI64X4 $1, (SI)(R8*1), Z0, Z0
	VPERMD Z0, Z30, Z0
	VPXORD Z31, Z0, Z0
	VMOVDQU32 Z0, (DI)
	ADDQ R9, SI
	ADDQ $64, DI
	DECQ CX
	JNZ block
	VZEROUPPER
	RET

// func packB8(dst *int8, w4 int, src *byte, step, n int, order *Bytes8, sums *[16]int32)
TEXT ·packB8(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ w4+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ step+24(FP), R9
	MOVQ n+32(FP), CX
	MOVQ order+40(FP), AX
	VMOVDQU32 (AX), Z30
	MOVL $0x01010101, AX
	VPBROADCASTD AX, Z31
	VPXORD Z1, Z1, Z1
block:
	VMOVDQU32 (SI), Z0
	VPERMB Z0, Z30, Z0
	VPDPBUSD Z0, Z31, Z1
	VMOVDQU Y0, (DI)
	VEXTRACTI64X4 $1, Z0, (DI)(R8*1)
	LEAQ (DI)(R8*2), DI
	ADDQ R9, SI
	DECQ CX
	JNZ block
	MOVQ sums+48(FP), AX
	VMOVDQU32 Z1, (AX)
	VZEROUPPER
	RET

// LOAD16 brings the two pieces at SI and SI+R8 into Z4-Z7: float32, two k a register, 8 rows each. Z30 and Z31 hold the order.
#define LOAD16 \
	VMOVDQU32 (SI), Z0; \
	VMOVDQU32 (SI)(R8*1), Z1; \
	VMOVDQA32 Z30, Z2; \
	VMOVDQA32 Z31, Z3; \
	VPERMI2W Z1, Z0, Z2; \
	VPERMI2W Z1, Z0, Z3; \
	VPMOVZXWD Y2, Z4; \
	VEXTRACTI64X4 $1, Z2, Y2; \
	VPMOVZXWD Y2, Z5; \
	VPMOVZXWD Y3, Z6; \
	VEXTRACTI64X4 $1, Z3, Y3; \
	VPMOVZXWD Y3, Z7; \
	VPSLLD $16, Z4, Z4; \
	VPSLLD $16, Z5, Z5; \
	VPSLLD $16, Z6, Z6; \
	VPSLLD $16, Z7, Z7

// EXPONENT leaves each row's shared exponent (in place) in Z8, the unit 2^(e-6) in Z9, 1.5 * 2^23 units in Z10, the clip limits in Z11 and Z12, the rows that hold a
// non-finite value in K4, and updates the ranges in Z27 and Z28.
#define EXPONENT \
	VPANDD Z29, Z4, Z8; \
	VPANDD Z29, Z5, Z9; \
	VPANDD Z29, Z6, Z10; \
	VPANDD Z29, Z7, Z11; \
	VPMAXUD Z9, Z8, Z8; \
	VPMAXUD Z11, Z10, Z10; \
	VPMAXUD Z10, Z8, Z8; \
	VSHUFI64X2 $0x4E, Z8, Z8, Z9; \
	VPMAXUD Z9, Z8, Z8; \
	VPTESTMD Z8, Z8, K1; \
	VPCMPD $4, Z29, Z8, K1, K1; \
	VPCMPD $0, Z29, Z8, K4; \
	VPMINUD Z8, Z27, K1, Z27; \
	VPMAXUD Z8, Z28, K1, Z28; \
	VPSUBD Z26, Z8, Z9; \
	VPADDD Z25, Z8, Z10; \
	VMULPS Z24, Z9, Z11; \
	VMULPS Z23, Z9, Z12

// ROUND brings X to whole units: to nearest even, or down with FLOORFIX. Subnormals count as zero.
#define FLOORFIX(X) \
	VCMPPS $14, X, Z13, K3; \
	VSUBPS Z9, Z13, K3, Z13

#define NOFIX(X)

#define ROUND(X, FIX) \
	VPTESTMD Z29, X, K2; \
	VADDPS Z10, X, Z13; \
	VSUBPS Z10, Z13, Z13; \
	FIX(X); \
	VMINPS Z11, Z13, Z13; \
	VMAXPS Z12, Z13, Z13; \
	VMOVAPS.Z Z13, K2, X; \
	VMOVAPS Z22, K4, X

#define CONSTANTS16 \
	VMOVDQU32 (AX), Z30; \
	VMOVDQU32 64(AX), Z31; \
	MOVL $0x7F800000, AX; \
	VPBROADCASTD AX, Z29; \
	VMOVDQA32 Z29, Z27; \
	VPXORD Z28, Z28, Z28; \
	MOVL $0x03000000, AX; \
	VPBROADCASTD AX, Z26; \
	MOVL $0x08C00000, AX; \
	VPBROADCASTD AX, Z25; \
	MOVL $0x42FE0000, AX; \
	VPBROADCASTD AX, Z24; \
	MOVL $0xC3000000, AX; \
	VPBROADCASTD AX, Z23; \
	MOVL $0x7FC00000, AX; \
	VPBROADCASTD AX, Z22

// func packA16(dst *float32, panel int, src *byte, half, step, n int, order *Order, quant int, exps *[32]uint32)
TEXT ·packA16(SB), NOSPLIT, $0-72
	MOVQ dst+0(FP), DI
	MOVQ panel+8(FP), R10
	MOVQ src+16(FP), SI
	MOVQ half+24(FP), R8
	MOVQ step+32(FP), R9
	MOVQ n+40(FP), CX
	MOVQ order+48(FP), AX
	MOVQ quant+56(FP), DX
	CONSTANTS16
block:
	LOAD16
	CMPQ DX, $1
	JB store
	EXPONENT
	CMPQ DX, $1
	JNE floor
	ROUND(Z4, NOFIX)
	ROUND(Z5, NOFIX)
	ROUND(Z6, NOFIX)
	ROUND(Z7, NOFIX)
	JMP store
floor:
	ROUND(Z4, FLOORFIX)
	ROUND(Z5, FLOORFIX)
	ROUND(Z6, FLOORFIX)
	ROUND(Z7, FLOORFIX)
store:
	VSHUFI64X2 $0xD8, Z4, Z4, Z4
	VMOVUPS Y4, 0(DI)
	VEXTRACTI64X4 $1, Z4, 0(DI)(R10*1)
	VSHUFI64X2 $0xD8, Z5, Z5, Z5
	VMOVUPS Y5, 32(DI)
	VEXTRACTI64X4 $1, Z5, 32(DI)(R10*1)
	VSHUFI64X2 $0xD8, Z6, Z6, Z6
	VMOVUPS Y6, 64(DI)
	VEXTRACTI64X4 $1, Z6, 64(DI)(R10*1)
	VSHUFI64X2 $0xD8, Z7, Z7, Z7
	VMOVUPS Y7, 96(DI)
	VEXTRACTI64X4 $1, Z7, 96(DI)(R10*1)
	ADDQ $128, DI
	ADDQ R9, SI
	DECQ CX
	JNZ block
	MOVQ exps+64(FP), AX
	VMOVDQU32 Z27, (AX)
	VMOVDQU32 Z28, 64(AX)
	VZEROUPPER
	RET

// func packB16(dst *float32, row int, src *byte, half, step, n int, order *Order, quant int, exps *[32]uint32)
TEXT ·packB16(SB), NOSPLIT, $0-72
	MOVQ dst+0(FP), DI
	MOVQ row+8(FP), R10
	MOVQ src+16(FP), SI
	MOVQ half+24(FP), R8
	MOVQ step+32(FP), R9
	MOVQ n+40(FP), CX
	MOVQ order+48(FP), AX
	MOVQ quant+56(FP), DX
	CONSTANTS16
block:
	LOAD16
	CMPQ DX, $1
	JB store
	EXPONENT
	CMPQ DX, $1
	JNE floor
	ROUND(Z4, NOFIX)
	ROUND(Z5, NOFIX)
	ROUND(Z6, NOFIX)
	ROUND(Z7, NOFIX)
	JMP store
floor:
	ROUND(Z4, FLOORFIX)
	ROUND(Z5, FLOORFIX)
	ROUND(Z6, FLOORFIX)
	ROUND(Z7, FLOORFIX)
store:
	VMOVUPS Y4, (DI)
	VEXTRACTI64X4 $1, Z4, (DI)(R10*1)
	LEAQ (DI)(R10*2), DI
	VMOVUPS Y5, (DI)
	VEXTRACTI64X4 $1, Z5, (DI)(R10*1)
	LEAQ (DI)(R10*2), DI
	VMOVUPS Y6, (DI)
	VEXTRACTI64X4 $1, Z6, (DI)(R10*1)
	LEAQ (DI)(R10*2), DI
	VMOVUPS Y7, (DI)
	VEXTRACTI64X4 $1, Z7, (DI)(R10*1)
	LEAQ (DI)(R10*2), DI
	ADDQ R9, SI
	DECQ CX
	JNZ block
	MOVQ exps+64(FP), AX
	VMOVDQU32 Z27, (AX)
	VMOVDQU32 Z28, 64(AX)
	VZEROUPPER
	RET
