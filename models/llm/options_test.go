package llm_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/ops"
)

// Options that mean nothing are errors, not taken as none.
func TestGenerateOptionsOutOfRange(t *testing.T) {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	require.NoError(t, err)
	defer m.Close()
	for want, o := range map[string]llm.GenerateOptions{
		"MaxTokens is -1":  {MaxTokens: -1},
		"Top is -2":        {MaxTokens: 1, Top: -2},
		"Overflow is 7":    {MaxTokens: 1, Overflow: 7},
		`"\xbd w" is no`:   {MaxTokens: 1, Stop: []string{"The", "\xbd w"}},
		`"\xe2\x98" is no`: {MaxTokens: 1, Stop: []string{"☃"[:2]}},
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

// refusing is a backend that takes no product.
type refusing struct{ backends.Backend }

func (refusing) Name() string { return "refusing" }

func (b refusing) Supports(c ops.Call) backends.Verdict {
	if c.Op.Name() == "matmul" {
		return backends.No("takes no product")
	}
	return b.Backend.Supports(c)
}

// What options say about a graph reaches that of decoders and of encoders.
func TestGraphOptions(t *testing.T) {
	cpu, err := backends.Open("cpu")
	require.NoError(t, err)
	defer cpu.Close()
	errNode := errors.New("not this node")
	for _, arch := range []string{"llama", "bert"} {
		var file bytes.Buffer
		require.NoError(t, llmtest.Write(&file, llmtest.Small(arch, false)))
		open := func(o llm.Options) (*llm.Model, *graph.Executable) {
			m, err := llm.Parse(file.Bytes(), o)
			require.NoError(t, err, arch)
			t.Cleanup(func() { require.NoError(t, m.Close()) })
			exe, err := m.Executable()
			require.NoError(t, err, arch)
			return m, exe
		}
		m, plain := open(llm.Options{})
		require.NotEmpty(t, plain.Passes(), arch)
		require.Nil(t, plain.Profile(), arch)
		_, exe := open(llm.Options{DisablePasses: []string{"all"}})
		require.Empty(t, exe.Passes(), arch)
		_, exe = open(llm.Options{Profile: true})
		require.NotNil(t, exe.Profile(), arch)

		_, err := llm.Parse(file.Bytes(), llm.Options{MaxMemory: 1 << 10})
		require.ErrorContains(t, err, "the limit is 1024", arch)
		list := []backends.Backend{refusing{cpu}, cpu}
		open(llm.Options{Backends: list})
		_, err = llm.Parse(file.Bytes(), llm.Options{Backends: list, Strict: true})
		require.ErrorContains(t, err, "takes no product", arch)

		run := func(m *llm.Model) (err error) {
			if m.Config.Causal {
				s, err := m.NewSession()
				require.NoError(t, err)
				return s.Eval(context.Background(), 1, 2, 3)
			}
			_, err = m.EmbedIDs(context.Background(), []int32{1, 2, 3}, llm.EmbedOptions{})
			return err
		}
		require.NoError(t, run(m), arch)
		m, _ = open(llm.Options{OnNode: func(e graph.NodeEvent) error {
			require.NotEmpty(t, e.Name)
			return errNode
		}})
		require.ErrorIs(t, run(m), errNode, arch)
	}
}
