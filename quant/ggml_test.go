package quant

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/tensor"
)

// golden is what testdata/ggml_golden.c printed for a type.
type golden struct {
	decode, encode, decoded uint32
	blocks                  []byte
	sqErr, weightsSqErr     float64
}

func goldens(t *testing.T) map[tensor.DType]*golden {
	f, err := os.Open("testdata/ggml.txt")
	require.NoError(t, err)
	defer f.Close()
	all := map[tensor.DType]*golden{}
	crc := func(s string) uint32 {
		v, err := strconv.ParseUint(s, 16, 32)
		require.NoError(t, err)
		return uint32(v)
	}
	num := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		require.NoError(t, err)
		return v
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		d, err := tensor.ParseDType(w[0])
		require.NoError(t, err)
		g := all[d]
		if g == nil {
			g = &golden{}
			all[d] = g
		}
		switch w[1] {
		case "decode":
			g.decode = crc(w[2])
		case "encode":
			g.encode, g.decoded, g.sqErr = crc(w[2]), crc(w[4]), num(w[6])
		case "blocks":
			g.blocks, err = hex.DecodeString(w[2])
			require.NoError(t, err)
		case "weights":
			g.weightsSqErr = num(w[3])
		}
	}
	require.NoError(t, lines.Err())
	require.Len(t, all, len(codecs))
	return all
}

var ggmlIDs = map[tensor.DType]uint64{tensor.Q4_0: 2, tensor.Q4_1: 3, tensor.Q5_0: 6, tensor.Q5_1: 7, tensor.Q8_0: 8, tensor.Q2_K: 10,
	tensor.Q3_K: 11, tensor.Q4_K: 12, tensor.Q5_K: 13, tensor.Q6_K: 14, tensor.IQ4_NL: 20, tensor.MXFP4: 39}

type splitmix uint64

func (s *splitmix) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

const goldenBlocks = 1000

// randomBlocks are the random bits of the golden program.
func randomBlocks(d tensor.DType) []byte {
	s := splitmix(1000 + ggmlIDs[d])
	q := make([]byte, goldenBlocks*d.Size())
	for i := range q {
		q[i] = byte(s.next() >> 56)
	}
	for b := range goldenBlocks {
		for _, off := range codecs[d].scales {
			if hi := &q[b*d.Size()+off+1]; *hi&0x7c == 0x7c {
				*hi &^= 0x40
			}
		}
		if d == tensor.MXFP4 && q[b*d.Size()] > 250 {
			q[b*d.Size()] = 120
		}
	}
	return q
}

// randomRow are its roughly normal numbers.
func randomRow(d tensor.DType) []float32 {
	s := splitmix(2000 + ggmlIDs[d])
	x := make([]float32, goldenBlocks*d.Block())
	for i := range x {
		r := s.next()
		sum := int32(r&0xffff) + int32(r>>16&0xffff) + int32(r>>32&0xffff) + int32(r>>48) - 131070
		x[i] = float32(math.Ldexp(float64(sum), -16-i/d.Block()%12))
	}
	return x
}

func hashBytes(b []byte) uint32 {
	h := fnv.New32a()
	h.Write(b)
	return h.Sum32()
}

func hashFloats(x []float32) uint32 {
	b := make([]byte, 4*len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	return hashBytes(b)
}

func TestDecodeEqualsGGML(t *testing.T) {
	for d, g := range goldens(t) {
		t.Run(d.String(), func(t *testing.T) {
			y := make([]float32, goldenBlocks*d.Block())
			require.NoError(t, DecodeRow(d, y, randomBlocks(d)))
			require.Equal(t, g.decode, hashFloats(y))
		})
	}
}

func TestEncodeAgainstGGML(t *testing.T) {
	equal := map[tensor.DType]bool{tensor.Q4_0: true, tensor.Q4_1: true, tensor.Q5_0: true, tensor.Q5_1: true, tensor.Q8_0: true, tensor.MXFP4: true}
	for d, g := range goldens(t) {
		t.Run(d.String(), func(t *testing.T) {
			x := randomRow(d)
			q, y := make([]byte, goldenBlocks*d.Size()), make([]float32, len(x))
			require.NoError(t, EncodeRow(d, q, x))
			require.NoError(t, Validate(d, q))
			require.NoError(t, DecodeRow(d, y, q))
			if equal[d] {
				require.Equal(t, g.blocks, q[:len(g.blocks)])
				require.Equal(t, g.encode, hashBytes(q))
				require.Equal(t, g.decoded, hashFloats(y))
			}
			var sum float64
			for i := range x {
				e := (float64(x[i]) - float64(y[i])) * math.Ldexp(1, i/d.Block()%12)
				sum += e * e
			}
			t.Logf("squared error %.4g, GGML's %.4g", sum, g.sqErr)
			require.LessOrEqual(t, sum, g.sqErr*(1+1e-9))
		})
	}
}

// The first blocks that GGML encoded decode to numbers near the input in every format, which ties the golden bytes to the layout.
func TestDecodeGGMLBlocks(t *testing.T) {
	for d, g := range goldens(t) {
		x := randomRow(d)
		y := make([]float32, len(g.blocks)/d.Size()*d.Block())
		require.NoError(t, DecodeRow(d, y, g.blocks))
		var num, den float64
		for i := range y {
			num += math.Pow(float64(x[i]-y[i]), 2)
			den += math.Pow(float64(x[i]), 2)
		}
		require.Less(t, num/den, 0.08, d)
	}
}
