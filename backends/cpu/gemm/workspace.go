package gemm

import (
	"fmt"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
)

// Workspace is the scratch memory of products: packed operands and what each worker needs. It is aligned to 64 bytes, grows
// by powers of two and never shrinks; a product that packs nothing reserves nothing. One Workspace serves one call at a time;
// calls without one take one from a pool, so that nested and concurrent calls are safe and the second large call allocates
// nothing.
type Workspace struct {
	buf     []byte
	mapped  *mem.Mapping
	cleanup runtime.Cleanup
	prod    product
	link    *Workspace
	busy    sync.Mutex
}

// NewWorkspace returns a workspace that holds at least capacity bytes already.
func NewWorkspace(capacity int) (*Workspace, error) {
	w := &Workspace{}
	if err := w.reserve(capacity); err != nil {
		return nil, err
	}
	return w, nil
}

// Cap returns the bytes that the workspace holds.
func (w *Workspace) Cap() int { return len(w.buf) }

// Packs returns how often the last product that used the workspace copied A and B: each as a whole, or in strips and chunks where workers
// copy what they are about to use.
func (w *Workspace) Packs() (a, b int) {
	for i := range w.prod.workers {
		a += w.prod.workers[i].packs[0]
		b += w.prod.workers[i].packs[1]
	}
	return a, b
}

// Close releases the memory. The workspace may be used again and grows again.
func (w *Workspace) Close() error {
	w.buf = nil
	if w.mapped == nil {
		return nil
	}
	w.cleanup.Stop()
	m := w.mapped
	w.mapped = nil
	return m.Close()
}

// mapFrom is the size from which packed operands are mapped outside the Go heap, with huge pages where the system gives them.
const mapFrom = 1 << 20

// Kernels of the inner product go through several streams of a workspace at once, and some processors take a cycle or two for each change between
// small pages, even of those that their tables hold (a fifth of the time on Zen 3): theirs lies in a huge page, if it is not small. Other
// products have many workspaces, one a node of a graph, for which that would be a waste.
const (
	hugeFrom = 128 << 10
	hugePage = 2 << 20
)

func (w *Workspace) reserve(n int) error { return w.reserveFrom(n, mapFrom, 0) }

// reserveFrom is reserve that maps memory for workspaces of at least from bytes, and then at least least bytes of it.
func (w *Workspace) reserveFrom(n, from, least int) error {
	if n <= len(w.buf) {
		return nil
	}
	size := reserved(n)
	if size < n {
		return fmt.Errorf("gemm: workspace of %d bytes: %w", n, mem.ErrOverflow)
	}
	if err := w.Close(); err != nil {
		return err
	}
	if size < from {
		w.buf = mem.Bytes(size)
		return nil
	}
	m, err := mem.Anonymous(max(size, least))
	if err != nil {
		return fmt.Errorf("gemm: workspace: %w", err)
	}
	w.mapped, w.buf = m, m.Data()[:size:size]
	w.cleanup = runtime.AddCleanup(w, func(m *mem.Mapping) { m.Close() }, m)
	return nil
}

// reserved returns the size of a workspace that n bytes are asked of, n > 0; 0 where there is none.
func reserved(n int) int {
	if n > maxInt/2 {
		return 0
	}
	return max(1<<bits.Len(uint(n-1)), 1<<16)
}

const maxInt = int(^uint(0) >> 1)

// layout hands out regions of a workspace and checks every size at the byte product.
type layout struct {
	size int
	bad  bool
}

// region reserves the product of the factors in bytes and returns its offset.
func (l *layout) region(factors ...int) int {
	at := l.size
	n, ok := mem.Mul(factors...)
	if ok {
		n, ok = mem.RoundUp(n, mem.Align)
	}
	if ok {
		l.size, ok = mem.Add(at, n)
	}
	if !ok {
		l.bad = true
		l.size = at
	}
	return at
}

func (w *Workspace) at(off int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.buf)), off)
}

// spare holds the workspaces that calls without their own use: one that is passed on without a lock, and a list.
var spare struct {
	sync.Mutex
	one  atomic.Pointer[Workspace]
	list *Workspace
}

func takeWorkspace() *Workspace {
	if w := spare.one.Swap(nil); w != nil {
		return w
	}
	spare.Lock()
	defer spare.Unlock()
	w := spare.list
	if w == nil {
		return &Workspace{}
	}
	spare.list = w.link
	w.link = nil
	return w
}

// release ends a call's use of a workspace, its own or one of the pool.
func (w *Workspace) release(pooled bool) {
	if pooled {
		giveWorkspace(w)
	} else {
		w.busy.Unlock()
	}
}

func giveWorkspace(w *Workspace) {
	if spare.one.CompareAndSwap(nil, w) {
		return
	}
	spare.Lock()
	defer spare.Unlock()
	w.link = spare.list
	spare.list = w
}

// Trim releases the memory of the pooled workspaces, and of what [MulStaged] shares, that no call is using.
func Trim() {
	stagings.Lock()
	stagings.list = nil
	stagings.Unlock()
	spare.Lock()
	defer spare.Unlock()
	for w := spare.list; w != nil; w = w.link {
		_ = w.Close()
	}
	spare.list = nil
	if w := spare.one.Swap(nil); w != nil {
		_ = w.Close()
	}
}
