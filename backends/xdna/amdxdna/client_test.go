package amdxdna_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
	"github.com/tessera-go/tessera/backends/xdna/amdxdna/fake"
)

// adder is an array whose program is simple enough to check the client alone: c[i] = a[i] + b[i] + image[0] for stream[0] bytes.
type adder struct{ bias byte }

func (a *adder) Configure(image []byte) error {
	if len(image) == 0 || image[0] == 0 {
		return errors.New("empty image")
	}
	a.bias = image[0]
	return nil
}

func (a *adder) Execute(ctx context.Context, stream []uint32, bufs [][]byte) error {
	if len(bufs) != 3 {
		return fmt.Errorf("%d buffers", len(bufs))
	}
	if stream[0] > uint32(len(bufs[2])) {
		return fmt.Errorf("%d bytes of a buffer of %d", stream[0], len(bufs[2]))
	}
	for i := range stream[0] {
		bufs[2][i] = bufs[0][i] + bufs[1][i] + a.bias
	}
	return ctx.Err()
}

type rig struct {
	fake    *fake.Device
	dev     *amdxdna.Device
	s       *amdxdna.Session
	a, b, c *amdxdna.BO
}

func open(t *testing.T) *rig { return openWith(t, fake.Options{}) }

func openWith(t *testing.T, o fake.Options) *rig {
	t.Helper()
	o.Columns, o.NewArray = 8, func(int) (fake.Array, error) { return &adder{}, nil }
	f := fake.New(o)
	d, err := amdxdna.New(f)
	require.NoError(t, err)
	x, err := amdxdna.ParseXclbin(fake.Xclbin([]byte{7}, 8, "MLIR_AIE"))
	require.NoError(t, err)
	s, err := amdxdna.NewSession(d, x, "", amdxdna.SessionOptions{Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	r := &rig{fake: f, dev: d, s: s}
	for _, b := range []**amdxdna.BO{&r.a, &r.b, &r.c} {
		*b, err = d.Alloc(10000)
		require.NoError(t, err)
	}
	return r
}

// product runs one product and checks it.
func (r *rig) product(n int) error {
	for i := range n {
		r.a.Data[i], r.b.Data[i] = byte(3*i), byte(5*i+n)
	}
	if err := errors.Join(r.a.ToDevice(0, n), r.b.ToDevice(0, n)); err != nil {
		return err
	}
	if err := r.s.Run(context.Background(), []uint32{uint32(n), 0}, r.a, r.b, r.c); err != nil {
		return err
	}
	if err := r.c.FromDevice(0, n); err != nil {
		return err
	}
	for i := range n {
		if want := byte(3*i) + byte(5*i+n) + 7; r.c.Data[i] != want {
			return fmt.Errorf("c[%d] = %d, want %d", i, r.c.Data[i], want)
		}
	}
	return nil
}

// close gives everything back and demands that nothing is left.
func (r *rig) close(t *testing.T) {
	t.Helper()
	require.NoError(t, r.s.Close())
	for _, b := range []*amdxdna.BO{r.a, r.b, r.c} {
		require.NoError(t, b.Close())
	}
	require.NoError(t, r.dev.Close())
	bos, contexts, maps := r.fake.Live()
	require.Zero(t, bos, "buffers left: %v", r.fake.Complaints())
	require.Zero(t, contexts, "contexts left")
	require.Zero(t, maps, "mappings left")
}

func TestProduct(t *testing.T) {
	r := open(t)
	require.Equal(t, "xdna2", r.dev.Info().Device)
	require.Equal(t, "1.5.2.378", r.dev.Info().Firmware)
	require.Contains(t, r.dev.Info().Describe(), "8 columns")
	for n := 1; n < 10000; n = 3*n + 1 {
		require.NoError(t, r.product(n))
	}
	require.Equal(t, 1, r.s.Configurations(), "sizes change, the configuration does not")
	require.Empty(t, r.fake.Complaints())
	r.close(t)
}

// TestAddresses: the array sees a shared buffer at an address of the device's own, or, where the driver names none, where the process has mapped it.
func TestAddresses(t *testing.T) {
	for _, iova := range []bool{false, true} {
		r := openWith(t, fake.Options{IOVA: iova})
		require.NotEqual(t, uint64(amdxdna.InvalidAddr), r.a.Addr)
		require.Equal(t, !iova, r.a.Addr == uint64(uintptr(unsafe.Pointer(&r.a.Data[0]))))
		require.NoError(t, r.product(1000))
		require.Empty(t, r.fake.Complaints())
		r.close(t)
	}
}

// TestCloseTwice: the second close is none, on a device too, whose descriptor may have become another file's.
func TestCloseTwice(t *testing.T) {
	r := open(t)
	r.close(t)
	r.close(t)
}

// TestTimeouts: the longest timeout is none, and a command that never ends leaves by its context.
func TestTimeouts(t *testing.T) {
	r := open(t)
	x, err := amdxdna.ParseXclbin(fake.Xclbin([]byte{7}, 8, "MLIR_AIE"))
	require.NoError(t, err)
	for _, timeout := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Second, time.Hour} {
		require.NoError(t, r.s.Close())
		r.s, err = amdxdna.NewSession(r.dev, x, "", amdxdna.SessionOptions{Timeout: timeout})
		require.NoError(t, err)
		require.NoError(t, r.product(100))
		r.fake.HangNext()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		require.ErrorIs(t, r.s.Run(ctx, []uint32{1}, r.a, r.b, r.c), context.DeadlineExceeded)
		cancel()
	}
	r.close(t)
}

// TestMissingSync: the fake keeps host and device apart, so a client that forgets to synchronize is caught.
func TestMissingSync(t *testing.T) {
	r := open(t)
	r.a.Data[0], r.b.Data[0] = 1, 1
	require.NoError(t, r.s.Run(context.Background(), []uint32{1}, r.a, r.b, r.c))
	require.NoError(t, r.c.FromDevice(0, 1))
	require.EqualValues(t, 7, r.c.Data[0])
	r.close(t)
}

// TestLongStream: the instruction buffer grows.
func TestLongStream(t *testing.T) {
	r := open(t)
	stream := make([]uint32, 300_000)
	stream[0] = 1
	require.NoError(t, r.s.Run(context.Background(), stream, r.a, r.b, r.c))
	require.NoError(t, r.product(100))
	require.ErrorContains(t, r.s.Run(context.Background(), nil, r.a), "empty")
	r.close(t)
}

// TestFaults: every failure is an error that says what happened, nothing is leaked, the next product works.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		inject  func(*rig)
		want    string
		is      error
		configs int // afterwards, with the product that works
	}{
		{"submit EINVAL", func(r *rig) { r.fake.Inject(fake.Fault{Req: amdxdna.IoctlExec, Err: amdxdna.EINVAL}) }, "EXEC_CMD: the driver refused", amdxdna.EINVAL, 2},
		{"submit ENODEV", func(r *rig) { r.fake.Inject(fake.Fault{Req: amdxdna.IoctlExec, Err: amdxdna.ENODEV}) }, "device is gone or was reset", amdxdna.ENODEV, 2},
		{"wait ENODEV", func(r *rig) { r.fake.Inject(fake.Fault{Req: amdxdna.IoctlTimelineWait, Err: amdxdna.ENODEV}) }, "wait: SYNCOBJ_TIMELINE_WAIT", amdxdna.ENODEV, 2},
		{"wait interrupted once", func(r *rig) { r.fake.Inject(fake.Fault{Req: amdxdna.IoctlTimelineWait, Err: amdxdna.EAGAIN}) }, "", nil, 1},
		{"sync EINVAL", func(r *rig) { r.fake.Inject(fake.Fault{Req: amdxdna.IoctlSyncBO, Err: amdxdna.EINVAL}) }, "SYNC_BO", amdxdna.EINVAL, 1},
		{"timeout", func(r *rig) { r.fake.HangNext() }, "200ms", amdxdna.ErrTimeout, 2},
		{"state error", func(r *rig) { r.fake.EndNext(amdxdna.StateError) }, "ended in state error", nil, 2},
		{"state timeout", func(r *rig) { r.fake.EndNext(amdxdna.StateTimeout) }, "state timeout", nil, 2},
		{"state no response", func(r *rig) { r.fake.EndNext(amdxdna.StateNoResponse) }, "no response", nil, 2},
		{"reset in mid-run", func(r *rig) { r.fake.ResetNext() }, "aborted", nil, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := open(t)
			require.NoError(t, r.product(50))
			c.inject(r)
			err := r.product(60)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
			}
			require.NoError(t, r.product(70), "the next product works")
			require.Equal(t, c.configs, r.s.Configurations())
			r.close(t)
		})
	}
}

