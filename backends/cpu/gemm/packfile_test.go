package gemm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
)

func packedFile(t testing.TB, typ Type, k, n int) (Matrix, []byte) {
	b := operand(rand.New(rand.NewPCG(1, uint64(typ))), typ, k, n)
	p, err := PackB(b, nil)
	require.NoError(t, err)
	var buf bytes.Buffer
	size, err := p.WriteTo(&buf)
	require.NoError(t, err)
	require.EqualValues(t, buf.Len(), size)
	return b, buf.Bytes()
}

func TestPackedFile(t *testing.T) {
	for _, typ := range []Type{F32, BF16, F16, S8} {
		const m, n, k = 5, 70, 33
		b, data := packedFile(t, typ, k, n)
		path := filepath.Join(t.TempDir(), "w.pack")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		fromFile, err := OpenPackedB(path, true)
		require.NoError(t, err)
		fromReader, err := ReadPackedB(bytes.NewReader(data), len(data))
		require.NoError(t, err)
		at, ct := F32, F32
		if typ == S8 {
			at, ct = S8, S32
		}
		a := operand(rand.New(rand.NewPCG(2, 2)), at, m, k)
		want, got := Raw(ct, make([]byte, m*n*4), m, n, n, 1), Raw(ct, make([]byte, m*n*4), m, n, n, 1)
		require.NoError(t, Mul(want, a, b, nil))
		for _, p := range []*PackedB{fromFile, fromReader} {
			require.NoError(t, MulPacked(got, a, p, nil))
			for i := range m {
				require.Equal(t, want.bytes(i), got.bytes(i))
			}
			require.NoError(t, p.Close())
			require.ErrorIs(t, MulPacked(got, a, p, nil), errClosed)
		}
	}
}

func TestPackedFileDamage(t *testing.T) {
	_, data := packedFile(t, S8, 33, 70)
	_, err := ViewPackedB(data, true)
	require.NoError(t, err)
	for cut := 0; cut < len(data); cut += 97 {
		_, err := ViewPackedB(data[:cut], true)
		require.Error(t, err)
	}
	for _, at := range []int{0, 8, 12, 13, 14, 16, 24, 31, 32, 40, 48, 56, 60, 4096, len(data) - 1} {
		bad := bytes.Clone(data)
		bad[at] ^= 0x41
		_, err := ViewPackedB(bad, true)
		require.Error(t, err, "byte %d", at)
	}
	_, err = ReadPackedB(bytes.NewReader(data), len(data)-1)
	require.ErrorContains(t, err, "more than")
	_, err = OpenPackedB(filepath.Join(t.TempDir(), "absent"), false)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzViewPackedB(f *testing.F) {
	for _, typ := range []Type{F32, BF16, F16, S8} {
		_, data := packedFile(f, typ, 5, 9)
		f.Add(data)
		f.Add(data[:100])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ViewPackedB(data, true)
		if err != nil {
			return
		}
		k, n := p.Dims()
		if k > 1<<10 || n > 1<<10 {
			return
		}
		if p.Type() == S8 {
			require.NoError(t, MulPacked(Of(make([]int32, n), 1, n), Of(make([]int8, k), 1, k), p, nil))
		} else {
			require.NoError(t, MulPacked(Of(make([]float32, n), 1, n), Of(make([]float32, k), 1, k), p, nil))
		}
	})
}

// TestFileCutShort: a mapped file that is cut short gives errors where it is read, not faults, and what was packed in memory goes on.
func TestFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	const k, n = 300, 400
	b, a, c := make([]float32, k*n), make([]float32, 3*k), make([]float32, 3*n)
	packed, err := PackB(Of(b, k, n), nil)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "b")
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = packed.WriteTo(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	p, err := OpenPackedB(path, true)
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, os.Truncate(path, 4096))
	for _, threads := range []int{1, 4} {
		err = MulPacked(Of(c, 3, n), Of(a, 3, k), p, &Options{Threads: threads})
		var fault *mem.FaultError
		require.ErrorAs(t, err, &fault)
		require.Equal(t, path, fault.Path)
		require.NoError(t, MulPacked(Of(c, 3, n), Of(a, 3, k), packed, &Options{Threads: threads}))
	}
	_, err = OpenPackedB(path, true)
	require.Error(t, err)
}

// A limit that is none is one.
func TestReadPackedBWithoutALimit(t *testing.T) {
	packed, err := PackB(Of([]float32{1, 2, 3, 4}, 2, 2), nil)
	require.NoError(t, err)
	var out bytes.Buffer
	_, err = packed.WriteTo(&out)
	require.NoError(t, err)
	_, err = ReadPackedB(&out, math.MaxInt)
	require.NoError(t, err)
}
