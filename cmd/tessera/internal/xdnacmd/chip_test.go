package xdnacmd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/xdna"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna/fake"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/tokenizer"
)

// TestLanguageModelOnAChip runs the embedded language model through the whole driver path: the client of the Linux driver, a fake device behind
// it that checks every structure, and the array emulator that executes the instruction buffers. The result has the bits of fast mode, on one
// configuration, and after an injected failure the model works again.
func TestLanguageModelOnAChip(t *testing.T) {
	dev := device.XDNA2
	types, err := device.ParseTypes("bf16-bf16")
	require.NoError(t, err)
	d, err := xdna.DefaultDesign(dev, types, design.ColMajor)
	require.NoError(t, err)
	cfg, err := d.Config()
	require.NoError(t, err)
	image, err := txn.EncodeBytes(cfg)
	require.NoError(t, err)
	x, err := amdxdna.ParseXclbin(fake.Xclbin(image, dev.Cols, "MLIR_AIE"))
	require.NoError(t, err)
	f := fake.New(fake.ForDevice(dev))
	node, err := amdxdna.New(f)
	require.NoError(t, err)
	chip, err := xdna.NewWithExecutor(dev, xdna.Options{Mode: xdna.Emulate, Rows: 1}, xdna.NewHardware(node, x, xdna.Manifest(d)))
	require.NoError(t, err)
	fast, err := xdna.NewWithExecutor(dev, xdna.Options{Mode: xdna.Fast, Rows: 1}, nil)
	require.NoError(t, err)
	cpu, err := backends.Open("cpu")
	require.NoError(t, err)
	defer cpu.Close()

	text := "The prince said nothing and looked at the old man, who went on with his"
	value := func(b backends.Backend) (float64, error) {
		m, err := llm.Parse(tolstoy.GGUF(), llm.Options{Backends: []backends.Backend{b, cpu}})
		require.NoError(t, err)
		defer m.Close()
		p, err := m.Perplexity(context.Background(), m.Tokenizer.Encode(text, tokenizer.Options{}), 0, nil)
		if err != nil {
			return 0, err
		}
		return p.Value(), nil
	}
	want, err := value(fast)
	require.NoError(t, err)
	got, err := value(chip)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Positive(t, f.Commands())
	require.Equal(t, int64(f.Commands()), chip.Stats().Dispatches)
	require.Equal(t, int64(1), chip.Stats().Configurations)

	f.ResetNext()
	_, err = value(chip)
	require.ErrorContains(t, err, "reset")
	got, err = value(chip)
	require.NoError(t, err)
	require.Equal(t, want, got)

	require.NoError(t, fast.Close())
	require.NoError(t, chip.Close())
	bos, contexts, maps := f.Live()
	require.Zero(t, bos+contexts+maps)
}
