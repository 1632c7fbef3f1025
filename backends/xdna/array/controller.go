package array

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// controller executes a stream strictly in order.
type controller struct {
	a       *Array
	rd      *txn.Reader
	cols    int
	have    bool // an operation is read and waits for its time or its condition
	waiting bool // for a condition
	done    bool
	cold    bool // the next queue push comes after a wait for a token
	since   sim.Time
}

// Handle takes the next operation: it costs its time first and takes effect then.
func (c *controller) Handle(int) {
	if c.have {
		if !c.execute(&c.rd.Op) {
			c.waiting = true
			c.cold = c.cold || c.rd.Op.Code == txn.Sync
			return
		}
		if tr := c.a.opt.Tracer; tr != nil {
			tr.Span(Track{device.Tile{}, "controller"}, c.rd.Op.Code.String(), cyclesOf(c.since), cyclesOf(c.a.eng.Now()))
		}
		c.have = false
	}
	if c.a.eng.Err() != nil {
		return
	}
	if !c.rd.Next() {
		if c.rd.Err != nil {
			c.a.eng.Fail(c.rd.Err)
			return
		}
		c.done = true
		return
	}
	c.have = true
	c.since = c.a.eng.Now()
	c.a.eng.After(ticks(c.cost(&c.rd.Op)), c, 0)
}

// wakePolls lets waiting controllers look again.
func (a *Array) wakePolls() {
	for _, c := range a.polls {
		if c.waiting {
			c.waiting = false
			a.eng.After(ticks(a.tm.Token), c, 0)
		}
	}
}

func (c *controller) cost(op *txn.Op) float64 {
	tm := c.a.tm
	switch op.Code {
	case txn.Write:
		if t, off, err := c.tile(op.Addr); err == nil && t.info.Register(off).Kind == device.RegQueue {
			if c.cold {
				c.cold = false
				return tm.Write + tm.QueueCold
			}
			return tm.Write + tm.QueuePush
		}
		return tm.Write
	case txn.BlockWrite:
		return tm.BlockWrite + tm.BlockWord*float64(len(op.Data))
	case txn.MaskWrite:
		return tm.MaskWrite
	case txn.MaskPoll:
		return tm.Poll
	case txn.DDRPatch:
		return tm.Patch
	case txn.Sync:
		return tm.Sync
	}
	return tm.Other
}

// tile finds the tile of an address.
func (c *controller) tile(addr uint32) (*tile, uint32, error) {
	pos, off := device.SplitAddr(addr)
	if pos.Col >= c.cols || pos.Row >= c.a.dev.Rows {
		return nil, 0, fmt.Errorf("array: op %d (%v) addresses tile %v, the stream has %d columns and %d rows", c.rd.Index, c.rd.Op.Code, pos, c.cols, c.a.dev.Rows)
	}
	return c.a.tiles[pos.Col][pos.Row], off, nil
}

// execute does an operation. It returns false if its condition does not hold yet.
func (c *controller) execute(op *txn.Op) bool {
	switch op.Code {
	case txn.Noop, txn.Preempt, txn.ReadRegs, txn.RecordTimer, txn.MergeSync:
		return true
	case txn.Sync:
		return c.sync(op)
	case txn.Write, txn.BlockWrite, txn.MaskWrite, txn.MaskPoll, txn.DDRPatch:
	default:
		c.a.eng.Fail(fmt.Errorf("array: op %d: %v is not emulated", c.rd.Index, op.Code))
		return true
	}
	t, off, err := c.tile(op.Addr)
	if err != nil {
		c.a.eng.Fail(err)
		return true
	}
	switch op.Code {
	case txn.Write:
		t.write(off, op.Value)
	case txn.BlockWrite:
		for i, v := range op.Data {
			at := off + 4*uint32(i)
			if at > device.OffMask {
				t.fault("block write of %d words at %#x leaves the tile", len(op.Data), off)
				break
			}
			if t.write(at, v); c.a.eng.Err() != nil {
				break
			}
		}
	case txn.MaskWrite:
		old, ok := t.read(off)
		if !ok {
			t.fault("masked write to %#x, which cannot be read back", off)
			return true
		}
		t.write(off, old&^op.Mask|op.Value&op.Mask)
	case txn.MaskPoll:
		v, ok := t.read(off)
		if !ok {
			t.fault("poll of %#x, which cannot be read", off)
			return true
		}
		return v&op.Mask == op.Value
	case txn.DDRPatch:
		c.patch(t, off, op)
	}
	return true
}

// patch puts a host address into a shim descriptor.
func (c *controller) patch(t *tile, off uint32, op *txn.Op) {
	reg := t.info.Register(off)
	if t.info.Kind != device.Shim || reg.Kind != device.RegBD || reg.Word != t.info.PatchWord() {
		t.fault("address patch at %#x, which is not the address word of a shim descriptor", off)
		return
	}
	if int(op.Arg) >= len(c.a.host) {
		t.fault("address patch for host buffer %d, there are %d", op.Arg, len(c.a.host))
		return
	}
	h := &c.a.host[op.Arg]
	if op.Offset%4 != 0 {
		t.fault("address patch with offset %#x, which is not aligned to 4 bytes", op.Offset)
		return
	}
	if op.Offset >= uint64(len(h.mem.Data)) {
		t.fault("address patch with offset %#x in host buffer %d of %#x bytes", op.Offset, op.Arg, len(h.mem.Data))
		return
	}
	addr := h.base + op.Offset
	d := &t.bds[reg.Index]
	if d.written&6 != 6 {
		t.a.eng.Fail(&Error{Tile: t.pos, Kind: t.info.Kind, BD: reg.Index, Err: fmt.Errorf("address patch before the descriptor was written")})
		return
	}
	t.write(off, uint32(addr)&^3|d.words[1]&3)
	t.write(off+4, d.words[2]&^0xFFFF|uint32(addr>>32)&0xFFFF)
}

// sync takes one token from each tile of a rectangle, or none.
func (c *controller) sync(op *txn.Op) bool {
	var from []*channel
	for col := int(op.Col); col < int(op.Col)+int(op.NCols); col++ {
		for row := int(op.Row); row < int(op.Row)+int(op.NRows); row++ {
			if col >= c.cols || row >= c.a.dev.Rows || int(op.Channel) >= c.a.tiles[col][row].info.Channels(op.Dir) {
				c.a.eng.Fail(fmt.Errorf("array: op %d waits for a token of %v%d of tile (%d,%d), which does not exist", c.rd.Index, op.Dir, op.Channel, col, row))
				return true
			}
			ch := c.a.tiles[col][row].chans[op.Dir][op.Channel]
			if ch.tokens == 0 {
				return false
			}
			from = append(from, ch)
		}
	}
	if len(from) == 0 {
		c.a.eng.Fail(fmt.Errorf("array: op %d waits for tokens of no tile (%d columns, %d rows)", c.rd.Index, op.NCols, op.NRows))
		return true
	}
	for _, ch := range from {
		ch.tokens--
	}
	return true
}

// Waiting says what the controller waits for in a deadlock.
func (c *controller) Waiting() (who, what string) {
	who = "controller"
	op := &c.rd.Op
	switch {
	case !c.have:
		return who, ""
	case op.Code == txn.Sync:
		return who, fmt.Sprintf("op %d waits for tokens of %v%d of %d x %d tiles from (%d,%d)", c.rd.Index, op.Dir, op.Channel, op.NCols, op.NRows, op.Col, op.Row)
	}
	return who, fmt.Sprintf("op %d polls %#x until (value & %#x) is %#x", c.rd.Index, op.Addr, op.Mask, op.Value)
}
