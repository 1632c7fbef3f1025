package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/tensor"
)

// sample returns a small file that uses every type of metadata and several types of tensors.
func sample(t testing.TB) []byte {
	var w Writer
	w.Set("general.architecture", "llama")
	for i, v := range []any{uint8(200), int8(-5), uint16(60000), int16(-300), uint32(2e9), int32(-70000), float32(1.5), true, "héllo",
		uint64(1 << 63), int64(-1 << 62), 2.25} {
		w.Set(fmt.Sprintf("scalar.%d", i), v)
	}
	for i, v := range []any{[]uint8{1, 2}, []int8{-1}, []uint16{7}, []int16{-7}, []uint32{1, 2, 3}, []int32{-1, 4}, []float32{0.5, -0.25},
		[]bool{true, false}, []string{"a", "", "ccc"}, []uint64{9}, []int64{-9}, []float64{3.5}} {
		w.Set(fmt.Sprintf("array.%d", i), v)
	}
	w.AddTensor("a.weight", tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	w.AddTensor("b", tensor.Of([]float32{7}))
	q := tensor.New(tensor.Q8_0, 2, 64)
	for i := range q.Raw() {
		q.Raw()[i] = byte(i)
	}
	w.AddTensor("q", q)
	w.AddTensor("i", tensor.Of([]int64{-1, 5}, 2))
	var out bytes.Buffer
	n, err := w.WriteTo(&out)
	require.NoError(t, err)
	require.EqualValues(t, n, out.Len())
	return out.Bytes()
}

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	require.NoError(t, os.WriteFile(path, sample(t), 0o666))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, 3, f.Version)
	require.Len(t, f.Metadata, 25)
	arch, err := f.Str("general.architecture")
	require.NoError(t, err)
	require.Equal(t, "llama", arch)
	v, ok := f.Lookup("scalar.8")
	require.True(t, ok)
	require.Equal(t, "héllo", v)
	for key, want := range map[string]int{"scalar.0": 200, "scalar.1": -5, "scalar.4": 2e9, "scalar.5": -70000} {
		n, err := f.Int(key)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	x, err := f.Float("scalar.11")
	require.NoError(t, err)
	require.Equal(t, 2.25, x)
	ints, err := f.Ints("array.5")
	require.NoError(t, err)
	require.Equal(t, []int{-1, 4}, ints)
	one, err := f.Ints("scalar.1")
	require.NoError(t, err)
	require.Equal(t, []int{-5}, one)
	floats, err := f.Floats("array.6")
	require.NoError(t, err)
	require.Equal(t, []float64{0.5, -0.25}, floats)
	strs, err := f.Strings("array.8")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "", "ccc"}, strs)
	bools, err := f.Bools("array.7")
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, bools)

	_, err = f.Int("nothing")
	require.ErrorIs(t, err, ErrMissing)
	_, err = f.Int("scalar.8")
	require.ErrorContains(t, err, `key "scalar.8": an integer is right, it holds the string "héllo"`)
	_, err = f.Int("scalar.9")
	require.ErrorContains(t, err, "an integer is right", "2^63 is no int")

	a, err := f.Tensor("a.weight")
	require.NoError(t, err)
	require.Equal(t, tensor.MakeSpec(tensor.F32, 2, 3), a.Spec)
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, a.Floats())
	require.True(t, a.Buf.ReadOnly())
	b, err := f.Tensor("b")
	require.NoError(t, err)
	require.Equal(t, []float64{7}, b.Floats())
	q, err := f.Tensor("q")
	require.NoError(t, err)
	require.Equal(t, tensor.Q8_0, q.DType)
	require.Equal(t, byte(135), q.Raw()[135])
	i, err := f.Tensor("i")
	require.NoError(t, err)
	require.Equal(t, []int64{-1, 5}, i.Ints())
	_, err = f.Tensor("c")
	require.ErrorIs(t, err, ErrMissing)
}

