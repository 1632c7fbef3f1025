package core

// Blocks lie in memory as the micro-kernels read them: A as panels of MR rows, B as panels of NR columns, C as micro-tiles, each
// panel or tile contiguous. Inside them,
//
//	int16, fp32: A is k-major (MR values for each k), B is k-major (NR values for each k), C is column-major (an accumulator a column)
//	int8:        A and B are 4x8 and 8x4 blocks for each 8 of k, C is four 4x4 blocks, as the 4x8x4 operation takes and leaves them
//
// Panels of A stand one below the other, panels of B side by side, micro-tiles of C column of tiles by column of tiles.

// AIndex is the element index of A[i,p] in a packed block of kb columns.
func (k Kernel) AIndex(i, p, kb int) int {
	base, r := i/k.MR*k.MR*kb, i%k.MR
	if k.Type == Int8 {
		return base + p/8*8*k.MR + r/4*32 + r%4*8 + p%8
	}
	return base + p*k.MR + r
}

// BIndex is the element index of B[p,j] in a packed block of kb rows.
func (k Kernel) BIndex(p, j, kb int) int {
	base, c := j/k.NR*k.NR*kb, j%k.NR
	if k.Type == Int8 {
		return base + p/8*8*k.NR + c/4*32 + p%8*4 + c%4
	}
	return base + p*k.NR + c
}

// CIndex is the element index of C[i,j] in a block of m rows (a multiple of MR).
func (k Kernel) CIndex(i, j, m int) int {
	base := (j/k.NR*(m/k.MR) + i/k.MR) * k.MR * k.NR
	r, c := i%k.MR, j%k.NR
	if k.Type == Int8 {
		return base + (r/4*2+c/4)*16 + r%4*4 + c%4
	}
	return base + c*k.MR + r
}
