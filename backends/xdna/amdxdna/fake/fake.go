// Package fake is a Ryzen AI NPU without a chip: it stands behind amdxdna.Sys, allocates buffers, checks every structure that the client
// passes as the kernel's driver does (and some that the driver only trusts), and hands configuration images and instruction
// buffers to an [Array], usually Tessera's emulator. Host and device see a buffer apart until it is synchronized, so that a
// missing SYNC_BO shows. Faults can be injected into every call and into running commands.
package fake

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/tessera-go/tessera/backends/xdna/amdxdna"
)

// Array is what executes: one hardware context's columns.
type Array interface {
	// Configure loads an image, the content of a PDI.
	Configure(image []byte) error
	// Execute runs an instruction stream whose buffer argument i is bufs[i].
	Execute(ctx context.Context, stream []uint32, bufs [][]byte) error
}

// Options say what the fake is.
type Options struct {
	Columns int // 5 = XDNA, 8 = XDNA2; 0 = 8
	// IOVA gives shared buffers addresses of the device's own, as the driver does where it cannot or is told not to use the page tables of the process
	// (PASID). Otherwise the driver names no address, and the array sees a buffer where the process has mapped it.
	IOVA bool
	// NewArray makes the array of a new context of that many columns.
	NewArray func(columns int) (Array, error)
}

// Fault makes one ioctl fail.
type Fault struct {
	Req  uint32        // which ioctl
	Skip int           // let so many calls of it pass first
	Err  amdxdna.Errno // what it returns
}

// Device implements amdxdna.Sys. It may be used by several goroutines.
type Device struct {
	opt   Options
	epoch time.Time

	mu         sync.Mutex
	closed     bool
	next       uint32
	bos        map[uint32]*bo
	heap       *bo
	nextAddr   uint64
	contexts   map[uint32]*hwctx
	maps       int
	complaints []string
	faults     []Fault
	endState   amdxdna.State
	hang       bool
	reset      bool
	commands   int
}

type bo struct {
	handle uint32
	typ    amdxdna.BOType
	addr   uint64
	size   uint64
	off    uint64 // for mmap
	host   []byte // what the host has mapped; of a DEV buffer a part of the heap's
	dev    []byte // what the array sees
	maps   int
}

type hwctx struct {
	handle, syncobj uint32
	cols            int
	array           Array
	configured      bool
	seq             uint64
	points          map[uint64]chan struct{}
	stop            context.CancelFunc
	ctx             context.Context
	dead            bool
	running         sync.WaitGroup
}

const (
	heapBase  = 0x1_0400_0000
	heapBytes = 64 << 20
	shareBase = 0x80_0000_0000
	coreRows  = 4
	pageBytes = 4096
)

// New makes a device.
func New(o Options) *Device {
	if o.Columns == 0 {
		o.Columns = 8
	}
	return &Device{opt: o, epoch: time.Now(), next: 1, bos: map[uint32]*bo{}, contexts: map[uint32]*hwctx{}, nextAddr: shareBase}
}

// Inject adds faults. Each is used up by one call.
func (d *Device) Inject(f ...Fault) { d.lock(func() { d.faults = append(d.faults, f...) }) }

// EndNext makes the next command end in that state without being executed.
func (d *Device) EndNext(s amdxdna.State) { d.lock(func() { d.endState = s }) }

// HangNext makes the next command never complete.
func (d *Device) HangNext() { d.lock(func() { d.hang = true }) }

// ResetNext resets the device while the next command runs: the command is aborted after part of its work may have been
// done, and its context is lost.
func (d *Device) ResetNext() { d.lock(func() { d.reset = true }) }

// Commands is the number of commands executed.
func (d *Device) Commands() (n int) { d.lock(func() { n = d.commands }); return n }

// Complaints are the reasons of all EINVAL that were not injected.
func (d *Device) Complaints() (c []string) {
	d.lock(func() { c = append(c, d.complaints...) })
	return c
}

// Live counts what has not been given back: buffer objects, contexts, mappings.
func (d *Device) Live() (bos, contexts, maps int) {
	d.lock(func() { bos, contexts, maps = len(d.bos), len(d.contexts), d.maps })
	return
}

