package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tessera-go/tessera/quant/bfp16"
)

// job is a record with random operands in plain matrices.
type job struct {
	r      Record
	chunks int
	a, b   [][]float32 // a[i][k], b[j][k]: exact values of the operands (integers, bf16, or what a bfp16 block holds)

	rawA, rawB [][]byte // bfp16 operands as blocks
}

func widen(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func randomJob(rng *rand.Rand, r Record, scale func() float64) *job {
	j := &job{r: r, chunks: 1 + rng.IntN(3)}
	fill := func(n int, typ Type) (out [][]float32, blocks [][]byte) {
		out, blocks = make([][]float32, n), make([][]byte, n)
		for i := range out {
			out[i] = make([]float32, j.chunks*r.K)
			for p := range out[i] {
				switch typ {
				case I8:
					out[i][p] = float32(int8(rng.Uint32()))
				default:
					out[i][p] = widen(uint16(math.Float32bits(float32(rng.NormFloat64()*scale())) >> 16))
				}
			}
			if typ == BFP16 {
				raw := make([]byte, bfp16.Size(len(out[i])))
				bfp16.Encode(raw, out[i], bfp16.Rounding(r.Rounding))
				bfp16.Decode(out[i], raw)
				blocks[i] = raw
			}
		}
		return out, blocks
	}
	j.a, j.rawA = fill(r.M, r.AType)
	j.b, j.rawB = fill(r.N, r.BType)
	return j
}

// blocked lays a chunk of an operand out by walking the blocks as the package doc says, independently of the index functions.
func (j *job) blockedA(chunk, band int) []byte {
	r := j.r
	var out []byte
	rows := r.M / r.Bands
	for i := band * rows; i < (band+1)*rows; i += r.R {
		for p := 0; p < r.K; p += r.S {
			for ii := range r.R {
				out = appendRun(out, j.a[i+ii], j.rawA[i+ii], chunk*r.K+p, r.S, r.AType)
			}
		}
	}
	return out
}

func (j *job) blockedB(chunk int) []byte {
	r := j.r
	var out []byte
	if r.BTransposed {
		for n := 0; n < r.N; n += r.T {
			for p := 0; p < r.K; p += r.S {
				for nn := range r.T {
					out = appendRun(out, j.b[n+nn], j.rawB[n+nn], chunk*r.K+p, r.S, r.BType)
				}
			}
		}
		return out
	}
	run := make([]float32, r.T)
	for p := 0; p < r.K; p += r.S {
		for n := 0; n < r.N; n += r.T {
			for pp := range r.S {
				for nn := range run {
					run[nn] = j.b[n+nn][chunk*r.K+p+pp]
				}
				out = appendRun(out, run, nil, 0, r.T, r.BType)
			}
		}
	}
	return out
}

func appendRun(out []byte, v []float32, raw []byte, at, n int, typ Type) []byte {
	if typ == BFP16 {
		return append(out, raw[at/8*9:(at+n)/8*9]...)
	}
	for _, x := range v[at : at+n] {
		switch typ {
		case I8:
			out = append(out, byte(int8(x)))
		case BF16:
			out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(x)>>16))
		}
	}
	return out
}

func (j *job) run() []byte {
	t := NewTile(&j.r)
	t.Zero()
	for chunk := range j.chunks {
		t.LoadB(j.blockedB(chunk))
		for band := range j.r.Bands {
			t.Band(band, j.blockedA(chunk, band))
		}
	}
	c := make([]byte, j.r.CBytes())
	t.Store(c)
	return c
}

// element is the value of C(i, n) by the definition.
func (j *job) element(i, n int) float32 {
	r := j.r
	switch r.Arith {
	case Int:
		a, b := make([]int8, len(j.a[i])), make([]int8, len(j.a[i]))
		for p := range a {
			a[p], b[p] = int8(j.a[i][p]), int8(j.b[n][p])
		}
		return float32(ReferenceInt(a, b, r.K, r.CType, r.Overflow))
	case FMA:
		return ReferenceFMA(j.a[i], j.b[n], r.K, r.CType, r.Rounding)
	}
	return ReferenceBFP(j.a[i], j.b[n], r.AType, r.BType, r.K, r.CType, r.Rounding)
}

