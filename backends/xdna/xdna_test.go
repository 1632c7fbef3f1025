package xdna

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant/bfp16"
	"github.com/tessera-go/tessera/tensor"
)

// problem is a product with random operands, also as plain values.
type problem struct {
	spec   matmul.Spec
	m      int
	a, b   tensor.Tensor
	va, vb [][]float32 // rows of A and columns of B
	ia, ib [][]int8
}

var specs = []matmul.Spec{
	{A: tensor.I8, B: tensor.I8, C: tensor.I8},
	{A: tensor.I8, B: tensor.I8, C: tensor.I16},
	{A: tensor.I8, B: tensor.I8, C: tensor.I32},
	{A: tensor.BF16, B: tensor.BF16, C: tensor.BF16},
	{A: tensor.BF16, B: tensor.BF16, C: tensor.F32},
	{A: tensor.BF16, B: tensor.BFP16, C: tensor.BF16},
	{A: tensor.BF16, B: tensor.BFP16, C: tensor.F32},
	{A: tensor.BFP16, B: tensor.BFP16, C: tensor.BF16},
}

func randomProblem(rng *rand.Rand, s matmul.Spec, m, n, k int, mode kernel.Rounding) *problem {
	if s.A == tensor.BFP16 || s.B == tensor.BFP16 {
		k = (k + 7) &^ 7
		s.BLayout = matmul.ColMajor
	}
	s.N, s.K = n, k
	p := &problem{spec: s, m: m}
	fill := func(d tensor.DType, rows, cols int) (tensor.Tensor, [][]float32, [][]int8) {
		t := tensor.New(d, rows, cols)
		raw := t.Raw()
		f, q := make([][]float32, rows), make([][]int8, rows)
		for i := range rows {
			f[i], q[i] = make([]float32, cols), make([]int8, cols)
			for j := range cols {
				switch d {
				case tensor.I8:
					q[i][j] = int8(rng.Uint32())
					raw[i*cols+j] = byte(q[i][j])
				default:
					h := tensor.F32ToBF16(float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(6)-3))))
					f[i][j] = tensor.BF16ToF32(h)
					if d == tensor.BF16 {
						raw[2*(i*cols+j)], raw[2*(i*cols+j)+1] = byte(h), byte(h>>8)
					}
				}
			}
			if d == tensor.BFP16 {
				line := raw[i*cols/8*9:][:cols/8*9]
				bfp16.Encode(line, f[i], bfp16.Rounding(mode))
				bfp16.Decode(f[i], line)
			}
		}
		return t, f, q
	}
	p.a, p.va, p.ia = fill(s.A, m, k)
	if s.BLayout == matmul.ColMajor {
		p.b, p.vb, p.ib = fill(s.B, n, k)
		return p
	}
	var vb [][]float32
	var ib [][]int8
	p.b, vb, ib = fill(s.B, k, n)
	p.vb, p.ib = make([][]float32, n), make([][]int8, n)
	for j := range n {
		p.vb[j], p.ib[j] = make([]float32, k), make([]int8, k)
		for i := range k {
			p.vb[j][i], p.ib[j][i] = vb[i][j], ib[i][j]
		}
	}
	return p
}

// run computes the product on a backend.
func (p *problem) run(t testing.TB, b *Backend) tensor.Tensor {
	ctx := context.Background()
	w, err := b.engine.Pack(ctx, p.spec, p.b)
	require.NoError(t, err)
	defer w.Close()
	plan, err := b.engine.Plan(p.spec, matmul.Shape{M: p.m})
	require.NoError(t, err)
	c := tensor.New(p.spec.C, p.m, p.spec.N)
	var ws matmul.Workspace
	require.NoError(t, plan.Run(ctx, w, &matmul.Args{A: p.a, C: c}, &ws))
	return c
}

// element is C(i, j) by the definition.
func (p *problem) element(b *Backend, i, j int) float64 {
	h, err := b.engine.form(p.spec)
	if err != nil {
		panic(err)
	}
	d, err := b.engine.Design(p.spec)
	if err != nil {
		panic(err)
	}
	if p.spec.A == tensor.I8 {
		return float64(kernel.ReferenceInt(p.ia[i], p.ib[j], d.Tile.K, h.types.C, b.opt.Overflow))
	}
	kPad := paddedK(d, p.spec.K)
	x, y := make([]float32, kPad), make([]float32, kPad)
	copy(x, p.va[i])
	copy(y, p.vb[j])
	mode, _ := b.dev.Mode(h.types)
	if mode.Arith == kernel.FMA {
		return float64(kernel.ReferenceFMA(x, y, d.Tile.K, h.types.C, b.opt.Rounding))
	}
	return float64(kernel.ReferenceBFP(x, y, h.types.A, h.types.B, d.Tile.K, h.types.C, b.opt.Rounding))
}