func (d *Device) lock(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// Monotonic implements amdxdna.Sys.
func (d *Device) Monotonic() time.Duration { return time.Since(d.epoch) }

// Close implements amdxdna.Sys. As the kernel does, it frees what the client left; Live tells what that was.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return amdxdna.EINVAL
	}
	d.closed = true
	for _, c := range d.contexts {
		c.stop()
	}
	return nil
}

// refuse notes why a call is wrong.
func (d *Device) refuse(format string, args ...any) error {
	d.complaints = append(d.complaints, fmt.Sprintf(format, args...))
	return amdxdna.EINVAL
}

// pointer returns the memory behind the pointer field at off.
func pointer(ptrs []amdxdna.Pointer, off int) []byte {
	for _, p := range ptrs {
		if p.Off == off {
			return p.Mem
		}
	}
	return nil
}

// Ioctl implements amdxdna.Sys.
func (d *Device) Ioctl(req uint32, arg []byte, ptrs ...amdxdna.Pointer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return amdxdna.ENODEV
	}
	for i, f := range d.faults {
		if f.Req != req {
			continue
		}
		if f.Skip > 0 {
			d.faults[i].Skip--
			break
		}
		d.faults = append(d.faults[:i], d.faults[i+1:]...)
		return f.Err
	}
	if n := int(req >> 16 & 0x3FFF); n != len(arg) {
		return d.refuse("%s: argument of %d bytes, its number says %d", amdxdna.IoctlName(req), len(arg), n)
	}
	for _, p := range ptrs {
		if binary.LittleEndian.Uint64(arg[p.Off:]) != 0 {
			return d.refuse("%s: pointer field at %d is set by the client", amdxdna.IoctlName(req), p.Off)
		}
	}
	switch req {
	case amdxdna.IoctlGetInfo:
		return with(d, arg, ptrs, d.getInfo)
	case amdxdna.IoctlCreateBO:
		return with(d, arg, ptrs, d.createBO)
	case amdxdna.IoctlGetBOInfo:
		return with(d, arg, ptrs, d.getBOInfo)
	case amdxdna.IoctlSyncBO:
		return with(d, arg, ptrs, d.syncBO)
	case amdxdna.IoctlGEMClose:
		return with(d, arg, ptrs, d.gemClose)
	case amdxdna.IoctlCreateContext:
		return with(d, arg, ptrs, d.createContext)
	case amdxdna.IoctlDestroyContext:
		return with(d, arg, ptrs, d.destroyContext)
	case amdxdna.IoctlConfigContext:
		return with(d, arg, ptrs, d.configContext)
	case amdxdna.IoctlExec:
		return with(d, arg, ptrs, d.exec)
	case amdxdna.IoctlTimelineWait:
		return with(d, arg, ptrs, d.wait)
	}
	return d.refuse("unknown ioctl %#x", req)
}

// with decodes an argument, calls f and encodes it back.
func with[T any](d *Device, arg []byte, ptrs []amdxdna.Pointer, f func(*T, []amdxdna.Pointer) error) error {
	v := new(T)
	if err := amdxdna.Unmarshal(arg, v); err != nil {
		return d.refuse("%v", err)
	}
	if err := f(v, ptrs); err != nil {
		return err
	}
	copy(arg, amdxdna.Marshal(v))
	return nil
}

func (d *Device) getInfo(g *amdxdna.GetInfo, ptrs []amdxdna.Pointer) error {
	var v any
	switch g.Param {
	case amdxdna.InfoMetadata:
		v = &amdxdna.Metadata{
			ColSize: 0x2000000, Cols: uint16(d.opt.Columns), Rows: 6, Major: 1, Minor: 1,
			Core: amdxdna.TileMetadata{RowCount: coreRows, RowStart: 2, DMAChannels: 2, Locks: 16},
			Mem:  amdxdna.TileMetadata{RowCount: 1, RowStart: 1, DMAChannels: 6, Locks: 64},
			Shim: amdxdna.TileMetadata{RowCount: 1, RowStart: 0, DMAChannels: 2, Locks: 16},
		}
	case amdxdna.InfoClocks:
		c := &amdxdna.Clocks{MPNPU: amdxdna.Clock{MHz: 1267}, H: amdxdna.Clock{MHz: 1800}}
		copy(c.MPNPU.Name[:], "MP-NPU Clock")
		copy(c.H.Name[:], "H Clock")
		v = c
	case amdxdna.InfoFirmware:
		v = &amdxdna.Firmware{Major: 1, Minor: 5, Patch: 2, Build: 378}
	default:
		return d.refuse("GET_INFO: parameter %d", g.Param)
	}
	out, mem := amdxdna.Marshal(v), pointer(ptrs, amdxdna.OffBuffer)
	if int(g.BufferSize) != len(mem) || len(mem) < len(out) {
		return d.refuse("GET_INFO %d: buffer of %d bytes announced as %d, want %d", g.Param, len(mem), g.BufferSize, len(out))
	}
	copy(mem, out)
	return nil
}

