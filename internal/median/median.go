// Package median has the one definition of a median that measurements of this project print.
package median

import "slices"

// Of returns the median: the middle value, or the mean of the two middle ones. It is 0 of no values. The order of v stays.
func Of(v []float64) float64 {
	n := len(v)
	if n == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(n-1)/2] + v[n/2]) / 2
}
