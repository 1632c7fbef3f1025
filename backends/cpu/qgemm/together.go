package qgemm

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
)

// MulTogether computes products of one A with several weights, such as queries, keys and values: runs[i] with weights[i]. The bits are those of the products one after
// the other. Where they are of few rows and round A alike they are one parallel region instead of one each, at whose ends workers would wait for each other.
//
// All runs must have the same A, LDA, M, Source, Threads, ISA and Knobs. No C may overlap another, not even with rows between those of the other, nor what the Then of
// another reads.
func MulTogether(ctx context.Context, weights []*Packed, runs []*Run) error {
	if len(weights) != len(runs) {
		return fmt.Errorf("qgemm: %d weights, %d runs", len(weights), len(runs))
	}
	if len(runs) == 0 {
		return ctx.Err()
	}
	first := runs[0]
	for i, r := range runs {
		if err := r.check(weights[i]); err != nil {
			return err
		}
		if !r.together(first) {
			return fmt.Errorf("qgemm: run %d has another A or other options than run 0", i)
		}
		for j := range i {
			if first.M > 0 && overlap(r, weights[i], runs[j], weights[j]) {
				return fmt.Errorf("qgemm: C of run %d overlaps that of run %d", i, j)
			}
		}
	}
	if first.M == 0 {
		return nil
	}
	isa, err := first.isa()
	if err != nil {
		return err
	}
	kn, err := first.knobs()
	if err != nil {
		return err
	}
	w, jobs, alike := takeTogether(ctx, weights, runs, choose(isa), kn)
	if !alike {
		w.release()
		for i, r := range runs {
			if err := weights[i].Mul(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
	defer w.release()
	for x := w; x != nil; x = x.next {
		x.reserve(jobs)
	}
	w.round()
	par.Run(first.Threads, jobs, (*togetherTask)(w))
	return context.Cause(ctx)
}

// takeTogether takes the works of products that run together, the first of which has the others behind it. It returns how many jobs they have, and whether all
// read the same rounded rows and none needs memory for each worker: that of all at one time would be more than any product is said to take.
func takeTogether(ctx context.Context, weights []*Packed, runs []*Run, k *kernels, kn *knobs) (w *work, jobs int, alike bool) {
	var last *work
	alike = true
	for i, r := range runs {
		x := takeWork()
		x.begin(ctx, weights[i], r, k, kn)
		if w == nil {
			w = x
		} else {
			last.next, x.holder = x, w
		}
		last = x
		alike, jobs = alike && x.perWorker == 0 && x.wanted() == w.wanted(), jobs+x.jobs
	}
	return w, jobs, alike
}

// together reports whether two runs differ in nothing but where their results go.
func (r *Run) together(s *Run) bool {
	return r.M == s.M && (r.M == 0 || unsafe.SliceData(r.A) == unsafe.SliceData(s.A) && r.LDA == s.LDA) && r.Source == s.Source &&
		r.Threads == s.Threads && r.ISA == s.ISA && r.Knobs == s.Knobs
}

// overlap reports whether the results of two products overlap.
func overlap(r *Run, p *Packed, s *Run, q *Packed) bool {
	r0, s0 := uintptr(unsafe.Pointer(&r.C[0])), uintptr(unsafe.Pointer(&s.C[0]))
	return r0 < s0+uintptr((s.M-1)*s.LDC+q.n)*4 && s0 < r0+uintptr((r.M-1)*r.LDC+p.n)*4
}

// togetherTask is the jobs of one product after those of the other.
type togetherTask work

// Do runs one job.
func (t *togetherTask) Do(worker, job int) {
	w := (*work)(t)
	for job >= w.jobs {
		job -= w.jobs
		w = w.next
	}
	(*dotTask)(w).Do(worker, job)
}
