package onnx_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// bytesOf fills a tensor of bytes, signed or not, with all values.
func bytesOf(r *rand.Rand, d tensor.DType, dims ...int) tensor.Tensor {
	t := tensor.New(d, dims...)
	for i := range t.Raw() {
		t.Raw()[i] = byte(r.Uint32())
	}
	return t
}

// integerMatMul is the definition, for A of [batch, M, K] and B of [batch or 1, K, N], with zero points by row and column.
func integerMatMul(a, b []int64, batch, bBatch, m, k, n int, za, zb func(batch, i int) int64) []int64 {
	out := make([]int64, 0, batch*m*n)
	for p := range batch {
		for i := range m {
			for j := range n {
				sum := int64(0)
				for l := range k {
					sum += (a[(p*m+i)*k+l] - za(p, i)) * (b[(p%bBatch*k+l)*n+j] - zb(p, j))
				}
				out = append(out, sum)
			}
		}
	}
	return out
}

// runNode runs a model of one node: inputs by name, of which those named in fixed are constants of the file.
func runNode(t *testing.T, bs []backends.Backend, opset int, node *onnx.Node, in map[string]tensor.Tensor, fixed map[string]bool) map[string]onnx.Value {
	t.Helper()
	g := &onnx.Graph{Nodes: []*onnx.Node{node}}
	feed := map[string]onnx.Value{}
	for _, name := range node.In {
		x, ok := in[name]
		switch {
		case !ok:
		case fixed[name]:
			g.Inits = append(g.Inits, onnx.NewTensor(name, x))
		default:
			g.Inputs = append(g.Inputs, onnx.Info(name, onnx.NewTensor("", x).Elem, x.Shape()...))
			feed[name] = onnx.Of(x)
		}
	}
	for _, name := range node.Out {
		g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name})
	}
	m, err := onnx.NewModel(opset, g)
	require.NoError(t, err)
	s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: bs})
	require.NoError(t, err)
	defer s.Close()
	out, err := s.Run(context.Background(), feed)
	require.NoError(t, err)
	for name, v := range out { // the session ends here
		v.Tensor = v.Tensor.Clone()
		out[name] = v
	}
	return out
}

// Every pair of types, zero points of every form, vectors and batches, weights in the file and not: equal to the definition.
func TestMatMulInteger(t *testing.T) {
	bs, r := cpu(t), rand.New(rand.NewPCG(5, 6))
	type shape struct{ a, b []int }
	for _, sh := range []shape{{[]int{3, 7}, []int{7, 5}}, {[]int{33, 64}, []int{64, 48}}, {[]int{2, 3, 7}, []int{7, 5}}, {[]int{2, 3, 7}, []int{2, 7, 5}},
		{[]int{7}, []int{7, 5}}, {[]int{3, 7}, []int{7}}, {[]int{7}, []int{7}}, {[]int{2, 3, 7}, []int{7}}} {
		for _, types := range [][2]tensor.DType{{tensor.U8, tensor.I8}, {tensor.U8, tensor.U8}, {tensor.I8, tensor.I8}, {tensor.I8, tensor.U8}} {
			for _, zeros := range []string{"none", "scalar", "vector"} {
				for _, fixed := range []bool{true, false} {
					a, b := bytesOf(r, types[0], sh.a...), bytesOf(r, types[1], sh.b...)
					k := sh.a[len(sh.a)-1]
					batch, bBatch, m, n := 1, 1, 1, 1
					if len(sh.a) > 1 {
						m = sh.a[len(sh.a)-2]
					}
					if len(sh.a) == 3 {
						batch = sh.a[0]
					}
					if len(sh.b) > 1 {
						n = sh.b[len(sh.b)-1]
					}
					if len(sh.b) == 3 {
						bBatch = sh.b[0]
					}
					in := map[string]tensor.Tensor{"a": a, "b": b}
					node := &onnx.Node{Op: "MatMulInteger", In: []string{"a", "b"}, Out: []string{"y"}}
					za, zb := func(int, int) int64 { return 0 }, func(int, int) int64 { return 0 }
					switch {
					case zeros == "scalar":
						in["za"], in["zb"] = bytesOf(r, types[0]), bytesOf(r, types[1])
						za, zb = func(int, int) int64 { x := in["za"]; return x.Ints()[0] }, func(int, int) int64 { x := in["zb"]; return x.Ints()[0] }
					case zeros == "vector" && len(sh.a) == 2 && len(sh.b) == 2: // one a row, one a column
						in["za"], in["zb"] = bytesOf(r, types[0], m), bytesOf(r, types[1], n)
						za, zb = func(_, i int) int64 { x := in["za"]; return x.Ints()[i] }, func(_, j int) int64 { x := in["zb"]; return x.Ints()[j] }
					case zeros == "vector" && len(sh.a) == 3 && len(sh.b) == 3:
						in["za"], in["zb"] = bytesOf(r, types[0], batch, m, 1), bytesOf(r, types[1], batch, 1, n)
						za, zb = func(p, i int) int64 { x := in["za"]; return x.Ints()[p*m+i] }, func(p, j int) int64 { x := in["zb"]; return x.Ints()[p*n+j] }
					}
					if zeros != "none" && in["za"].DType != tensor.Invalid {
						node.In = append(node.In, "za", "zb")
					}
					out := runNode(t, bs, 13, node, in, map[string]bool{"b": fixed, "za": fixed, "zb": fixed})
					got := out["y"].Tensor
					want := integerMatMul(a.Ints(), b.Ints(), batch, bBatch, m, k, n, za, zb)
					require.Equal(t, want, got.Ints(), "%v %v %s fixed %t", sh, types, zeros, fixed)
				}
			}
		}
	}
}

