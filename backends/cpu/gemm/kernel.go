package gemm

import (
	"fmt"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// kargs is what a kernel is called with. One call computes a strip of h rows (h is fixed by the function) against a run of
// panels of B:
//
//	for each panel:                            c starts from 0 (plus fold*comp), or from memory when acc is set
//	    for each step: c[i][j] += a[i] * b[j]      a step covers aK values of k
//	    store c; b += bps; c += NR*4; comp += NR*4
//
// Every sum is one chain of multiply-adds in ascending k, each rounded once, so that all kernels of a type, whatever their
// shape, instruction set and blocking, give the same bits. The dot-product kernels for bf16 are the one exception.
//
// A is read by broadcast: the value (or group of values, 4 bytes) of row i at step t lies at a + i*ars + t*acs. B is read as
// vectors: step t of a panel is NR columns at b + t*bks. C is row-major. Only the last panel may be short: tail columns, 1 to
// NR, are read and written there, while B is always read in full. Elements need no alignment. A kernel
// moves b, c and comp to the last panels that it computed and leaves a.
type kargs struct {
	a      unsafe.Pointer
	b      unsafe.Pointer
	c      unsafe.Pointer
	ars    int // bytes between rows of A
	acs    int // bytes between steps of A
	bks    int // bytes between steps of B
	bps    int // bytes between panels of B
	ldc    int // bytes between rows of C
	k      int // steps
	panels int
	tail   int            // columns of the last panel
	acc    int            // 1: start from C
	comp   unsafe.Pointer // int8: column sums of B, int32
	fold   int            // int8: what each column sum is multiplied by before it joins the sum
}

// format says how the elements of B lie in a panel: groups of kr consecutive k, in each group nr columns, for each column its
// kr values together. A kernel reads one format; packed weights record theirs.
type format struct {
	elem Type
	nr   int
	kr   int
}

func (f format) String() string { return fmt.Sprintf("%v/n%d/k%d", f.elem, f.nr, f.kr) }

// step returns the bytes of one group.
func (f format) step() int { return f.nr * f.kr * f.elem.Size() }

// kernel describes one microkernel family: everything that the driver knows about it. Adding a kernel means adding a
// descriptor and its functions.
type kernel struct {
	name string
	isa  cpuinfo.ISA
	need func(*cpuinfo.Features) bool // nil: the level is enough
	a    Type                         // A as the kernel reads it: f32, bf16 pairs, u8 or s16 groups
	aK   int                          // values of k in the 4 bytes of one step of A
	b    format
	acc  Type // type of the sums
	mr   int  // most rows

	full, half []func(*kargs) // by height 1..mr; half computes only the lower nr/2 columns of a last panel
	wide       []func(*kargs) // nil, or for low heights a kernel that takes wideP panels at once
	wideP      []int

	packedA bool // A must be packed: the kernel wants groups or contiguous rows
	exact   bool // sums are one ascending chain of fused multiply-adds (f32), or integers
}

// run computes a strip of h rows against panels, of which the last has tail columns, choosing the widest functions.
func (k *kernel) run(p *kargs, h, panels, tail int) {
	nr := k.b.nr
	if k.wide != nil && h < len(k.wide) && k.wide[h] != nil {
		w := k.wideP[h]
		whole := panels
		if tail < nr {
			whole--
		}
		if g := whole / w; g > 0 {
			p.panels, p.tail = g, nr
			k.wide[h](p)
			panels -= g * w
			if panels == 0 {
				return
			}
			p.advance(w, nr)
		}
	}
	if tail <= nr/2 && k.half != nil {
		if panels > 1 {
			p.panels, p.tail = panels-1, nr
			k.full[h](p)
			p.advance(1, nr)
		}
		p.panels, p.tail = 1, tail
		k.half[h](p)
		return
	}
	p.panels, p.tail = panels, tail
	k.full[h](p)
}

// advance moves to the panel after the n that the last step of a kernel computed; there must be one, so that no pointer leaves
// its memory.
func (p *kargs) advance(n, nr int) {
	p.b, p.c = unsafe.Add(p.b, n*p.bps), unsafe.Add(p.c, n*nr*4)
	if p.comp != nil {
		p.comp = unsafe.Add(p.comp, n*nr*4)
	}
}

// kernels returns those of this build, best first.
func kernels() []*kernel { return append(archKernels(), portableKernels()...) }
