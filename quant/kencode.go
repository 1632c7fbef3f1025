package quant

import "math"

// Encoders of the K formats. All minimize the plain squared error of a super-block, because the variance of a product with
// independent activations is proportional to it. The search has three steps: fit each sub-block on its own with real-valued
// parameters; round the parameters to their few bits, looking at the neighbours too; and fit the super-block's scales to the
// codes that resulted, with a second rounding. The best of both rounds is stored.

// roundSmall rounds half to even; |x| must be below 2^22. The conversion keeps a product that the caller passes from being fused
// with the addition, which would round once instead of twice on some processors.
func roundSmall(x float32) int32 {
	const magic = 3 << 22
	return int32(math.Float32bits(float32(x)+magic)) - int32(math.Float32bits(magic))
}

// roundClamp rounds into [lo, hi]; |x| must be below 2^22, as all ratios of elements to scales here are.
func roundClamp(x float32, lo, hi int32) float32 {
	q := roundSmall(x)
	if q > hi {
		q = hi
	}
	if q < lo {
		q = lo
	}
	return float32(q)
}

// symmetric is a format whose elements are d sc q: q in [qlo, qhi], sc in [slo, shi].
type symmetric struct {
	sub                int // elements of a sub-block
	qlo, qhi, slo, shi int32
}

// fitScale returns the real scale s for which x is nearest to s q, in squared error.
func (f *symmetric) fitScale(x []float32) float32 {
	m := signedMax(x)
	if inverse(m) == 0 {
		return 0
	}
	best, bestGain := float32(0), float32(0)
	try := func(id float32) {
		for range 2 { // the second round quantizes with the fitted scale
			var xq, qq float32
			for _, v := range x {
				q := roundClamp(v*id, f.qlo, f.qhi)
				xq += v * q
				qq += q * q
			}
			if qq == 0 || xq == 0 {
				return
			}
			if gain := xq * xq / qq; gain > bestGain {
				best, bestGain = xq/qq, gain
			}
			if id = qq / xq; math.IsInf(float64(id), 0) {
				return
			}
		}
	}
	const steps = 6
	for i := -steps; i <= steps; i++ {
		try((float32(f.qlo) + float32(i)*0.13) / m)
		try(-(float32(f.qlo) + float32(i)*0.13) / m)
	}
	return best
}

// encode fills the codes (offset by nothing: q as it is) and the sub-blocks' scales, and returns the super-block's scale in f16.
func (f *symmetric) encode(x []float32, q []int8, sc []int8) (d uint16, ok bool) {
	n := len(x) / f.sub
	var real [16]float32
	for i := range n {
		real[i] = f.fitScale(x[i*f.sub : (i+1)*f.sub])
	}
	m := signedMax(real[:n])
	clear(q)
	clear(sc)
	if m == 0 {
		return 0, true
	}
	best := math.Inf(1)
	scale := m / float32(f.slo)
	var codes [superBlock]int8
	var scs [16]int8
	for range 3 {
		h, dd, fits := toF16(scale)
		if !fits {
			break
		}
		if dd == 0 {
			if math.IsInf(best, 1) {
				return 0, true
			}
			break
		}
		ok = true
		var total float64
		var num, den float64
		for i := range n {
			xs, qs := x[i*f.sub:(i+1)*f.sub], codes[i*f.sub:(i+1)*f.sub]
			center := roundClamp(real[i]/dd, f.slo, f.shi)
			bestSub, bestSc := float32(math.Inf(1)), float32(0)
			for s := max(center-2, float32(f.slo)); s <= min(center+2, float32(f.shi)); s++ {
				if e := f.sqErr(xs, dd*s); e < bestSub {
					bestSub, bestSc = e, s
				}
			}
			total += float64(bestSub)
			scs[i] = int8(bestSc)
			id := inverse(dd * bestSc)
			for j, v := range xs {
				c := roundClamp(v*id, f.qlo, f.qhi)
				qs[j] = int8(c)
				num += float64(v * bestSc * c)
				den += float64(bestSc * c * bestSc * c)
			}
		}
		if total < best {
			best, d = total, h
			copy(q, codes[:len(x)])
			copy(sc, scs[:n])
		}
		if den == 0 {
			break
		}
		scale = float32(num / den)
	}
	return d, ok
}

func (f *symmetric) sqErr(x []float32, s float32) (sum float32) {
	id := inverse(s)
	for _, v := range x {
		e := v - s*roundClamp(v*id, f.qlo, f.qhi)
		sum += e * e
	}
	return sum
}

// offset is a format whose elements are d sc q - dmin m: q in [0, qmax], sc and m in [0, smax].
type offset struct {
	sub        int
	qmax, smax int32
}