// aligned returns n zero bytes at a multiple of align.
func aligned(n, align int) []byte {
	raw := make([]byte, n+align)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) & uintptr(align-1))
	return raw[skip : skip+n : skip+n]
}

func (d *Device) createBO(c *amdxdna.CreateBO, _ []amdxdna.Pointer) error {
	switch {
	case c.Flags != 0 || c.VAddr != 0 || c.Handle != 0:
		return d.refuse("CREATE_BO: flags, address and handle must be 0")
	case c.Size == 0 || c.Size%pageBytes != 0 || c.Size > 1<<40:
		return d.refuse("CREATE_BO: %d bytes, want whole pages", c.Size)
	}
	b := &bo{typ: amdxdna.BOType(c.Type), size: c.Size}
	switch b.typ {
	case amdxdna.BOShare, amdxdna.BOCmd:
		if b.typ == amdxdna.BOCmd && c.Size < amdxdna.PacketBytes {
			return d.refuse("CREATE_BO: command buffer of %d bytes", c.Size)
		}
		b.host = aligned(int(c.Size), pageBytes)
		if b.addr = uint64(uintptr(unsafe.Pointer(&b.host[0]))); d.opt.IOVA {
			b.addr = d.nextAddr
			d.nextAddr += (c.Size + 2*pageBytes - 1) / pageBytes * pageBytes // a gap catches overruns
		}
		b.dev = make([]byte, c.Size)
	case amdxdna.BODevHeap:
		if d.heap != nil {
			return amdxdna.EBUSY
		}
		if c.Size%heapBytes != 0 || c.Size > 8*heapBytes {
			return d.refuse("CREATE_BO: heap of %d bytes, want a multiple of 64 MiB", c.Size)
		}
		b.addr, b.host, b.dev = heapBase, aligned(int(c.Size), int(c.Size)), make([]byte, c.Size)
		d.heap = b
	case amdxdna.BODev:
		if d.heap == nil {
			return d.refuse("CREATE_BO: device buffer before the heap")
		}
		if d.heap.maps == 0 {
			return d.refuse("CREATE_BO: device buffer before the heap is mapped")
		}
		at, ok := d.heapAlloc(c.Size)
		if !ok {
			return amdxdna.ENOSPC
		}
		b.addr = heapBase + at
		b.host, b.dev = d.heap.host[at:at+c.Size], d.heap.dev[at:at+c.Size]
	default:
		return d.refuse("CREATE_BO: type %d", c.Type)
	}
	b.handle = d.next
	b.off = uint64(0x1_0000_0000) + uint64(b.handle)<<32
	d.next++
	d.bos[b.handle] = b
	c.Handle = b.handle
	return nil
}

// heapAlloc finds room in the heap at a multiple of 32 KiB, first fit.
func (d *Device) heapAlloc(size uint64) (uint64, bool) {
	const align = 32 << 10
	for at := uint64(0); at+size <= d.heap.size; at += align {
		free := true
		for _, b := range d.bos {
			if b.typ == amdxdna.BODev {
				lo, hi := b.addr-heapBase, b.addr-heapBase+b.size
				if at < hi && lo < at+size {
					free = false
					at = (hi+align-1)/align*align - align
					break
				}
			}
		}
		if free {
			return at, true
		}
	}
	return 0, false
}

func (d *Device) find(handle uint32, what string) (*bo, error) {
	b, ok := d.bos[handle]
	if !ok {
		d.complaints = append(d.complaints, fmt.Sprintf("%s: no buffer with handle %d", what, handle))
		return nil, amdxdna.ENOENT
	}
	return b, nil
}

