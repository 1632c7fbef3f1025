package xdnacmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// TestEncodeDecode: words to text and back, in both dialects, are the same words.
func TestEncodeDecode(t *testing.T) {
	types, err := device.ParseTypes("int8-int32")
	require.NoError(t, err)
	d, err := design.Published(device.XDNA, types, 1)
	require.NoError(t, err)
	run, err := d.Run(design.Problem{M: 100, K: 200, N: 300})
	require.NoError(t, err)
	p := txn.Collect(run)
	dir := t.TempDir()
	for _, head := range []txn.Header{p.Head, p.Head.Optimised()} {
		p.Head = head
		raw, err := txn.EncodeBytes(p)
		require.NoError(t, err)
		bin, text, back := filepath.Join(dir, "a.bin"), filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.bin")
		require.NoError(t, os.WriteFile(bin, raw, 0o666))
		out, err := execute("decode", bin, "-o", text, "--json")
		require.NoError(t, err)
		var r codeResult
		require.NoError(t, json.Unmarshal([]byte(out), &r))
		require.Equal(t, len(p.List), r.Ops)
		require.Equal(t, len(raw)/4, r.Words)
		_, err = execute("encode", text, "-o", back)
		require.NoError(t, err)
		got, err := os.ReadFile(back)
		require.NoError(t, err)
		require.Equal(t, raw, got)
		// To standard output, and to the other dialect.
		out, err = execute("decode", bin)
		require.NoError(t, err)
		require.True(t, strings.Contains(out, "# shim (0,0) s2mm0 queue: bd 1, token"))
		out, err = execute("encode", text, "--dialect", "0.1")
		require.NoError(t, err)
		other, err := txn.DecodeBytes([]byte(out))
		require.NoError(t, err)
		require.Equal(t, p.List, other.List)
	}
}

func TestCodeErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	require.NoError(t, os.WriteFile(bad, []byte("txn 0.1 devgen=3\n"), 0o666))
	for _, tc := range []struct {
		code int
		args []string
	}{
		{2, []string{"encode"}},
		{2, []string{"encode", bad, "--json"}},
		{1, []string{"encode", bad}},
		{1, []string{"decode", bad}},
		{1, []string{"decode", filepath.Join(dir, "none")}},
	} {
		_, err := execute(tc.args...)
		require.Equal(t, tc.code, cli.ExitCode(err), "%v: %v", tc.args, err)
	}
	good := filepath.Join(dir, "good")
	require.NoError(t, os.WriteFile(good, []byte("txn 0.1 devgen=3 rows=6 cols=4 memtile_rows=1\nnoop\n"), 0o666))
	_, err := execute("encode", good, "--dialect", "2.0")
	require.Equal(t, 2, cli.ExitCode(err))
}