// A file that is written again from what was read is the same file.
func TestRewrite(t *testing.T) {
	data := sample(t)
	f, err := Parse(data)
	require.NoError(t, err)
	var w Writer
	for _, kv := range f.Metadata {
		w.Set(kv.Key, kv.Value)
	}
	for i := range f.Tensors {
		info := &f.Tensors[i]
		w.Add(info.Name, info.Type, info.Dims, func(out io.Writer) error { _, err := out.Write(f.Data(info)); return err })
	}
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	require.NoError(t, err)
	require.Equal(t, data, out.Bytes())

	// The same bytes at an odd address.
	odd := append([]byte{0}, data...)[1:]
	g, err := Parse(odd)
	require.NoError(t, err)
	a, err := g.Tensor("a.weight")
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, a.Floats())
}

func TestVersion2(t *testing.T) {
	data := sample(t)
	data[4] = 2
	f, err := Parse(data)
	require.NoError(t, err)
	require.Equal(t, 2, f.Version)
}

func TestAlignment(t *testing.T) {
	w := Writer{Alignment: 256}
	w.AddTensor("a", tensor.Of([]float32{1, 2, 3}, 3))
	w.AddTensor("b", tensor.Of([]float32{4}, 1))
	var out bytes.Buffer
	_, err := w.WriteTo(&out)
	require.NoError(t, err)
	f, err := Parse(out.Bytes())
	require.NoError(t, err)
	require.Equal(t, 256, f.Alignment)
	require.Equal(t, 256, f.Tensors[1].Offset-f.Tensors[0].Offset)
	b, err := f.Tensor("b")
	require.NoError(t, err)
	require.Equal(t, []float64{4}, b.Floats())
}

func TestWriterErrors(t *testing.T) {
	for want, build := range map[string]func(w *Writer){
		"value of type struct":    func(w *Writer) { w.Set("k", struct{}{}) },
		"key of 0 bytes":          func(w *Writer) { w.Set("", 1) },
		"added twice":             func(w *Writer) { w.AddTensor("a", tensor.Of([]float32{1})); w.AddTensor("a", tensor.Of([]float32{1})) },
		"name":                    func(w *Writer) { w.AddTensor(strings.Repeat("x", 65), tensor.Of([]float32{1})) },
		"no type for elements":    func(w *Writer) { w.AddTensor("a", tensor.New(tensor.U8, 4)) },
		"no whole number of q8_0": func(w *Writer) { w.Add("a", 8, []int{33}, nil) },
		"5 dimensions":            func(w *Writer) { w.Add("a", 0, []int{1, 1, 1, 1, 1}, nil) },
		"alignment 24":            func(w *Writer) { w.Alignment = 24 },
		"bytes written, f32[2]": func(w *Writer) {
			w.Add("a", 0, []int{2}, func(w io.Writer) error { _, err := w.Write([]byte{1}); return err })
		},
		"disk full": func(w *Writer) { w.Add("a", 0, []int{2}, func(w io.Writer) error { return errors.New("disk full") }) },
	} {
		var w Writer
		build(&w)
		_, err := w.WriteTo(io.Discard)
		require.ErrorContains(t, err, want)
	}
}

// raw builds files that Writer refuses.
type raw struct{ bytes.Buffer }

func (r *raw) u32(v ...uint32) *raw {
	for _, x := range v {
		_ = binary.Write(r, binary.LittleEndian, x)
	}
	return r
}

func (r *raw) u64(v ...uint64) *raw {
	for _, x := range v {
		_ = binary.Write(r, binary.LittleEndian, x)
	}
	return r
}

func (r *raw) str(s string) *raw { r.u64(uint64(len(s))); r.WriteString(s); return r }

func header(tensors, entries uint64) *raw {
	r := &raw{}
	r.WriteString("GGUF")
	return r.u32(3).u64(tensors, entries)
}

func (r *raw) tensor(name string, typ uint32, offset uint64, ne ...uint64) *raw {
	return r.str(name).u32(uint32(len(ne))).u64(ne...).u32(typ).u64(offset)
}

func (r *raw) data(n int) []byte {
	r.Write(make([]byte, (32-r.Len()%32)%32+n))
	return r.Bytes()
}

