package xdna

import (
	"encoding/binary"
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/quant/bfp16"
	"github.com/tessera-go/tessera/tensor"
)

// jobs runs a function for 0 to n-1 on the host's workers.
type jobs func(worker, job int)

// Do implements par.Task.
func (f jobs) Do(worker, job int) { f(worker, job) }

// convert brings weights into p.data: the array's type, in the design's order.
func (p *packed) convert(b tensor.Tensor) error {
	// b as [N][K], whatever its type; block types are stored along K already, or are decoded first.
	if b.DType.IsBlock() && b.DType != tensor.BFP16 {
		var err error
		if b, err = quant.Decode(b); err != nil {
			return err
		}
	}
	if p.spec.BLayout == matmul.RowMajor {
		if b.DType == tensor.BFP16 {
			return fmt.Errorf("%s: row-major weights of type %v; column-major ones are right, their blocks run along K", p.e.dev.Name, b.DType)
		}
		var err error
		if b, err = b.Transpose(0, 1); err != nil {
			return err
		}
	}
	p.pitch = pitchOfB(p.d, p.k, p.n)
	if p.types.B == kernel.BFP16 {
		return p.convertBFP(b)
	}
	rows := p.k // of p.data
	if p.d.BLayout == design.ColMajor {
		rows = p.n
	}
	p.data = make([]byte, rows*p.pitch)
	if !hostB(p.spec) || b.DType == tensor.BF16 && p.types.B == kernel.BF16 { // in the array's type already
		if p.d.BLayout == design.RowMajor {
			var err error
			if b, err = b.Transpose(0, 1); err != nil {
				return err
			}
		}
		raw := b
		if !b.IsContiguous() {
			raw = b.Clone()
		}
		line := len(raw.Raw()) / rows
		for i := range rows {
			copy(p.data[i*p.pitch:][:line], raw.Raw()[i*line:])
		}
		if p.bfp {
			p.findSpecials(func(col []float32, j int) { p.bf16Column(col, j) })
		}
		return nil
	}
	wide, err := wideRows(b)
	if err != nil {
		return err
	}
	if p.types.B == kernel.BF16 {
		p.store(2, func(out []byte, j int) {
			for i, v := range wide[j*p.k : (j+1)*p.k] {
				binary.LittleEndian.PutUint16(out[2*i:], tensor.F32ToBF16(v))
			}
		})
		if p.bfp {
			p.findSpecials(func(col []float32, j int) { p.bf16Column(col, j) })
		}
		return nil
	}
	p.findSpecials(func(col []float32, j int) { copy(col, wide[j*p.k:]) })
	p.colScale = make([]float32, p.n)
	p.store(1, func(out []byte, j int) {
		quant.Rows(signed(out), p.colScale[j:j+1], wide[j*p.k:(j+1)*p.k], p.k)
	})
	return nil
}

// store makes each column of the weights with f, in bytes along K, and puts it where the design wants it.
func (p *packed) store(size int, f func(out []byte, j int)) {
	if p.d.BLayout == design.ColMajor {
		par.Run(p.e.opt.Threads, p.n, jobs(func(_, j int) { f(p.data[j*p.pitch:][:size*p.k], j) }))
		return
	}
	// Columns in groups, so that two workers do not write to one cache line more often than need be.
	const group = 64
	par.Run(p.e.opt.Threads, (p.n+group-1)/group, jobs(func(_, g int) {
		col := make([]byte, size*p.k)
		for j := g * group; j < min((g+1)*group, p.n); j++ {
			f(col, j)
			for k := range p.k {
				copy(p.data[k*p.pitch+j*size:][:size], col[k*size:])
			}
		}
	}))
}

// wideRows returns a matrix as dense float32.
func wideRows(b tensor.Tensor) ([]float32, error) {
	if b.DType == tensor.F32 && b.IsContiguous() {
		return tensor.Data[float32](b), nil
	}
	dst, err := tensor.NewChecked(tensor.F32, b.Dims[0], b.Dims[1])
	if err != nil {
		return nil, err
	}
	if err := tensor.Copy(dst, b); err != nil {
		return nil, err
	}
	return tensor.Data[float32](dst), nil
}

// convertBFP makes bfp16 blocks along K, [N][K/8][9] with K padded to whole groups.
func (p *packed) convertBFP(b tensor.Tensor) error {
	groups := (p.k + bfp16.Values - 1) / bfp16.Values
	line := groups * bfp16.Bytes
	p.data = make([]byte, p.n*line)
	if b.DType == tensor.BFP16 {
		if !b.IsContiguous() {
			return fmt.Errorf("%s: bfp16 weights of %v with gaps", p.e.dev.Name, b.Spec)
		}
		copy(p.data, b.Raw())
		return nil
	}
	wide, err := wideRows(b)
	if err != nil {
		return err
	}
	p.findSpecials(func(col []float32, j int) { copy(col, wide[j*p.k:]) })
	par.Run(p.e.opt.Threads, p.n, jobs(func(_, j int) {
		row := make([]float32, groups*bfp16.Values)
		copy(row, wide[j*p.k:(j+1)*p.k])
		bfp16.Encode(p.data[j*line:][:line], row, bfp16.Rounding(p.e.opt.Rounding))
	}))
	return nil
}
