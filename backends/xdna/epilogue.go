package xdna

import (
	"errors"
	"fmt"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
)

// finishRows is the rows of one job that finishes results.
const finishRows = 8

// read gives row i of the raw result as float32.
func (s *space) read(dst []float32, i int) {
	n := s.p.spec.N
	switch s.from {
	case fromNothing:
		clear(dst)
	case fromArray:
		readFloats(dst, rawType(s.p.how.types.C), s.raw[i*s.p.pitchC:])
	case fromInts:
		for j, v := range s.fast.ints[i*n : (i+1)*n] {
			dst[j] = float32(v)
		}
	case fromFloats:
		copy(dst, s.fast.c[i*s.fast.ld:])
	}
}

// finish reads raw rows, applies scales and the epilogue, and stores C.
func (p *mmPlan) finish(s *space, from source) error {
	n := p.spec.N
	ep, args := &p.spec.Epilogue, s.args
	s.from = from
	if ep.Residual != matmul.NoResidual {
		t := args.Residual
		var ok bool
		if s.residual, ok = rowsOf(&t, p.rows, n); !ok {
			t = t.Clone()
			if s.residual, ok = rowsOf(&t, p.rows, n); !ok {
				return fmt.Errorf("%s: residual is %v, rows of N = %d are right", p.e.dev.Name, args.Residual.Spec, n)
			}
		}
	}
	check := func(name string, use bool, have []float32, want int) error {
		if use && len(have) != want {
			return fmt.Errorf("%s: %d %s, %d are right", p.e.dev.Name, len(have), name, want)
		}
		return nil
	}
	if err := errors.Join(check("row scales", ep.RowScale, args.RowScale, p.rows), check("column scales", ep.ColScale, args.ColScale, n),
		check("biases", ep.Bias, args.Bias, n)); err != nil {
		return err
	}
	jobs := (p.rows + finishRows - 1) / finishRows
	s.scratch(par.Workers(p.e.opt.Threads, jobs), 2*n)
	s.region(p, doFinish, jobs)
	return nil
}

// finishRows does a job's rows.
func (s *space) finishRows(worker, job int) {
	p, n := s.p, s.p.spec.N
	ep := p.spec.Epilogue
	act, known := activation(ep.Act)
	scaled := hostB(p.spec) && p.how.types.A == kernel.I8 && p.run != nil
	x, r := s.lines[worker][:n], s.lines[worker][n:2*n]
	for i := job * finishRows; i < min((job+1)*finishRows, p.rows); i++ {
		s.read(x, i)
		if scaled {
			f := s.rowScale[i]
			for j, v := range s.w.colScale {
				x[j] = x[j] * f * v
			}
		}
		s.putSpecials(x, i)
		if ep.RowScale {
			f := s.args.RowScale[i]
			for j := range x {
				x[j] *= f
			}
		}
		if ep.ColScale {
			for j, f := range s.args.ColScale {
				x[j] *= f
			}
		}
		if ep.Bias {
			for j, f := range s.args.Bias {
				x[j] += f
			}
		}
		if ep.Residual != matmul.NoResidual {
			readFloats(r, s.residual.typ, s.residual.data[i*s.residual.pitch:])
		}
		if ep.Residual == matmul.ResidualBefore {
			for j, f := range r {
				x[j] += f
			}
		}
		if known {
			_ = gemm.Activate(act, x, ep.Act.P, ep.Act.Q)
		} else {
			for j, v := range x {
				x[j] = float32(ep.Act.Apply(float64(v)))
			}
		}
		if ep.Residual == matmul.ResidualAfter {
			for j, f := range r {
				x[j] += f
			}
		}
		storeRow(s.to.data[i*s.to.pitch:], s.to.typ, x, ep)
	}
}

// activation is an activation as the CPU engine knows it; false if it does not.
func activation(a ops.Act) (gemm.Activation, bool) {
	switch a.Kind {
	case ops.NoActivation:
		return gemm.None, true
	case ops.ReLU:
		return gemm.ReLU, true
	case ops.GELU:
		return gemm.GELU, true
	case ops.GELUTanh:
		return gemm.GELUTanh, true
	case ops.QuickGELU:
		return gemm.QuickGELU, true
	case ops.SiLU:
		return gemm.SiLU, true
	case ops.Tanh:
		return gemm.Tanh, true
	case ops.Sigmoid:
		return gemm.Sigmoid, true
	}
	return 0, false
}
