package npy

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoundTrip(t *testing.T) {
	for _, a := range []*Array{
		{"f4", []int{2, 3}, make([]byte, 24)}, {"i8", []int{3}, make([]byte, 24)}, {"u1", []int{}, []byte{7}}, {"f2", []int{2, 0, 4}, []byte{}},
		{"b1", []int{1, 2, 1, 2}, []byte{1, 0, 0, 1}},
	} {
		for i := range a.Data {
			a.Data[i] = byte(i)
		}
		var b bytes.Buffer
		require.NoError(t, Write(&b, a))
		require.Zero(t, (b.Len()-len(a.Data))%64)
		got, err := Read(&b, 1<<20)
		require.NoError(t, err)
		require.Equal(t, a.Descr, got.Descr)
		require.Equal(t, a.Shape, append([]int{}, got.Shape...))
		require.Equal(t, a.Data, got.Data)
	}
}

func file(header string, data ...byte) []byte {
	out := append([]byte(magic), 1, 0, byte(len(header)), byte(len(header)>>8))
	return append(append(out, header...), data...)
}

func TestOrders(t *testing.T) {
	a, err := Read(bytes.NewReader(file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", 0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6)), 100)
	require.NoError(t, err)
	require.Equal(t, []byte{1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}, a.Data)
}

func TestBadFiles(t *testing.T) {
	good := file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 1, 2, 3, 4, 5, 6, 7, 8)
	for n := range good {
		_, err := Read(bytes.NewReader(good[:n]), 100)
		require.Error(t, err, n)
	}
	for _, header := range []string{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", "{'descr': '<f4', 'fortran_order': False, 'shape': (26,), }",
		"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "{'descr': '<U99', 'fortran_order': False, 'shape': (2,), }", "{}",
	} {
		_, err := Read(bytes.NewReader(file(header)), 100)
		require.Error(t, err, header)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", 0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Read(bytes.NewReader(data), 1<<16)
		if err != nil {
			return
		}
		var b bytes.Buffer
		require.NoError(t, Write(&b, a))
		again, err := Read(&b, 1<<16)
		require.NoError(t, err)
		require.Equal(t, a.Data, again.Data)
	})
}
