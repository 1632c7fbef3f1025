package conv

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
)

// WorkspaceBytes bounds the scratch memory that all workers of the plan hold after runs whose Args have Load and Store or not.
func (p *Plan) WorkspaceBytes(load, store bool) int {
	s := &p.s
	if s.planes() == 0 || s.OH == 0 || s.OW == 0 {
		return 0
	}
	if p.dw != nil {
		return p.dw.workspaceBytes(load, store)
	}
	bytes := 0
	if p.blocks != nil && !store {
		bytes = p.blocks.plan.WorkspaceBytes(load, true)
	}
	if w := p.win; w != nil {
		freqs := w.freqs()
		floats := freqs*w.block*w.row + 16 + w.group*freqs*w.block*p.k.nr + 16 + freqs*16 + ceilDiv(s.M, p.k.nr)*p.k.nr + 16
		if load {
			floats += freqs*w.row + 16
		}
		if store {
			floats += w.my*w.mx*w.block*s.M + 16
		}
		pointers := 2 * 16 * w.block // with those of a residual
		return bytes + par.Workers(p.threads, w.blocks*w.cuts)*(4*floats+int(unsafe.Sizeof(uintptr(0)))*pointers)
	}
	workers, rows := 0, 0
	for i := range p.works {
		w := &p.works[i]
		workers = max(workers, par.Workers(p.threads, w.planesOf(s)*w.blocks*w.cuts))
		switch {
		case w.gathered:
			rows = max(rows, product(w.block, len(w.offs), w.line))
		case w.copied:
			rows = max(rows, product(w.dzPlanes, w.high, w.width, s.C))
		case w.patches:
			rows = max(rows, product(w.block, w.pitch))
		case !load && p.k.kind == kindF32 || p.k.kind == kindBF16: // read where they lie
		case w.flat:
			rows = max(rows, product(w.block, w.pitch))
		default:
			rows = max(rows, min((min(w.block, w.rows)-1)*w.in.y+w.dyMin+w.dyRows, s.H)*s.W*s.C)
		}
	}
	if p.bare != nil {
		workers = max(workers, par.Workers(p.threads, p.bare.jobs))
	}
	floats := 0
	if rows > 0 {
		floats = rows*p.k.kind.size()/4 + 16
	}
	if store {
		floats += p.k.mr * p.stored() * s.M
	}
	if !p.k.masks {
		floats += 2 * p.k.mr * p.k.nr
	}
	return min(bytes+product(4, workers, floats), mostSize)
}

// Held returns the bytes of scratch memory that the workers of the plan hold.
func (p *Plan) Held() int {
	n := held(p.workers)
	if p.dw != nil {
		n += held(p.dw.workers)
	}
	if p.blocks != nil {
		n += p.blocks.plan.Held()
	}
	if p.win != nil {
		for i := range p.win.worker {
			sc := &p.win.worker[i]
			n += 4 * (len(sc.v) + len(sc.m) + len(sc.tmp) + len(sc.sink) + len(sc.load) + len(sc.keep))
			n += int(unsafe.Sizeof([16]uintptr{})) * (len(sc.dst) + len(sc.res))
		}
	}
	return n
}

// Held returns the bytes of scratch memory that the workers hold, beside those of the two plans.
func (f *Fed) Held() int { return held(f.p.workers) }

// WorkspaceBytes bounds the scratch memory that all workers of the pooling hold after runs whose Args have Load and Store or not.
func (p *Pool) WorkspaceBytes(load, store bool) int { return p.d.workspaceBytes(load, store) }

// Held returns the bytes of scratch memory that the workers of the pooling hold.
func (p *Pool) Held() int { return held(p.d.workers) }

func (d *depthwise) workspaceBytes(load, store bool) int {
	floats := 0
	if load {
		floats = d.loadedPlanes*d.loadedRows*d.x.In*d.c + 16
	}
	if store {
		floats += d.k.sr * d.c
	}
	return 4 * floats * par.Workers(d.threads, d.n*d.z.Out*ceilDiv(d.y.Out, d.rows))
}

func held(workers []scratch) int {
	n := 0
	for i := range workers {
		sc := &workers[i]
		n += 4 * (len(sc.rows) + len(sc.out) + len(sc.edge))
	}
	return n
}
