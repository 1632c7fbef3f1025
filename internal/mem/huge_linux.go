package mem

import "golang.org/x/sys/unix"

func adviseHuge(raw []byte) { _ = unix.Madvise(raw, unix.MADV_HUGEPAGE) }