func hostile() map[string][]byte {
	files := map[string][]byte{
		"byte 0, header: the magic number needs 4 bytes":             {},
		"magic number \"GGUX\"":                                      []byte("GGUX\x03\x00\x00\x00"),
		"version 1, 2 and 3":                                         []byte("GGUF\x01\x00\x00\x00"),
		"big-endian":                                                 []byte("GGUF\x00\x00\x00\x03"),
		"1152921504606846976 tensors cannot lie":                     header(1<<60, 0).Bytes(),
		"1152921504606846976 metadata entries cannot":                header(0, 1<<60).Bytes(),
		"18446744073709551615 tensors":                               header(math.MaxUint64, 0).data(100),
		"key of 9223372036854775808 bytes":                           header(0, 1).u64(1 << 63).data(64),
		"empty key":                                                  header(0, 1).str("").u32(4, 0).data(64),
		"value of type 13":                                           header(0, 1).str("k").u32(13).data(64),
		"an array of arrays":                                         header(0, 1).str("k").u32(9, 9).u64(1).u32(9, 9).data(64),
		"an array of type 77":                                        header(0, 1).str("k").u32(9, 77).data(64),
		"1152921504606846976 elements of the array":                  header(0, 1).str("k").u32(9, 4).u64(1 << 60).data(64),
		"element 1: string of 4611686018427387904 bytes":             header(0, 1).str("k").u32(9, 8).u64(2).str("a").u64(1 << 62).data(64),
		"a bool of value 7":                                          header(0, 1).str("k").u32(7, 7).data(64),
		`metadata entry 1 of 2, "k": the key appears twice`:          header(0, 2).str("k").u32(4, 1).str("k").u32(4, 1).data(64),
		"general.alignment is 0,":                                    header(0, 1).str("general.alignment").u32(4, 0).data(64),
		"general.alignment is 1,":                                    header(0, 1).str("general.alignment").u32(4, 1).data(64),
		"general.alignment is 3,":                                    header(0, 1).str("general.alignment").u32(4, 3).data(64),
		"general.alignment is 1073741824,":                           header(0, 1).str("general.alignment").u32(4, 1<<30).data(64),
		"general.alignment is -8":                                    header(0, 1).str("general.alignment").u32(5, 0xfffffff8).data(64),
		"5 dimensions, at most 4":                                    header(1, 0).tensor("t", 0, 0, 1, 1, 1, 1, 1).data(64),
		"4294967295 dimensions":                                      header(1, 0).str("t").u32(math.MaxUint32).data(64),
		"dimension 1 is 0":                                           header(1, 0).tensor("t", 0, 0, 4, 0).data(64),
		"dimension 0 is -1":                                          header(1, 0).tensor("t", 0, 0, math.MaxUint64).data(64),
		"dimensions [2 9223372036854775807] overflows":               header(1, 0).tensor("t", 24, 0, 1<<63-1, 2).data(64),
		"of elements of dimensions [2147483647 2147483647 8 4]":      header(1, 0).tensor("t", 0, 0, 4, 8, 1<<31-1, 1<<31-1).data(64),
		"q4_0[5124095576030431008] at byte 0":                        header(1, 0).tensor("t", 2, 0, 5124095576030431008).data(64),
		"the size of f64[1 4611686018427387904] overflows":           header(1, 0).tensor("t", 28, 0, 1<<62, 1).data(64),
		"rows of 33 elements are no whole number of q8_0":            header(1, 0).tensor("t", 8, 0, 33).data(64),
		"unknown type 4":                                             header(1, 0).tensor("t", 4, 0, 32).data(64),
		"unknown type 4294967295":                                    header(1, 0).tensor("t", math.MaxUint32, 0, 32).data(64),
		`tensor 1 of 2, "t": the name appears twice`:                 header(2, 0).tensor("t", 0, 0, 1).tensor("t", 0, 32, 1).data(64),
		"empty name":                                                 header(1, 0).tensor("", 0, 0, 1).data(64),
		"name of 65 bytes":                                           header(1, 0).tensor(strings.Repeat("x", 65), 0, 0, 1).data(64),
		"offset 4 is no multiple":                                    header(1, 0).tensor("t", 0, 4, 1).data(64),
		"offset 1048576 lies behind the end":                         header(1, 0).tensor("t", 0, 1<<20, 1).data(64),
		"offset 18446744073709551584 lies behind":                    header(1, 0).tensor("t", 0, math.MaxUint64-31, 1).data(64),
		"f32[17] at byte 0 of the data section needs 68 bytes":       header(1, 0).tensor("t", 0, 0, 17).data(64),
		"f32[1] at byte 64 of the data section needs 4 bytes":        header(1, 0).tensor("t", 0, 64, 1).data(64),
		`"b": it overlaps tensor "a", which ends`:                    header(2, 0).tensor("a", 0, 0, 9).tensor("b", 0, 32, 1).data(64),
		"tensor \"c\": it overlaps tensor \"a\", which ends at byte": header(2, 0).tensor("a", 0, 0, 1).tensor("c", 0, 0, 1).data(64),
	}
	if math.MaxInt == math.MaxInt32 { // these name sizes that fit 64 bits only
		for want := range files {
			if strings.HasPrefix(want, "dimensions [") || strings.HasPrefix(want, "q4_0[51") || strings.HasPrefix(want, "the size of f64") {
				delete(files, want)
			}
		}
	}
	return files
}

