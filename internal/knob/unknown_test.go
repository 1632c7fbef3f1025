package knob

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStrays(t *testing.T) {
	require.Empty(t, Strays([]string{"TESSERA_ISA=avx2", "TESSERA_PROFILE=none", "TESSERA_EXAMPLE_LOW=1", "TESSERA_ELSEWHERE=", "HOME=/", "OTHER_TESSERA_ISA=1", "TESSERA_REQUIRE_SHARED=1", "TESSERA_SLOW=1"}))
	for name, nearest := range map[string]string{
		"TESSERA_EXAMPLE_LOV": "TESSERA_EXAMPLE_LOW", "TESSERA_EXAMPEL_LOW": "TESSERA_EXAMPLE_LOW", "TESSERA_EXAMPLE_HIG": "TESSERA_EXAMPLE_HIGH", "TESSERA_PROFIL": "TESSERA_PROFILE",
		"TESSERA_ISO": "TESSERA_ISA", "tessera_profile": "TESSERA_PROFILE", "TESSERA_THREADS": "", "TESSERA_": "", "TESSERA_SLOWER": "",
	} {
		require.Equal(t, []Stray{{name, nearest}}, Strays([]string{name + "=1"}), name)
	}
	require.Equal(t, []Stray{{"TESSERA_X", ""}, {"TESSERA_ISAS", "TESSERA_ISA"}}, Strays([]string{"TESSERA_X=1", "TESSERA_ISA=neon", "TESSERA_ISAS=1"}))
	require.Equal(t, 3, distance("kitten", "sitting"))
	require.Equal(t, 4, distance("", "four"))
}
