package array_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// paper returns the first-ranked design of arXiv 2512.13282 for a type pair.
func paper(dev *device.Device, types string, layout design.Layout) *design.Design {
	ty, err := device.ParseTypes(types)
	if err != nil {
		panic(err)
	}
	tiles := map[string]struct {
		t   design.Tile
		kmt int
	}{
		"xdna int8-int8": {design.Tile{M: 112, K: 112, N: 112}, 448}, "xdna int8-int16": {design.Tile{M: 96, K: 112, N: 96}, 448},
		"xdna int8-int32": {design.Tile{M: 80, K: 88, N: 96}, 352}, "xdna bf16-bf16": {design.Tile{M: 96, K: 56, N: 96}, 224},
		"xdna2 int8-int8": {design.Tile{M: 144, K: 72, N: 144}, 432}, "xdna2 int8-int16": {design.Tile{M: 128, K: 72, N: 112}, 432},
		"xdna2 int8-int32": {design.Tile{M: 96, K: 64, N: 96}, 384}, "xdna2 bf16-bf16": {design.Tile{M: 112, K: 48, N: 96}, 384},
	}
	p := tiles[dev.Name+" "+types]
	return &design.Design{Dev: dev, Types: ty, Tile: p.t, KMT: p.kmt, BLayout: layout}
}

func words(t testing.TB, s txn.Stream) []uint32 {
	w, err := txn.Encode(s)
	require.NoError(t, err)
	return w
}

// dispatch runs a product and returns the result.
func dispatch(t testing.TB, a *array.Array, d *design.Design, m, k, n int, aBytes, bBytes, c []byte) *array.Result {
	r, err := d.Run(design.Problem{M: m, K: k, N: n})
	require.NoError(t, err)
	bufs := make([][]byte, design.NumArgs)
	bufs[design.ArgA], bufs[design.ArgB], bufs[design.ArgC] = aBytes, bBytes, c
	for i := design.ArgStage; i < design.NumArgs; i++ {
		bufs[i] = make([]byte, r.BufferBytes[i])
	}
	require.NoError(t, r.Prepare(bufs))
	args := make([]array.Buffer, len(bufs))
	for i, b := range bufs {
		args[i] = array.Buffer{Data: b, Input: i == design.ArgA || i == design.ArgB || i == design.ArgStage}
	}
	res, err := a.Dispatch(context.Background(), words(t, r), args...)
	require.NoError(t, err)
	require.NoError(t, r.Finish(bufs))
	return res
}

// checkInts compares sampled elements, and all edges, with the reference.
func checkInts(t testing.TB, d *design.Design, m, k, n int, a, b, c []byte, rng *rand.Rand) {
	row, col := make([]int8, k), make([]int8, k)
	one := func(i, j int) {
		for p := range k {
			row[p] = int8(a[i*k+p])
			if d.BLayout == design.ColMajor {
				col[p] = int8(b[j*k+p])
			} else {
				col[p] = int8(b[p*n+j])
			}
		}
		want := kernel.ReferenceInt(row, col, d.Tile.K, d.Types.C, d.Overflow)
		at := i*n + j
		var got int32
		switch d.Types.C {
		case kernel.I8:
			got = int32(int8(c[at]))
		case kernel.I16:
			got = int32(int16(binary.LittleEndian.Uint16(c[2*at:])))
		default:
			got = int32(binary.LittleEndian.Uint32(c[4*at:]))
		}
		require.Equal(t, want, got, "(%d,%d)", i, j)
	}
	for range 300 {
		one(rng.IntN(m), rng.IntN(n))
	}
	one(0, 0)
	one(m-1, n-1)
	one(0, n-1)
	one(m-1, 0)
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func TestProductInt8(t *testing.T) {
	for _, dev := range device.All() {
		for _, types := range []string{"int8-int8", "int8-int16", "int8-int32"} {
			for _, layout := range []design.Layout{design.ColMajor, design.RowMajor} {
				t.Run(fmt.Sprintf("%s/%s/%v", dev.Name, types, layout), func(t *testing.T) {
					d := paper(dev, types, layout)
					require.NoError(t, d.Validate())
					cfg, err := d.Config()
					require.NoError(t, err)
					a := array.New(dev, array.Options{})
					_, err = a.Configure(context.Background(), words(t, cfg))
					require.NoError(t, err)
					rng := rand.New(rand.NewPCG(1, 1))
					for _, s := range [][3]int{{512, 512, 512}, {100, 300, 200}, {1, 1, 1}, {513, 433, 897}} {
						m, k, n := s[0], s[1], s[2]
						x, y := randomBytes(rng, m*k), randomBytes(rng, k*n)
						c := make([]byte, d.Types.C.Bytes(m*n))
						res := dispatch(t, a, d, m, k, n, x, y, c)
						checkInts(t, d, m, k, n, x, y, c, rng)
						require.Positive(t, res.Seconds)
					}
				})
			}
		}
	}
}

// A product of the paper's tables. TESSERA_SLOW=1 takes its full size and reports how long the emulation took.
func TestTableSize(t *testing.T) {
	m, k, n := 1024, 864, 1792
	if os.Getenv("TESSERA_SLOW") != "" {
		m, k, n = 4096, 4320, 4480
	}
	d := paper(device.XDNA2, "int8-int16", design.ColMajor)
	cfg, err := d.Config()
	require.NoError(t, err)
	a := array.New(d.Dev, array.Options{})
	_, err = a.Configure(context.Background(), words(t, cfg))
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := randomBytes(rng, m*k), randomBytes(rng, k*n)
	c := make([]byte, d.Types.C.Bytes(m*n))
	start := time.Now()
	res := dispatch(t, a, d, m, k, n, x, y, c)
	t.Logf("%v of wall time for %.3f ms simulated (%.2f TOPS), %d events", time.Since(start), res.Seconds*1e3, 2*float64(m)*float64(n)*float64(k)/res.Seconds/1e12, res.Events)
	checkInts(t, d, m, k, n, x, y, c, rng)
}
