//go:build !noasm

package cpuinfo

import (
	"slices"
	"testing"

	"github.com/klauspost/cpuid/v2"
	"github.com/stretchr/testify/require"
)

// The level of tiles takes the processor, the kernel's permission, which is asked for only where it counts, and AVX-512, whose kernels do what
// tiles do not.
func TestTilesNeedPermission(t *testing.T) {
	base := []cpuid.FeatureID{cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.BMI2}
	wide := append(slices.Clone(base), cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI, cpuid.AVX512BF16)
	for _, x := range []struct {
		name        string
		has         []cpuid.FeatureID
		permit      bool
		asked       bool
		bytes, half bool
		want        []ISA
	}{
		{"no tiles", wide, true, false, false, false, []ISA{Portable, AVX2, AVX512}},
		{"tiles", append(slices.Clone(wide), cpuid.AMXTILE, cpuid.AMXINT8, cpuid.AMXBF16), true, true, true, true, []ISA{Portable, AVX2, AVX512, AMX}},
		{"refused", append(slices.Clone(wide), cpuid.AMXTILE, cpuid.AMXINT8, cpuid.AMXBF16), false, true, false, false, []ISA{Portable, AVX2, AVX512}},
		{"bytes only", append(slices.Clone(wide), cpuid.AMXTILE, cpuid.AMXINT8), true, true, true, false, []ISA{Portable, AVX2, AVX512, AMX}},
		{"no products", append(slices.Clone(wide), cpuid.AMXTILE), true, false, false, false, []ISA{Portable, AVX2, AVX512}},
		{"no AVX-512", append(slices.Clone(base), cpuid.AMXTILE, cpuid.AMXINT8, cpuid.AMXBF16), true, false, false, false, []ISA{Portable, AVX2}},
	} {
		t.Run(x.name, func(t *testing.T) {
			in, asked := &Info{ISAs: []ISA{Portable}}, false
			supports := func(ids ...cpuid.FeatureID) bool {
				for _, id := range ids {
					if !slices.Contains(x.has, id) {
						return false
					}
				}
				return true
			}
			detectFrom(in, supports, func() bool { asked = true; return x.permit })
			require.Equal(t, x.want, in.ISAs)
			require.Equal(t, x.asked, asked)
			require.Equal(t, []bool{x.bytes, x.half}, []bool{in.Features.AMXInt8, in.Features.AMXBF16})
		})
	}
}

// Rules of Zen 4 are taken there only, whatever is known of the caches.
func TestZen4(t *testing.T) {
	for _, x := range []struct {
		vendor cpuid.Vendor
		family int
		want   bool
	}{{cpuid.AMD, 0x19, true}, {cpuid.AMD, 0x1a, false}, {cpuid.Intel, 6, false}, {cpuid.Hygon, 0x19, false}} {
		require.Equal(t, x.want, isZen4(x.vendor, x.family), "%v %#x", x.vendor, x.family)
	}
	f := Get().Features
	require.Equal(t, f.Zen4, f.FetchesAlone)
	require.False(t, f.Zen4 && !f.VPDPFast)
}

func TestIceLakeServer(t *testing.T) {
	for _, x := range []struct {
		vendor        cpuid.Vendor
		family, model int
		want          bool
	}{{cpuid.Intel, 6, 106, true}, {cpuid.Intel, 6, 108, true}, {cpuid.Intel, 6, 143, false}, {cpuid.AMD, 6, 106, false}, {cpuid.Intel, 15, 106, false}} {
		require.Equal(t, x.want, isIceLakeServer(x.vendor, x.family, x.model), "%v %d %d", x.vendor, x.family, x.model)
	}
}