// TestAgain: a call that the driver wants to be made again is, whichever it is; one that it never takes is an error in the end.
func TestAgain(t *testing.T) {
	x, err := amdxdna.ParseXclbin(fake.Xclbin([]byte{7}, 8, "MLIR_AIE"))
	require.NoError(t, err)
	for _, req := range []uint32{amdxdna.IoctlGetInfo, amdxdna.IoctlCreateBO, amdxdna.IoctlGetBOInfo, amdxdna.IoctlCreateContext, amdxdna.IoctlConfigContext,
		amdxdna.IoctlSyncBO, amdxdna.IoctlExec, amdxdna.IoctlTimelineWait, amdxdna.IoctlDestroyContext, amdxdna.IoctlGEMClose} {
		t.Run(amdxdna.IoctlName(req), func(t *testing.T) {
			f := fake.New(fake.Options{NewArray: func(int) (fake.Array, error) { return &adder{}, nil }})
			again := fake.Fault{Req: req, Err: amdxdna.EAGAIN}
			f.Inject(again, again)
			d, err := amdxdna.New(f)
			require.NoError(t, err)
			s, err := amdxdna.NewSession(d, x, "MLIR_AIE", amdxdna.SessionOptions{})
			require.NoError(t, err)
			var bufs [3]*amdxdna.BO
			for i := range bufs {
				bufs[i], err = d.Alloc(4096)
				require.NoError(t, err)
			}
			require.NoError(t, bufs[0].ToDevice(0, 4096))
			require.NoError(t, s.Run(context.Background(), []uint32{1}, bufs[:]...))
			require.Equal(t, 1, s.Configurations())
			for _, b := range bufs {
				require.NoError(t, b.Close())
			}
			require.NoError(t, s.Close())
			require.NoError(t, d.Close())
			bos, contexts, maps := f.Live()
			require.Zero(t, bos+contexts+maps)
		})
	}
	r := open(t)
	for range 2000 {
		r.fake.Inject(fake.Fault{Req: amdxdna.IoctlSyncBO, Err: amdxdna.EAGAIN})
	}
	require.ErrorIs(t, r.a.ToDevice(0, 1), amdxdna.EAGAIN)
	for r.a.ToDevice(0, 1) != nil { // what is left of the faults
	}
	r.close(t)
}

