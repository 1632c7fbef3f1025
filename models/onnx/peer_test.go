package onnx_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/npm"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// Real models give what ONNX Runtime gave (recorded by bench/onnxref), to 1e-4 of each output's range.
func TestAgainstONNXRuntime(t *testing.T) {
	text, err := os.ReadFile("testdata/onnxruntime.json")
	require.NoError(t, err)
	var record struct {
		Runtime, Picture string
		Models           []struct {
			File    string
			Dims    []int
			Format  image.Format
			Outputs []struct {
				Name      string
				Shape     []int
				Low, High float64
				At        []int
				Values    []float64
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &record))
	require.Len(t, record.Models, 7)
	bs := cpu(t)
	for _, c := range record.Models {
		t.Run(c.File, func(t *testing.T) {
			dir := npm.Models(t, c.File, record.Picture)
			pictures, err := image.ReadFile(filepath.Join(dir, record.Picture))
			require.NoError(t, err)
			in := tensor.New(tensor.F32, c.Dims...)
			require.NoError(t, c.Format.Put(in, pictures[0]))
			m, err := onnx.Open(filepath.Join(dir, c.File))
			require.NoError(t, err)
			defer m.Close()
			s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: bs})
			require.NoError(t, err)
			defer s.Close()
			out, err := s.Run(context.Background(), map[string]onnx.Value{s.Inputs()[0].Name: onnx.Of(in)})
			require.NoError(t, err)
			require.Empty(t, s.Eager())
			require.NotEmpty(t, c.Outputs)
			for _, want := range c.Outputs {
				y := out[want.Name].Tensor
				require.Equal(t, want.Shape, y.Shape())
				v := y.Floats()
				worst := 0.0
				for i, w := range want.Values {
					worst = max(worst, math.Abs(v[want.At[i]]-w)/(want.High-want.Low))
				}
				t.Logf("%s: %.1e of the range", want.Name, worst)
				require.Less(t, worst, 1e-4, want.Name)
			}
		})
	}
}
