//go:build unix && !linux && !aix && !solaris

package mem

func adviseHuge([]byte) {}

// populate is not offered.
const populate = 0
