package ordered

import "math"

// tileF32Go is the twin of the assembly: a tile of MR rows and w columns.
func tileF32Go(c []float32, ldc int, a, b []float32, w, chunks, k int, groups bool, narrow Narrow) {
	var sum [48]float32
	for i := range MR {
		row := c[i*ldc : i*ldc+w]
		for q := range chunks {
			for p := q * k; p < (q+1)*k; p++ {
				x, line := a[p*MR+i], b[p*w:p*w+w]
				if !groups {
					for j, y := range line {
						row[j] = FMA(x, y, row[j])
					}
					continue
				}
				for j, y := range line {
					sum[j] = FMA(x, y, sum[j])
				}
				if p%8 == 7 {
					for j := range row {
						row[j] += sum[j]
						sum[j] = 0
					}
				}
			}
			for j, v := range row {
				row[j] = narrow.Round(v)
			}
		}
	}
}

// FMA is x*y + z rounded once to float32, for x and y with at most 24 significant bits together (bfloat16 or bfp16 values): the product is exact in float64, and
// rounding its sum with a float32 to float64 first cannot change the second rounding.
func FMA(x, y, z float32) float32 { return float32(float64(x)*float64(y) + float64(z)) }

// Round applies the mode to one accumulator.
func (n Narrow) Round(v float32) float32 {
	u := math.Float32bits(v)
	switch {
	case n == Keep:
		return v
	case v != v:
		u |= 0x400000
	case n == BF16Even:
		u += 0x7FFF + u>>16&1
	case u>>31 != 0:
		u += 0xFFFF
	}
	return math.Float32frombits(u & 0xFFFF0000)
}

// tileS8Go is the twin of the assembly: a tile of MRS8 rows and w columns.
func tileS8Go(c []int32, ldc int, a []byte, b []int8, bias []int32, w, k int) {
	for i := range MRS8 {
		row := c[i*ldc : i*ldc+w]
		for j := range row {
			row[j] += bias[j]
		}
		for g := range k / 4 {
			x := a[(g*MRS8+i)*4:]
			x0, x1, x2, x3 := int32(x[0]), int32(x[1]), int32(x[2]), int32(x[3])
			line := b[g*w*4 : (g+1)*w*4]
			for j := range row {
				y := line[4*j : 4*j+4 : 4*j+4]
				row[j] += x0*int32(y[0]) + x1*int32(y[1]) + x2*int32(y[2]) + x3*int32(y[3])
			}
		}
	}
}