func (d *Device) getBOInfo(g *amdxdna.GetBOInfo, _ []amdxdna.Pointer) error {
	if g.Ext != 0 || g.ExtFlags != 0 || g.Pad != 0 {
		return d.refuse("GET_BO_INFO: ext, ext_flags and pad must be 0")
	}
	b, err := d.find(g.Handle, "GET_BO_INFO")
	if err != nil {
		return err
	}
	g.XDNAAddr, g.MapOffset = b.addr, b.off
	switch shared := b.typ == amdxdna.BOShare || b.typ == amdxdna.BOCmd; {
	case shared && !d.opt.IOVA:
		g.XDNAAddr = amdxdna.InvalidAddr
	case b.typ == amdxdna.BODev:
		g.MapOffset = amdxdna.InvalidAddr
	}
	return nil
}

func (d *Device) syncBO(s *amdxdna.SyncBO, _ []amdxdna.Pointer) error {
	b, err := d.find(s.Handle, "SYNC_BO")
	if err != nil {
		return err
	}
	if s.Direction > 1 || s.Offset > b.size || s.Size > b.size-s.Offset {
		return d.refuse("SYNC_BO: direction %d, %d bytes at %d of %d", s.Direction, s.Size, s.Offset, b.size)
	}
	host, dev := b.host[s.Offset:s.Offset+s.Size], b.dev[s.Offset:s.Offset+s.Size]
	if s.Direction == amdxdna.SyncToDevice {
		copy(dev, host)
	} else {
		copy(host, dev)
	}
	return nil
}

func (d *Device) gemClose(g *amdxdna.GEMClose, _ []amdxdna.Pointer) error {
	if g.Pad != 0 {
		return d.refuse("GEM_CLOSE: pad must be 0")
	}
	b, err := d.find(g.Handle, "GEM_CLOSE")
	if err != nil {
		return err
	}
	if b.maps > 0 {
		d.complaints = append(d.complaints, fmt.Sprintf("GEM_CLOSE: buffer %d is still mapped", b.handle))
	}
	if b == d.heap {
		d.heap = nil
	}
	delete(d.bos, g.Handle)
	return nil
}

// Map implements amdxdna.Sys.
func (d *Device) Map(offset int64, size, align int) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.bos {
		if b.off != uint64(offset) || b.typ == amdxdna.BODev {
			continue
		}
		if size != int(b.size) {
			return nil, d.refuse("mmap: %d bytes of a buffer of %d", size, b.size)
		}
		if b.typ == amdxdna.BODevHeap && align < heapBytes {
			return nil, d.refuse("mmap: the heap at a multiple of %d, want its size", align)
		}
		if align > 0 && uintptr(unsafe.Pointer(&b.host[0]))%uintptr(align) != 0 {
			return nil, d.refuse("mmap: alignment %d is more than the fake gives", align)
		}
		b.maps++
		d.maps++
		return b.host, nil
	}
	return nil, d.refuse("mmap: no buffer at offset %#x", offset)
}

// Unmap implements amdxdna.Sys.
func (d *Device) Unmap(mem []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.bos {
		if b.maps > 0 && len(mem) == len(b.host) && &mem[0] == &b.host[0] {
			b.maps--
			d.maps--
			return nil
		}
	}
	return d.refuse("munmap of what is not mapped")
}