// TestReconnectFails: when even the new context cannot be made, the error says so, and a later product may try again.
func TestReconnectFails(t *testing.T) {
	for _, f := range []fake.Fault{
		{Req: amdxdna.IoctlCreateContext, Err: amdxdna.EBUSY},
		{Req: amdxdna.IoctlConfigContext, Err: amdxdna.EINVAL},
		{Req: amdxdna.IoctlCreateBO, Err: amdxdna.ENOSPC},
		{Req: amdxdna.IoctlCreateBO, Skip: 1, Err: amdxdna.ENOMEM},
		{Req: amdxdna.IoctlGetBOInfo, Err: amdxdna.EINVAL},
		{Req: amdxdna.IoctlSyncBO, Skip: 2, Err: amdxdna.EINVAL}, // after those of the operands
	} {
		t.Run(amdxdna.IoctlName(f.Req)+f.Err.Error(), func(t *testing.T) {
			r := open(t)
			r.fake.EndNext(amdxdna.StateError)
			require.Error(t, r.product(10))
			r.fake.Inject(f)
			require.ErrorIs(t, r.product(10), f.Err)
			require.NoError(t, r.product(10))
			r.close(t)
		})
	}
}

// TestOpenFails: a failure at any call of opening leaks nothing.
func TestOpenFails(t *testing.T) {
	x, err := amdxdna.ParseXclbin(fake.Xclbin([]byte{7}, 8, "MLIR_AIE"))
	require.NoError(t, err)
	for _, req := range []uint32{amdxdna.IoctlGetInfo, amdxdna.IoctlCreateBO, amdxdna.IoctlGetBOInfo, amdxdna.IoctlCreateContext, amdxdna.IoctlConfigContext, amdxdna.IoctlSyncBO} {
		for skip := range 3 {
			f := fake.New(fake.Options{NewArray: func(int) (fake.Array, error) { return &adder{}, nil }})
			f.Inject(fake.Fault{Req: req, Skip: skip, Err: amdxdna.ENOSPC})
			d, err := amdxdna.New(f)
			if err == nil {
				var s *amdxdna.Session
				if s, err = amdxdna.NewSession(d, x, "MLIR_AIE", amdxdna.SessionOptions{}); err == nil {
					require.NoError(t, s.Close())
				}
				require.NoError(t, d.Close())
			}
			if err != nil {
				require.ErrorIs(t, err, amdxdna.ENOSPC)
				require.ErrorContains(t, err, amdxdna.IoctlName(req))
			}
			bos, contexts, maps := f.Live()
			require.Zero(t, bos+contexts+maps, "%s after %d", amdxdna.IoctlName(req), skip)
		}
	}
}

