//go:build unix && !linux && !aix && !solaris

package mem

func adviseHuge([]byte) {}