func (p *problem) check(t testing.TB, b *Backend, c tensor.Tensor, rng *rand.Rand, samples int) {
	t.Helper()
	v := c.Floats()
	one := func(i, j int) {
		require.Equal(t, p.element(b, i, j), v[i*p.spec.N+j], "%v M %d (%d,%d)", p.spec, p.m, i, j)
	}
	for range samples {
		one(rng.IntN(p.m), rng.IntN(p.spec.N))
	}
	one(0, 0)
	one(p.m-1, p.spec.N-1)
	one(0, p.spec.N-1)
	one(p.m-1, 0)
}

func open(t testing.TB, dev *device.Device, opt Options) *Backend {
	b, err := New(dev, opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// Both modes give the bits of the definition and so of each other, for every type, layout, rounding and overflow mode.
func TestModesAgree(t *testing.T) {
	for _, dev := range device.All() {
		for _, s := range specs {
			for _, bLayout := range []matmul.Layout{matmul.ColMajor, matmul.RowMajor} {
				for variant := range 2 {
					s := s
					s.BLayout = bLayout
					opt := Options{RowMajorB: bLayout == matmul.RowMajor, Rounding: kernel.Rounding(variant), Overflow: kernel.Overflow(variant)}
					fast := open(t, dev, opt)
					if fast.engine.Supports(s, matmul.Shape{}) != nil || bLayout == matmul.RowMajor && s.B == tensor.BFP16 {
						continue
					}
					opt.Mode = Emulate
					emulate := open(t, dev, opt)
					t.Run(fmt.Sprintf("%s/%v/%v", dev.Name, s, variant), func(t *testing.T) {
						rng := rand.New(rand.NewPCG(uint64(variant), 5))
						n := 1
						if slow {
							n = 6
						}
						for range n {
							p := randomProblem(rng, s, 1+rng.IntN(700), 1+rng.IntN(700), 1+rng.IntN(900), opt.Rounding)
							one, two := p.run(t, emulate), p.run(t, fast)
							require.Equal(t, one.Raw(), two.Raw(), "M %d %v", p.m, p.spec)
							p.check(t, emulate, one, rng, 40)
						}
						require.Equal(t, int64(1), emulate.Stats().Configurations)
						e, f := emulate.Stats(), fast.Stats()
						require.Equal(t, e.ControlWords, f.ControlWords)
						require.Equal(t, e.PaddedMACs, f.PaddedMACs)
						require.Equal(t, e.StagedBytes, f.StagedBytes)
						require.Equal(t, e.Conversions, f.Conversions)
						require.Equal(t, e.Bytes, f.Bytes)
					})
				}
			}
		}
	}
}

func TestOpen(t *testing.T) {
	for spec, want := range map[string]string{
		"xdna:mode=slow":       "one of fast, emulate",
		"xdna:precision=bfp16": "one of bf16, int8",
		"xdna2:color=red":      "unknown option",
		"xdna2:threads=-1":     "a number from 0",

		"xdna2:xclbin=a":                       "no device is given",
		"xdna:manifest=a":                      "no device is given",
		"xdna2:device=/dev/null,mode=emulate":  "the chip computes, or the emulator",
		"xdna2:device=/dev/null,rounding=even": "as the manifest",
		"xdna:precision=int8,output=f32":       "whatever the output",
		"xdna2:precision=bfp16,layout=row":     "tiled on the host",
		"xdna:rows=3,rows=4":                   "given twice",
	} {
		_, err := backends.Open(spec)
		require.ErrorContains(t, err, want, spec)
	}
	b, err := backends.Open("xdna2:mode=emulate,precision=bfp16,rounding=floor,schedule=pingpong,padding=memtile,overflow=saturate,output=f32,rows=7,cpu_gops=9")
	require.NoError(t, err)
	require.True(t, b.Describe().Simulated)
	require.NoError(t, b.Close())
}
