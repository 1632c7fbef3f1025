package conv

import "github.com/tessera-go/tessera/internal/par"

// Fed runs a depthwise convolution and a 1x1 one of its results as one: a worker computes some rows of the first into scratch memory and
// multiplies them there, so that the image between the two is never written. Results have the bits of two runs. One goroutine at a time
// runs it, and neither of the two plans meanwhile.
type Fed struct {
	d *depthwise
	p Plan
}

const (
	// fedFilter is the most floats of the 1x1 filter: it passes once for every block of rows, from L2.
	fedFilter = 48 << 10
	// fedBlock is about how many floats of the image between are computed at a time: they stay in L2 beside the filter and the rows that they
	// come from.
	fedBlock = 12 << 10
)

// Feed returns how p runs on the results of a depthwise convolution as they come, or nil where it cannot or does not pay: p must be a 1x1
// convolution of the same threads, of one group and of floats, with a filter that stays in L2.
func (p *Plan) Feed(from *Plan) *Fed {
	d := from.dw
	if d == nil || len(p.works) != 1 || !p.works[0].flat || p.works[0].patches || p.k.kind != kindF32 || p.s.Groups != 1 || p.threads != from.threads || p.s.C*p.s.M > fedFilter ||
		p.s.N*p.s.H*p.s.W != d.n*d.z.Out*d.y.Out*d.x.Out || p.s.C != d.c || p.s.N*p.s.H*p.s.W == 0 {
		return nil
	}
	f := &Fed{d: d, p: *p}
	f.p.workers, f.p.feeder = nil, d
	w := p.works[0]
	// Blocks of whole rows: as many as fit, but several jobs for each worker, of which none is too short.
	total := d.n * d.z.Out * d.y.Out
	rows := max(fedBlock/(d.x.Out*d.c), 1)
	if workers := par.Workers(p.threads, 1<<30); workers > 1 {
		macs := d.x.Out * d.c * (p.s.M + d.z.Kernel*d.y.Kernel*d.x.Kernel)
		rows = min(rows, max(total/(p.kn.jobsPerWorker*workers), p.kn.jobMacs/max(macs, 1), 1))
	}
	rows = min(rows, total)
	w.block, w.blocks, w.panels, w.cuts = rows*d.x.Out, ceilDiv(total, rows), ceilDiv(p.s.M, p.k.nr), 1
	f.p.works = []work{w}
	return f
}

// Run computes; of the arguments of the first convolution X, Bias and Act count, of those of the second all but X and Load.
func (f *Fed) Run(first, second *Args) {
	f.d.begin(first, par.Workers(f.p.threads, f.p.works[0].blocks))
	f.p.Run(second)
	f.d.args = nil
}

// WorkspaceBytes bounds the scratch memory that all workers hold after runs with Store or not, beside that of the two plans.
func (f *Fed) WorkspaceBytes(store bool) int { return f.p.WorkspaceBytes(true, store) }

// feed computes results from a position on, whole rows, to dst.
func (d *depthwise) feed(worker int, dst []float32, from int) {
	sc := &d.workers[worker]
	sc.y, sc.first = dst, from
	size := d.x.Out * d.c
	for row, last := from/size, (from+len(dst))/size; row < last; {
		plane, y := row/d.y.Out, row%d.y.Out
		n := min(last-row, d.y.Out-y)
		d.block(sc, plane, y, y+n)
		row += n
	}
}