func (d *Device) createContext(c *amdxdna.CreateContext, ptrs []amdxdna.Pointer) error {
	var qos amdxdna.QoSInfo
	switch {
	case c.Ext != 0 || c.ExtFlags != 0 || c.UMQBO != 0 || c.LogBufBO != 0 || c.MemSize != 0 || c.Handle != 0 || c.SyncobjHandle != 0:
		return d.refuse("CREATE_HWCTX: a field that must be 0 is not")
	case d.heap == nil:
		return d.refuse("CREATE_HWCTX: before the heap")
	case c.MaxOPC == 0:
		return d.refuse("CREATE_HWCTX: max_opc is 0")
	case c.NumTiles == 0 || c.NumTiles%coreRows != 0 || int(c.NumTiles/coreRows) > d.opt.Columns:
		return d.refuse("CREATE_HWCTX: %d tiles, want whole columns of %d, at most %d", c.NumTiles, coreRows, d.opt.Columns)
	}
	if err := amdxdna.Unmarshal(pointer(ptrs, amdxdna.OffQoS), &qos); err != nil || qos.Priority == 0 {
		return d.refuse("CREATE_HWCTX: QoS %v, priority %#x", err, qos.Priority)
	}
	used := 0
	for _, o := range d.contexts {
		used += o.cols
	}
	cols := int(c.NumTiles / coreRows)
	if used+cols > d.opt.Columns {
		return amdxdna.EBUSY
	}
	array, err := d.opt.NewArray(cols)
	if err != nil {
		return d.refuse("CREATE_HWCTX: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h := &hwctx{handle: d.next, syncobj: d.next + 1000, cols: cols, array: array, points: map[uint64]chan struct{}{}, ctx: ctx, stop: stop}
	d.next++
	d.contexts[h.handle] = h
	c.Handle, c.SyncobjHandle = h.handle, h.syncobj
	return nil
}

func (d *Device) context(handle uint32, what string) (*hwctx, error) {
	h, ok := d.contexts[handle]
	if !ok {
		return nil, d.refuse("%s: no context with handle %d", what, handle)
	}
	return h, nil
}

func (d *Device) destroyContext(c *amdxdna.DestroyContext, _ []amdxdna.Pointer) error {
	if c.Pad != 0 {
		return d.refuse("DESTROY_HWCTX: pad must be 0")
	}
	h, err := d.context(c.Handle, "DESTROY_HWCTX")
	if err != nil {
		return err
	}
	h.stop()
	d.mu.Unlock() // commands need the lock to end
	h.running.Wait()
	d.mu.Lock()
	delete(d.contexts, c.Handle)
	return nil
}

func (d *Device) configContext(c *amdxdna.ConfigContext, ptrs []amdxdna.Pointer) error {
	h, err := d.context(c.Handle, "CONFIG_HWCTX")
	if err != nil {
		return err
	}
	var cu amdxdna.CUConfig
	mem := pointer(ptrs, amdxdna.OffParamVal)
	if c.ParamType != 0 || c.Pad != 0 || int(c.ParamValSize) != len(mem) {
		return d.refuse("CONFIG_HWCTX: parameter %d with %d bytes announced as %d", c.ParamType, len(mem), c.ParamValSize)
	}
	if err := amdxdna.Unmarshal(mem, &cu); err != nil {
		return d.refuse("CONFIG_HWCTX: %v", err)
	}
	if cu.NumCUs != 1 || cu.Pad != [3]uint16{} || cu.CUPad != [3]uint8{} {
		return d.refuse("CONFIG_HWCTX: %d compute units, want 1 and zero padding", cu.NumCUs)
	}
	if h.configured {
		return d.refuse("CONFIG_HWCTX: context %d is configured already", h.handle)
	}
	b, err := d.find(cu.CUBO, "CONFIG_HWCTX")
	if err != nil {
		return err
	}
	if b.typ != amdxdna.BODev || b.addr&0x7FFF != 0 {
		return d.refuse("CONFIG_HWCTX: image of type %d at %#x, want a device buffer at a multiple of 32 KiB", b.typ, b.addr)
	}
	if err := h.array.Configure(b.dev); err != nil {
		return d.refuse("CONFIG_HWCTX: %v", err)
	}
	h.configured = true
	return nil
}

// at finds the device memory of a buffer at an address.
func (d *Device) at(addr, size uint64, typ amdxdna.BOType, allowed []uint32) ([]byte, error) {
	for _, h := range allowed {
		b, ok := d.bos[h]
		if ok && b.typ == typ && addr >= b.addr && addr-b.addr <= b.size && size <= b.size-(addr-b.addr) {
			return b.dev[addr-b.addr:], nil
		}
	}
	return nil, fmt.Errorf("address %#x with %d bytes lies in none of the command's buffers of type %d", addr, size, typ)
}

func (d *Device) exec(e *amdxdna.Exec, ptrs []amdxdna.Pointer) error {
	if e.Ext != 0 || e.ExtFlags != 0 || e.Type != 0 || e.CmdCount != 1 || e.Seq != 0 || e.CmdHandles>>32 != 0 {
		return d.refuse("EXEC_CMD: type %d, %d commands: want one of type 0, zero elsewhere", e.Type, e.CmdCount)
	}
	h, err := d.context(e.Context, "EXEC_CMD")
	if err != nil {
		return err
	}
	if h.dead {
		return amdxdna.ENODEV
	}
	if !h.configured {
		return d.refuse("EXEC_CMD: context %d is not configured", h.handle)
	}
	cmd, err := d.find(uint32(e.CmdHandles), "EXEC_CMD")
	if err != nil {
		return err
	}
	if cmd.typ != amdxdna.BOCmd {
		return d.refuse("EXEC_CMD: buffer %d is of type %d, want a command", cmd.handle, cmd.typ)
	}
	mem := pointer(ptrs, amdxdna.OffExecArgs)
	if int(e.ArgCount)*4 != len(mem) || e.ArgCount == 0 {
		return d.refuse("EXEC_CMD: %d arguments in %d bytes", e.ArgCount, len(mem))
	}
	var handles []uint32
	for i := 0; i < len(mem); i += 4 {
		handle := binary.LittleEndian.Uint32(mem[i:])
		if _, err := d.find(handle, "EXEC_CMD argument"); err != nil {
			return err
		}
		handles = append(handles, handle)
	}
	p, state, err := amdxdna.DecodePacket(cmd.host)
	if err != nil {
		return d.refuse("EXEC_CMD: %v", err)
	}
	if state != amdxdna.StateNew || p.CU != 0 {
		return d.refuse("EXEC_CMD: packet in state %v for compute unit %d", state, p.CU)
	}
	if p.Words == 0 || p.Words > 1<<24 || p.Stream%4 != 0 {
		return d.refuse("EXEC_CMD: stream of %d words at %#x", p.Words, p.Stream)
	}
	instr, err := d.at(p.Stream, 4*uint64(p.Words), amdxdna.BODev, handles)
	if err != nil {
		return d.refuse("EXEC_CMD: stream: %v", err)
	}
	stream := make([]uint32, p.Words)
	for i := range stream {
		stream[i] = binary.LittleEndian.Uint32(instr[4*i:])
	}
	var bufs [][]byte
	for i, a := range p.Buffers {
		mem, err := d.at(a, 0, amdxdna.BOShare, handles)
		if err != nil {
			return d.refuse("EXEC_CMD: buffer %d: %v", i, err)
		}
		bufs = append(bufs, mem)
	}
	h.seq++
	e.Seq = h.seq
	done := make(chan struct{})
	h.points[h.seq] = done
	end, hang, reset := d.endState, d.hang, d.reset
	d.endState, d.hang, d.reset = 0, false, false
	d.commands++
	h.running.Add(1)
	go func() {
		defer h.running.Done()
		switch {
		case hang:
			<-h.ctx.Done()
			end = amdxdna.StateAbort
		case end != 0:
		case reset:
			// Cut the run short in the middle of its work.
			ctx, cancel := context.WithTimeout(h.ctx, time.Millisecond)
			_ = h.array.Execute(ctx, stream, bufs)
			cancel()
			end = amdxdna.StateAbort
		default:
			end = amdxdna.StateCompleted
			if err := h.array.Execute(h.ctx, stream, bufs); err != nil {
				d.lock(func() { d.complaints = append(d.complaints, fmt.Sprintf("command: %v", err)) })
				end = amdxdna.StateError
			}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		h.dead = h.dead || reset
		cmd.host[0] = cmd.host[0]&0xF0 | byte(end)
		close(done)
	}()
	return nil
}

func (d *Device) wait(w *amdxdna.TimelineWait, ptrs []amdxdna.Pointer) error {
	handles, points := pointer(ptrs, amdxdna.OffHandles), pointer(ptrs, amdxdna.OffPoints)
	if w.Count != 1 || len(handles) != 4 || len(points) != 8 || w.Pad != 0 || w.Flags&^0xF != 0 {
		return d.refuse("SYNCOBJ_TIMELINE_WAIT: %d points, %d bytes of handles, %d of points", w.Count, len(handles), len(points))
	}
	syncobj, point := binary.LittleEndian.Uint32(handles), binary.LittleEndian.Uint64(points)
	for _, h := range d.contexts {
		if h.syncobj != syncobj {
			continue
		}
		done, ok := h.points[point]
		if !ok {
			return d.refuse("SYNCOBJ_TIMELINE_WAIT: no point %d", point)
		}
		left := time.Duration(w.TimeoutNsec) - d.Monotonic()
		d.mu.Unlock()
		defer d.mu.Lock()
		t := time.NewTimer(max(left, 0))
		defer t.Stop()
		select {
		case <-done:
			return nil
		case <-t.C:
			return amdxdna.ETIME
		}
	}
	d.complaints = append(d.complaints, fmt.Sprintf("SYNCOBJ_TIMELINE_WAIT: no object %d", syncobj))
	return amdxdna.ENOENT
}