func TestHostile(t *testing.T) {
	for want, data := range hostile() {
		f, err := Parse(data)
		require.ErrorContains(t, err, want)
		require.Nil(t, f)
		var se *SyntaxError
		require.ErrorAs(t, err, &se)
	}
}

// A file cut at any byte is refused, except where only the padding behind the last tensor is lost.
func TestTruncated(t *testing.T) {
	data := sample(t)
	whole, err := Parse(data)
	require.NoError(t, err)
	last := whole.Tensors[len(whole.Tensors)-1]
	for n := range data {
		_, err := Parse(data[:n:n])
		if n < last.Offset+last.Bytes {
			require.Error(t, err, "cut at byte %d", n)
		} else {
			require.NoError(t, err)
		}
	}
}

// Whatever a count says, no more is allocated than the file could hold.
func TestAllocations(t *testing.T) {
	body := make([]byte, 1<<10)
	cases := [][]byte{
		append(header(1<<60, 1<<60).Bytes(), body...),
		append(header(0, 1).str("k").u32(9, 8).u64(1<<59).Bytes(), body...),
		append(header(0, 1).str("k").u32(9, 0).u64(1<<59).Bytes(), body...),
		append(header(0, 1).str("k").u32(8).u64(1<<40).Bytes(), body...),
		append(header(1, 0).tensor("t", 0, 0, 1<<40).Bytes(), body...),
	}
	for _, data := range cases {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(data)
		runtime.ReadMemStats(&after)
		require.Error(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
	}
}

func TestSharedFiles(t *testing.T) {
	f, err := Open(shared.File(t, "data/models/stories260K.gguf"))
	require.NoError(t, err)
	defer f.Close()
	w, err := f.Tensor("blk.0.ffn_down.weight")
	require.NoError(t, err)
	require.Equal(t, tensor.MakeSpec(tensor.F32, 64, 172), w.Spec)
	_, err = Open(shared.File(t, "data/text/tolstoy-valid.txt"))
	require.ErrorContains(t, err, "magic number")
	_, err = Open(filepath.Join(t.TempDir(), "absent"))
	require.Error(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add(sample(f))
	for _, data := range hostile() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		var w Writer
		w.Alignment = file.Alignment
		for _, kv := range file.Metadata {
			w.Set(kv.Key, kv.Value)
		}
		for i := range file.Tensors {
			info := &file.Tensors[i]
			require.Len(t, file.Data(info), info.Bytes)
			if v, err := file.View(info); err == nil {
				require.Equal(t, info.Elems(), v.Elems())
			}
			w.Add(info.Name, info.Type, info.Dims, func(out io.Writer) error { _, err := out.Write(file.Data(info)); return err })
		}
		// What can be read can be written, and then reads the same.
		var out bytes.Buffer
		_, err = w.WriteTo(&out)
		require.NoError(t, err)
		again, err := Parse(out.Bytes())
		require.NoError(t, err)
		require.Equal(t, len(file.Tensors), len(again.Tensors))
		for i := range file.Tensors {
			require.Equal(t, file.Data(&file.Tensors[i]), again.Data(&again.Tensors[i]))
		}
	})
}
