package safetensors

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/reference"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/tensor"
)

func sample(t testing.TB) []byte {
	var out bytes.Buffer
	require.NoError(t, Write(&out, []Named{
		{"a", tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)},
		{"byte", tensor.Of([]uint8{9}, 1)},
		{"odd", tensor.Bits(tensor.BF16, []uint16{0x3f80, 0x4000}, 2)}, // behind one byte
		{"scalar", tensor.Of([]int64{-7})},
		{"empty", tensor.New(tensor.F32, 0, 4)},
	}, map[string]string{"format": "pt"}))
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, os.WriteFile(path, sample(t), 0o666))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata)
	for name, want := range map[string][]float64{"a": {1, 2, 3, 4, 5, 6}, "byte": {9}, "odd": {1, 2}, "scalar": {-7}, "empty": {}} {
		x, err := f.Tensor(name)
		require.NoError(t, err)
		require.Equal(t, want, append([]float64{}, x.Floats()...), name)
	}
	a, err := f.Tensor("a")
	require.NoError(t, err)
	require.Equal(t, tensor.MakeSpec(tensor.F32, 2, 3), a.Spec)
	_, err = f.Tensor("b")
	require.ErrorIs(t, err, ErrMissing)
	require.False(t, f.Has("b"))
}

func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

var hostile = map[string][]byte{
	"has no header":                         {1, 2, 3},
	"a header of 18446744073709551615":      {255, 255, 255, 255, 255, 255, 255, 255, 0},
	"a header of 4096 bytes":                append(binary.LittleEndian.AppendUint64(nil, 4096), "{}"...),
	"an object is right":                    file(`[]`, 0),
	"EOF":                                   file(`{"a":`, 0),
	"appears twice":                         file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
	`unknown element type "F5"`:             file(`{"a":{"dtype":"F5","shape":[1],"data_offsets":[0,4]}}`, 8),
	"9 dimensions":                          file(`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 8),
	"begin and end are right":               file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 8),
	"data_offsets []":                       file(`{"a":{"dtype":"U8","shape":[1]}}`, 8),
	"ends at byte 9 of the data":            file(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 8),
	"takes 8 bytes, data_offsets give 4":    file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 8),
	"overflows":                             file(`{"a":{"dtype":"F32","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,4]}}`, 8),
	"cannot unmarshal number -1":            file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 8),
	`"b" at byte`:                           file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}}`, 8),
	"cannot unmarshal string":               file(`{"a":"x"}`, 8),
	"bytes behind its end":                  file(`{}x`, 8),
	"metadata: json: cannot unmarshal":      file(`{"__metadata__":{"a":1}}`, 8),
	"cannot unmarshal array into Go struct": file(`{"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}}`, 8),
}

func TestHostile(t *testing.T) {
	for want, data := range hostile {
		_, err := Parse(data)
		require.ErrorContains(t, err, want)
	}
	deep := bytes.Repeat([]byte("["), 100_000)
	_, err := Parse(file(`{"a":`+string(deep), 0))
	require.Error(t, err)
	f, err := Parse(file(`{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}`, 8))
	require.NoError(t, err)
	_, err = f.Tensor("a")
	require.ErrorContains(t, err, "F8_E4M3 cannot be read")
}

func TestTruncated(t *testing.T) {
	data := sample(t)
	for n := range data {
		_, err := Parse(data[:n:n])
		require.Error(t, err, "cut at byte %d", n)
	}
}

func TestWriteErrors(t *testing.T) {
	view, err := tensor.Of([]float32{1, 2, 3, 4}, 2, 2).Transpose(0, 1)
	require.NoError(t, err)
	one := tensor.Of([]float32{1})
	for want, list := range map[string][]Named{"no place": {{"q", tensor.New(tensor.Q8_0, 32)}}, "not contiguous": {{"v", view}}, "twice": {{"a", one}, {"a", one}}} {
		require.ErrorContains(t, Write(&bytes.Buffer{}, list, nil), want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	for _, data := range hostile {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		for _, info := range file.Tensors {
			if x, err := file.Tensor(info.Name); err == nil {
				require.Equal(t, info.Bytes, x.Bytes())
				_ = x.Raw()
			}
		}
	})
}

// TestFileCutShort: a file that is cut short while it is open is an error where this package or a graph reads it.
func TestFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	page := os.Getpagesize()
	one, many := tensor.New(tensor.U8, 1), tensor.New(tensor.F32, 4, page)
	var out bytes.Buffer
	require.NoError(t, Write(&out, []Named{{Name: "w", Tensor: many}, {Name: "b", Tensor: one}, {Name: "odd", Tensor: many}}, nil))
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	w, err := f.Tensor("w")
	require.NoError(t, err)
	g := graph.New("g")
	x := g.Input("x", tensor.F32, ops.Const(4), ops.Const(page))
	g.Output("y", g.Apply("add", elementwise.Binary{}, x, g.Constant("w", w)))
	exe, err := g.Compile(context.Background(), graph.Options{Backends: []backends.Backend{reference.New()}})
	require.NoError(t, err)
	defer exe.Close()
	require.NoError(t, exe.Bind(x, many))
	require.NoError(t, exe.Run(context.Background()))
	require.NoError(t, os.Truncate(path, int64(page)))
	_, err = f.Tensor("odd") // lies at an odd address, so that it is copied
	require.ErrorContains(t, err, "cut short")
	require.ErrorContains(t, exe.Run(context.Background()), "cut short")
}