// QLinearMatMul gives the nearest number of the output's scale, ties to even, saturated.
func TestQLinearMatMul(t *testing.T) {
	bs, r := cpu(t), rand.New(rand.NewPCG(7, 8))
	for _, types := range [][3]tensor.DType{{tensor.U8, tensor.I8, tensor.U8}, {tensor.U8, tensor.U8, tensor.U8}, {tensor.I8, tensor.I8, tensor.I8}, {tensor.I8, tensor.U8, tensor.U8}} {
		for _, perColumn := range []bool{false, true} {
			for _, fixed := range []bool{true, false} {
				const m, k, n = 17, 50, 33
				in := map[string]tensor.Tensor{"a": bytesOf(r, types[0], m, k), "as": tensor.Of([]float32{0.02}), "az": bytesOf(r, types[0]),
					"b": bytesOf(r, types[1], k, n), "bs": tensor.Of([]float32{0.01}), "bz": bytesOf(r, types[1]), "ys": tensor.Of([]float32{0.5}), "yz": bytesOf(r, types[2])}
				if perColumn {
					s := make([]float32, n)
					for i := range s {
						s[i] = 0.005 + r.Float32()/64
					}
					in["bs"], in["bz"] = tensor.Of(s, n), bytesOf(r, types[1], n)
				}
				out := runNode(t, bs, 13, &onnx.Node{Op: "QLinearMatMul", In: []string{"a", "as", "az", "b", "bs", "bz", "ys", "yz"}, Out: []string{"y"}}, in,
					map[string]bool{"as": fixed, "az": fixed, "b": fixed, "bs": fixed, "bz": fixed, "ys": fixed, "yz": fixed})
				a, b, az, bz, bs, yz := in["a"], in["b"], in["az"], in["bz"], in["bs"], in["yz"]
				pick := func(v []int64, i int) int64 { return v[i%len(v)] }
				sums := integerMatMul(a.Ints(), b.Ints(), 1, 1, m, k, n, func(int, int) int64 { return az.Ints()[0] }, func(_, j int) int64 { return pick(bz.Ints(), j) })
				lo, hi := 0.0, 255.0
				if types[2] == tensor.I8 {
					lo, hi = -128, 127
				}
				got := out["y"].Tensor
				require.Equal(t, types[2], got.DType)
				scales := bs.Floats()
				for i, v := range got.Floats() {
					exact := float64(sums[i]) * 0.02 * scales[i%n%len(scales)] / 0.5
					want := min(max(math.RoundToEven(exact)+float64(yz.Ints()[0]), lo), hi)
					// Where f32 cannot tell on which side of a tie the exact number lies, both neighbours are right.
					if tie := math.Abs(exact-math.Floor(exact)-0.5) < 1e-4*max(1, math.Abs(exact)); !tie || math.Abs(v-want) > 1 {
						require.Equal(t, want, v, "%v perColumn %t fixed %t element %d: %g", types, perColumn, fixed, i, exact)
					}
				}
			}
		}
	}
}

