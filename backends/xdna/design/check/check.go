package check

import (
	"errors"
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Matrix is an operand in a host buffer: Rows rows of RowBytes, Pitch bytes apart, from the buffer's start.
type Matrix struct{ Rows, RowBytes, Pitch int64 }

// Copy is a copy that the host makes before (operand to scratch) or after (scratch to C) a run.
type Copy struct {
	From, To           int
	FromOff, ToOff     int64
	FromPitch, ToPitch int64
	Rows, RowBytes     int64
}

// Expect is what a stream must do.
type Expect struct {
	Dev         *device.Device
	A, B, C     Matrix  // host buffers 0, 1, 2
	BufferBytes []int64 // of all host buffers
	In, Out     []Copy
	// Variable allows MemTile descriptors, locks and queues in the stream.
	Variable bool
}

// Report counts what a stream did.
type Report struct {
	Ops       int
	Words     int64
	Transfers int // shim tasks
	Polls     int
	Tokens    int
	InFlight  int // largest number of descriptors of one shim that were queued or running
	Queued    int // largest number of tasks that may have waited in one queue
}

// task is a queued shim transfer.
type task struct {
	bd    int
	end   int64 // words moved on its channel up to its end
	token bool
}

// channel is what control code can know of a shim channel.
type channel struct {
	pending        []task // oldest first
	head           int
	pushed, popped int64 // tasks; popped is a lower bound
	words          int64 // of all tasks
	done           int64 // words of completed tasks
	base           int64 // words of earlier phases
}

func (c *channel) waiting() int { return len(c.pending) - c.head }

func (c *channel) pop() task {
	t := c.pending[c.head]
	c.head++
	if c.head == len(c.pending) {
		c.pending, c.head = c.pending[:0], 0
	} else if c.head >= 64 {
		c.pending, c.head = append(c.pending[:0], c.pending[c.head:]...), 0
	}
	return t
}

// slot is a shim descriptor.
type slot struct {
	shape   *shape // nil = not written
	patched bool
	arg     uint32
	off     int64
	tasks   int // queued or running tasks that use it
}

type shim struct {
	slots [16]slot
	ch    [2][2]channel // [dir][channel]
	busy  int           // slots in use
}

// mem is a MemTile as far as operands pass through it.
type mem struct {
	bds    [48][8]uint32
	first  [2][6]int // descriptor of the last task, per direction and channel; -1 = none
	pushed [2][6]int64
	popped [2][6]int64
	turns  [2][6]int64
	rings  [2]ring // by channel; zero until asked for
}

// ring is one turn of an operand's ring: words in, words out, output tiles that share one turn of the in-ring.
type ring struct {
	in, out, uses int64
	endless       bool // it closes on itself
}

type core struct {
	rec     *kernel.Record
	chunk   [2]int64 // words per k chunk on S2MM0 and S2MM1
	bds     [16][6]uint32
	first   [2]int
	rtp     [2]uint32
	written uint8
	open    bool
}

// checker is the state of a check.
type checker struct {
	e     *Expect
	dev   *device.Device
	shims []shim
	mems  []mem
	cores [][]core
	rep   Report

	units  int64 // output tiles of finished phases
	phase  int64 // output tiles of the current phase
	chunks int64
	shapes map[[8]uint32]*shape
	read   [2]map[readKey]struct{}
	reads  [2][]rect
	writes []rect
	regIn  regions
	regOut regions
	config bool
}

// errf prefixes an operation's error with its place.
func errf(t device.Tile, format string, args ...any) error {
	return fmt.Errorf("tile %v: %w", t, fmt.Errorf(format, args...))
}

// Stream checks a run-time stream on a configuration. Both are read as words: every operation is encoded and decoded again on the way.
func Stream(config, run txn.Stream, e *Expect) (*Report, error) {
	c := &checker{e: e, dev: e.Dev, shims: make([]shim, e.Dev.Cols), mems: make([]mem, e.Dev.Cols), cores: make([][]core, e.Dev.Cols), shapes: map[[8]uint32]*shape{}}
	for i := range c.cores {
		c.cores[i] = make([]core, e.Dev.CoreRows)
	}
	for i := range c.mems {
		for d := range 2 {
			for ch := range 6 {
				c.mems[i].first[d][ch] = -1
			}
		}
	}
	for i := range c.read {
		c.read[i] = map[readKey]struct{}{}
	}
	c.regIn = newRegions(e.In, true)
	c.regOut = newRegions(e.Out, false)
	c.config = true
	if err := c.each(config); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := c.configured(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c.config = false
	c.rep = Report{}
	if err := c.each(run); err != nil {
		return &c.rep, err
	}
	return &c.rep, c.finish()
}

func (c *checker) each(s txn.Stream) error {
	n := 0
	for op, err := range txn.ViaWords(s, &c.rep.Words) {
		if err == nil {
			err = c.op(&op)
		}
		if err != nil {
			return fmt.Errorf("op %d (%v %#x): %w", n, op.Code, op.Addr, err)
		}
		n++
	}
	c.rep.Ops = n
	return nil
}

func (c *checker) op(op *txn.Op) error {
	if op.Code == txn.Sync {
		return c.sync(op)
	}
	t, off := device.SplitAddr(op.Addr)
	kind, err := c.dev.KindAt(t.Row)
	if err != nil || t.Col >= c.dev.Cols {
		return errf(t, "outside the array")
	}
	reg := c.dev.Tile(kind).Register(off)
	if reg.Kind == device.RegUnknown {
		return errf(t, "%v register %#x is none that control code of this design touches", kind, off)
	}
	if c.config {
		return c.configOp(op, t, kind, reg)
	}
	switch kind {
	case device.Shim:
		return c.shimOp(op, t, reg)
	case device.Mem:
		return c.memOp(op, t, reg)
	}
	return c.coreOp(op, t, reg)
}

// configOp remembers the parts of a configuration that the check needs.
func (c *checker) configOp(op *txn.Op, t device.Tile, kind device.Kind, reg device.Reg) error {
	switch {
	case kind == device.Mem && reg.Kind == device.RegBD && op.Code == txn.BlockWrite,
		kind == device.Mem && reg.Kind == device.RegQueue:
		return c.memWords(op, t, reg)
	case kind == device.Core && reg.Kind == device.RegBD && op.Code == txn.BlockWrite && reg.Word == 0 && len(op.Data) == 6:
		copy(c.core(t).bds[reg.Index][:], op.Data)
		_, err := txn.DecodeCoreBD(op.Data)
		return err
	case kind == device.Core && reg.Kind == device.RegQueue && reg.Dir == device.S2MM:
		task, err := txn.DecodeTask(c.dev.Tile(kind), op.Value)
		c.core(t).first[reg.Index] = task.BD
		return err
	case kind == device.Core && reg.Kind == device.RegProgram:
		rec, err := kernel.Decode(op.Data)
		c.core(t).rec = rec
		return err
	case kind == device.Shim && (reg.Kind == device.RegBD || reg.Kind == device.RegQueue):
		return errf(t, "a configuration starts no shim transfer")
	}
	return nil
}

func (c *checker) core(t device.Tile) *core { return &c.cores[t.Col][t.Row-c.dev.CoreRow] }

// configured derives what a core takes per chunk on each stream.
func (c *checker) configured() error {
	for col := range c.cores {
		for row := range c.cores[col] {
			k := &c.cores[col][row]
			t := device.Tile{Col: col, Row: row + c.dev.CoreRow}
			if k.rec == nil {
				return errf(t, "no kernel")
			}
			for ch := range 2 {
				bd, err := txn.DecodeCoreBD(k.bds[k.first[ch]][:])
				if err != nil {
					return errf(t, "%w", err)
				}
				k.chunk[ch] = int64(bd.Length)
				switch bd.Base * 4 {
				case k.rec.A.Addr[0]:
					k.chunk[ch] *= int64(k.rec.Bands)
				case k.rec.B.Addr[0]:
				default:
					return errf(t, "S2MM%d starts at %#x, which is no buffer of the kernel", ch, bd.Base*4)
				}
			}
			if *k.rec != *c.cores[0][0].rec || k.chunk != c.cores[0][0].chunk {
				return errf(t, "runs another kernel than the first core")
			}
		}
	}
	return nil
}

// memWords follows descriptors and tasks of MemTiles.
func (c *checker) memWords(op *txn.Op, t device.Tile, reg device.Reg) error {
	m := &c.mems[t.Col]
	m.rings = [2]ring{}
	switch reg.Kind {
	case device.RegBD:
		if op.Code != txn.BlockWrite || reg.Word != 0 || len(op.Data) != 8 {
			return errf(t, "descriptor %d is not written whole", reg.Index)
		}
		copy(m.bds[reg.Index][:], op.Data)
		_, err := txn.DecodeMemBD(op.Data)
		return err
	case device.RegQueue:
		task, err := txn.DecodeTask(c.dev.Tile(device.Mem), op.Value)
		if err != nil {
			return err
		}
		d, ch := reg.Dir, reg.Index
		if half := c.dev.Tile(device.Mem).BDs / 2; task.BD/half != ch%2 {
			return errf(t, "%v%d runs descriptor %d of the other half", d, ch, task.BD)
		}
		m.first[d][ch] = task.BD
		m.turns[d][ch] += int64(task.Repeat)
		m.pushed[d][ch]++
		if w := m.pushed[d][ch] - m.popped[d][ch]; w > 4 {
			return errf(t, "%v%d: %d tasks may wait in a queue of 4", d, ch, w)
		}
	}
	return nil
}

// memOp checks a stream's work on a MemTile.
func (c *checker) memOp(op *txn.Op, t device.Tile, reg device.Reg) error {
	if !c.e.Variable {
		return errf(t, "the design's MemTiles do not change from size to size")
	}
	m := &c.mems[t.Col]
	switch reg.Kind {
	case device.RegStatus:
		if op.Code != txn.MaskPoll || op.Mask != device.StatusQueueFull || op.Value != 0 {
			return errf(t, "poll of %#x for %#x", op.Mask, op.Value)
		}
		c.rep.Polls++
		m.popped[reg.Dir][reg.Index] = max(m.popped[reg.Dir][reg.Index], m.pushed[reg.Dir][reg.Index]-3)
		return nil
	case device.RegBD, device.RegLock:
		// Rings may be rewritten when nothing moves: before a phase starts and after all its tokens.
		for i := range c.shims {
			if c.shims[i].busy > 0 {
				return errf(t, "descriptor or lock of a MemTile written while shim %d has transfers queued", i)
			}
		}
		for d := range 2 {
			for ch := range 6 {
				m.popped[d][ch] = m.pushed[d][ch]
			}
		}
		if reg.Kind == device.RegLock {
			if op.Code != txn.Write || op.Value > uint32(c.dev.Tile(device.Mem).LockMax) {
				return errf(t, "lock %d set to %d, at most %d", reg.Index, op.Value, c.dev.Tile(device.Mem).LockMax)
			}
			return nil
		}
		return c.memWords(op, t, reg)
	case device.RegQueue:
		return c.memWords(op, t, reg)
	}
	return errf(t, "MemTile register that no size may change")
}

// ring adds up the turn of a MemTile's operand ring on channel ch.
func (c *checker) ring(col, ch int) (ring, error) {
	m := &c.mems[col]
	if m.rings[ch].in > 0 {
		return m.rings[ch], nil
	}
	t := device.Tile{Col: col, Row: 1}
	sum := func(dir device.Dir) (total, acquire int64, endless bool, err error) {
		first := m.first[dir][ch]
		if first < 0 {
			return 0, 0, false, errf(t, "%v%d has no ring", dir, ch)
		}
		id := first
		for range m.bds {
			bd, err := txn.DecodeMemBD(m.bds[id][:])
			if err != nil {
				return 0, 0, false, errf(t, "%w", err)
			}
			if !bd.Valid {
				return 0, 0, false, errf(t, "descriptor %d of a ring is not valid", id)
			}
			total += int64(bd.Length)
			if id == first {
				acquire = -int64(bd.Lock.AcqValue)
			}
			if !bd.UseNext || int(bd.NextBD) == first {
				return total, acquire, bd.UseNext, nil
			}
			id = int(bd.NextBD)
		}
		return 0, 0, false, errf(t, "the ring of %v%d does not close", dir, ch)
	}
	var r ring
	var err error
	if r.in, r.uses, r.endless, err = sum(device.S2MM); err != nil {
		return r, err
	}
	var endless bool
	if r.out, _, endless, err = sum(device.MM2S); err != nil {
		return r, err
	}
	if endless != r.endless || r.uses < 1 {
		return r, errf(t, "rings of channel %d: in and out do not match", ch)
	}
	m.rings[ch] = r
	return r, nil
}

// needed is what a shim must have sent on MM2S channel ch for n output tiles of the current phase.
func (c *checker) needed(col, ch int, n int64) (int64, error) {
	r, err := c.ring(col, ch)
	if err != nil || n == 0 {
		return 0, err
	}
	unit := c.chunks * c.cores[0][0].chunk[ch]
	if r.in != r.out && unit%r.out != 0 {
		return 0, errf(device.Tile{Col: col, Row: 1}, "an output tile takes %d words of a ring of %d", unit, r.out)
	}
	if r.in != r.out {
		unit = unit / r.out * r.in
	}
	return (n + r.uses - 1) / r.uses * unit, nil
}

// unitWords is C of one output tile of a column.
func (c *checker) unitWords() int64 {
	return int64(c.dev.CoreRows) * int64(c.cores[0][0].rec.CBytes()) / 4
}

// coreOp checks a stream's work on a core: parameters, then the barrier.
func (c *checker) coreOp(op *txn.Op, t device.Tile, reg device.Reg) error {
	k := c.core(t)
	if op.Code != txn.Write {
		return errf(t, "%v on a core, want a write", op.Code)
	}
	switch reg.Kind {
	case device.RegData:
		i := (reg.Index - int(k.rec.RTP)) / 4
		if reg.Index < int(k.rec.RTP) || i > 1 || reg.Index%4 != 0 {
			return errf(t, "write to %#x of the core's memory, which is no runtime parameter", reg.Index)
		}
		if op.Value == 0 {
			return errf(t, "runtime parameter %d is 0", i)
		}
		k.rtp[i] = op.Value
		k.written |= 1 << i
		return nil
	case device.RegLock:
		if reg.Index != int(k.rec.Barrier) || op.Value != 1 {
			return errf(t, "lock %d set to %d, want the barrier %d set to 1", reg.Index, op.Value, k.rec.Barrier)
		}
		if k.written != 3 {
			return errf(t, "the barrier opens before both parameters are written")
		}
		k.written = 0
		k.open = true
		return c.barrier()
	}
	return errf(t, "core register that no size may change")
}

// barrier starts a phase when the last core's barrier opens.
func (c *checker) barrier() error {
	for i := range c.cores {
		for j := range c.cores[i] {
			if !c.cores[i][j].open {
				return nil
			}
		}
	}
	for i := range c.cores {
		for j := range c.cores[i] {
			if c.cores[i][j].rtp != c.cores[0][0].rtp {
				return errf(device.Tile{Col: i, Row: j + c.dev.CoreRow}, "parameters %v differ from the first core's %v", c.cores[i][j].rtp, c.cores[0][0].rtp)
			}
			c.cores[i][j].open = false
		}
	}
	if err := c.endPhase(); err != nil {
		return err
	}
	c.units += c.phase
	c.chunks, c.phase = int64(c.cores[0][0].rtp[0]), int64(c.cores[0][0].rtp[1])
	return nil
}

// shimOp checks a stream's work on a shim.
func (c *checker) shimOp(op *txn.Op, t device.Tile, reg device.Reg) error {
	s := &c.shims[t.Col]
	switch reg.Kind {
	case device.RegBD:
		b := &s.slots[reg.Index]
		if b.tasks > 0 {
			return errf(t, "descriptor %d rewritten while it is queued or running", reg.Index)
		}
		if op.Code == txn.DDRPatch {
			if reg.Word != 1 || b.shape == nil {
				return errf(t, "patch of word %d of descriptor %d", reg.Word, reg.Index)
			}
			b.patched, b.arg, b.off = true, op.Arg, int64(op.Offset)
			return nil
		}
		if op.Code != txn.BlockWrite || reg.Word != 0 || len(op.Data) != 8 {
			return errf(t, "descriptor %d is not written whole", reg.Index)
		}
		words := [8]uint32(op.Data)
		b.patched = false
		if b.shape != nil && b.shape.words == words {
			return nil
		}
		var err error
		if b.shape, err = c.shapeOf(words); err != nil {
			return errf(t, "descriptor %d: %w", reg.Index, err)
		}
		return nil
	case device.RegCtrl:
		if op.Code != txn.MaskWrite || op.Mask&^device.CtrlController != 0 {
			return errf(t, "control register beyond the controller id")
		}
		return nil
	case device.RegStatus:
		if op.Code != txn.MaskPoll || op.Mask != device.StatusQueueFull || op.Value != 0 {
			return errf(t, "poll of %#x for %#x", op.Mask, op.Value)
		}
		c.rep.Polls++
		q := &s.ch[reg.Dir][reg.Index]
		q.popped = max(q.popped, q.pushed-3)
		return nil
	case device.RegQueue:
		if op.Code != txn.Write {
			return errf(t, "queue is not written")
		}
		return c.push(op.Value, t, reg)
	}
	return errf(t, "shim register that no size may change")
}

func (c *checker) push(word uint32, t device.Tile, reg device.Reg) error {
	s := &c.shims[t.Col]
	k, err := txn.DecodeTask(c.dev.Tile(device.Shim), word)
	if err != nil {
		return errf(t, "%w", err)
	}
	b := &s.slots[k.BD]
	switch {
	case b.shape == nil || !b.patched:
		return errf(t, "descriptor %d is queued without having been written and patched", k.BD)
	}
	q := &s.ch[reg.Dir][reg.Index]
	q.pushed++
	if w := q.pushed - q.popped; w > 4 {
		return errf(t, "%v%d: %d tasks may wait in a queue of 4", reg.Dir, reg.Index, w)
	} else if int(w) > c.rep.Queued {
		c.rep.Queued = int(w)
	}
	q.words += b.shape.length * int64(k.Repeat)
	q.pending = append(q.pending, task{k.BD, q.words, k.Token})
	if b.tasks == 0 {
		s.busy++
	}
	b.tasks++
	c.rep.InFlight = max(c.rep.InFlight, s.busy)
	c.rep.Transfers++
	return c.move(b, k.Repeat, t, reg)
}

// sync consumes the tokens of a wait.
func (c *checker) sync(op *txn.Op) error {
	for col := int(op.Col); col < int(op.Col)+int(op.NCols); col++ {
		t := device.Tile{Col: col, Row: int(op.Row)}
		if op.Row != 0 || op.NRows != 1 || col >= c.dev.Cols || op.Dir != device.S2MM || op.Channel > 1 {
			return errf(t, "wait for a token of %v%d: this design's tokens come from S2MM of the shims", op.Dir, op.Channel)
		}
		s := &c.shims[col]
		q := &s.ch[device.S2MM][op.Channel]
		for {
			if q.waiting() == 0 {
				return errf(t, "wait for a token that no queued task issues")
			}
			if c.complete(s, q).token {
				break
			}
		}
		c.rep.Tokens++
		// What has arrived in DRAM has been computed, so its operands have been read.
		n := q.done/c.unitWords() - c.units
		for ch := range 2 {
			in := &s.ch[device.MM2S][ch]
			if in.waiting() == 0 {
				continue
			}
			words, err := c.needed(col, ch, n)
			if err != nil {
				return err
			}
			if words += in.base; words > in.words {
				return errf(t, "%d output tiles are complete, for which MM2S%d would have had to send %d words of %d queued", n, ch, words, in.words)
			}
			for in.waiting() > 0 && in.pending[in.head].end <= words {
				c.complete(s, in)
			}
		}
	}
	return nil
}

// complete retires a channel's oldest task.
func (c *checker) complete(s *shim, q *channel) task {
	k := q.pop()
	q.done = k.end
	b := &s.slots[k.bd]
	if b.tasks--; b.tasks == 0 {
		s.busy--
	}
	// Everything before the tasks that are left has left the queue.
	q.popped = max(q.popped, q.pushed-int64(q.waiting()))
	return k
}

// endPhase checks that a phase has moved what its parameters say.
func (c *checker) endPhase() error {
	if c.phase == 0 {
		return nil
	}
	for col := range c.shims {
		t := device.Tile{Col: col}
		s := &c.shims[col]
		out := &s.ch[device.S2MM][0]
		if n := out.waiting(); n > 0 {
			return errf(t, "%d transfers of C are not waited for", n)
		}
		if want := (c.units + c.phase) * c.unitWords(); out.words != want {
			return errf(t, "%d words of C received, %d output tiles have %d", out.words, c.units+c.phase, want)
		}
		for ch := range 2 {
			in := &s.ch[device.MM2S][ch]
			if ch == 0 && !c.feeds(col) {
				if in.words != 0 {
					return errf(t, "MM2S0 sends where no row is fed")
				}
				continue
			}
			want, err := c.needed(col, ch, c.phase)
			if err != nil {
				return err
			}
			if in.words-in.base != want {
				return errf(t, "MM2S%d sends %d words, %d output tiles take %d", ch, in.words-in.base, c.phase, want)
			}
			if n := in.waiting(); n > 0 {
				return errf(t, "%d transfers on MM2S%d are not complete", n, ch)
			}
			in.base = in.words
			if c.e.Variable {
				if err := c.turns(col, ch); err != nil {
					return err
				}
			}
		}
		if s.busy != 0 {
			return errf(t, "%d descriptors are still in use", s.busy)
		}
	}
	return nil
}

// turns checks that counted rings have exactly the turns that the phase takes.
func (c *checker) turns(col, ch int) error {
	m := &c.mems[col]
	r, err := c.ring(col, ch)
	if err != nil || r.endless {
		return err
	}
	words := c.chunks * c.cores[0][0].chunk[ch] * c.phase
	for dir, want := range [2]int64{device.S2MM: words / r.out / r.uses, device.MM2S: words / r.out} {
		if got := m.turns[dir][ch]; got != want {
			return errf(device.Tile{Col: col, Row: 1}, "%v%d has %d turns of its ring, %d output tiles take %d", device.Dir(dir), ch, got, c.phase, want)
		}
	}
	m.turns[device.MM2S][ch], m.turns[device.S2MM][ch] = 0, 0
	return nil
}

func (c *checker) feeds(col int) bool {
	for _, f := range c.dev.ACols {
		if f == col {
			return true
		}
	}
	return false
}

// finish checks what can be known only at the end.
func (c *checker) finish() error {
	if c.phase == 0 {
		return errors.New("the stream opens no barrier")
	}
	if err := c.endPhase(); err != nil {
		return err
	}
	if err := covered("C", c.writes, c.e.C, true); err != nil {
		return err
	}
	if err := covered("A", c.reads[0], c.e.A, false); err != nil {
		return err
	}
	return covered("B", c.reads[1], c.e.B, false)
}
