package mem

import (
	"errors"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestMulAndAddRefuseOverflow(t *testing.T) {
	cases := []struct {
		factors []int
		want    int
		ok      bool
	}{
		{nil, 1, true},
		{[]int{3, 4, 5}, 60, true},
		{[]int{math.MaxInt, 1}, math.MaxInt, true},
		{[]int{math.MaxInt, 2}, 0, false},
		{[]int{math.MaxInt, math.MaxInt, 0}, 0, true},
		{[]int{-1, 0}, 0, false},
		{[]int{1 << (bitsPerInt / 2), 1 << (bitsPerInt / 2)}, 0, false},
	}
	for _, c := range cases {
		got, ok := Mul(c.factors...)
		require.Equal(t, c.ok, ok, "%v", c.factors)
		require.Equal(t, c.want, got, "%v", c.factors)
	}
	_, ok := Add(math.MaxInt, 1)
	require.False(t, ok)
	_, ok = Add(1, -1)
	require.False(t, ok)
	sum, ok := Add(1, 2, 3)
	require.True(t, ok)
	require.Equal(t, 6, sum)
	_, ok = RoundUp(math.MaxInt, 64)
	require.False(t, ok)
	n, ok := RoundUp(65, 64)
	require.True(t, ok)
	require.Equal(t, 128, n)
}

const bitsPerInt = 32 << (^uint(0) >> 63)

func TestBytesAligned(t *testing.T) {
	for n := 1; n < 300; n++ {
		b := Bytes(n)
		require.Len(t, b, n)
		require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%Align)
	}
	require.Empty(t, Bytes(0))
}

func TestAnonymous(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 3 << 20} {
		m, err := Anonymous(n)
		require.NoError(t, err)
		require.Len(t, m.Data(), n)
		Touch(m.Data())
		for i := 0; i < n; i += 1001 {
			require.Zero(t, m.Data()[i])
			m.Data()[i] = byte(i)
		}
		require.NoError(t, m.Close())
		require.NoError(t, m.Close())
	}
	_, err := Anonymous(-1)
	require.ErrorIs(t, err, ErrOverflow)
}

// TestPiece: pieces are zero, do not overlap, and one may be closed in any order, while others stay as they are.
func TestPiece(t *testing.T) {
	sizes := []int{0, 1, 4096, 600_000, 3 << 20, 40 << 20, 5000, 31 << 20, 2 << 20}
	for range 3 {
		pieces := make([]*Mapping, len(sizes))
		for i, n := range sizes {
			m, err := Piece(n)
			require.NoError(t, err)
			require.Len(t, m.Data(), n)
			require.Equal(t, n > 0, m.Mapped())
			for j := 0; j < n; j += 997 {
				require.Zero(t, m.Data()[j])
				m.Data()[j] = byte(i + 1)
			}
			pieces[i] = m
		}
		order := []int{3, 0, 8, 1, 5, 2, 7, 4, 6}
		for done, i := range order {
			require.NoError(t, pieces[i].Close())
			require.NoError(t, pieces[i].Close())
			require.Nil(t, pieces[i].Data())
			for _, still := range order[done+1:] {
				for j := 0; j < sizes[still]; j += 997 {
					require.EqualValues(t, still+1, pieces[still].Data()[j])
				}
			}
		}
	}
	_, err := Piece(-1)
	require.ErrorIs(t, err, ErrOverflow)
	if bits.UintSize == 64 {
		_, err = Piece(math.MaxInt)
		require.ErrorIs(t, err, ErrOverflow)
	}
}

func TestPiecesAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var kept []*Mapping
			for i := range 60 {
				n := (i*7919+g*104729)%3_000_000 + 1
				m, err := Piece(n)
				if err != nil || m.Data()[0] != 0 || m.Data()[n-1] != 0 {
					t.Error("a piece is not fresh", err)
					return
				}
				m.Data()[0], m.Data()[n-1] = byte(g+1), byte(g+1)
				if kept = append(kept, m); i%3 == 2 {
					if err := kept[0].Close(); err != nil {
						t.Error(err)
					}
					kept = kept[1:]
				}
			}
			for _, m := range kept {
				if d := m.Data(); d[0] != byte(g+1) || d[len(d)-1] != byte(g+1) {
					t.Error("a piece was written by others")
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	want := make([]byte, 10000)
	for i := range want {
		want[i] = byte(i * 7)
	}
	require.NoError(t, os.WriteFile(path, want, 0o600))
	m, err := File(path)
	require.NoError(t, err)
	require.Equal(t, want, m.Data())
	Advise(m.Data(), WillNeed)
	Advise(m.Data()[1:], DontNeed)
	require.Equal(t, want, m.Data())
	require.NoError(t, m.Close())
	_, err = File(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
	_, err = File(path + ".none")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestGuardedFaultsPastTheEnd(t *testing.T) {
	data, release, err := Guarded(100)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no page protection here")
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, release()) }()
	require.Len(t, data, 100)
	data[99] = 1
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	require.Panics(t, func() {
		*(*byte)(unsafe.Add(unsafe.Pointer(&data[99]), 1)) = 1
	})
}

func TestFileIsRegular(t *testing.T) {
	_, err := File(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
}