// fit returns the real scale and minimum for which x is nearest to scale q - lo, lo >= 0.
func (f *offset) fit(x []float32) (scale, lo float32) {
	mn, mx := minMax(x)
	mn = min(mn, 0)
	if inverse(mx-mn) == 0 {
		return 0, -mn
	}
	n, qmax := float32(len(x)), float32(f.qmax)
	var sx, sxx float32
	for _, v := range x {
		sx += v
		sxx += v * v
	}
	best := float32(math.Inf(1))
	try := func(id, off float32) {
		last := float32(math.Inf(1))
		for range 4 { // codes for the parameters, then the best parameters for the codes
			var sq, sqq, sxq float32
			for _, v := range x {
				q := roundClamp((v+off)*id, 0, f.qmax)
				sq += q
				sqq += q * q
				sxq += v * q
			}
			det := n*sqq - sq*sq
			var s, o float32
			if det > 0 {
				s, o = (n*sxq-sx*sq)/det, (sq*sxq-sqq*sx)/det
			}
			if det <= 0 || o < 0 {
				if o = 0; sqq == 0 {
					return
				}
				s = sxq / sqq
			}
			if s <= 0 {
				return
			}
			// The squared error at the optimum follows from the sums.
			e := sxx - s*sxq + o*sx
			if e < best {
				best, scale, lo = e, s, o
			}
			if id, off = inverse(s), o; id == 0 || e >= last {
				return
			}
			last = e
		}
	}
	const steps = 5
	for i := -steps; i <= steps; i++ {
		try((qmax+float32(i)*0.036*min(qmax, 8))/(mx-mn), -mn)
	}
	if qmax <= 3 { // few levels: clipping both ends may pay
		for _, c := range []float32{0.05, 0.1, 0.15} {
			try(qmax/((mx-mn)*(1-2*c)), -mn-(mx-mn)*c)
		}
	}
	if math.IsInf(float64(best), 1) {
		return (mx - mn) / qmax, -mn
	}
	return scale, lo
}

func (f *offset) sqErr(x []float32, s, o float32) (sum float32) {
	id := inverse(s)
	for _, v := range x {
		e := v - (s*roundClamp((v+o)*id, 0, f.qmax) - o)
		sum += e * e
	}
	return sum
}

func (f *offset) encode(x []float32, q, sc, mn []uint8) (d, dmin uint16, ok bool) {
	n := len(x) / f.sub
	var scales, mins [16]float32
	for i := range n {
		scales[i], mins[i] = f.fit(x[i*f.sub : (i+1)*f.sub])
	}
	_, ms := minMax(scales[:n])
	_, mm := minMax(mins[:n])
	clear(q)
	clear(sc)
	clear(mn)
	smax := float32(f.smax)
	ds, dm := ms/smax, mm/smax
	best := math.Inf(1)
	var codes [superBlock]uint8
	var scs, mns [16]uint8
	for range 3 {
		hs, fs, fits := toF16(ds)
		hm, fm, fitm := toF16(dm)
		if !fits || !fitm {
			break
		}
		ok = true
		is, im := inverse(fs), inverse(fm)
		var total float64
		// Normal equations for (d, dmin): x ~ d a - dmin m, with a = sc q.
		var aa, am, mm2, xa, xm float64
		for i := range n {
			xs, qs := x[i*f.sub:(i+1)*f.sub], codes[i*f.sub:(i+1)*f.sub]
			cs, cm := roundClamp(scales[i]*is, 0, f.smax), roundClamp(mins[i]*im, 0, f.smax)
			bestSub, bs, bm := float32(math.Inf(1)), float32(0), float32(0)
			for s := max(cs-1, 0); s <= min(cs+1, smax); s++ {
				for m := max(cm-1, 0); m <= min(cm+1, smax); m++ {
					if e := f.sqErr(xs, fs*s, fm*m); e < bestSub {
						bestSub, bs, bm = e, s, m
					}
				}
			}
			total += float64(bestSub)
			scs[i], mns[i] = uint8(bs), uint8(bm)
			id := inverse(fs * bs)
			for j, v := range xs {
				c := roundClamp((v+fm*bm)*id, 0, f.qmax)
				qs[j] = uint8(c)
				a := float64(bs * c)
				aa += a * a
				am += a * float64(bm)
				mm2 += float64(bm * bm)
				xa += float64(v) * a
				xm += float64(v) * float64(bm)
			}
		}
		if total < best {
			best, d, dmin = total, hs, hm
			copy(q, codes[:len(x)])
			copy(sc, scs[:n])
			copy(mn, mns[:n])
		}
		// Minimizing sum (x - d a + dmin m)^2.
		det := aa*mm2 - am*am
		switch {
		case det > 1e-9*aa*mm2:
			nd, nm := (xa*mm2-xm*am)/det, (xa*am-xm*aa)/det
			if nd <= 0 || nm < 0 {
				return d, dmin, ok
			}
			ds, dm = float32(nd), float32(nm)
		case aa > 0 && mm2 == 0:
			ds = float32(xa / aa)
		default:
			return d, dmin, ok
		}
	}
	return d, dmin, ok
}

