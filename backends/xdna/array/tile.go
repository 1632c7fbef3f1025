package array

import (
	"encoding/binary"
	"math"

	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// tile is a shim, MemTile or core tile with its registers.
type tile struct {
	a       *Array
	pos     device.Tile
	info    *device.TileInfo
	mem     *sim.Memory // nil for the shim
	prog    [kernel.Words]uint32
	bds     []descriptor
	locks   []sim.Lock
	lockSet []int // value that control code last wrote, less what a core's barrier has used up
	chans   [2][]*channel
	masters []uint32
	slaves  []uint32
	mux     uint32
	demux   uint32
	core    *core
}

// descriptor is a buffer descriptor: its registers, and what they mean once a channel has read them.
type descriptor struct {
	words   [8]uint32
	written uint8 // bit per word that control code wrote
	users   int   // tasks queued or running that use it
	decoded bool
	bd      bd
	iter    int // iteration counter
}

// bd is a decoded descriptor of any kind of tile.
type bd struct {
	pat     txn.Pattern
	dims    []sim.Dim
	lock    txn.LockUse
	next    int // -1 = none
	padded  bool
	hostOff uint64 // shim: byte address
}

// newTile makes a tile, reusing the memory of the one that stood there before.
func newTile(a *Array, pos device.Tile, before *tile) *tile {
	kind, _ := a.dev.KindAt(pos.Row)
	info := a.dev.Tile(kind)
	t := &tile{a: a, pos: pos, info: info}
	if info.MemoryBytes > 0 {
		if before != nil {
			t.mem = before.mem
			t.mem.Forget()
		} else {
			t.mem = sim.NewMemory(kind.String()+" "+pos.String(), info.MemoryBytes)
		}
	}
	if a.opt.TimeOnly && t.mem != nil {
		t.mem.Define(0, info.MemoryBytes)
	}
	t.bds = make([]descriptor, info.BDs)
	t.locks = make([]sim.Lock, info.Locks)
	t.lockSet = make([]int, info.Locks)
	for i := range t.locks {
		t.locks[i].Max = info.LockMax
	}
	for _, dir := range []device.Dir{device.S2MM, device.MM2S} {
		for ch := range info.Channels(dir) {
			t.chans[dir] = append(t.chans[dir], newChannel(t, dir, ch))
		}
	}
	last := func(g []device.PortGroup) int { return g[len(g)-1].First + g[len(g)-1].Count }
	t.masters = make([]uint32, last(info.MasterPorts))
	t.slaves = make([]uint32, last(info.SlavePorts))
	if kind == device.Core {
		t.core = newCore(t)
	}
	return t
}

// read returns the value of a register.
func (t *tile) read(off uint32) (uint32, bool) {
	reg := t.info.Register(off)
	switch reg.Kind {
	case device.RegData:
		if off%4 != 0 || t.mem.Undefined(int(off), int(off)+4) >= 0 {
			return 0, false
		}
		return binary.LittleEndian.Uint32(t.mem.Data[off:]), true
	case device.RegBD:
		return t.bds[reg.Index].words[reg.Word], true
	case device.RegLock:
		return uint32(t.locks[reg.Index].Value), true
	case device.RegStatus:
		return t.chans[reg.Dir][reg.Index].status(), true
	case device.RegCtrl:
		return t.chans[reg.Dir][reg.Index].ctrl, true
	case device.RegMaster:
		return t.masters[reg.Index], true
	case device.RegSlave:
		return t.slaves[reg.Index], true
	case device.RegShimMux:
		return t.mux, true
	case device.RegShimDemux:
		return t.demux, true
	case device.RegCoreCtrl:
		return t.core.ctrl, true
	}
	return 0, false
}

// write sets a register and does what that causes.
func (t *tile) write(off, v uint32) {
	reg := t.info.Register(off)
	switch reg.Kind {
	case device.RegData:
		if off%4 != 0 {
			t.fault("write to data memory at %#x is not aligned to 4 bytes", off)
			return
		}
		if t.core != nil && t.core.uses(int(off), int(off)+4, true) {
			t.fault("write to data memory at %#x, which the core is working on", off)
			return
		}
		binary.LittleEndian.PutUint32(t.mem.Data[off:], v)
		t.mem.Define(int(off), int(off)+4)
	case device.RegProgram:
		if t.core.ctrl&device.CoreEnable != 0 {
			t.fault("write to program memory of a running core")
			return
		}
		if i := reg.Index / 4; reg.Index%4 == 0 && i < len(t.prog) {
			t.prog[i] = v
		} else {
			t.fault("write to program memory at %#x, a kernel record has %d words", off, kernel.Words)
		}
	case device.RegBD:
		d := &t.bds[reg.Index]
		if d.users > 0 {
			t.a.eng.Fail(&Error{Tile: t.pos, Kind: t.info.Kind, BD: reg.Index, Err: errRewritten})
			return
		}
		d.words[reg.Word] = v
		d.written |= 1 << reg.Word
		d.decoded = false
	case device.RegLock:
		if !t.locks[reg.Index].Set(int(int32(v))) {
			t.fault("lock %d set to %d, 0 to %d is possible", reg.Index, int32(v), t.info.LockMax)
		}
		t.lockSet[reg.Index] = int(int32(v))
	case device.RegCtrl:
		t.chans[reg.Dir][reg.Index].setCtrl(v)
	case device.RegQueue:
		t.chans[reg.Dir][reg.Index].push(v)
	case device.RegMaster:
		if t.masters[reg.Index] != v {
			t.masters[reg.Index] = v
			t.a.rerouted(t)
		}
	case device.RegSlave:
		if t.slaves[reg.Index] != v {
			t.slaves[reg.Index] = v
			t.a.rerouted(t)
		}
	case device.RegShimMux:
		t.mux = v
		t.a.rerouted(t)
	case device.RegShimDemux:
		t.demux = v
		t.a.rerouted(t)
	case device.RegCoreCtrl:
		t.core.setCtrl(v)
	case device.RegStatus:
		t.fault("write to status register %#x", off)
	default:
		t.fault("write to register %#x, which the emulator does not know", off)
	}
}

// load decodes descriptor id for a channel that is about to run it.
func (t *tile) load(c *channel, id int) *descriptor {
	d := &t.bds[id]
	if d.decoded {
		return d
	}
	if all := uint8(1)<<t.info.BDWords - 1; d.written&all != all {
		c.fault(id, "descriptor was never written whole (words written: %#b)", d.written)
		return nil
	}
	var err error
	var valid, useNext, compress bool
	var next uint8
	var packet txn.PacketUse
	b := &d.bd
	switch t.info.Kind {
	case device.Shim:
		var s txn.ShimBD
		if s, err = txn.DecodeShimBD(d.words[:8]); err == nil {
			valid, useNext, next, packet = s.Valid, s.UseNext, s.NextBD, s.Packet
			b.pat, b.lock, b.hostOff = s.Pattern(), s.Lock, s.Addr
		}
	case device.Mem:
		var m txn.MemBD
		if m, err = txn.DecodeMemBD(d.words[:8]); err == nil {
			valid, useNext, next, packet, compress = m.Valid, m.UseNext, m.NextBD, m.Packet, m.Compression
			b.pat, b.lock = m.Pattern(), m.Lock
		}
	case device.Core:
		var k txn.CoreBD
		if k, err = txn.DecodeCoreBD(d.words[:6]); err == nil {
			valid, useNext, next, packet, compress = k.Valid, k.UseNext, k.NextBD, k.Packet, k.Compression
			b.pat, b.lock = k.Pattern(), k.Lock
		}
	}
	switch {
	case err != nil:
		c.fault(id, "%w", err)
		return nil
	case !valid:
		c.fault(id, "descriptor is not valid")
		return nil
	case packet.Enable:
		c.fault(id, "packet-switched transfers are not emulated")
		return nil
	case compress:
		c.fault(id, "compressed transfers are not emulated")
		return nil
	case b.pat.Length == 0:
		c.fault(id, "length is 0")
		return nil
	case b.pat.Length > math.MaxInt/4:
		c.fault(id, "length of %d words is more than this host can address", b.pat.Length)
		return nil
	}
	b.next = -1
	if useNext {
		b.next = int(next)
		if b.next >= t.info.BDs {
			c.fault(id, "next descriptor %d, the tile has %d", b.next, t.info.BDs)
			return nil
		}
	}
	b.dims = b.dims[:0]
	b.padded = false
	for i, p := range b.pat.Dims {
		dim := sim.Dim{Size: p.Size, Step: p.Step}
		if i < 3 {
			dim.Before, dim.After = b.pat.Before[i], b.pat.After[i]
		}
		b.padded = b.padded || dim.Before|dim.After != 0
		b.dims = append(b.dims, dim)
	}
	if err := checkPadding(b, t.info, c.dir); err != nil {
		c.fault(id, "%w", err)
		return nil
	}
	if b.pat.IterCurrent >= b.pat.IterCount {
		c.fault(id, "iteration counter %d of %d", b.pat.IterCurrent, b.pat.IterCount)
		return nil
	}
	d.iter = b.pat.IterCurrent
	d.decoded = true
	return d
}
