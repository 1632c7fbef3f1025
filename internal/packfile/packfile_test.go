package packfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
)

var someone = Identity{1, 2, 3}

func blobs() []Blob {
	return []Blob{{"a", "k1", Bytes(bytes.Repeat([]byte{7}, 5000))}, {"a", "k2", Bytes{}}, {"", "", Bytes("x")}, {"b", "k1", Bytes("tail")}}
}

func fileOf(t testing.TB) []byte {
	path := filepath.Join(t.TempDir(), "f")
	size, err := Write(path, someone, blobs())
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.EqualValues(t, len(data), size)
	return data
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("what was there before"), 0o600))
	_, err := Write(path, someone, blobs())
	require.NoError(t, err)
	f, err := Open(path, someone)
	require.NoError(t, err)
	require.Equal(t, 4, f.Len())
	for _, b := range blobs() {
		require.Equal(t, []byte(b.Form.(Bytes)), append([]byte{}, f.Blob(b.Name, b.Key, 2)...), "%q %q", b.Name, b.Key)
	}
	require.Nil(t, f.Blob("b", "k2", 1))
	// A new file under the name leaves the open one alone.
	_, err = Write(path, someone, nil)
	require.NoError(t, err)
	require.Equal(t, "tail", string(f.Blob("b", "k1", 1)))
	require.NoError(t, f.Close())
	f, err = Open(path, someone)
	require.NoError(t, err)
	require.Zero(t, f.Len())
	require.NoError(t, f.Close())
}

// Whatever is wrong with a file is found: by an error, or as a blob that is not there.
func TestDamage(t *testing.T) {
	data := fileOf(t)
	for cut := range len(data) {
		f, err := Parse(data[:cut], someone)
		if err == nil {
			t.Fatalf("%d bytes: %d blobs", cut, f.Len())
		}
	}
	index := int(binary.LittleEndian.Uint64(data[48:]))
	for at := 0; at < len(data); at++ {
		inHead := at < header+index
		if !inHead && at%97 != 0 && at < len(data)-8 {
			continue
		}
		bad := bytes.Clone(data)
		bad[at] ^= 0x20
		f, err := Parse(bad, someone)
		if inHead {
			require.Error(t, err, "byte %d", at)
			var e *Error
			require.ErrorAs(t, err, &e)
			continue
		}
		require.NoError(t, err)
		for _, b := range blobs() {
			got := f.Blob(b.Name, b.Key, 2)
			require.True(t, got == nil || bytes.Equal(got, b.Form.(Bytes)), "byte %d", at)
		}
	}
	_, err := Parse(data, Identity{})
	require.ErrorIs(t, err, ErrStale)
	old := bytes.Clone(data)
	old[8]++
	_, err = Parse(old, someone)
	require.ErrorIs(t, err, ErrStale)
	require.ErrorContains(t, err, "version 2, 1 can be read")
	_, err = Parse([]byte("GGUF"+string(data[4:])), someone)
	require.ErrorIs(t, err, ErrForeign)
	_, err = Parse([]byte("notes"), someone)
	require.ErrorIs(t, err, ErrForeign)
	_, err = Parse(data[:7], someone)
	require.NotErrorIs(t, err, ErrForeign)
	_, err = Parse([]byte("GGUF"+string(data[4:])), someone)
	require.NotErrorIs(t, err, ErrStale)
	require.ErrorContains(t, err, "magic number")
	_, err = Open(filepath.Join(t.TempDir(), "none"), someone)
	require.ErrorIs(t, err, os.ErrNotExist)
}

type broken struct{}

func (broken) WriteTo(io.Writer) (int64, error) { return 0, errors.New("no form") }

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	_, err := Write(filepath.Join(dir, "f"), someone, []Blob{{"a", "", broken{}}})
	require.ErrorContains(t, err, "no form")
	_, err = Write(filepath.Join(dir, "f"), someone, []Blob{{string(make([]byte, 1<<16)), "", Bytes{}}})
	require.ErrorContains(t, err, "a name of 65536")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays behind")
	_, err = Write(filepath.Join(dir, "none", "f"), someone, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzParse(f *testing.F) {
	data := fileOf(f)
	f.Add(data[header:])
	f.Add([]byte{})
	// The header is made anew, so that what is behind its check sums is reached.
	f.Fuzz(func(t *testing.T, rest []byte) {
		le := binary.LittleEndian
		n := min(len(rest), 8)
		file := append(make([]byte, header), rest[n:]...)
		copy(file, data[:48])
		copy(file[12:16], rest[:n])
		size := uint64(len(rest) - n)
		if n == 8 {
			size = min(size, uint64(le.Uint32(rest[4:])))
		}
		le.PutUint64(file[48:], size)
		le.PutUint32(file[56:], crc32.Checksum(file[header:header+int(size)], castagnoli))
		le.PutUint32(file[60:], crc32.Checksum(file[:60], castagnoli))
		p, err := Parse(file, someone)
		if err != nil {
			return
		}
		for k := range p.blobs {
			p.Blob(k[0], k[1], 1+len(k[0])%2)
		}
	})
}

// A second worker that looks for damage changes nothing of what is found, may be ended by Close at any time, and leaves a file that was cut short to
// whoever asks for what is gone.
func TestCheckedAhead(t *testing.T) {
	const n, size = 40, 1 << 16
	var list []Blob
	for i := range n {
		list = append(list, Blob{"w", fmt.Sprint(i), Bytes(bytes.Repeat([]byte{byte(i + 1)}, size))})
	}
	path := filepath.Join(t.TempDir(), "f")
	whole, err := Write(path, someone, list)
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := bytes.LastIndexByte(data, 18)
	data[at] = 0
	require.NoError(t, os.WriteFile(path, data, 0o600))
	for asked := range n + 1 {
		f, err := Open(path, someone)
		require.NoError(t, err)
		for i := range asked {
			got := f.Blob("w", list[i].Key, 2)
			if i == 17 {
				require.Nil(t, got)
			} else {
				require.True(t, bytes.Equal(list[i].Form.(Bytes), got), "blob %d", i)
			}
		}
		require.NoError(t, f.Close())
	}
	if runtime.GOOS == "windows" {
		return // which does not cut mapped files
	}
	for range 10 {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		f, err := Open(path, someone)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, whole/2))
		require.NotNil(t, f.Blob("w", "0", 2))
		lost := func() (err error) {
			defer mem.Caught(mem.Catch(), &err)
			f.Blob("w", fmt.Sprint(n-1), 2)
			return nil
		}
		require.ErrorContains(t, lost(), path)
		require.NoError(t, f.Close())
	}
}