var (
	formQ2K = &offset{16, 3, 15}
	formQ3K = &symmetric{16, -4, 3, -32, 31}
	formQ4K = &offset{32, 15, 63}
	formQ5K = &offset{32, 31, 63}
	formQ6K = &symmetric{16, -32, 31, -128, 127}
)

func encodeQ2K(dst []byte, x []float32) string {
	var q [superBlock]uint8
	var sc, m [16]uint8
	d, dmin, ok := formQ2K.encode(x, q[:], sc[:], m[:])
	if !ok {
		return overflow
	}
	clear(dst)
	for i := range 16 {
		dst[i] = sc[i] | m[i]<<4
		from, shift := 16+i/8*32+i%2*16, uint(i/2%4*2)
		for l, c := range q[i*16 : i*16+16] {
			dst[from+l] |= c << shift
		}
	}
	putF16(dst[80:], d)
	putF16(dst[82:], dmin)
	return ""
}

func encodeQ3K(dst []byte, x []float32) string {
	var q [superBlock]int8
	var sc [16]int8
	d, ok := formQ3K.encode(x, q[:], sc[:])
	if !ok {
		return overflow
	}
	clear(dst)
	for i := range 16 {
		s := uint8(sc[i] + 32)
		dst[96+i%8] |= s & 15 << (i / 8 * 4)
		dst[104+i%4] |= s >> 4 << (i / 4 * 2)
		from, shift, bit := 32+i/8*32+i%2*16, uint(i/2%4*2), uint(i/2)
		for l, c := range q[i*16 : i*16+16] {
			u := uint8(c + 4)
			dst[from+l] |= u & 3 << shift
			dst[i%2*16+l] |= u >> 2 << bit
		}
	}
	putF16(dst[108:], d)
	return ""
}

func encodeQ4K(dst []byte, x []float32) string {
	var q [superBlock]uint8
	var sc, m [16]uint8
	d, dmin, ok := formQ4K.encode(x, q[:], sc[:], m[:])
	if !ok {
		return overflow
	}
	clear(dst)
	putF16(dst, d)
	putF16(dst[2:], dmin)
	for j := range 8 {
		putScaleMin(dst[4:16], j, sc[j], m[j])
	}
	for i := range 4 {
		for l := range 32 {
			dst[16+i*32+l] = q[i*64+l] | q[i*64+32+l]<<4
		}
	}
	return ""
}

func encodeQ5K(dst []byte, x []float32) string {
	var q [superBlock]uint8
	var sc, m [16]uint8
	d, dmin, ok := formQ5K.encode(x, q[:], sc[:], m[:])
	if !ok {
		return overflow
	}
	clear(dst)
	putF16(dst, d)
	putF16(dst[2:], dmin)
	for j := range 8 {
		putScaleMin(dst[4:16], j, sc[j], m[j])
	}
	for i := range 4 {
		for l := range 32 {
			a, b := q[i*64+l], q[i*64+32+l]
			dst[48+i*32+l] = a&15 | b<<4
			dst[16+l] |= a>>4<<(2*i) | b>>4<<(2*i+1)
		}
	}
	return ""
}

func encodeQ6K(dst []byte, x []float32) string {
	var q [superBlock]int8
	var sc [16]int8
	d, ok := formQ6K.encode(x, q[:], sc[:])
	if !ok {
		return overflow
	}
	for i := range 2 {
		ql, qh, c := dst[i*64:i*64+64], dst[128+i*32:160+i*32], q[i*128:i*128+128]
		for l := range 32 {
			u0, u1, u2, u3 := uint8(c[l]+32), uint8(c[l+32]+32), uint8(c[l+64]+32), uint8(c[l+96]+32)
			ql[l] = u0&15 | u2<<4
			ql[l+32] = u1&15 | u3<<4
			qh[l] = u0>>4 | u1>>4<<2 | u2>>4<<4 | u3>>4<<6
		}
	}
	for i, s := range sc {
		dst[192+i] = uint8(s)
	}
	putF16(dst[208:], d)
	return ""
}
