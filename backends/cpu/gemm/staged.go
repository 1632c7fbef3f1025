package gemm

import (
	"errors"
	"fmt"
	"sync"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// staging is what a call of MulStaged needs besides a workspace. It is reused.
type staging struct {
	next *staging
	data []byte
	pack packJob
	opt  Options
	epi  Epilogue
}

var stagings struct {
	sync.Mutex
	list *staging
}

func takeStaging() *staging {
	stagings.Lock()
	defer stagings.Unlock()
	s := stagings.list
	if s == nil {
		return &staging{pack: packJob{p: &PackedB{}}}
	}
	stagings.list = s.next
	s.next = nil
	return s
}

func giveStaging(s *staging) {
	s.pack.p.data, s.pack.b = nil, Matrix{}
	s.opt, s.epi = Options{}, Epilogue{}
	stagings.Lock()
	defer stagings.Unlock()
	s.next = stagings.list
	stagings.list = s
}

// stagedPanels returns how many panels of B are packed together for a product of m rows: for few rows as many as the second-level caches
// of the workers hold beside the rest, for many rows more, so that the rows of A are not read too often. In either case a multiple
// of what kernels take at once, or all.
func (p *PackedB) stagedPanels(m, threads int, kn *knobs) int {
	bytes := cpuinfo.Get().L2 / 2 * threads
	if m > kn.lowRows {
		bytes *= 4
	}
	const together = 6
	panels, _, _ := p.layout()
	each := max(bytes/max(p.stride, 1)/(together*threads), 1) * together * threads
	return min(panels, each)
}

// stagedLayout is PackB without memory: the packed form of some of the columns of b, and their number.
func stagedLayout(p *PackedB, m int, b *Matrix, o *Options) (cols, bytes int, err error) {
	kn, err := o.knobs()
	if err != nil {
		return 0, 0, err
	}
	if b.typ == S8 {
		return 0, 0, errors.New("gemm: MulStaged takes no integers")
	}
	f, err := packFormat(b.typ, o)
	if err != nil {
		return 0, 0, err
	}
	p.f, p.k, p.n = f, b.Rows, b.Cols
	if _, _, ok := p.layout(); !ok {
		return 0, 0, fmt.Errorf("gemm: packing B of %d x %d: size %w", p.k, p.n, mem.ErrOverflow)
	}
	cols = p.stagedPanels(m, o.threads(), kn) * f.nr
	p.n = min(cols, b.Cols)
	_, bytes, _ = p.layout()
	return cols, bytes, nil
}

// MulStaged computes what MulPacked does with PackB of b, bit for bit: some columns of b at a time are packed, into memory that all calls
// share, and multiplied while they are in a cache. It is for weights that have not been packed yet, since the memory for all of them may
// cost more than a product. Integers are not taken.
func MulStaged(c, a, b Matrix, o *Options) error {
	if o == nil {
		o = &Options{}
	}
	if err := (&call{c: c, a: a, b: b}).check(o); err != nil {
		return err
	}
	s := takeStaging()
	defer giveStaging(s)
	p := s.pack.p
	cols, bytes, err := stagedLayout(p, c.Rows, &b, o)
	if err != nil {
		return err
	}
	if cap(s.data) < bytes {
		s.data = mem.Bytes(reserved(bytes))
	}
	p.data = s.data[:bytes]
	for j := 0; j < b.Cols; j += cols {
		n := min(cols, b.Cols-j)
		p.n = n
		s.pack.b = b.columns(j, n)
		if p.k > 0 {
			par.Run(o.threads(), ceilDiv(n, p.f.nr), &s.pack)
		}
		s.narrow(o, j, n)
		if err := MulPacked(c.columns(j, n), a, p, &s.opt); err != nil {
			return err
		}
	}
	return nil
}

// narrow makes the options those of n columns from column j on.
func (s *staging) narrow(o *Options, j, n int) {
	s.opt = *o
	if e := o.Epilogue; e != nil {
		s.epi = *e
		if len(e.ColScale) > 1 {
			s.epi.ColScale = e.ColScale[j:][:n]
		}
		if len(e.Bias) > 0 {
			s.epi.Bias = e.Bias[j:][:n]
		}
		s.epi.Before, s.epi.After = e.Before.columns(j, n), e.After.columns(j, n)
		s.opt.Epilogue = &s.epi
	}
}

// StagedBytes bounds the memory of MulStaged for operands of the given types and strides, and of MulPacked once b is packed: of the workspace,
// and of what calls share.
func StagedBytes(c, a, b Matrix, o *Options) (workspace, shared int, err error) {
	if err := checkSize(c.Rows, c.Cols, a.Cols); err != nil {
		return 0, 0, err
	}
	if c.Rows == 0 || c.Cols == 0 || a.Cols == 0 {
		return 0, 0, nil
	}
	var p PackedB
	cols, shared, err := stagedLayout(&p, c.Rows, &b, o)
	if err != nil {
		return 0, 0, err
	}
	for _, n := range []int{min(cols, b.Cols), (b.Cols-1)%cols + 1, b.Cols} {
		p.n = n
		c.Cols = n
		w, err := WorkspaceBytes(c, a, b, &p, o)
		if err != nil {
			return 0, 0, err
		}
		workspace = max(workspace, w)
	}
	return workspace, reserved(shared), nil
}

// PackedBytes returns the memory that PackB takes for b.
func PackedBytes(b Matrix, o *Options) (int, error) {
	f, err := packFormat(b.typ, o)
	if err != nil {
		return 0, err
	}
	p := PackedB{f: f, n: b.Cols, k: b.Rows}
	panels, total, ok := p.layout()
	if !ok {
		return 0, fmt.Errorf("gemm: packing B of %d x %d: size %w", p.k, p.n, mem.ErrOverflow)
	}
	if b.typ == S8 {
		total += 4 * panels * f.nr
	}
	return total, nil
}

// columns returns n columns of a checked matrix from column j on; an absent one stays absent.
func (m *Matrix) columns(j, n int) Matrix {
	sub := *m
	if m.typ == 0 {
		return sub
	}
	if sub.Cols = n; m.Rows > 0 && n > 0 {
		sub.ptr = m.at(0, j)
		sub.len -= j * m.ColStride
	}
	return sub
}
