package gemm

import (
	"bytes"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestPackedFileStaysReadable: files that were written by version 1 of the form are what this library writes. When a sum here changes, old
// files would be read as something else: raise packVersion.
func TestPackedFileStaysReadable(t *testing.T) {
	const k, n = 11, 37
	want := map[string]uint32{
		"f32/n8/k1": 0x98bc3718, "bf16/n8/k2": 0x4df2a7b5, "f16/n8/k1": 0x4d4aef32, "s8/n8/k4": 0x82a7f2e8, // portable
		"f32/n16/k1": 0x122e03b4, "bf16/n16/k2": 0xaebf386e, "f16/n16/k1": 0x1f2cf5a9, "s8/n16/k2": 0x835e3b4a, "s8/n16/k4": 0x108e324b, // AVX2, AVX-VNNI
		"f32/n32/k1": 0x27ad0d68, "bf16/n32/k2": 0x64c3e6d9, "f16/n32/k1": 0xdad7e6c4, "s8/n32/k4": 0x218c5da7, // AVX-512
		"f32/n12/k1": 0x64bee7d1, "bf16/n12/k4": 0x18058401, "f16/n12/k1": 0xb031472d, "s8/n12/k2": 0x3845d372, "s8/n12/k8": 0x66254f31, // NEON
		"f32/n24/k1": 0x21fef8ae, "bf16/n24/k4": 0xff4c7155, "f16/n24/k1": 0xe3bd6665, "s8/n24/k8": 0x756231c8, // SVE of 256 bits
	}
	for _, isa := range isas() {
		for _, typ := range []Type{F32, BF16, F16, S8} {
			raw := make([]byte, k*n*typ.Size())
			for i := range raw {
				raw[i] = byte(i*7 + i/256)
			}
			p, err := PackB(Raw(typ, raw, k, n, n, 1), &Options{ISA: isa})
			require.NoError(t, err)
			var file bytes.Buffer
			_, err = p.WriteTo(&file)
			require.NoError(t, err)
			sum := crc32.ChecksumIEEE(file.Bytes())
			w, ok := want[p.Format()]
			if !ok && isa == cpuinfo.SVE {
				continue // one of many vector lengths
			}
			require.True(t, ok, "%v has the new format %s: its sum is %#08x", isa, p.Format(), sum)
			require.Equal(t, w, sum, "%v, %s", isa, p.Format())
		}
	}
}
