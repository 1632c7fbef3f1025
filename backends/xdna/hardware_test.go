package xdna

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna/fake"
	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// emulated is the emulator behind the fake device: its image is a configuration in control code.
type emulated struct{ a *array.Array }

func controlWords(b []byte) []uint32 {
	w := make([]uint32, len(b)/4)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return w
}

func (e *emulated) Configure(image []byte) error {
	words := controlWords(image)
	if len(words) > 3 && int(words[3]/4) <= len(words) {
		words = words[:words[3]/4] // the image ends before its buffer does
	}
	_, err := e.a.Configure(context.Background(), words)
	return err
}

func (e *emulated) Execute(ctx context.Context, stream []uint32, bufs [][]byte) error {
	args := make([]array.Buffer, len(bufs))
	for i, b := range bufs {
		args[i] = array.In(b)
	}
	_, err := e.a.Dispatch(ctx, stream, args...)
	return err
}

// openFake is a backend on a device behind the driver's interface that is configured for products of these types.
func openFake(t *testing.T, pair string) (*Backend, *fake.Device) {
	types, err := device.ParseTypes(pair)
	require.NoError(t, err)
	d, err := DefaultDesign(device.XDNA2, types, design.ColMajor)
	require.NoError(t, err)
	p, err := d.Config()
	require.NoError(t, err)
	image, err := txn.EncodeBytes(p)
	require.NoError(t, err)
	f := fake.New(fake.Options{Columns: 8, NewArray: func(int) (fake.Array, error) {
		return &emulated{array.New(device.XDNA2, array.Options{})}, nil
	}})
	chip, err := amdxdna.New(f)
	require.NoError(t, err)
	x, err := amdxdna.ParseXclbin(fake.Xclbin(image, 8, "MLIR_AIE"))
	require.NoError(t, err)
	b, err := NewWithExecutor(device.XDNA2, Options{Mode: Emulate}, NewHardware(chip, x, Manifest(d)))
	require.NoError(t, err)
	return b, f
}

// Close in the middle of products waits for the one that runs; those behind it are errors, and nothing is left or touched again.
func TestHardwareCloseWhileRunning(t *testing.T) {
	spec := matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I16, BLayout: matmul.ColMajor}
	b, f := openFake(t, "int8-int16")
	q := randomProblem(rand.New(rand.NewPCG(3, 4)), spec, 64, 64, 64, 0)
	w, err := b.engine.Pack(context.Background(), q.spec, q.b)
	require.NoError(t, err)
	plan, err := b.engine.Plan(q.spec, matmul.Shape{M: q.m})
	require.NoError(t, err)
	const users = 3
	first, ends := make(chan error, users), make(chan error, users)
	for range users {
		go func() {
			a, space := matmul.Args{A: q.a, C: tensor.New(q.spec.C, q.m, q.spec.N)}, new(matmul.Workspace)
			err := plan.Run(context.Background(), w, &a, space)
			for first <- err; err == nil; {
				err = plan.Run(context.Background(), w, &a, space)
			}
			ends <- err
		}()
	}
	for range users {
		require.NoError(t, <-first)
	}
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	for range users {
		require.ErrorContains(t, <-ends, "closed")
	}
	bos, contexts, maps := f.Live()
	require.Zero(t, bos+contexts+maps)
	require.Empty(t, f.Complaints())
}

// The same engine runs on a device behind the driver's interface, with the same bits, and comes back after a failure.
func TestHardware(t *testing.T) {
	spec := matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I16, BLayout: matmul.ColMajor}
	b, f := openFake(t, "int8-int16")
	require.False(t, b.Describe().Simulated)
	fast := open(t, device.XDNA2, Options{})
	rng := rand.New(rand.NewPCG(3, 3))
	for _, size := range [][3]int{{200, 300, 500}, {7, 900, 433}, {600, 9, 64}} {
		q := randomProblem(rng, spec, size[0], size[1], size[2], 0)
		require.Equal(t, raw(q.run(t, fast)), raw(q.run(t, b)))
	}
	require.Equal(t, int64(1), b.Stats().Configurations)

	q := randomProblem(rng, spec, 64, 64, 64, 0)
	f.EndNext(amdxdna.StateError)
	w, err := b.engine.Pack(context.Background(), q.spec, q.b)
	require.NoError(t, err)
	plan, err := b.engine.Plan(q.spec, matmul.Shape{M: q.m})
	require.NoError(t, err)
	c := tensor.New(q.spec.C, q.m, q.spec.N)
	require.ErrorContains(t, plan.Run(context.Background(), w, &matmul.Args{A: q.a, C: c}, new(matmul.Workspace)), "state")
	require.Equal(t, raw(q.run(t, fast)), raw(q.run(t, b)))

	// A type pair that the xclbin was not built for is refused, not run.
	q = randomProblem(rng, matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I32, BLayout: matmul.ColMajor}, 8, 8, 8, 0)
	w, err = b.engine.Pack(context.Background(), q.spec, q.b)
	require.NoError(t, err)
	plan, err = b.engine.Plan(q.spec, matmul.Shape{M: q.m})
	require.NoError(t, err)
	c = tensor.New(q.spec.C, q.m, q.spec.N)
	require.ErrorContains(t, plan.Run(context.Background(), w, &matmul.Args{A: q.a, C: c}, new(matmul.Workspace)), "does not fit the design")

	require.NoError(t, b.Close())
	bos, contexts, maps := f.Live()
	require.Zero(t, bos+contexts+maps)
	require.Empty(t, f.Complaints())
}

func TestHardwareOptions(t *testing.T) {
	_, err := backends.Open("xdna2:device=/dev/accel/accel0")
	require.ErrorContains(t, err, "xclbin and manifest are needed")
	dir := t.TempDir()
	m := filepath.Join(dir, "m.json")
	require.NoError(t, os.WriteFile(m, []byte(`{"version":1,"device":"xdna2","types":"int8-int16","tile":{"m":128,"k":72,"n":112},"k_mt":432,"b_layout":"col","double_c":false,"rtp_address":1016,"barrier_lock":6}`), 0o644))
	x := filepath.Join(dir, "x.xclbin")
	require.NoError(t, os.WriteFile(x, fake.Xclbin([]byte{1, 2, 3, 4}, 8, "MLIR_AIE"), 0o644))
	node := filepath.Join(dir, "accel0")
	_, err = backends.Open("xdna2:device=" + node + ",xclbin=" + x + ",manifest=" + m)
	require.ErrorContains(t, err, "amdxdna")
	// No device is the first mistake to tell, whatever else is missing.
	_, err = backends.Open("xdna2:device=" + node + ",xclbin=none,manifest=none")
	require.ErrorContains(t, err, "amdxdna")
	for want, files := range map[string][2]string{
		"device is xdna2":            {x, m},
		"open none: no such file":    {x, "none"},
		"open missing: no such file": {"missing", m},
		m + ": not a usable xclbin":  {m, m},
	} {
		dev := device.XDNA2
		if files == [2]string{x, m} {
			dev = device.XDNA
		}
		_, _, err = configure(dev, nil, files[0], files[1])
		require.ErrorContains(t, err, want)
	}
}

func raw(t tensor.Tensor) []byte { return t.Raw() }