func BenchmarkMatMulInteger(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, types := range [][2]tensor.DType{{tensor.U8, tensor.I8}, {tensor.U8, tensor.U8}} {
		b.Run(fmt.Sprint(types), func(b *testing.B) {
			const m, k, n = 128, 768, 768
			node := &onnx.Node{Op: "MatMulInteger", In: []string{"a", "b", "za", "zb"}, Out: []string{"y"}}
			g := &onnx.Graph{Nodes: []*onnx.Node{node}, Inputs: []onnx.ValueInfo{onnx.Info("a", onnx.Uint8, m, k), onnx.Info("za", onnx.Uint8)},
				Outputs: []onnx.ValueInfo{{Name: "y"}}}
			zero := tensor.New(types[1])
			if types[1] == tensor.U8 {
				zero.SetFloats([]float64{128})
			}
			g.Inits = append(g.Inits, onnx.NewTensor("b", bytesOf(r, types[1], k, n)), onnx.NewTensor("zb", zero))
			model, err := onnx.NewModel(13, g)
			require.NoError(b, err)
			s, err := onnx.NewSession(context.Background(), model, onnx.Options{Backends: cpu(b)})
			require.NoError(b, err)
			defer s.Close()
			in := map[string]onnx.Value{"a": onnx.Of(bytesOf(r, tensor.U8, m, k)), "za": onnx.Of(tensor.Of([]uint8{7}))}
			for b.Loop() {
				_, err := s.Run(context.Background(), in)
				require.NoError(b, err)
			}
			b.ReportMetric(2*m*k*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
		})
	}
}

// Integer convolutions with zero points of every form, known and not, against the definition.
func TestConvInteger(t *testing.T) {
	bs, r := cpu(t), rand.New(rand.NewPCG(9, 10))
	const n, h, w, k = 2, 6, 7, 3
	for _, groups := range []int{1, 2, 4} {
		for _, types := range [][2]tensor.DType{{tensor.U8, tensor.I8}, {tensor.U8, tensor.U8}, {tensor.I8, tensor.I8}} {
			for _, zeros := range []string{"none", "scalar", "channels"} {
				for fixed := range 4 { // bit 0: weights and their zero points are in the file; bit 1: the image's zero point is
					channels, filters := 4, 8
					per := channels / groups
					in := map[string]tensor.Tensor{"x": bytesOf(r, types[0], n, channels, h, w), "w": bytesOf(r, types[1], filters, per, k, k)}
					node := &onnx.Node{Op: "ConvInteger", In: []string{"x", "w"}, Out: []string{"y"},
						Attrs: []onnx.Attr{onnx.IntAttr("group", int64(groups)), onnx.IntsAttr("pads", 1, 0, 1, 2), onnx.IntsAttr("strides", 2, 1)}}
					xz, wz := int64(0), make([]int64, filters)
					if zeros != "none" {
						in["xz"], in["wz"] = bytesOf(r, types[0]), bytesOf(r, types[1])
						if zeros == "channels" {
							in["wz"] = bytesOf(r, types[1], filters)
						}
						node.In = append(node.In, "xz", "wz")
						x, v := in["xz"], in["wz"]
						xz = x.Ints()[0]
						for i := range wz {
							wz[i] = v.Ints()[i%v.Elems()]
						}
					}
					file := map[string]bool{"w": fixed&1 == 1, "wz": fixed&1 == 1, "xz": fixed&2 == 2}
					got := runNode(t, bs, 13, node, in, file)["y"].Tensor
					x, f := in["x"], in["w"]
					xv, fv := x.Ints(), f.Ints()
					oh, ow := (h+2-k)/2+1, w+2-k+1
					require.Equal(t, []int{n, filters, oh, ow}, got.Shape())
					var want []int64
					for b := range n {
						for m := range filters {
							for y := range oh {
								for z := range ow {
									sum := int64(0)
									for c := range per {
										for i := range k {
											for j := range k {
												p, q := y*2+i-1, z+j
												if p < 0 || p >= h || q < 0 || q >= w {
													continue
												}
												at := ((b*channels+m/(filters/groups)*per+c)*h+p)*w + q
												sum += (xv[at] - xz) * (fv[((m*per+c)*k+i)*k+j] - wz[m])
											}
										}
									}
									want = append(want, sum)
								}
							}
						}
					}
					require.Equal(t, want, got.Ints(), "groups %d %v %s fixed %b", groups, types, zeros, fixed)
				}
			}
		}
	}
}

// dynamicLayer is a linear layer as dynamic quantization writes it.
func dynamicLayer(r *rand.Rand, m, k, n int) *onnx.Graph {
	scale, bias := tensor.New(tensor.F32, n), tensor.New(tensor.F32, n)
	for i := range n {
		tensor.Data[float32](scale)[i], tensor.Data[float32](bias)[i] = 0.001+r.Float32()/1000, r.Float32()
	}
	node := func(op string, out []string, in ...string) *onnx.Node {
		return &onnx.Node{Name: out[0], Op: op, In: in, Out: out}
	}
	cast := node("Cast", []string{"real"}, "acc")
	cast.Attrs = []onnx.Attr{onnx.IntAttr("to", int64(onnx.Float))}
	return &onnx.Graph{Inputs: []onnx.ValueInfo{onnx.Info("x", onnx.Float, m, k)},
		Inits: []*onnx.Tensor{onnx.NewTensor("w", bytesOf(r, tensor.I8, k, n)), onnx.NewTensor("ws", scale), onnx.NewTensor("wz", tensor.New(tensor.I8)), onnx.NewTensor("b", bias)},
		Nodes: []*onnx.Node{node("DynamicQuantizeLinear", []string{"q", "s", "z"}, "x"), node("MatMulInteger", []string{"acc"}, "q", "w", "z", "wz"), cast,
			node("Mul", []string{"both"}, "s", "ws"), node("Mul", []string{"scaled"}, "real", "both"), node("Add", []string{"y"}, "scaled", "b")},
		Outputs: []onnx.ValueInfo{{Name: "y"}}}
}

// A dynamically quantized layer runs as a graph, and is near the layer in floats.
func TestDynamicLayer(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	const m, k, n = 9, 40, 24
	g := dynamicLayer(r, m, k, n)
	model, err := onnx.NewModel(13, g)
	require.NoError(t, err)
	s, err := onnx.NewSession(context.Background(), model, onnx.Options{Backends: cpu(t)})
	require.NoError(t, err)
	defer s.Close()
	for _, spread := range []float32{1, 30, 0} { // the last: nothing but zeros
		x := tensor.New(tensor.F32, m, k)
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = spread * float32(r.NormFloat64())
		}
		out, err := s.Run(context.Background(), map[string]onnx.Value{"x": onnx.Of(x)})
		require.NoError(t, err)
		require.Empty(t, s.Eager())
		y := out["y"].Tensor
		w, scales, bias := g.Init("w").Data, g.Init("ws").Data, g.Init("b").Data
		xv, wv, sv, bv, got := x.Floats(), w.Floats(), scales.Floats(), bias.Floats(), y.Floats()
		lo, hi := 0.0, 0.0
		for _, v := range xv {
			lo, hi = min(lo, v), max(hi, v)
		}
		for i := range m {
			for j := range n {
				sum, weights := 0.0, 0.0
				for l := range k {
					sum += xv[i*k+l] * wv[l*n+j]
					weights += math.Abs(wv[l*n+j])
				}
				// Each number is off by half a step at most, and the zero point by another half.
				require.InDelta(t, sum*sv[j]+bv[j], got[i*n+j], (hi-lo)/255*weights*sv[j]+1e-5)
			}
		}
	}
}

func BenchmarkDynamicLayer(b *testing.B) {
	const m, k, n = 128, 768, 768
	model, err := onnx.NewModel(13, dynamicLayer(rand.New(rand.NewPCG(1, 1)), m, k, n))
	require.NoError(b, err)
	s, err := onnx.NewSession(context.Background(), model, onnx.Options{Backends: cpu(b)})
	require.NoError(b, err)
	defer s.Close()
	x := tensor.New(tensor.F32, m, k)
	r := rand.New(rand.NewPCG(2, 2))
	for i := range tensor.Data[float32](x) {
		tensor.Data[float32](x)[i] = float32(r.NormFloat64())
	}
	for b.Loop() {
		_, err := s.Run(context.Background(), map[string]onnx.Value{"x": onnx.Of(x)})
		require.NoError(b, err)
	}
	b.ReportMetric(2*m*k*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
}
