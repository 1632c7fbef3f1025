package llmtest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
)

func TestFilesCanBeReadAndAreTheSameEveryTime(t *testing.T) {
	cases := Cases()
	require.NotEmpty(t, cases)
	for name, shape := range cases {
		var a, b bytes.Buffer
		require.NoError(t, Write(&a, shape), name)
		require.NoError(t, Write(&b, shape), name)
		require.True(t, bytes.Equal(a.Bytes(), b.Bytes()), name)
		f, err := gguf.Parse(a.Bytes())
		require.NoError(t, err, name)
		arch, err := f.Str("general.architecture")
		require.NoError(t, err)
		require.Equal(t, shape.Arch, arch)
		require.NotNil(t, f.Info("token_embd.weight"), name)
	}
}
