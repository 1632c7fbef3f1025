package aie

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu" // for what the array does not take
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/ops"
)

// held returns the bytes that the kernels of a program hold.
func held(p backends.Program) int64 {
	n := 0
	floats := func(lists ...[]float32) {
		for _, v := range lists {
			n += 4 * cap(v)
		}
	}
	numbers := func(x *acts) {
		n += 2*cap(x.i16) + cap(x.hi) + cap(x.lo)
		floats(x.f32, x.scaleRows, x.scale)
	}
	of := func(r *run) {
		if r == nil {
			return
		}
		numbers(&r.x)
		floats(r.quant.line...)
		floats(r.f32, r.finish.cols)
		floats(r.finish.line...)
		n += 4 * (cap(r.s32) + cap(r.parts[0]) + cap(r.parts[1]) + cap(r.parts[2]))
		n += 8 * (cap(r.rowStart) + cap(r.combine.sums) + cap(r.finish.rowC) + cap(r.finish.rowRes))
	}
	for _, k := range p.(*program).kernels {
		switch k := k.(type) {
		case *matmulKernel:
			r, _ := k.space.Data.(*run)
			of(r)
			floats(k.vectors[:]...)
		case *convKernel:
			if k.r.conv == nil { // has not run
				continue
			}
			numbers(&k.pixels)
			r := k.r
			r.x.scale = nil // it is the pixels'
			of(&r)
			floats(k.result)
			floats(k.vectors[:]...)
			n += 8 * cap(k.quant.rows)
		}
	}
	return int64(n)
}

// keeping is a backend that remembers its programs and the constants of their parts.
type keeping struct {
	backends.Backend
	programs  []backends.Program
	constants map[*ops.Constant]bool
}

func (k *keeping) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p, err := k.Backend.Compile(ctx, part)
	if err == nil {
		k.programs = append(k.programs, p)
		for i := range part.Values {
			if c := part.Values[i].Const; c != nil {
				k.constants[c] = true
			}
		}
	}
	return p, err
}

// The bound of a model covers what its runs hold, and is not far above it; the forms of the weights are known before the first run.
func TestWorkspaceOfLanguageModel(t *testing.T) {
	for _, spec := range []string{"threads=1", "threads=2", "precision=int8", "precision=fp32", "mode=emulate,precision=int8,tiles=8"} {
		t.Run(spec, func(t *testing.T) {
			k := &keeping{Backend: openT(t, spec), constants: map[*ops.Constant]bool{}}
			host, err := backends.Open("cpu")
			require.NoError(t, err)
			m, err := llm.Parse(tolstoy.GGUF(), llm.Options{Backends: []backends.Backend{k, host}, Context: 32})
			require.NoError(t, err)
			defer m.Close()
			s, err := m.NewSession()
			require.NoError(t, err)
			prepared := func() (n int) {
				for c := range k.constants {
					n += c.PreparedBytes()
				}
				return n
			}
			before := -1
			for _, rows := range []int{30, 1, 30} {
				ids := make([]int32, rows)
				require.NoError(t, s.Rewind(0))
				require.NoError(t, s.Eval(context.Background(), ids...))
				if before < 0 {
					before = prepared()
				}
			}
			total := int64(0)
			var all backends.Workspace
			for _, p := range k.programs {
				own, limit := held(p), p.(backends.Sized).Workspace()
				require.LessOrEqual(t, own, limit.Own)
				total += own
				all.Add(limit)
			}
			bound := all.Bytes()
			t.Logf("%d programs hold %d bytes, the bound is %d; weights take %d bytes", len(k.programs), total, bound, before)
			require.Positive(t, total)
			require.LessOrEqual(t, bound, 3*total+int64(len(k.programs))<<16)
			require.Positive(t, before)
		})
	}
}
