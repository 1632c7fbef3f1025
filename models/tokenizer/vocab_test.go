package tokenizer

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/gguf"
)

func open(t testing.TB, name string) *Tokenizer {
	f, err := gguf.Open(shared.File(t, name))
	require.NoError(t, err)
	defer f.Close()
	tok, err := FromGGUF(f)
	require.NoError(t, err)
	return tok
}

// The vocabularies beside the checkout, with the cases and ids of llama.cpp's own tokenizer test.
func TestVocabularies(t *testing.T) {
	for _, name := range []string{"gpt-2", "llama-spm", "bert-bge"} {
		t.Run(name, func(t *testing.T) {
			base := "data/models/vocab/ggml-vocab-" + name + ".gguf"
			tok := open(t, base)
			inputs, err := os.ReadFile(shared.File(t, base+".inp"))
			require.NoError(t, err)
			outputs, err := os.ReadFile(shared.File(t, base+".out"))
			require.NoError(t, err)
			cases := strings.Split(string(inputs), "\n__ggml_vocab_test__\n")
			cases = cases[:len(cases)-1] // the last separator ends the file
			want := strings.Split(strings.TrimSuffix(string(outputs), "\n"), "\n")
			require.Len(t, want, len(cases))
			for i, text := range cases {
				ids := tok.Encode(text, Options{})
				got := strings.Trim(fmt.Sprint(ids), "[]")
				require.Equal(t, strings.TrimSpace(want[i]), got, "case %d: %q", i, text)
				if name == "bert-bge" {
					continue // normalization loses the text
				}
				require.Equal(t, text, tok.Decode(ids), "case %d", i)
			}
		})
	}
}