// at reads C(i, n) by walking the blocks.
func (j *job) at(c []byte, i, n int) float32 {
	r := j.r
	index := (i/r.R*(r.N/r.T)+n/r.T)*r.R*r.T + i%r.R*r.T + n%r.T
	switch r.CType {
	case I8:
		return float32(int8(c[index]))
	case I16:
		return float32(int16(binary.LittleEndian.Uint16(c[2*index:])))
	case I32:
		return float32(int32(binary.LittleEndian.Uint32(c[4*index:])))
	case BF16:
		return widen(binary.LittleEndian.Uint16(c[2*index:]))
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(c[4*index:]))
}

func same(a, b float32) bool {
	return a != a && b != b || math.Float32bits(a) == math.Float32bits(b)
}

func (j *job) check(t *testing.T) {
	t.Helper()
	c := j.run()
	for i := range j.r.M {
		for n := range j.r.N {
			want, got := j.element(i, n), j.at(c, i, n)
			require.True(t, same(want, got), "%+v (%d,%d): want %v (%x) got %v (%x)", j.r, i, n, want, math.Float32bits(want), got, math.Float32bits(got))
		}
	}
}

func kinds() []Record {
	var out []Record
	for _, c := range []Type{I8, I16, I32} {
		for _, o := range []Overflow{Wrap, Saturate} {
			for _, tr := range []bool{false, true} {
				for _, rr := range []int{4, 8} {
					out = append(out, Record{AType: I8, BType: I8, CType: c, Arith: Int, R: rr, S: 8, T: 8, Overflow: o, BTransposed: tr})
				}
			}
		}
	}
	out = append(out, Record{AType: I8, BType: I8, CType: I16, Arith: Int, R: 4, S: 4, T: 4, BTransposed: true})
	for _, c := range []Type{BF16, F32} {
		for _, rounding := range []Rounding{NearestEven, Floor} {
			for _, tr := range []bool{false, true} {
				out = append(out, Record{AType: BF16, BType: BF16, CType: c, Arith: FMA, R: 4, S: 8, T: 4, Rounding: rounding, BTransposed: tr})
				out = append(out, Record{AType: BF16, BType: BF16, CType: c, Arith: BFP, R: 8, S: 8, T: 8, Rounding: rounding, BTransposed: tr})
			}
			out = append(out, Record{AType: BF16, BType: BFP16, CType: c, Arith: BFP, R: 8, S: 8, T: 8, Rounding: rounding, BTransposed: true})
			out = append(out, Record{AType: BFP16, BType: BFP16, CType: c, Arith: BFP, R: 8, S: 8, T: 8, Rounding: rounding, BTransposed: true})
		}
	}
	return out
}

func name(r Record) string {
	return fmt.Sprintf("%v-%v-%v/%v/%v/%v/transposed=%v/%d", r.AType, r.BType, r.CType, r.Arith, r.Rounding, r.Overflow, r.BTransposed, r.R)
}

func TestTileAgainstReference(t *testing.T) {
	for n, kind := range kinds() {
		t.Run(name(kind), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(n), 7))
			for range 8 {
				r := kind
				r.Bands = 1 + rng.IntN(3)
				r.M = r.R * r.Bands * (1 + rng.IntN(4))
				r.K = r.S * (1 + rng.IntN(5))
				r.N = r.T * (1 + rng.IntN(14))
				randomJob(rng, r, func() float64 { return math.Exp2(float64(rng.IntN(12) - 6)) }).check(t)
			}
		})
	}
}

// Values near the ends of float32's range take the slow path of bfp16 and overflow or vanish as the definition says.
func TestTileExtremes(t *testing.T) {
	for n, kind := range kinds() {
		if kind.Arith == Int {
			continue
		}
		t.Run(name(kind), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(n), 8))
			for _, exp := range []int{-130, -70, -60, 60, 70, 120} {
				r := kind
				r.Bands, r.M, r.K, r.N = 1, r.R, 2*r.S, 2*r.T
				randomJob(rng, r, func() float64 { return math.Exp2(float64(exp + rng.IntN(9) - 4)) }).check(t)
			}
		})
	}
}

