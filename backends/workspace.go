package backends

// Sized is a program that knows, before it runs, how much scratch memory it will hold.
type Sized interface {
	// Workspace bounds the scratch memory from above.
	Workspace() Workspace
}

// Workspace is scratch memory on the host.
type Workspace struct {
	// Own is what a program keeps for itself, in bytes.
	Own int64
	// Shared is what its runs borrow from pools of the process, by the name of the pool. Programs that take turns borrow the same memory.
	Shared map[string]Borrowed
}

// Borrowed is the most that is taken from a pool at one time.
type Borrowed struct {
	Buffers int
	Bytes   int64 // of each: any of a pool's buffers may have served the largest of its users
}

// Pools that more than one backend borrows from.
const (
	PoolGEMM = "gemm" // of package gemm, for products that bring no workspace
	PoolHeap = "heap" // what a node allocates and drops within its run
)

// Share notes that buffers are borrowed from a pool.
func (w *Workspace) Share(pool string, b Borrowed) {
	if b.Buffers == 0 || b.Bytes == 0 {
		return
	}
	if w.Shared == nil {
		w.Shared = map[string]Borrowed{}
	}
	have := w.Shared[pool]
	w.Shared[pool] = Borrowed{max(have.Buffers, b.Buffers), max(have.Bytes, b.Bytes)}
}

// Add adds the workspace of what runs before or after: both keep their own memory, and borrow the same.
func (w *Workspace) Add(o Workspace) {
	w.Own += o.Own
	for pool, b := range o.Shared {
		w.Share(pool, b)
	}
}

// Bytes is all of the memory.
func (w Workspace) Bytes() int64 {
	n := w.Own
	for _, b := range w.Shared {
		n += int64(b.Buffers) * b.Bytes
	}
	return n
}
