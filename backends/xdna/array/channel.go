package array

import (
	"errors"
	"fmt"

	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

var errRewritten = errors.New("descriptor rewritten while a task that uses it is queued or running")

// checkPadding applies the rules of aie-rt: only MemTile MM2S pads, and a dimension without a wrap must not be followed by padding.
func checkPadding(b *bd, info *device.TileInfo, dir device.Dir) error {
	if !b.padded {
		return nil
	}
	if dir != device.MM2S || info.PadBefore == [3]int{} {
		return errors.New("zero padding is for MemTile MM2S channels")
	}
	for i, d := range b.dims {
		if d.Size != 0 {
			continue
		}
		if d.After != 0 {
			return fmt.Errorf("padding after dimension %d, which has no wrap", i)
		}
		for _, up := range b.dims[i+1:] {
			if up.Before|up.After != 0 {
				return fmt.Errorf("padding above dimension %d, which has no wrap", i)
			}
		}
	}
	return nil
}

// state of a channel.
type state uint8

const (
	idle     state = iota
	starting       // an event will fetch the descriptor
	locking        // waits for the descriptor's lock
	moving         // words may move
	ending         // an event will release the lock
)

// Event kinds.
const (
	evFetch = iota // fetch the current descriptor
	evMove         // the lock is held and the address generator ready
	evEnd          // the last word has arrived
)

type task struct {
	txn.Task
	uses []int // descriptors marked as in use
}

// channel is a DMA channel: a queue of tasks, each a chain of descriptors that is run one or more times.
type channel struct {
	t    *tile
	dir  device.Dir
	ch   int
	ctrl uint32

	queue    []task
	cur      task
	runs     int // of the current task, still to do, with the running one
	bd       int
	d        *descriptor
	state    state
	overflow bool
	tokens   int

	walk   sim.Walk
	mem    *sim.Memory
	host   *hostBuffer
	lock   *sim.Lock
	held   int      // what the current descriptor has taken of lock
	epoch  int      // counts resets: an event of an earlier epoch is void
	lo, hi int      // bytes of mem that the descriptor touches
	pace   sim.Time // ticks per word on the stream side
	cost   float64  // shim: ticks of DRAM per word read, while beside channels read side by side
	beside int
	pitch  int // shim: see rowPitch
	stream *sim.Stream
	hops   int
	buf    []byte
	grant  func()

	since sim.Time
	first sim.Time // start of the current descriptor's first transfer, if not before since
}

func newChannel(t *tile, dir device.Dir, ch int) *channel {
	c := &channel{t: t, dir: dir, ch: ch}
	c.grant = func() {
		c.trace("lock", c.since)
		c.locked()
	}
	c.pace = sim.Time(4 * Tick / t.info.StreamBytesPerCycle)
	return c
}

func (c *channel) eng() *sim.Engine { return c.t.a.eng }
func (c *channel) now() sim.Time    { return c.t.a.eng.Now() }
func (c *channel) after(cycles float64, kind int) {
	c.eng().After(ticks(cycles), c, kind|c.epoch<<2)
}

func (c *channel) trace(what string, from sim.Time) {
	if tr := c.t.a.opt.Tracer; tr != nil && c.now() > from {
		tr.Span(Track{c.t.pos, fmt.Sprintf("%v%d", c.dir, c.ch)}, what, cyclesOf(from), cyclesOf(c.now()))
	}
}

// status is the channel's status register.
func (c *channel) status() uint32 {
	s := uint32(len(c.queue)) << 20
	if c.overflow {
		s |= 1 << 18
	}
	switch c.state {
	case idle:
		return s
	case locking:
		s |= 1 << 2
	}
	return s | 1<<19 | uint32(c.bd&15)<<24 | 2
}

// setCtrl writes the control register. Reset drops the running task and the queue; locks that the task has acquired stay so. Cutting a transfer in
// the middle is an error, because nothing could put the words in the stream right again.
func (c *channel) setCtrl(v uint32) {
	if extra := v &^ (device.CtrlReset | device.CtrlController); extra != 0 {
		c.fault(-1, "control register %#x: bits %#x are not emulated", v, extra)
		return
	}
	c.ctrl = v
	if v&device.CtrlReset == 0 || c.state == idle {
		return
	}
	if c.partial() {
		c.fault(c.bd, "channel reset in the middle of a transfer, %d of %d words are missing", c.walk.Left(), c.walk.Total())
		return
	}
	if c.state == locking && c.lock != nil {
		c.lock.Cancel(c)
	}
	for _, k := range append(c.queue, c.cur) {
		for _, id := range k.uses {
			c.t.bds[id].users--
		}
	}
	c.queue = c.queue[:0]
	c.state, c.held = idle, 0
	c.epoch++
	c.t.a.wakePolls()
}

// push adds a task to the queue.
func (c *channel) push(word uint32) {
	tk, err := txn.DecodeTask(c.t.info, word)
	if err != nil {
		c.fault(-1, "%w", err)
		return
	}
	if c.ctrl&device.CtrlReset != 0 {
		c.fault(tk.BD, "task for a channel that is held in reset")
		return
	}
	if len(c.queue) >= c.t.info.QueueDepth {
		c.overflow = true
		c.fault(tk.BD, "queue overflow: %d tasks wait already, hardware would drop this one", len(c.queue))
		return
	}
	k := task{Task: tk}
	for id := tk.BD; id >= 0 && c.eng().Err() == nil; {
		c.use(&k, id)
		id = c.peekNext(id)
		if contains(k.uses, id) {
			break
		}
	}
	c.queue = append(c.queue, k)
	if c.state == idle {
		c.nextTask(c.t.a.tm.ChannelStart)
	}
}

func contains(s []int, v int) bool {
	for _, x := range s {
		if x == v {
			return true
		}
	}
	return false
}

// use marks a descriptor as belonging to a task.
func (c *channel) use(k *task, id int) {
	if info := c.t.info; info.BDParity && id/(info.BDs/2) != c.ch%2 {
		c.fault(id, "channel %d uses a descriptor of the other half: even channels have 0 to %d", c.ch, info.BDs/2-1)
		return
	}
	k.uses = append(k.uses, id)
	c.t.bds[id].users++
}

// peekNext is the chained descriptor by the words as they are now, -1 = none.
func (c *channel) peekNext(id int) int {
	d := &c.t.bds[id]
	switch c.t.info.Kind {
	case device.Mem:
		if w := d.words[1]; w>>19&1 != 0 {
			return min(int(w>>20&63), c.t.info.BDs-1)
		}
	case device.Shim:
		if w := d.words[7]; w>>26&1 != 0 {
			return int(w >> 27 & 15)
		}
	case device.Core:
		if w := d.words[5]; w>>26&1 != 0 {
			return int(w >> 27 & 15)
		}
	}
	return -1
}

// nextTask starts the first task of the queue, if any.
func (c *channel) nextTask(delay float64) {
	if len(c.queue) == 0 {
		c.state = idle
		c.t.a.wakePolls()
		return
	}
	c.cur = c.queue[0]
	c.queue = c.queue[:copy(c.queue, c.queue[1:])]
	c.runs = c.cur.Repeat
	c.bd = c.cur.BD
	c.state = starting
	if c.t.info.Kind == device.Shim {
		if c.dir == device.MM2S {
			delay += c.t.a.tm.ShimMM2S
		} else {
			delay += c.t.a.tm.ShimS2MM
		}
	}
	c.after(delay, evFetch)
	c.t.a.wakePolls()
}

// Handle drives the channel.
func (c *channel) Handle(kind int) {
	if kind>>2 != c.epoch {
		return
	}
	switch kind & 3 {
	case evFetch:
		c.fetch()
	case evMove:
		c.move()
	case evEnd:
		c.end()
	}
}

// fetch reads the descriptor and asks for its lock.
func (c *channel) fetch() {
	d := c.t.load(c, c.bd)
	if d == nil {
		return
	}
	if !contains(c.cur.uses, c.bd) {
		c.use(&c.cur, c.bd)
	}
	c.d = d
	base := int(d.bd.pat.Base) + d.iter*d.bd.pat.IterStep // the window is linear: an iteration may step into a neighbour
	mem, host, ok := c.window(d, &base)
	if !ok {
		return
	}
	c.mem, c.host = mem, host
	c.walk.Start(base, int(d.bd.pat.Length), d.bd.dims)
	c.lo, c.hi = c.walk.Box()
	if c.lo < 0 || c.hi > len(mem.Data) {
		c.fault(c.bd, "addresses %#x to %#x leave %s of %#x bytes", c.lo, c.hi, mem.Name, len(mem.Data))
		return
	}
	if host != nil {
		c.pitch, c.beside = c.rowPitch(), 0
	}
	c.state = locking
	l := d.bd.lock
	c.lock, c.held = nil, 0
	if !l.AcqEnable {
		c.locked()
		return
	}
	lock := c.lockAt(int(l.AcqID))
	if lock == nil {
		return
	}
	c.lock = lock
	want, equal := int(l.AcqValue), true
	if want < 0 {
		want, equal = -want, false
	}
	c.since = c.now()
	c.held = want
	if lock.Acquire(c, want, equal, c.grant) {
		c.locked()
	}
}

// locked goes on with the lock in hand.
func (c *channel) locked() {
	c.after(c.t.a.tm.BDSetup+c.t.a.tm.Lock, evMove)
}

// window finds the memory that a descriptor addresses and makes its word address relative to it.
func (c *channel) window(d *descriptor, base *int) (*sim.Memory, *hostBuffer, bool) {
	info := c.t.info
	switch info.Kind {
	case device.Shim:
		h, off := c.t.a.hostAt(d.bd.hostOff)
		if h == nil {
			c.fault(c.bd, "address %#x is in no host buffer", d.bd.hostOff)
			return nil, nil, false
		}
		*base = off/4 + d.iter*d.bd.pat.IterStep
		return h.mem, h, true
	case device.Mem:
		off := *base*4 - int(info.OwnBase)
		t, rel := c.neighbour(off, int(info.NeighbourBytes))
		if t == nil {
			c.fault(c.bd, "address %#x is in no MemTile that channel %d reaches", *base*4, c.ch)
			return nil, nil, false
		}
		*base = rel / 4
		return t.mem, nil, true
	}
	return c.t.mem, nil, true
}

// neighbour resolves an offset from the own tile's start in units of unit per tile: the west neighbour is below 0, the east one at unit and above.
func (c *channel) neighbour(off, unit int) (*tile, int) {
	d := 0
	switch {
	case off < 0:
		d = -1
	case off >= unit:
		d = 1
	}
	if d == 0 {
		return c.t, off
	}
	col := c.t.pos.Col + d
	if c.ch >= c.t.info.NeighbourChan || col < 0 || col >= c.t.a.dev.Cols || off < -unit || off >= 2*unit {
		return nil, 0
	}
	return c.t.a.tiles[col][c.t.pos.Row], off - d*unit
}

// lockAt resolves a lock id of a descriptor, or faults.
func (c *channel) lockAt(id int) *sim.Lock {
	info := c.t.info
	if info.Kind != device.Mem {
		if id >= len(c.t.locks) {
			c.fault(c.bd, "lock %d, the tile has %d", id, len(c.t.locks))
			return nil
		}
		return &c.t.locks[id]
	}
	t, rel := c.neighbour(id-int(info.LockWindowOwn), info.Locks)
	if t == nil {
		c.fault(c.bd, "lock %d is in no MemTile that channel %d reaches", id, c.ch)
		return nil
	}
	return &t.locks[rel]
}

// move opens the descriptor for words.
func (c *channel) move() {
	c.state = moving
	c.since = c.now()
	if c.dir == device.MM2S {
		if at := c.undefined(); at >= 0 {
			c.fault(c.bd, "reads undefined memory: %s at %#x", c.mem.Name, at)
			return
		}
	}
	if c.host == nil && !c.t.a.opt.TimeOnly && !c.clash() {
		return
	}
	if c.stream == nil && c.dir == device.MM2S {
		if err := c.connect(); err != nil {
			c.t.a.eng.Fail(err)
			return
		}
	}
	if c.stream != nil {
		c.stream.Poke()
	}
}

// undefined is the address of the first undefined word that the descriptor reads, or -1.
func (c *channel) undefined() int {
	if c.mem.Undefined(c.lo, c.hi) < 0 {
		return -1
	}
	at := -1
	w := c.walk
	w.Visit(w.Left(), func(lo, hi int) bool {
		if lo >= 0 {
			at = c.mem.Undefined(lo, hi)
		}
		return at < 0 && c.eng().Charge(1)
	})
	return at
}

// clash reports two agents at work on the same bytes, at least one of which writes. It returns false if there are.
func (c *channel) clash() bool {
	var owner *tile
	col := c.t.pos.Col
	for _, x := range []int{col, col - 1, col + 1} {
		if x < 0 || x >= c.t.a.dev.Cols {
			continue
		}
		t := c.t.a.tiles[x][c.t.pos.Row]
		if t.mem == c.mem {
			owner = t
		}
		for _, dir := range t.chans {
			for _, o := range dir {
				if o == c || o.state != moving && o.state != ending || o.mem != c.mem || o.hi <= c.lo || c.hi <= o.lo || o.dir == device.MM2S && c.dir == device.MM2S {
					continue
				}
				if at := c.shared(o); at >= 0 {
					c.fault(c.bd, "works on %s at %#x while %v%d descriptor %d of tile %v does, without a lock between them", c.mem.Name, at, o.dir, o.ch, o.bd, o.t.pos)
					return false
				}
			}
		}
	}
	if owner != nil && owner.core != nil && owner.core.uses(c.lo, c.hi, c.dir == device.S2MM) {
		c.fault(c.bd, "works on %s at %#x to %#x while the core does, without a lock between them", c.mem.Name, c.lo, c.hi)
		return false
	}
	return true
}

// shared is an address that both channels' descriptors touch, or -1. Both are walked from their starts.
func (c *channel) shared(o *channel) int {
	full := func(x *channel) sim.Walk {
		var w sim.Walk
		base := x.lo / 4
		w.Start(base, int(x.d.bd.pat.Length), x.d.bd.dims)
		return w
	}
	mine := make([]uint64, (c.hi-c.lo)/256+1)
	w := full(c)
	w.Visit(w.Left(), func(lo, hi int) bool {
		for a := lo; a < hi && lo >= 0; a += 4 {
			i := (a - c.lo) / 4
			mine[i/64] |= 1 << (i % 64)
		}
		return c.eng().Charge(1)
	})
	at := -1
	w = full(o)
	w.Visit(w.Left(), func(lo, hi int) bool {
		for a := max(lo, c.lo); a < min(hi, c.hi) && lo >= 0; a += 4 {
			if i := (a - c.lo) / 4; mine[i/64]>>(i%64)&1 != 0 {
				at = a
				return false
			}
		}
		return c.eng().Charge(1)
	})
	return at
}

// rowPitch is the distance in bytes from one contiguous stretch of the descriptor to the next row's, 0 if there is none.
func (c *channel) rowPitch() int {
	run, pitch := c.walk.Run(), 0
	for _, d := range c.d.bd.dims {
		if p := 4 * d.Step; p > run && (pitch == 0 || p < pitch) {
			pitch = p
		}
	}
	return pitch
}

// dramCost is the DRAM time of a word in ticks, given what the other channels read now.
func (c *channel) dramCost() float64 {
	tm := c.t.a.tm
	if c.dir == device.S2MM {
		return 4 * Tick / tm.WriteCap
	}
	n := c.sideBySide()
	if n != c.beside {
		c.beside, c.cost = n, 4*Tick/tm.readRate(c.walk.Run(), n)
	}
	return c.cost
}

// sideBySide counts the shim channels whose current descriptors read stretches of the same rows as this one's, itself included: the columns' channels
// under a row-major B.
func (c *channel) sideBySide() int {
	n := 1
	if c.pitch == 0 {
		return n
	}
	for col := range c.t.a.tiles {
		o := c.t.a.tiles[col][0].chans[device.MM2S][c.ch]
		if o == c || o.state == idle || o.mem != c.mem || o.pitch != c.pitch || o.walk.Run() != c.walk.Run() || o.walk.Total() != c.walk.Total() {
			continue
		}
		if d := o.lo - c.lo; d > -c.pitch && d < c.pitch {
			n++
		}
	}
	return n
}

// open returns the words that the descriptor still has.
func (c *channel) open() int {
	if c.state != moving {
		return 0
	}
	return c.walk.Left()
}

// Offer implements sim.Source.
func (c *channel) Offer() int { return c.open() }

// Room implements sim.Sink.
func (c *channel) Room() int { return c.open() }

// Pace implements sim.Source and sim.Sink.
func (c *channel) Pace(start sim.Time, words int) sim.Time {
	end := start + sim.Time(words)*c.pace
	if c.first < c.since {
		c.first = start
	}
	if c.host != nil && c.state == moving {
		s := &c.t.a.dram.read
		if c.dir == device.S2MM {
			s = &c.t.a.dram.write
		}
		end = max(end, s.Serve(start, sim.Time(float64(words)*c.dramCost())))
	}
	return end
}

// Send implements sim.Source.
func (c *channel) Send(words int) ([]byte, error) {
	n := 4 * words
	if cap(c.buf) < n {
		c.buf = make([]byte, max(n, 16<<10))
	}
	b := c.buf[:n]
	if c.t.a.opt.TimeOnly {
		c.walk.Skip(words)
		return b, nil
	}
	c.walk.Gather(b, c.mem.Data)
	c.eng().Charge(words)
	return b, nil
}

// Sent implements sim.Source.
func (c *channel) Sent(words int) {
	if c.host != nil {
		c.t.a.read += 4 * int64(words)
	}
	if c.walk.Left() == 0 {
		c.state = ending
		c.after(0, evEnd)
	}
}

// Take implements sim.Sink.
func (c *channel) Take(b []byte) error {
	if c.t.a.opt.TimeOnly {
		c.walk.Skip(len(b) / 4)
	} else {
		c.walk.Scatter(c.mem.Data, b)
	}
	c.eng().Charge(len(b) / 4)
	if c.host != nil {
		c.host.written += int64(len(b))
	}
	if c.walk.Left() == 0 {
		if !c.t.a.opt.TimeOnly {
			c.define()
		}
		c.state = ending
		c.after(c.t.a.tm.MemLatency+float64(c.hops)*c.t.a.tm.Hop, evEnd)
	}
	return nil
}

// define marks what the descriptor has written.
func (c *channel) define() {
	if c.mem.Undefined(c.lo, c.hi) < 0 {
		return
	}
	var w sim.Walk
	w.Start(c.lo/4, int(c.d.bd.pat.Length), c.d.bd.dims)
	w.Visit(w.Left(), func(lo, hi int) bool {
		c.mem.Define(lo, hi)
		return c.eng().Charge(1)
	})
}

// end releases the lock and goes on to the next descriptor, run or task.
func (c *channel) end() {
	if tr := c.t.a.opt.Tracer; tr != nil {
		if c.first > c.since {
			tr.Span(Track{c.t.pos, fmt.Sprintf("%v%d", c.dir, c.ch)}, "wait for words", cyclesOf(c.since), cyclesOf(c.first))
		}
		c.trace(fmt.Sprintf("bd %d", c.bd), max(c.first, c.since))
	}
	d := c.d
	c.held = 0
	d.iter++
	if d.iter == d.bd.pat.IterCount {
		d.iter = 0
	}
	if v := int(d.bd.lock.RelValue); v != 0 {
		lock := c.lockAt(int(d.bd.lock.RelID))
		if lock == nil {
			return
		}
		// The channel counts as done before others react to the release.
		c.state = starting
		if !lock.Release(v) {
			c.fault(c.bd, "lock %d would go from %d to %d, 0 to %d is possible", d.bd.lock.RelID, lock.Value, lock.Value+v, c.t.info.LockMax)
			return
		}
	}
	c.state = starting
	tm := c.t.a.tm
	if d.bd.next >= 0 {
		c.bd = d.bd.next
		c.after(tm.NextBD, evFetch)
		return
	}
	if c.runs--; c.runs > 0 {
		c.bd = c.cur.BD
		c.after(tm.NextBD, evFetch)
		return
	}
	for _, id := range c.cur.uses {
		c.t.bds[id].users--
	}
	if c.cur.Token {
		c.tokens++
		c.t.a.wakePolls()
	}
	c.nextTask(tm.NextBD)
}

// partial reports whether the current descriptor has moved some of its words.
func (c *channel) partial() bool {
	return c.state == ending || c.state == moving && (c.walk.Left() < c.walk.Total() || c.stream != nil && c.stream.InFlight())
}

// notAtRest says what keeps the channel from being at rest after a dispatch, nil if nothing does. A ring of descriptors without end
// is at rest while it waits for its lock, or for the first word of a transfer.
func (c *channel) notAtRest() error {
	switch {
	case len(c.queue) > 0:
		return c.error(-1, "not at rest: %d tasks wait in the queue", len(c.queue))
	case c.tokens > 0:
		return c.error(-1, "not at rest: %d tokens were not waited for", c.tokens)
	case c.partial():
		return c.error(c.bd, "not at rest: %d of %d words are missing", c.walk.Left(), c.walk.Total())
	case c.state != idle && c.t.info.Kind == device.Shim:
		return c.error(c.bd, "not at rest: a task did not finish")
	case c.state == moving && c.dir == device.MM2S:
		return c.error(c.bd, "not at rest: %d words are left that nobody takes", c.walk.Left())
	case c.state == starting:
		return c.error(c.bd, "not at rest: a descriptor is being fetched")
	}
	if c.stream != nil && c.dir == device.MM2S {
		for i := range c.stream.Sinks() {
			if n := c.stream.Buffered(i); n > 0 {
				return c.error(-1, "not at rest: %d words stand in the stream", n)
			}
		}
	}
	if c.state != idle && !c.endless() {
		return c.error(c.bd, "not at rest: a task did not finish")
	}
	return nil
}

// endless reports whether the current task is a ring of descriptors.
func (c *channel) endless() bool {
	id := c.cur.BD
	for range c.t.info.BDs + 1 {
		if id = c.peekNext(id); id < 0 {
			return false
		}
	}
	return true
}

// Waiting says what the channel waits for in a deadlock.
func (c *channel) Waiting() (who, what string) {
	who = fmt.Sprintf("%v tile %v %v%d", c.t.info.Kind, c.t.pos, c.dir, c.ch)
	switch c.state {
	case locking:
		l := c.d.bd.lock
		cond := "at least"
		v := -int(l.AcqValue)
		if l.AcqValue >= 0 {
			cond, v = "exactly", int(l.AcqValue)
		}
		what = fmt.Sprintf("descriptor %d waits for lock %d to hold %s %d, it holds %d", c.bd, l.AcqID, cond, v, c.lock.Value)
		if c.endless() && !c.blocksOthers() {
			what += " (a ring at rest would, too)"
		}
	case moving:
		switch {
		case c.stream == nil && c.dir == device.S2MM:
			what = fmt.Sprintf("descriptor %d waits for words, no stream leads here yet", c.bd)
		case c.dir == device.S2MM:
			what = fmt.Sprintf("descriptor %d waits for %d of %d words", c.bd, c.walk.Left(), c.walk.Total())
		default:
			what = fmt.Sprintf("descriptor %d waits for receivers to take %d of %d words", c.bd, c.walk.Left(), c.walk.Total())
		}
	}
	if n := len(c.queue); n > 0 && what != "" {
		what += fmt.Sprintf(", %d tasks behind it", n)
	}
	return who, what
}

// blocksOthers reports whether tasks wait behind the current one.
func (c *channel) blocksOthers() bool { return len(c.queue) > 0 }
