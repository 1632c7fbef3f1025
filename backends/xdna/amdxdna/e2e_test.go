package amdxdna_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna/fake"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// chip is the whole way from a problem to the array: planner's design, control code, driver client, fake device, emulator.
type chip struct {
	t    *testing.T
	fake *fake.Device
	dev  *amdxdna.Device
	s    *amdxdna.Session
	d    *design.Design
	rng  *rand.Rand
}

func openChip(t *testing.T, dev *device.Device) *chip {
	t.Helper()
	types, err := device.ParseTypes("int8-int32")
	require.NoError(t, err)
	d, err := xdna.DefaultDesign(dev, types, design.ColMajor)
	require.NoError(t, err)
	cfg, err := d.Config()
	require.NoError(t, err)
	image, err := txn.EncodeBytes(cfg)
	require.NoError(t, err)
	f := fake.New(fake.ForDevice(dev))
	h, err := amdxdna.New(f)
	require.NoError(t, err)
	require.Equal(t, dev.Name, h.Info().Device)
	x, err := amdxdna.ParseXclbin(fake.Xclbin(image, dev.Cols, "MLIR_AIE"))
	require.NoError(t, err)
	s, err := amdxdna.NewSession(h, x, "MLIR_AIE", amdxdna.SessionOptions{Timeout: 2 * time.Second})
	require.NoError(t, err)
	return &chip{t, f, h, s, d, rand.New(rand.NewPCG(1, 9))}
}

// product runs a random product through buffers of its own and returns its error; a wrong result fails the test.
func (c *chip) product(m, n, k int) error {
	t := c.t
	run, err := c.d.Run(design.Problem{M: m, K: k, N: n})
	require.NoError(t, err)
	words, err := txn.Encode(run)
	require.NoError(t, err)
	bufs, host := make([]*amdxdna.BO, design.NumArgs), make([][]byte, design.NumArgs)
	defer func() {
		for _, b := range bufs {
			require.NoError(t, b.Close())
		}
	}()
	for i, size := range run.BufferBytes {
		if bufs[i], err = c.dev.Alloc(int(max(size, 4))); err != nil {
			return err
		}
		host[i] = bufs[i].Data
	}
	a, b := host[design.ArgA], host[design.ArgB]
	for _, mem := range [][]byte{a[:m*k], b[:n*k]} {
		for i := range mem {
			mem[i] = byte(c.rng.Uint32())
		}
	}
	require.NoError(t, run.Prepare(host))
	for i, x := range bufs {
		if err := x.ToDevice(0, int(run.BufferBytes[i])); err != nil {
			return err
		}
	}
	if err := c.s.Run(context.Background(), words, bufs...); err != nil {
		return err
	}
	for _, i := range []int{design.ArgC, design.ArgSpill} {
		if err := bufs[i].FromDevice(0, int(run.BufferBytes[i])); err != nil {
			return err
		}
	}
	require.NoError(t, run.Finish(host))
	out := host[design.ArgC]
	for i := range m {
		for j := range n {
			want := int32(0)
			for x := range k {
				want += int32(int8(a[i*k+x])) * int32(int8(b[j*k+x]))
			}
			at := out[4*(i*n+j):]
			got := int32(uint32(at[0]) | uint32(at[1])<<8 | uint32(at[2])<<16 | uint32(at[3])<<24)
			require.Equal(t, want, got, "c[%d,%d] of %dx%dx%d", i, j, m, n, k)
		}
	}
	return nil
}

func (c *chip) close() {
	require.NoError(c.t, c.s.Close())
	require.NoError(c.t, c.dev.Close())
	bos, contexts, maps := c.fake.Live()
	require.Zero(c.t, bos+contexts+maps, "left: %d buffers, %d contexts, %d mappings; %v", bos, contexts, maps, c.fake.Complaints())
}

// TestEmulatedChip: several sizes on one configuration, exact, on both devices.
func TestEmulatedChip(t *testing.T) {
	for _, dev := range device.All() {
		c := openChip(t, dev)
		for _, s := range [][3]int{{64, 64, 64}, {100, 37, 501}, {1, 400, 99}, {330, 130, 720}} {
			require.NoError(t, c.product(s[0], s[1], s[2]))
		}
		require.Equal(t, 1, c.s.Configurations())
		require.Empty(t, c.fake.Complaints())
		c.close()
	}
}

// TestEmulatedChipFaults: the faults of a real driver in the middle of real products.
func TestEmulatedChipFaults(t *testing.T) {
	for _, f := range []struct {
		name   string
		inject func(*fake.Device)
		want   string
	}{
		{"EINVAL", func(d *fake.Device) { d.Inject(fake.Fault{Req: amdxdna.IoctlExec, Err: amdxdna.EINVAL}) }, "refused the arguments"},
		{"ENOSPC", func(d *fake.Device) { d.Inject(fake.Fault{Req: amdxdna.IoctlCreateBO, Skip: 2, Err: amdxdna.ENOSPC}) }, "no space left"},
		{"ENODEV", func(d *fake.Device) { d.Inject(fake.Fault{Req: amdxdna.IoctlTimelineWait, Err: amdxdna.ENODEV}) }, "gone or was reset"},
		{"timeout", func(d *fake.Device) { d.HangNext() }, "did not complete the command in time"},
		{"error state", func(d *fake.Device) { d.EndNext(amdxdna.StateError) }, "state error"},
		{"reset in mid-run", func(d *fake.Device) { d.ResetNext() }, "aborted"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			c := openChip(t, device.XDNA)
			require.NoError(t, c.product(70, 80, 400))
			f.inject(c.fake)
			require.ErrorContains(t, c.product(300, 300, 400), f.want)
			require.NoError(t, c.product(70, 80, 400), "the next product works")
			c.close()
		})
	}
}

// TestBrokenStream: control code that the array rejects ends in the packet's error state, not in a wrong result.
func TestBrokenStream(t *testing.T) {
	c := openChip(t, device.XDNA2)
	run, err := c.d.Run(design.Problem{M: 10, K: 10, N: 10})
	require.NoError(t, err)
	words, err := txn.Encode(run)
	require.NoError(t, err)
	b, err := c.dev.Alloc(4096)
	require.NoError(t, err)
	var cmd *amdxdna.CommandError
	require.ErrorAs(t, c.s.Run(context.Background(), words, b), &cmd, "four of five buffers are missing")
	require.Equal(t, amdxdna.StateError, cmd.State)
	require.NotEmpty(t, c.fake.Complaints())
	require.NoError(t, b.Close())
	require.NoError(t, c.product(10, 10, 10))
	c.close()
}
