package mem

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// cutShort returns the mapping of a file of three pages, of which only the first is left.
func cutShort(t *testing.T) (*Mapping, string) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, make([]byte, 3*os.Getpagesize()), 0o600))
	m, err := File(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, int64(os.Getpagesize())))
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m, path
}

var sink byte

func TestFaultsOfAMappedFileAreErrors(t *testing.T) {
	m, path := cutShort(t)
	read := func(i int) (err error) {
		defer Caught(Catch(), &err)
		sink += m.Data()[i]
		return nil
	}
	require.NoError(t, read(0))
	for range 2 {
		err := read(2 * os.Getpagesize())
		var fault *FaultError
		require.ErrorAs(t, err, &fault)
		require.Equal(t, path, fault.Path)
		require.ErrorContains(t, err, path)
	}
}

func TestOtherPanicsGoOn(t *testing.T) {
	require.PanicsWithValue(t, "other", func() {
		var err error
		defer Caught(Catch(), &err)
		panic("other")
	})
	data, release, err := Guarded(1)
	require.NoError(t, err)
	defer release()
	require.Panics(t, func() {
		var err error
		defer Caught(Catch(), &err)
		sink += *(*byte)(unsafe.Add(unsafe.Pointer(&data[0]), 1))
	})
}

func TestClosedFilesAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("abc"), 0o600))
	m, err := File(path)
	require.NoError(t, err)
	at := uintptr(unsafe.Pointer(&m.Data()[0]))
	if m.Mapped() {
		got, ok := fileAt(at + 2)
		require.True(t, ok)
		require.Equal(t, path, got)
	}
	require.NoError(t, m.Close())
	_, ok := fileAt(at)
	require.False(t, ok)
}
