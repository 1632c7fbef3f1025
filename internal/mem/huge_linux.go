package mem

import "golang.org/x/sys/unix"

func adviseHuge(raw []byte) { _ = unix.Madvise(raw, unix.MADV_HUGEPAGE) }

// populate maps pages for reading.
const populate = unix.MADV_POPULATE_READ
