// Package cpu is the backend that runs every operation on the processor. It decides which kernel runs a node: each node of a part is
// compiled to a kernel with everything that its specs fix precomputed; what has no kernel runs its reference, and the verdict says so.
//
// Results have the same bits for any number of workers. After the first run nothing is allocated. Import it for its name:
//
//	import _ "github.com/tessera-go/tessera/backends/cpu"
//
//	b, err := backends.Open("cpu:threads=2,isa=avx2")
package cpu

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/knob"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func init() { backends.Register("cpu", open) }

// Backend runs parts of graphs on the processor.
type Backend struct {
	threads  int // 0: GOMAXPROCS
	isa      cpuinfo.ISA
	vec      *vec.Funcs
	engine   *Engine
	direct   bool // convolutions by their definition
	nodes    atomic.Int64
	products atomic.Int64
}

func open(o *backends.Options) (backends.Backend, error) {
	threads := o.Int("threads", 0, 0, 1024)
	isa, err := cpuinfo.Pinned()
	if err != nil {
		return nil, err
	}
	if err := knob.Check(); err != nil {
		return nil, err
	}
	names := cpuinfo.Get().Names()
	if name := o.String("isa", isa.String(), names...); o.Err() == nil {
		if isa, err = cpuinfo.ParseISA(name); err != nil {
			return nil, err
		}
	}
	b := newBackend(threads, isa)
	b.direct = o.String("conv", "auto", "auto", "direct") == "direct"
	return b, nil
}

func newBackend(threads int, isa cpuinfo.ISA) *Backend {
	return &Backend{threads: threads, isa: isa, vec: vec.For(isa), engine: &Engine{threads: threads, isa: isa, vec: vec.For(isa)}}
}

// Name is "cpu".
func (b *Backend) Name() string { return "cpu" }

// Describe says which processor, and which instruction set is used.
func (b *Backend) Describe() backends.Description {
	in := cpuinfo.Get()
	d := backends.Description{
		Name:     "cpu",
		Device:   fmt.Sprintf("%s, %d threads, %v", in.Name, b.workers(), b.isa),
		Features: features(in),
		Options: []string{
			"threads=0: workers at most; 0 means GOMAXPROCS",
			fmt.Sprintf("isa=%v: instruction set, one of %s", b.isa, strings.Join(in.Names(), ", ")),
			"conv=auto: direct computes convolutions by their definition; auto also by Winograd's algorithm, where that is faster",
		},
	}
	for _, t := range tensor.DTypes() {
		d.Types = append(d.Types, t.String())
	}
	return d
}

func features(in *cpuinfo.Info) []string {
	f := in.Names()
	for _, x := range []struct {
		name string
		has  bool
	}{
		{"avx512_vnni", in.Features.AVX512VNNI}, {"avx512_bf16", in.Features.AVX512BF16}, {"amx_int8", in.Features.AMXInt8},
		{"amx_bf16", in.Features.AMXBF16}, {"dotprod", in.Features.DotProd},
		{"i8mm", in.Features.I8MM}, {"bf16", in.Features.BF16},
	} {
		if x.has {
			f = append(f, x.name)
		}
	}
	return f
}

func (b *Backend) workers() int {
	if b.threads > 0 {
		return b.threads
	}
	return runtime.GOMAXPROCS(0)
}

// Supports says yes to every operation whose shape rule accepts the inputs; the reason tells kernels from references.
func (b *Backend) Supports(c ops.Call) backends.Verdict {
	if c.Op == nil {
		return backends.No("no operation")
	}
	out, err := c.Op.Infer(c.In)
	if err != nil {
		return backends.No("%v", err)
	}
	c.Out = out
	if k, why := b.kernel(c); k == nil {
		return backends.Yes("reference: " + why)
	}
	return backends.Yes(b.vec.ISA.String() + " kernel")
}

// MatMul returns the engine for matrix products.
func (b *Backend) MatMul() matmul.Engine { return b.engine }

// Stats counts nodes and products.
func (b *Backend) Stats() backends.Stats {
	return backends.Stats{Nodes: b.nodes.Load(), Products: b.products.Load(), Dispatches: b.nodes.Load()}
}

// Close does nothing: programs hold what there is.
func (b *Backend) Close() error { return nil }

// Compile chooses a kernel for every node and prepares constants.
func (b *Backend) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p := &program{b: b, nodes: part.Nodes, kernels: make([]kernel, len(part.Nodes))}
	p.env = env{threads: b.threads, vec: b.vec, engine: b.engine}
	for i := range part.Nodes {
		n := &part.Nodes[i]
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		call := part.Call(n)
		k, _ := b.kernel(call)
		if k == nil {
			k = &referenceKernel{op: n.Op}
		}
		if err := k.bind(ctx, &p.env, part, n); err != nil {
			return nil, fmt.Errorf("node %q, %s: %w", n.Name, ops.Describe(n.Op, call.In), err)
		}
		if _, ok := n.Op.(matmul.Op); ok {
			p.products++
		}
		p.kernels[i] = k
	}
	p.together = p.findTogether()
	if err := p.measure(part); err != nil {
		return nil, err
	}
	for i, feeds := range part.Feeds {
		if !feeds || i+1 == len(p.kernels) {
			continue
		}
		if k, bytes := feed(part, p.kernels[i], p.kernels[i+1]); k != nil {
			if p.fed == nil {
				p.fed = make([]*convKernel, len(p.kernels))
			}
			p.fed[i] = k
			p.workspace.Own += bytes
		}
	}
	return p, nil
}
