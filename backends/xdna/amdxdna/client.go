package amdxdna

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unsafe"
)

const (
	heapBytes = 64 << 20 // of device memory for images and instructions, mapped at a multiple of itself
	pageBytes = 4096
	pdiAlign  = 32 << 10 // the driver hands the firmware the address shifted right by 15
)

// Info is what the driver says of the chip.
type Info struct {
	Device     string // "xdna" or "xdna2", by the number of columns
	Cols, Rows int
	Version    string // of the array's architecture
	Firmware   string
	MPNPUClock int // MHz, of the controller and the array
	HClock     int // MHz, of the interconnect
}

// Device is an open NPU. Its methods may be called from several goroutines.
type Device struct {
	sys  Sys
	info Info
	heap *BO

	closing sync.Once // a second close of a descriptor would close what has taken its number since
}

// Open opens a device node, usually /dev/accel/accel0.
func Open(path string) (*Device, error) {
	sys, err := OpenNode(path)
	if err != nil {
		return nil, err
	}
	d, err := New(sys)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("NPU %s: %w", path, err), sys.Close())
	}
	return d, nil
}

// New takes an open device: it asks what it is and creates the heap. It does not close sys when it fails.
func New(sys Sys) (*Device, error) {
	d := &Device{sys: sys}
	var meta Metadata
	var clocks Clocks
	var fw Firmware
	if err := d.query(InfoMetadata, &meta); err != nil {
		return nil, err
	}
	if err := d.query(InfoClocks, &clocks); err != nil {
		return nil, err
	}
	if err := d.query(InfoFirmware, &fw); err != nil {
		return nil, err
	}
	d.info = Info{
		Cols: int(meta.Cols), Rows: int(meta.Rows), Version: fmt.Sprintf("%d.%d", meta.Major, meta.Minor),
		Firmware:   fmt.Sprintf("%d.%d.%d.%d", fw.Major, fw.Minor, fw.Patch, fw.Build),
		MPNPUClock: int(clocks.MPNPU.MHz), HClock: int(clocks.H.MHz),
	}
	switch {
	case meta.Rows != 6:
		return nil, fmt.Errorf("an array of %d rows: neither XDNA nor XDNA2, which have 6", meta.Rows)
	case meta.Cols == 4 || meta.Cols == 5: // npu1 has a fifth column without a shim DMA
		d.info.Device = "xdna"
	case meta.Cols == 8:
		d.info.Device = "xdna2"
	default:
		return nil, fmt.Errorf("an array of %d columns: neither XDNA (4 or 5) nor XDNA2 (8)", meta.Cols)
	}
	heap, err := d.newBO(BODevHeap, heapBytes, heapBytes)
	if err != nil {
		return nil, fmt.Errorf("device heap: %w", err)
	}
	d.heap = heap
	return d, nil
}

// Info returns what the driver says of the chip.
func (d *Device) Info() Info { return d.info }

// Close frees the heap and closes the device. Contexts and buffers must have been closed before. A second call does nothing.
func (d *Device) Close() (err error) {
	d.closing.Do(func() { err = errors.Join(d.heap.Close(), d.sys.Close()) })
	return err
}

// againFor bounds how long a call is made again that the driver answers with EAGAIN: it takes some milliseconds to wake the device up.
const againFor = time.Second

// call makes an ioctl with a structure as argument and reads the structure back. EAGAIN, which says that nothing has been done, makes it again, as libdrm
// does for every call; a wait has a deadline of its own and is left to the caller.
func (d *Device) call(req uint32, v any, ptrs ...Pointer) error {
	for end := d.sys.Monotonic() + againFor; ; time.Sleep(time.Millisecond) {
		arg := Marshal(v)
		err := d.sys.Ioctl(req, arg, ptrs...)
		switch {
		case err == nil:
			return Unmarshal(arg, v)
		case !errors.Is(err, EAGAIN) || req == IoctlTimelineWait || d.sys.Monotonic() >= end:
			return fmt.Errorf("%s: %w", IoctlName(req), err)
		}
	}
}

func (d *Device) query(param uint32, v any) error {
	mem := Marshal(v)
	if err := d.call(IoctlGetInfo, &GetInfo{Param: param, BufferSize: uint32(len(mem))}, Pointer{OffBuffer, mem}); err != nil {
		return fmt.Errorf("query %d: %w", param, err)
	}
	return Unmarshal(mem, v)
}

// BO is a buffer object: memory that host and array both reach.
type BO struct {
	Data []byte // as the host sees it
	Addr uint64 // as the array sees it

	dev    *Device
	handle uint32
	mapped bool
	closed bool
}

// Alloc makes a buffer for an operand.
func (d *Device) Alloc(size int) (*BO, error) { return d.newBO(BOShare, size, 0) }