func TestTileNonFinite(t *testing.T) {
	for n, kind := range kinds() {
		if kind.Arith == Int {
			continue
		}
		t.Run(name(kind), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(n), 9))
			r := kind
			r.Bands, r.M, r.K, r.N = 1, r.R, 2*r.S, 2*r.T
			j := randomJob(rng, r, func() float64 { return 1 })
			inf := float32(math.Inf(1))
			set := func(m [][]float32, raw [][]byte, i, p int, v float32, typ Type) {
				m[i][p] = v
				if typ == BFP16 {
					raw[i][p/8*9] = 255
					for q := p &^ 7; q < p&^7+8; q++ {
						m[i][q] = float32(math.NaN()) // a block with a non-finite value holds nothing else
					}
				}
			}
			set(j.a, j.rawA, 1, 3, inf, r.AType)
			set(j.a, j.rawA, 2, 9, float32(math.NaN()), r.AType)
			set(j.b, j.rawB, 2, 5, -inf, r.BType)
			if r.BType != BFP16 {
				j.b[0][3] = 0 // infinity times zero
			}
			j.check(t)
			c := j.run()
			for i := range r.M {
				for n := range r.N {
					v := float64(j.at(c, i, n))
					require.Equal(t, i == 1 || i == 2 || n == 2, math.IsNaN(v) || math.IsInf(v, 0), "(%d,%d) = %v", i, n, v)
				}
			}
		})
	}
}

func TestQuantizeIsEncodeDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for range 3000 {
		v, w := make([]float32, 16), make([]float32, 16)
		for i := range v {
			v[i] = math.Float32frombits(rng.Uint32())
			if rng.IntN(2) == 0 {
				v[i] = widen(uint16(math.Float32bits(float32(rng.NormFloat64())) >> 16))
			}
		}
		copy(w, v)
		mode := Rounding(rng.IntN(2))
		raw := make([]byte, 18)
		bfp16.Encode(raw, w, bfp16.Rounding(mode))
		bfp16.Decode(w, raw)
		Quantize(v, mode)
		for i := range v {
			require.True(t, same(w[i], v[i]), "%v %v", w[i], v[i])
		}
	}
}

func benchmark(b *testing.B, r Record) {
	rng := rand.New(rand.NewPCG(1, 1))
	j := randomJob(rng, r, func() float64 { return 1 })
	a, bb := j.blockedA(0, 0), j.blockedB(0)
	t := NewTile(&r)
	for b.Loop() {
		t.LoadB(bb)
		t.Band(0, a)
	}
	b.ReportMetric(float64(r.M*r.N*r.K)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

func BenchmarkTile(b *testing.B) {
	b.Run("int8-int16", func(b *testing.B) {
		benchmark(b, Record{AType: I8, BType: I8, CType: I16, Arith: Int, M: 128, K: 72, N: 112, R: 8, S: 8, T: 8, Bands: 1, BTransposed: true})
	})
	b.Run("int8-int16-row", func(b *testing.B) {
		benchmark(b, Record{AType: I8, BType: I8, CType: I16, Arith: Int, M: 128, K: 72, N: 112, R: 8, S: 8, T: 8, Bands: 1})
	})
	b.Run("bf16-xdna", func(b *testing.B) {
		benchmark(b, Record{AType: BF16, BType: BF16, CType: BF16, Arith: FMA, M: 96, K: 56, N: 96, R: 4, S: 8, T: 4, Bands: 1, BTransposed: true})
	})
	b.Run("bf16-xdna2", func(b *testing.B) {
		benchmark(b, Record{AType: BF16, BType: BF16, CType: BF16, Arith: BFP, M: 112, K: 48, N: 96, R: 8, S: 8, T: 8, Bands: 1, BTransposed: true})
	})
}
