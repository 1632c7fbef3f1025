package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// products holds, by number format, what makes a product ready to run.
var products = func() map[string]func(s cli.Size, threads int, packed bool) (*product, error) {
	all := map[string]func(cli.Size, int, bool) (*product, error){
		"f32":     func(s cli.Size, t int, p bool) (*product, error) { return floatProduct(s, t, p, gemm.F32) },
		"bf16":    func(s cli.Size, t int, p bool) (*product, error) { return floatProduct(s, t, p, gemm.BF16) },
		"f16":     func(s cli.Size, t int, p bool) (*product, error) { return floatProduct(s, t, p, gemm.F16) },
		"s8s8s32": func(s cli.Size, t int, p bool) (*product, error) { return intProduct[int8](s, t, p, nil) },
		"u8s8s32": func(s cli.Size, t int, p bool) (*product, error) { return intProduct[uint8](s, t, p, nil) },
		"s8s8s8": func(s cli.Size, t int, p bool) (*product, error) {
			return intProduct[int8](s, t, p, &gemm.Epilogue{OutScale: 64})
		},
	}
	for _, d := range tensor.DTypes() {
		if qgemm.Supports(d) && quant.CanEncode(d) {
			all[d.String()] = func(s cli.Size, t int, _ bool) (*product, error) { return blockProduct(s, t, d) }
		}
	}
	return all
}()

// productNames are what the number formats are called elsewhere: by the other sub-commands, and by other programs.
var productNames = map[string]string{
	"int8": "s8s8s32", "i8": "s8s8s32", "s8": "s8s8s32", "fp32": "f32", "float32": "f32", "fp16": "f16", "float16": "f16", "bfloat16": "bf16",
}

func productTypes() []string { return slices.Sorted(maps.Keys(products)) }

func bytesOf(h []uint16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(h))), 2*len(h))
}

func uniform(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rng.Float32()*2 - 1
	}
	return x
}

// floatProduct multiplies f32 by f32, f16 by f16 weights, or bf16 by bf16.
func floatProduct(s cli.Size, threads int, packed bool, t gemm.Type) (*product, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	fa, fb := uniform(rng, s.M*s.K), uniform(rng, s.K*s.N)
	a, b := gemm.Of(fa, s.M, s.K), gemm.Of(fb, s.K, s.N)
	half := func(x []float32, to func([]uint16, []float32)) []uint16 {
		h := make([]uint16, len(x))
		to(h, x)
		return h
	}
	switch t {
	case gemm.BF16:
		a = gemm.Raw(t, bytesOf(half(fa, tensor.F32sToBF16)), s.M, s.K, s.K, 1)
		b = gemm.Raw(t, bytesOf(half(fb, tensor.F32sToBF16)), s.K, s.N, s.N, 1)
	case gemm.F16:
		b = gemm.Raw(t, bytesOf(half(fb, tensor.F32sToF16)), s.K, s.N, s.N, 1)
	}
	c := gemm.Of(make([]float32, s.M*s.N), s.M, s.N)
	return ready(c, a, b, t, threads, packed, nil)
}

func intProduct[A int8 | uint8](s cli.Size, threads int, packed bool, e *gemm.Epilogue) (*product, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	a, b := make([]A, s.M*s.K), make([]int8, s.K*s.N)
	for i := range a {
		a[i] = A(rng.Uint32())
	}
	for i := range b {
		b[i] = int8(rng.Uint32())
	}
	c := gemm.Of(make([]int32, s.M*s.N), s.M, s.N)
	if e != nil {
		c = gemm.Of(make([]int8, s.M*s.N), s.M, s.N)
	}
	return ready(c, gemm.Of(a, s.M, s.K), gemm.Of(b, s.K, s.N), gemm.S8, threads, packed, e)
}

func ready(c, a, b gemm.Matrix, t gemm.Type, threads int, packed bool, e *gemm.Epilogue) (*product, error) {
	o := &gemm.Options{Threads: threads, Epilogue: e}
	p := &product{
		run:    func() error { return gemm.Mul(c, a, b, o) },
		kernel: "gemm",
		peak:   func() float64 { return gemm.Peak(t, threads, nil) },
		close:  func() {},
	}
	if packed {
		pb, err := gemm.PackB(b, o)
		if err != nil {
			return nil, err
		}
		p.run = func() error { return gemm.MulPacked(c, a, pb, o) }
		p.close = func() { _ = pb.Close() }
	}
	return p, nil
}

// blockProduct multiplies f32 activations by weights in a block format.
func blockProduct(s cli.Size, threads int, d tensor.DType) (*product, error) {
	if s.K%d.Block() != 0 {
		return nil, cli.Usagef("--size %v: K must be a multiple of %d for %v", s, d.Block(), d)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	row := s.K / d.Block() * d.Size()
	data := make([]byte, s.N*row)
	for i := 0; i < s.N; i++ {
		if i >= 64 { // encoding is slow, and speed does not depend on the values
			copy(data[i*row:][:row], data[(i-64)*row:])
			continue
		}
		if err := quant.EncodeRow(d, data[i*row:][:row], uniform(rng, s.K)); err != nil {
			return nil, err
		}
	}
	w, err := qgemm.Pack(d, data, row, s.N, s.K, &qgemm.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	run := &qgemm.Run{A: uniform(rng, s.M*s.K), LDA: s.K, C: make([]float32, s.M*s.N), LDC: s.N, M: s.M, Threads: threads}
	return &product{
		run:    func() error { return w.Mul(context.Background(), run) },
		kernel: "qgemm " + d.String(),
		peak:   func() float64 { return gemm.Peak(gemm.S8, threads, nil) },
		close:  func() { _ = w.Close() },
	}, nil
}