func (d *Device) newBO(typ BOType, size, align int) (_ *BO, err error) {
	if size <= 0 {
		return nil, fmt.Errorf("buffer of %d bytes", size)
	}
	full := (size + pageBytes - 1) / pageBytes * pageBytes
	create := CreateBO{Size: uint64(full), Type: uint32(typ)}
	if err := d.call(IoctlCreateBO, &create); err != nil {
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	b := &BO{dev: d, handle: create.Handle}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	info := GetBOInfo{Handle: create.Handle}
	if err := d.call(IoctlGetBOInfo, &info); err != nil {
		return nil, err
	}
	b.Addr = info.XDNAAddr
	if typ == BODev { // lies in the heap, which is mapped already
		off := info.XDNAAddr - d.heap.Addr
		if info.XDNAAddr < d.heap.Addr || off > heapBytes || uint64(size) > heapBytes-off {
			return nil, fmt.Errorf("device buffer at %#x with %d bytes lies outside the heap at %#x", info.XDNAAddr, size, d.heap.Addr)
		}
		b.Data = d.heap.Data[off : off+uint64(size) : off+uint64(size)]
		return b, nil
	}
	mem, err := d.sys.Map(int64(info.MapOffset), full, align)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", full, err)
	}
	b.Data, b.mapped = mem, true
	if b.Addr == InvalidAddr { // the array goes through the page tables of this process (PASID)
		b.Addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	}
	return b, nil
}

// Close unmaps and frees the buffer.
func (b *BO) Close() error {
	if b == nil || b.closed {
		return nil
	}
	b.closed = true
	var err error
	if b.mapped {
		err = b.dev.sys.Unmap(b.Data)
	}
	b.Data = nil
	return errors.Join(err, b.dev.call(IoctlGEMClose, &GEMClose{Handle: b.handle}))
}

// ToDevice makes what the host has written visible to the array.
func (b *BO) ToDevice(offset, size int) error { return b.sync(SyncToDevice, offset, size) }

// FromDevice makes what the array has written visible to the host.
func (b *BO) FromDevice(offset, size int) error { return b.sync(SyncFromDevice, offset, size) }

func (b *BO) sync(dir uint32, offset, size int) error {
	if b.closed || offset < 0 || size < 0 || size > len(b.Data)-offset {
		return fmt.Errorf("sync of %d bytes at %d of a buffer of %d", size, offset, len(b.Data))
	}
	return b.dev.call(IoctlSyncBO, &SyncBO{Handle: b.handle, Direction: dir, Offset: uint64(offset), Size: uint64(size)})
}

// CommandError reports a command that ended in another state than completed.
type CommandError struct{ State State }

// Error says which state.
func (e *CommandError) Error() string {
	switch e.State {
	case StateTimeout:
		return "the NPU gave up on the command: state timeout"
	case StateAbort:
		return "the command was aborted: the context was reset, by the driver or by another process"
	}
	return "the command ended in state " + e.State.String()
}

// ErrTimeout reports that a command did not complete in time.
var ErrTimeout = errors.New("the NPU did not complete the command in time")

// SessionOptions are the parameters of [NewSession].
type SessionOptions struct {
	Timeout time.Duration // of one command; 0 = 5 s
}

// Session is one hardware context with one configuration. It runs one command at a time. After a failure that leaves the context
// in doubt (a timeout, an error state, a reset) it makes a new one for the next command.
type Session struct {
	dev      *Device
	image    []byte
	kernel   Kernel
	columns  int
	coreRows int
	maxOPC   uint32
	opt      SessionOptions

	mu      sync.Mutex
	ctx     *hwContext
	closed  bool
	configs int
}

// hwContext is a context with its image, instruction buffer and command buffer.
type hwContext struct {
	handle, syncobj uint32
	pdi, instr, cmd *BO
	instrBytes      int
}

// NewSession configures the array with a kernel of an xclbin.
func NewSession(d *Device, x *Xclbin, kernelName string, o SessionOptions) (*Session, error) {
	k, err := x.Kernel(kernelName)
	if err != nil {
		return nil, err
	}
	img, err := x.Image(k)
	if err != nil {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if w := x.Partition.ColumnWidth; w > d.info.Cols {
		return nil, fmt.Errorf("the xclbin needs %d columns, %s has %d", w, d.info.Device, d.info.Cols)
	}
	s := &Session{dev: d, image: img.Image, kernel: k, columns: x.Partition.ColumnWidth, coreRows: d.info.Rows - 2, maxOPC: x.Partition.OpsPerCycle, opt: o}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, nil
}

// Configurations is the number of times that the array has been configured: 1, and one more after each failure.
func (s *Session) Configurations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configs
}

