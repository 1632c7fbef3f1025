package llm_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
)

// Options that mean nothing are errors, not taken as none.
func TestGenerateOptionsOutOfRange(t *testing.T) {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	require.NoError(t, err)
	defer m.Close()
	for want, o := range map[string]llm.GenerateOptions{
		"MaxTokens is -1": {MaxTokens: -1},
		"Top is -2":       {MaxTokens: 1, Top: -2},
		"Overflow is 7":   {MaxTokens: 1, Overflow: 7},
	} {
		var errs []error
		for _, err := range m.Generate(context.Background(), "The prince", o) {
			errs = append(errs, err)
		}
		require.Len(t, errs, 1)
		require.ErrorContains(t, errs[0], want)
		errs = nil
		for _, err := range m.GenerateBatch(context.Background(), []string{"The", "A"}, 2, o) {
			errs = append(errs, err)
		}
		require.NotEmpty(t, errs)
		require.ErrorContains(t, errs[0], want)
	}
}
