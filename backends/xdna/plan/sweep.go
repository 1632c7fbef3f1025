package plan

// SweepPoints is how many sizes a sweep has at least; the paper's have "400 and more".
const SweepPoints = 420

// SweepSide is the longest side of a sweep: the paper's 8K.
const SweepSide = 8192

// SweepSizes are at least n different multiples of the design's native size up to 8K a side, spread evenly over M, N and K by a
// low-discrepancy sequence so that no dimension is favoured; the largest one is always among them. The list is the same on every run.
// There are fewer if the native size has fewer multiples.
func SweepSizes(d Design, n int) []Size {
	u := d.Native()
	nm, nn, nk := max(1, SweepSide/u.M), max(1, SweepSide/u.N), max(1, SweepSide/u.K)
	n = min(n, nm*nn*nk)
	seen := map[Size]bool{}
	sizes := make([]Size, 0, n)
	add := func(i, j, k int) {
		s := Size{M: i * u.M, N: j * u.N, K: k * u.K}
		if !seen[s] {
			seen[s] = true
			sizes = append(sizes, s)
		}
	}
	add(nm, nn, nk)
	for i := 1; len(sizes) < n && i < 200*n; i++ {
		add(1+int(halton(i, 2)*float64(nm)), 1+int(halton(i, 3)*float64(nn)), 1+int(halton(i, 5)*float64(nk)))
	}
	for i := 1; i <= nm && len(sizes) < n; i++ { // nearly all multiples are wanted: take what the sequence missed
		for j := 1; j <= nn && len(sizes) < n; j++ {
			for k := 1; k <= nk && len(sizes) < n; k++ {
				add(i, j, k)
			}
		}
	}
	return sizes
}

// halton is the i-th member of the van der Corput sequence to that base.
func halton(i, base int) float64 {
	f, r := 1.0, 0.0
	for ; i > 0; i /= base {
		f /= float64(base)
		r += f * float64(i%base)
	}
	return r
}
