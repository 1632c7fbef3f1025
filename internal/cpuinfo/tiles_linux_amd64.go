//go:build !noasm

package cpuinfo

import "syscall"

// permitTiles asks the kernel to let this process use the tile registers, for all its threads and for good: without it their first use is a
// fault. Kernels that do not know the request, or do not save that state (bits 17 and 18 of XCR0), refuse.
func permitTiles() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