func TestCancel(t *testing.T) {
	r := open(t)
	r.fake.HangNext()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err := r.s.Run(ctx, []uint32{1}, r.a, r.b, r.c)
	require.ErrorIs(t, err, context.DeadlineExceeded, "not the session's timeout")
	require.NoError(t, r.product(5))
	r.close(t)
}

// TestFakeRefuses: the fake checks what the driver checks; each of these would be a bug of the client.
func TestFakeRefuses(t *testing.T) {
	f := fake.New(fake.Options{NewArray: func(int) (fake.Array, error) { return &adder{}, nil }})
	call := func(req uint32, v any, ptrs ...amdxdna.Pointer) error {
		return f.Ioctl(req, amdxdna.Marshal(v), ptrs...)
	}
	qos := amdxdna.Pointer{Off: amdxdna.OffQoS, Mem: amdxdna.Marshal(&amdxdna.QoSInfo{Priority: amdxdna.PriorityNormal})}
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateContext, &amdxdna.CreateContext{MaxOPC: 1, NumTiles: 32}, qos), "before the heap")
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateBO, &amdxdna.CreateBO{Size: 4096, Type: 3}), "before the heap")
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateBO, &amdxdna.CreateBO{Size: 100, Type: 1}), "no whole page")
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateBO, &amdxdna.CreateBO{Size: 4096, Type: 9}))
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateBO, &amdxdna.CreateBO{Size: 4096, Type: 1, Flags: 1}))
	require.Equal(t, amdxdna.EINVAL, call(0xC0086499, &amdxdna.GEMClose{}), "unknown")
	require.Equal(t, amdxdna.EINVAL, f.Ioctl(amdxdna.IoctlExec, make([]byte, 8)), "wrong size")
	require.NoError(t, call(amdxdna.IoctlCreateBO, &amdxdna.CreateBO{Size: 64 << 20, Type: 2}))
	require.Equal(t, amdxdna.EBUSY, call(amdxdna.IoctlCreateBO, &amdxdna.CreateBO{Size: 64 << 20, Type: 2}), "two heaps")
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateContext, &amdxdna.CreateContext{MaxOPC: 1, NumTiles: 30}, qos), "no whole columns")
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateContext, &amdxdna.CreateContext{MaxOPC: 1, NumTiles: 64}, qos), "too many columns")
	require.Equal(t, amdxdna.EINVAL, call(amdxdna.IoctlCreateContext, &amdxdna.CreateContext{NumTiles: 32}, qos), "max_opc")
	require.NoError(t, call(amdxdna.IoctlCreateContext, &amdxdna.CreateContext{MaxOPC: 1, NumTiles: 32}, qos))
	require.Equal(t, amdxdna.EBUSY, call(amdxdna.IoctlCreateContext, &amdxdna.CreateContext{MaxOPC: 1, NumTiles: 32}, qos), "columns are taken")
	require.NotEmpty(t, f.Complaints())
}

func TestXDNA(t *testing.T) {
	f := fake.New(fake.Options{Columns: 5, NewArray: func(int) (fake.Array, error) { return &adder{}, nil }})
	d, err := amdxdna.New(f)
	require.NoError(t, err)
	require.Equal(t, "xdna", d.Info().Device)
	x, err := amdxdna.ParseXclbin(fake.Xclbin([]byte{7}, 8, "k"))
	require.NoError(t, err)
	_, err = amdxdna.NewSession(d, x, "k", amdxdna.SessionOptions{})
	require.ErrorContains(t, err, "the xclbin needs 8 columns, xdna has 5")
	require.NoError(t, d.Close())
	f = fake.New(fake.Options{Columns: 6})
	_, err = amdxdna.New(f)
	require.ErrorContains(t, err, "6 columns: neither")
}

func TestNoNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accel0")
	_, err := amdxdna.Open(path)
	require.ErrorContains(t, err, path)
	if runtime.GOOS == "linux" {
		require.ErrorContains(t, err, "amdxdna")
		require.ErrorContains(t, err, "Linux 6.14")
	} else {
		require.ErrorIs(t, err, amdxdna.ErrUnsupported)
	}
}
