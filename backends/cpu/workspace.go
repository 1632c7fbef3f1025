package cpu

import (
	"slices"

	"github.com/tessera-go/tessera/backends"
	engine "github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// workspace is what a program's runs hold beside the frame, in bytes.
type workspace struct {
	own     int    // of the node, kept by it between runs
	shared  [4]int // buffers of the pools
	callers int    // products of the node that run side by side and use those buffers

	rows, row int // scratch rows of the program, one a worker, and their elements

	spaces, space int // workspaces of the program for products, one a worker, and their bytes
}

// pools names the buffers that all products of the process share: three of those with block weights, one of those with weights that are not packed yet.
var pools = [4]string{"qgemm rows", "qgemm numbers", "qgemm scratch", "gemm staging"}

// sized is a kernel whose scratch memory is known when it has been bound. Loose says which values may have gaps or rows in another order: what
// comes from outside of the part or is seen there, what is updated in place, and views.
type sized interface {
	workspace(e *env, part *ops.Part, n *ops.Node, loose func(v int) bool) (workspace, error)
}

// Workspace bounds the scratch memory that the program holds after its runs: of products (packed and converted operands, quantized rows, the
// workers' scratch), attention, convolutions and poolings, strips and rows of the workers, tables of angles, and copies of operands in another order.
// The products of a program take turns with the same workspaces, and quantized rows lie in buffers that all products of the process share; else nodes keep
// theirs. Not counted is what the references of operations allocate that have no kernel of their own.
func (p *program) Workspace() backends.Workspace { return p.workspace }

func (p *program) measure(part *ops.Part) error {
	tight := make([]bool, len(part.Values))
	for i := range part.Values {
		tight[i] = part.Values[i].Const != nil
	}
	for i := range part.Nodes {
		n := &part.Nodes[i]
		_, view := n.Op.(ops.Viewer)
		_, update := n.Op.(ops.Updater)
		for _, v := range n.Out {
			tight[v] = !view && !update
		}
	}
	for _, v := range part.Outputs {
		tight[v] = false
	}
	var most workspace // of what all nodes use in turn
	beside := 0        // bytes of a workspace of another worker than the first
	for i, k := range p.kernels {
		s, ok := k.(sized)
		if !ok {
			continue
		}
		w, err := s.workspace(&p.env, part, &part.Nodes[i], func(v int) bool { return !tight[v] })
		if err != nil {
			return err
		}
		p.workspace.Own += int64(w.own)
		most.rows, most.row = max(most.rows, w.rows), max(most.row, w.row)
		most.spaces, most.space = max(most.spaces, w.spaces), max(most.space, w.space)
		if w.spaces > 1 {
			beside = max(beside, w.space)
		}
		for j, n := range w.shared {
			p.workspace.Share(pools[j], backends.Borrowed{Buffers: w.callers, Bytes: int64(n)})
		}
	}
	p.workspace.Own += 4*int64(most.rows)*int64(most.row) + int64(most.space) + int64(max(most.spaces-1, 0))*int64(beside)
	for _, a := range p.env.angles {
		p.workspace.Own += int64(a.bytes())
	}
	return nil
}

func (k *matmulKernel) workspace(_ *env, part *ops.Part, n *ops.Node, loose func(int) bool) (workspace, error) {
	pl := k.plan
	if k.reference || pl == nil {
		return workspace{}, nil
	}
	w, _ := k.weights.(*packed)
	if w != nil && w.late != nil {
		w = w.late.lying // which needs more than the packed form
	}
	residual := tensor.Invalid
	looseResidual := false
	if k.residual >= 0 {
		v := n.In[k.residual]
		residual, looseResidual = part.Values[v].Spec.DType, loose(v)
	}
	u, err := pl.workspace(w, loose(n.In[0]), loose(n.In[1]), loose(k.out), residual, looseResidual)
	for _, i := range []int{k.rowScale, k.colScale, k.bias} {
		if i >= 0 && loose(n.In[i]) {
			u.own += 4 * part.Values[n.In[i]].Spec.Elems()
		}
	}
	return u, err
}

// workspace bounds what a run holds, whatever the strides of loose operands are.
func (p *plan) workspace(w *packed, looseA, looseB, looseC bool, residual tensor.DType, looseResidual bool) (u workspace, err error) {
	s, threads := &p.spec, p.e.threads
	batches := p.shape.Batches()
	all := p.shape.M * batches
	if all == 0 || s.N == 0 {
		return u, nil
	}
	how, err := form(*s, w != nil)
	if err != nil {
		return u, err
	}
	if w != nil {
		how = w.how
	}
	workers := par.Workers(threads, all)
	if residual != tensor.Invalid && (residual != tensor.F32 || looseResidual) {
		u.own += 4*all*s.N + stripBytes(threads, all*s.N)
	}
	if how == integral || how == eightBit && s.C != tensor.F32 { // rows of sums, and results that are converted afterwards
		u.own += workers * 4 * (2*s.N + s.K)
	}
	if how != integral && (!p.fused || how != floating && s.C != tensor.F32 || how == blocked && looseC) {
		u.own += 4*all*s.N + stripBytes(threads, all*s.N)
	}
	if w == nil && (how == integral || how == floating && s.B.IsBlock()) { // for the time of a run
		u.own += 4 * s.N * s.K * batches
	}
	if how == integral {
		return u, nil
	}
	if how == blocked && (s.A != tensor.F32 || looseA) {
		u.own += 4*all*s.K + stripBytes(threads, all*s.K)
	}
	// The rows of all products may be those of one; else some run side by side.
	for _, m := range []int{p.shape.M, all} {
		n := all / m
		side := n > 1 && m*s.N*max(s.K, 1) <= thresholds().smallProduct
		each, limit := 1, threads
		if side {
			each, limit = par.Workers(threads, n), 1
		}
		if how == blocked {
			u.callers = max(u.callers, each)
			heights := []int{m}
			if looseA {
				heights = append(heights, 1) // one by one where rows of A overlap
			}
			for _, rows := range heights {
				for _, b := range w.blocks {
					sizes, err := b.WorkspaceBytes(&qgemm.Run{M: rows, Threads: limit, ISA: p.e.isa})
					if err != nil {
						return u, err
					}
					for i, x := range sizes {
						u.shared[i] = max(u.shared[i], x)
					}
				}
			}
			continue
		}
		heights := []int{m}
		if work := s.N * max(s.K, 1); m > longProduct/work {
			step := max(longProduct/work/192*192, 192)
			if step < m {
				heights = append(heights, step, (m-1)%step+1)
			}
		}
		for _, h := range heights {
			bytes, staged, err := p.gemmBytes(w, h, limit, looseA, looseB, looseC, residual != tensor.Invalid)
			if err != nil {
				return u, err
			}
			u.spaces, u.space = max(u.spaces, each), max(u.space, bytes)
			if staged > 0 {
				u.shared[3], u.callers = max(u.shared[3], staged), max(u.callers, each)
			}
		}
	}
	return u, nil
}

// gemmBytes bounds the workspace of a product of m rows, and what it shares with others.
func (p *plan) gemmBytes(w *packed, m, threads int, looseA, looseB, looseC, residual bool) (most, shared int, err error) {
	if w != nil && slices.Contains(w.batch, 0) { // no product at all, and none of the forms that one would read
		return 0, 0, nil
	}
	s := &p.spec
	o := gemm.Options{Threads: threads, ISA: p.e.isa}
	if !s.Epilogue.IsZero() {
		o.Epilogue = &gemm.Epilogue{}
		if residual && s.Epilogue.Residual == matmul.ResidualAfter {
			o.Epilogue.After = gemm.Raw(gemm.F32, nil, m, s.N, s.N, 1)
		}
	}
	typeB := s.B
	if typeB.IsBlock() {
		typeB = tensor.F32
	}
	// Strides that make the most of packing: rows whose distance is that of a set of a cache, and columns that are far apart.
	const far = 1 << 20
	as := [][2]int{{s.K, 1}}
	if looseA {
		as = append(as, [2]int{(s.K + 4095) &^ 4095, 1}, [2]int{1, far})
	}
	bs := [][2]int{{s.N, 1}}
	if s.BLayout == matmul.ColMajor {
		bs[0] = [2]int{1, s.K}
	}
	if looseB {
		bs = append(bs, [2]int{s.N, 1}, [2]int{1, far})
	}
	cs := [][2]int{{s.N, 1}}
	if looseC {
		cs = append(cs, [2]int{2 * s.N, 2}, [2]int{1, far})
	}
	var matrices []*gemm.PackedB
	if w != nil {
		matrices = w.matrices[:min(len(w.matrices), 1)] // alike
	}
	typeC := gemmType(s.C)
	if s.C.IsInt() && s.C.Size() == 2 {
		typeC = gemm.S32
	}
	for _, a := range as {
		for _, b := range bs {
			var pb *gemm.PackedB
			if len(matrices) > 0 {
				pb = matrices[0]
			}
			for i := range 2 * len(cs) {
				c, typ := cs[i/2], typeC
				if i%2 > 0 {
					typ = gemm.F32 // what is converted afterwards
				}
				n, common := 0, 0
				mc, ma := gemm.Raw(typ, nil, m, s.N, c[0], c[1]), gemm.Raw(gemmType(s.A), nil, m, s.K, a[0], a[1])
				if mb := gemm.Raw(gemmType(typeB), nil, s.K, s.N, b[0], b[1]); w != nil && pb == nil {
					n, common, err = gemm.StagedBytes(mc, ma, mb, &o)
				} else {
					n, err = gemm.WorkspaceBytes(mc, ma, mb, pb, &o)
				}
				if err != nil {
					return 0, 0, err
				}
				most, shared = max(most, n), max(shared, common)
			}
		}
	}
	return most, shared, nil
}

func (k *sdpaKernel) workspace(e *env, _ *ops.Part, _ *ops.Node, _ func(int) bool) (workspace, error) {
	rows := min(queryTile, k.rep*k.m)
	if rows == 0 {
		return workspace{}, nil
	}
	workers := par.Workers(e.threads, k.groups.total*k.tiles)
	bytes := 4*(rows*(k.d+k.dv+2)+max(rows*keyBlock, longBlock)+keyBlock*(1+k.d+k.dv)) + 16*rows
	if rows >= fewRows && k.n > 0 {
		kept, space, err := k.packedBytes()
		if err != nil {
			return workspace{}, err
		}
		return workspace{own: workers * (bytes + kept), spaces: workers, space: space}, nil
	}
	return workspace{own: workers * bytes}, nil
}

// packedBytes bounds the packed keys and values of a worker and the workspace of its products.
func (k *sdpaKernel) packedBytes() (kept, space int, err error) {
	blocks := max(1, min((k.n+keyBlock-1)/keyBlock, keptBytes/(4*keyBlock*max(k.d+k.dv, 1))))
	o := gemm.Options{Threads: 1, ISA: k.isa}
	add := o
	add.Accumulate = true
	for _, s := range []struct {
		k, n int
		o    *gemm.Options
	}{{k.d, keyBlock, &o}, {keyBlock, k.dv, &add}} {
		if s.k == 0 || s.n == 0 {
			continue
		}
		b, err := gemm.PackB(gemm.Of(make([]float32, s.k*s.n), s.k, s.n), &o)
		if err != nil {
			return 0, 0, err
		}
		kept += blocks * b.Bytes()
		for rows := range queryTile + 1 {
			n, err := gemm.WorkspaceBytes(gemm.Raw(gemm.F32, nil, rows, s.n, s.n, 1), gemm.Raw(gemm.F32, nil, rows, s.k, s.k, 1), gemm.Matrix{}, b, s.o)
			if err != nil {
				return 0, 0, err
			}
			space = max(space, n)
		}
		if err := b.Close(); err != nil {
			return 0, 0, err
		}
	}
	return kept, space, nil
}

// imageBytes is the memory of an image's copy with the channels last; 0 where there is none.
func imageBytes(l conv.Layout, s tensor.Spec, loose bool) int {
	v := last(l, tensor.Tensor{Spec: s, Strides: s.Contiguous()})
	if v.IsContiguous() && !loose {
		return 0
	}
	return s.Bytes()
}

func (k *convKernel) workspace(e *env, part *ops.Part, n *ops.Node, loose func(int) bool) (workspace, error) {
	x, y := part.Values[n.In[0]].Spec, part.Values[k.out].Spec
	bytes := imageBytes(k.layout, x, loose(n.In[0])) + imageBytes(k.layout, y, loose(k.out))
	if k.residual >= 0 {
		v := n.In[k.residual]
		bytes += imageBytes(k.layout, part.Values[v].Spec, loose(v))
	}
	load, store := x.DType != tensor.F32 && k.spec.Type == engine.F32, y.DType != tensor.F32
	if k.plan != nil {
		return workspace{own: bytes + k.plan.WorkspaceBytes(load, store)}, nil
	}
	f, err := engine.Pack(k.spec, make([]float32, k.spec.Weights()), nil, k.isa) // in each run anew
	if err != nil {
		return workspace{}, err
	}
	b, err := filterBytes(f, k.spec, e.threads, load, store)
	return workspace{own: bytes + b}, err
}

// filterBytes bounds what a convolution holds that packs its filter in each run.
func filterBytes(f *engine.Filter, s engine.Spec, threads int, load, store bool) (int, error) {
	p, err := engine.NewPlan(f, s, threads)
	if err != nil {
		return 0, err
	}
	bytes := f.Bytes() + 4*s.Weights() + p.WorkspaceBytes(load, store)
	return bytes, f.Close()
}

func (k *intConvKernel) workspace(e *env, part *ops.Part, n *ops.Node, loose func(int) bool) (workspace, error) {
	l := k.op.Layout
	bytes := imageBytes(l, part.Values[n.In[0]].Spec, loose(n.In[0])) + imageBytes(l, part.Values[k.out].Spec, loose(k.out))
	if k.residual >= 0 {
		v := n.In[k.residual]
		bytes += imageBytes(l, part.Values[v].Spec, loose(v))
	}
	load, store := k.args.Load != nil, k.args.Store != nil
	if k.plan != nil {
		return workspace{own: bytes + k.plan.WorkspaceBytes(load, store)}, nil
	}
	most := 0
	for _, w := range []int16{0, 255} { // kernels differ by whether weights fit 8 bits
		var f *engine.Filter
		var err error
		if k.spec.Type == engine.F32 {
			f, err = engine.Pack(k.spec, make([]float32, k.spec.Weights()), nil, k.isa)
		} else {
			f, err = engine.PackInt(k.spec, slices.Repeat([]int16{w}, k.spec.Weights()), k.isa)
		}
		if err != nil {
			return workspace{}, err
		}
		b, err := filterBytes(f, k.spec, e.threads, load, store)
		if err != nil {
			return workspace{}, err
		}
		most = max(most, b)
	}
	return workspace{own: bytes + most}, nil
}

func (k *poolKernel) workspace(_ *env, part *ops.Part, n *ops.Node, loose func(int) bool) (workspace, error) {
	x := part.Values[n.In[0]].Spec
	bytes := imageBytes(k.layout, x, loose(n.In[0])) + imageBytes(k.layout, part.Values[k.out].Spec, loose(k.out))
	half := x.DType != tensor.F32
	return workspace{own: bytes + k.pool.WorkspaceBytes(half, half)}, nil
}

func (k *maxBytesKernel) workspace(_ *env, part *ops.Part, n *ops.Node, loose func(int) bool) (workspace, error) {
	bytes := imageBytes(k.layout, part.Values[n.In[0]].Spec, loose(n.In[0])) + imageBytes(k.layout, part.Values[k.out].Spec, loose(k.out))
	return workspace{own: bytes + len(k.rows)*k.rowBytes()}, nil
}