// connect creates and configures a context.
func (s *Session) connect() (err error) {
	d := s.dev
	create := CreateContext{MaxOPC: s.maxOPC, NumTiles: uint32(s.columns * s.coreRows)}
	qos := Marshal(&QoSInfo{Priority: PriorityNormal})
	if err := d.call(IoctlCreateContext, &create, Pointer{OffQoS, qos}); err != nil {
		return fmt.Errorf("hardware context of %d columns: %w", s.columns, err)
	}
	c := &hwContext{handle: create.Handle, syncobj: create.SyncobjHandle}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close(d))
		}
	}()
	if c.pdi, err = d.newBO(BODev, len(s.image), 0); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if c.pdi.Addr%pdiAlign != 0 {
		return fmt.Errorf("the driver placed the image at %#x, which is no multiple of %d", c.pdi.Addr, pdiAlign)
	}
	copy(c.pdi.Data, s.image)
	if err := c.pdi.ToDevice(0, len(s.image)); err != nil {
		return err
	}
	cu := Marshal(&CUConfig{NumCUs: 1, CUBO: c.pdi.handle, CUFunc: s.kernel.Functional})
	if err := d.call(IoctlConfigContext, &ConfigContext{Handle: c.handle, ParamType: configCU, ParamValSize: uint32(len(cu))}, Pointer{OffParamVal, cu}); err != nil {
		return fmt.Errorf("configure the array: %w", err)
	}
	if c.cmd, err = d.newBO(BOCmd, PacketBytes, 0); err != nil {
		return fmt.Errorf("command buffer: %w", err)
	}
	s.ctx = c
	s.configs++
	return nil
}

func (c *hwContext) close(d *Device) error {
	return errors.Join(c.cmd.Close(), c.instr.Close(), d.call(IoctlDestroyContext, &DestroyContext{Handle: c.handle}), c.pdi.Close())
}

// Run executes a run-time stream; its DDR_PATCH argument i is bufs[i]. The caller synchronizes the buffers before and after. When Run fails,
// what the buffers hold is undefined; the next call configures the array anew.
func (s *Session) Run(ctx context.Context, stream []uint32, bufs ...*BO) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("NPU session is closed")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(stream) == 0 {
		return errors.New("empty instruction stream")
	}
	if s.ctx == nil {
		if err := s.connect(); err != nil {
			return err
		}
	}
	c := s.ctx
	if n := 4 * len(stream); n > c.instrBytes {
		old := c.instr
		c.instr, c.instrBytes = nil, 0
		if err := old.Close(); err != nil {
			return err
		}
		size := 64 << 10
		for size < n {
			size *= 2
		}
		if c.instr, err = s.dev.newBO(BODev, size, 0); err != nil {
			return fmt.Errorf("instruction buffer: %w", err)
		}
		c.instrBytes = size
	}
	for i, w := range stream {
		le := c.instr.Data[4*i : 4*i+4]
		le[0], le[1], le[2], le[3] = byte(w), byte(w>>8), byte(w>>16), byte(w>>24)
	}
	if err := c.instr.ToDevice(0, 4*len(stream)); err != nil {
		return err
	}
	p := Packet{Stream: c.instr.Addr, Words: uint32(len(stream))}
	handles := Marshal([]uint32{c.instr.handle})
	for _, b := range bufs {
		if b == nil || b.closed {
			return errors.New("a closed buffer among the operands")
		}
		p.Buffers = append(p.Buffers, b.Addr)
		handles = append(handles, Marshal(b.handle)...)
	}
	if err := p.Encode(c.cmd.Data); err != nil {
		return err
	}
	// From here on a failure leaves the context in doubt.
	defer func() {
		if err != nil {
			s.ctx = nil
			err = errors.Join(err, c.close(s.dev))
		}
	}()
	exec := Exec{Context: c.handle, CmdHandles: uint64(c.cmd.handle), CmdCount: 1, ArgCount: uint32(1 + len(bufs))}
	if err := s.dev.call(IoctlExec, &exec, Pointer{OffExecArgs, handles}); err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	if err := s.wait(ctx, c, exec.Seq); err != nil {
		return err
	}
	if st := packetState(c.cmd.Data); st != StateCompleted {
		return &CommandError{st}
	}
	return nil
}

// wait waits for a point on the context's timeline, in turns short enough to obey ctx.
func (s *Session) wait(ctx context.Context, c *hwContext, seq uint64) error {
	const turn = 50 * time.Millisecond
	now := s.dev.sys.Monotonic()
	end := now + min(s.opt.Timeout, math.MaxInt64-now) // the largest timeout means none
	for {
		until := min(end, s.dev.sys.Monotonic()+turn)
		w := TimelineWait{TimeoutNsec: int64(until), Count: 1, Flags: waitForSubmit}
		err := s.dev.call(IoctlTimelineWait, &w, Pointer{OffHandles, Marshal(c.syncobj)}, Pointer{OffPoints, Marshal(seq)})
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, ETIME) && !errors.Is(err, EAGAIN):
			return fmt.Errorf("wait: %w", err)
		case ctx.Err() != nil:
			return fmt.Errorf("wait: %w", ctx.Err())
		case s.dev.sys.Monotonic() >= end:
			return fmt.Errorf("%w: %v", ErrTimeout, s.opt.Timeout)
		}
	}
}

// Close destroys the context.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.ctx == nil {
		return nil
	}
	c := s.ctx
	s.ctx = nil
	return c.close(s.dev)
}

// Describe is one line for people.
func (i Info) Describe() string {
	parts := []string{fmt.Sprintf("%s, %d columns x %d rows, firmware %s", i.Device, i.Cols, i.Rows, i.Firmware)}
	if i.MPNPUClock > 0 {
		parts = append(parts, fmt.Sprintf("clocks %d and %d MHz", i.MPNPUClock, i.HClock))
	}
	return strings.Join(parts, ", ")
}
