package amdxdna_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna/fake"
)

func TestXclbin(t *testing.T) {
	image := []byte("a configuration")
	file := fake.Xclbin(image, 8, "MLIR_AIE")
	x, err := amdxdna.ParseXclbin(file)
	require.NoError(t, err)
	require.Equal(t, "tessera-fake-bin", string(x.UUID[:]))
	require.Equal(t, 8, x.Partition.ColumnWidth)
	require.Equal(t, []int{0, 1}, x.Partition.StartColumns)
	require.EqualValues(t, 2048, x.Partition.OpsPerCycle)
	require.Equal(t, "partition", x.Partition.Name)
	require.Len(t, x.Partition.PDIs, 1)
	pdi := x.Partition.PDIs[0]
	require.Equal(t, image, pdi.Image)
	require.Equal(t, []uint64{0x901}, pdi.KernelIDs)
	require.EqualValues(t, 1, pdi.Type)
	k, err := x.Kernel("")
	require.NoError(t, err)
	require.Equal(t, "MLIR_AIE", k.Name)
	require.EqualValues(t, 0x901, k.ID)
	require.Len(t, k.Args, 6)
	// The packet's layout is what the metadata says of the arguments.
	require.Equal(t, amdxdna.KernelArg{Name: "ninstr", Offset: 0x10, Size: 4}, k.Args[2])
	require.Equal(t, amdxdna.KernelArg{Name: "bo0", Offset: 0x14, Size: 8}, k.Args[3])
	got, err := x.Image(k)
	require.NoError(t, err)
	require.Equal(t, image, got.Image)
	_, err = x.Kernel("other")
	require.ErrorContains(t, err, `no kernel "other", it has [MLIR_AIE]`)
}

func TestXclbinErrors(t *testing.T) {
	good := fake.Xclbin(make([]byte, 100), 4, "k")
	le := binary.LittleEndian
	part := int(le.Uint64(good[456+40+24:])) // offset of the partition section
	for _, c := range []struct {
		name string
		edit func([]byte) []byte
		want string
	}{
		{"empty", func([]byte) []byte { return nil }, "want \"xclbin2"},
		{"magic", func(b []byte) []byte { b[0] = 'y'; return b }, "it begins with"},
		{"truncated", func(b []byte) []byte { return b[:len(b)-1] }, "truncated"},
		{"sections", func(b []byte) []byte { le.PutUint32(b[448:], 9999); return b }, "9999 sections"},
		{"no partition", func(b []byte) []byte { le.PutUint32(b[456+40:], 7); return b }, "no AIE_PARTITION"},
		{"section outside", func(b []byte) []byte { le.PutUint64(b[456+40+24:], 1<<62); return b }, "outside"},
		{"section size", func(b []byte) []byte { le.PutUint64(b[456+40+32:], 1<<63); return b }, "outside"},
		{"small partition", func(b []byte) []byte { le.PutUint64(b[456+40+32:], 10); return b }, "want 184"},
		{"zero columns", func(b []byte) []byte { le.PutUint16(b[part+32:], 0); return b }, "0 columns"},
		{"no pdi", func(b []byte) []byte { le.PutUint32(b[part+120:], 0); return b }, "no PDI"},
		{"many pdis", func(b []byte) []byte { le.PutUint32(b[part+120:], 1<<30); return b }, "PDIs, at most"},
		{"image outside", func(b []byte) []byte { le.PutUint32(b[part+184+20:], 1<<31); return b }, "PDI image"},
		{"name outside", func(b []byte) []byte { le.PutUint32(b[part+4:], 1<<31); return b }, "partition name"},
		{"bad xml", func(b []byte) []byte { copy(b[part-100:], strings.Repeat("<", 60)); return b }, "embedded metadata"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := amdxdna.ParseXclbin(c.edit(append([]byte(nil), good...)))
			require.ErrorIs(t, err, amdxdna.ErrXclbin)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func FuzzXclbin(f *testing.F) {
	f.Add(fake.Xclbin([]byte("image"), 8, "MLIR_AIE"))
	f.Add(fake.Xclbin(nil, 4, ""))
	f.Add([]byte("xclbin2\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := amdxdna.ParseXclbin(b)
		if err != nil {
			require.ErrorIs(t, err, amdxdna.ErrXclbin)
			return
		}
		require.NotEmpty(t, x.Partition.PDIs)
		for _, k := range x.Kernels {
			if p, err := x.Image(k); err == nil {
				require.LessOrEqual(t, len(p.Image), len(b))
			}
		}
	})
}

func TestManifest(t *testing.T) {
	text := `{"version":1,"device":"xdna2","types":"int8-int16","tile":{"m":128,"k":72,"n":112},"k_mt":432,"b_layout":"col","double_c":false,"rtp_address":1024,"barrier_lock":7}`
	m, err := amdxdna.ReadManifest(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, amdxdna.Dims{M: 128, K: 72, N: 112}, m.Tile)
	require.NoError(t, m.Differs(m))
	other := *m
	other.KMT, other.RTP = 360, 2048
	err = m.Differs(&other)
	require.ErrorContains(t, err, "k_mt is 432, the design has 360")
	require.ErrorContains(t, err, "rtp_address is 1024, the design has 2048")
	for text, want := range map[string]string{
		`{`:                                                    "manifest: ",
		`{"version":1,"kmt":4}`:                                `unknown field "kmt"`,
		text + text:                                            "more than one",
		`{"version":2,"device":"npu9"}`:                        "version 2, want 1; device \"npu9\"",
		strings.Replace(text, "432", "430", 1):                 "k_mt 430 is not a multiple of k 72",
		strings.Replace(text, `"col"`, `"x"`, 1):               "b_layout",
		strings.Replace(text, "1024", "70000", 1):              "rtp_address",
		strings.Replace(text, ":7}", ":16}", 1):                "barrier_lock",
		strings.Replace(text, ":7}", `:7,"rounding":"up"}`, 1): "rounding",
	} {
		_, err := amdxdna.ReadManifest(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}
