package array

import (
	"encoding/binary"
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/regs"
	"github.com/tessera-go/tessera/backends/internal/sim"
)

// lock is a binary lock of the first generation: an acquire with a value waits until the lock is free and holds that value.
type lock struct {
	held    bool
	value   int
	waiters []lockWait
}

type lockWait struct {
	value int
	fn    func()
}

// acquire returns true if the lock was taken at once, else fn is called when it is.
func (l *lock) acquire(value int, fn func()) bool {
	if !l.held && l.value == value {
		l.held = true
		return true
	}
	l.waiters = append(l.waiters, lockWait{value, fn})
	return false
}

func (l *lock) release(value int) bool {
	if !l.held {
		return false
	}
	l.held, l.value = false, value
	for i, w := range l.waiters {
		if w.value == value {
			l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
			l.held = true
			w.fn()
			break
		}
	}
	return true
}

// tile is a core with its memory and its DMA.
type tile struct {
	m        *machine
	col, row int
	mem      *sim.Memory
	bds      [16][regs.CoreWords]uint32
	locks    [16]lock
	program  []uint32
	s2mm     [2]*channel
	mm2s     [2]*channel
	in       [2]*coreIn
	out      *coreOut
	core     *coreProc
	busy     sim.Time
}

func newTile(m *machine, col, row int) *tile {
	t := &tile{m: m, col: col, row: row, mem: sim.NewMemory(fmt.Sprintf("core (%d,%d)", col, row), m.Device.Core.MemoryBytes)}
	for i := range 2 {
		t.s2mm[i] = &channel{m: m, t: t, ch: i, s2mm: true, cur: -1}
		t.mm2s[i] = &channel{m: m, t: t, ch: i, cur: -1}
		t.in[i] = &coreIn{t: t}
		m.e.Register(t.s2mm[i])
		m.e.Register(t.mm2s[i])
	}
	t.out = &coreOut{t: t}
	return t
}

func (t *tile) name() string { return fmt.Sprintf("core (%d,%d)", t.col, t.row) }

func (t *tile) write(off, v uint32) {
	switch {
	case off%4 != 0:
		t.m.fail("%s: write to 0x%05x, which is no word", t.name(), off)
	case off < uint32(len(t.mem.Data)):
		binary.LittleEndian.PutUint32(t.mem.Data[off:], v)
		t.mem.Define(int(off), int(off)+4)
	case off >= device.BDBase && off < device.BDBase+16*device.CoreBDStride:
		bd, word := int(off-device.BDBase)/device.CoreBDStride, int(off-device.BDBase)%device.CoreBDStride/4
		if word >= regs.CoreWords {
			t.m.fail("%s: descriptor %d has no word %d", t.name(), bd, word)
			return
		}
		for _, c := range []*channel{t.s2mm[0], t.s2mm[1], t.mm2s[0], t.mm2s[1]} {
			if c.cur == bd && c.running {
				t.m.fail("%s: descriptor %d is rewritten while %s runs it", t.name(), bd, c.label())
				return
			}
		}
		t.bds[bd][word] = v
	case off >= device.ProgramMemory && off < device.ProgramMemory+uint32(t.m.Device.Core.ProgramBytes):
		i := int(off-device.ProgramMemory) / 4
		for len(t.program) <= i {
			t.program = append(t.program, 0)
		}
		t.program[i] = v
	case off == device.CoreControl:
		if v&1 == 1 && t.core != nil {
			t.m.fail("%s: enabled twice", t.name())
		} else if v&1 == 1 {
			t.enable()
		}
	case off >= device.CoreS2MM && off < device.CoreMM2S+2*device.ChannelStride:
		i := int(off - device.CoreS2MM)
		dir, ch, queue := i/(2*device.ChannelStride), i%(2*device.ChannelStride)/device.ChannelStride, i%device.ChannelStride == device.QueueOffset
		c := t.mm2s[ch]
		if dir == 0 {
			c = t.s2mm[ch]
		}
		if queue {
			c.push(int(v))
		} else {
			c.enabled = v&1 == 1
		}
	default:
		t.m.fail("%s: no register at 0x%05x", t.name(), off)
	}
}

// waitsWith reports whether a receiving channel holds a lock for data that nobody will send any more, which is how a ring of descriptors rests.
func (t *tile) waitsWith(id int) bool {
	for _, c := range t.s2mm {
		if c.running && c.done == 0 && c.bd.LockA.Acquire && c.bd.LockA.ID == id {
			return true
		}
	}
	return false
}

func (t *tile) enable() {
	rec, err := DecodeRecord(t.program)
	if err != nil {
		t.m.fail("%s: %w", t.name(), err)
		return
	}
	t.core = &coreProc{t: t, Record: rec}
	t.m.e.Register(t.core)
	t.core.start()
}

// channel is a DMA channel of a core tile. It is the sink or the source of its stream.
type channel struct {
	pacer
	m       *machine
	t       *tile
	ch      int
	s2mm    bool
	enabled bool
	queue   []int
	cur     int // descriptor, -1 at rest
	bd      regs.CoreBD
	done    int // words
	running bool
	linear  bool
	stream  *sim.Stream
	buf     []byte
}

func (c *channel) label() string {
	dir := "mm2s"
	if c.s2mm {
		dir = "s2mm"
	}
	return fmt.Sprintf("%s %s %d", c.t.name(), dir, c.ch)
}

// Waiting implements sim.Waiter. A receiving channel that holds its lock and has got nothing yet is at rest; so is one that waits for the
// core to hand a buffer back, or a sending one for the next result.
func (c *channel) Waiting() (string, string) {
	switch {
	case c.running && c.done > 0:
		return c.label(), fmt.Sprintf("descriptor %d has moved %d of %d words", c.cur, c.done, c.bd.Length)
	case c.running && !c.s2mm:
		return c.label(), fmt.Sprintf("descriptor %d cannot send", c.cur)
	case len(c.queue) > 0:
		return c.label(), fmt.Sprintf("%d descriptors wait", len(c.queue))
	}
	return c.label(), ""
}

func (c *channel) push(bd int) {
	if !c.enabled {
		c.m.fail("%s: started but not enabled", c.label())
		return
	}
	if bd > 15 {
		c.m.fail("%s: descriptor %d, 0 to 15 is right", c.label(), bd)
		return
	}
	if len(c.queue) >= c.m.Device.Core.QueueDepth {
		c.m.fail("%s: queue of %d overflows", c.label(), c.m.Device.Core.QueueDepth)
		return
	}
	c.queue = append(c.queue, bd)
	if c.cur < 0 {
		c.begin(c.pop())
	}
}

func (c *channel) pop() int {
	bd := c.queue[0]
	c.queue = c.queue[:copy(c.queue, c.queue[1:])]
	return bd
}

func (c *channel) begin(id int) {
	c.cur, c.done, c.running = id, 0, false
	c.bd = regs.DecodeCore(c.t.bds[id])
	if !c.bd.Valid {
		c.m.fail("%s: descriptor %d is not valid", c.label(), id)
		return
	}
	c.linear = c.bd.Linear()
	if c.linear && 4*(c.bd.BaseA+c.bd.Length) > len(c.t.mem.Data) {
		c.m.fail("%s: descriptor %d ends at byte %d of %d", c.label(), id, 4*(c.bd.BaseA+c.bd.Length), len(c.t.mem.Data))
		return
	}
	if l := c.bd.LockA; l.Acquire {
		value := 0
		if l.AcquireUse {
			value = l.AcquireValue
		}
		if !c.t.locks[l.ID].acquire(value, c.granted) {
			return
		}
	}
	c.granted()
}

func (c *channel) granted() {
	c.running = true
	if c.stream != nil {
		c.stream.Poke()
	}
}

func (c *channel) finish() {
	c.running = false
	if l := c.bd.LockA; l.Release && !c.t.locks[l.ID].release(l.ReleaseValue) {
		c.m.fail("%s: descriptor %d releases lock %d, which is free", c.label(), c.cur, l.ID)
		return
	}
	switch {
	case c.bd.UseNext:
		c.begin(c.bd.Next)
	case len(c.queue) > 0:
		c.begin(c.pop())
	default:
		c.cur = -1
	}
}

func (c *channel) left() int {
	if !c.running {
		return 0
	}
	return c.bd.Length - c.done
}

// Room, Take, Offer, Send and Sent implement the ends of a stream.
func (c *channel) Room() int  { return c.left() }
func (c *channel) Offer() int { return c.left() }
func (c *channel) Pace(start sim.Time, words int) sim.Time {
	if c.s2mm {
		return start
	}
	return c.pace(start, words)
}

func (c *channel) each(words int, f func(at, i int) bool) {
	for i := range words {
		at := 4 * c.bd.Word(c.done+i)
		if at+4 > len(c.t.mem.Data) {
			c.m.fail("%s: descriptor %d reaches byte %d of %d", c.label(), c.cur, at+4, len(c.t.mem.Data))
			return
		}
		if !f(at, i) {
			return
		}
	}
}

func (c *channel) Take(data []byte) error {
	words := len(data) / 4
	mem := c.t.mem
	c.m.bytes.Local += float64(len(data))
	if c.linear {
		at := 4 * (c.bd.BaseA + c.done)
		mem.Define(at, at+len(data))
		if !c.m.opt.TimingOnly {
			copy(mem.Data[at:], data)
		}
	} else {
		c.each(words, func(at, i int) bool {
			mem.Define(at, at+4)
			copy(mem.Data[at:at+4], data[4*i:])
			return true
		})
	}
	c.done += words
	if c.done == c.bd.Length {
		c.finish()
	}
	return c.m.e.Err()
}

func (c *channel) Send(words int) ([]byte, error) {
	mem := c.t.mem
	c.m.bytes.Local += float64(4 * words)
	if c.linear {
		at := 4 * (c.bd.BaseA + c.done)
		if u := mem.Undefined(at, at+4*words); u >= 0 {
			return nil, fmt.Errorf("%s: descriptor %d reads byte %d, which nobody wrote", c.label(), c.cur, u)
		}
		return mem.Data[at : at+4*words], nil
	}
	c.buf = append(c.buf[:0], make([]byte, 4*words)...)
	c.each(words, func(at, i int) bool {
		if u := mem.Undefined(at, at+4); u >= 0 {
			c.m.fail("%s: descriptor %d reads byte %d, which nobody wrote", c.label(), c.cur, u)
			return false
		}
		copy(c.buf[4*i:], mem.Data[at:at+4])
		return true
	})
	return c.buf, c.m.e.Err()
}

func (c *channel) Sent(words int) {
	c.done += words
	if c.done == c.bd.Length {
		c.finish()
	}
}

// shim is an interface tile with a DMA to DDR.
type shim struct {
	m    *machine
	col  int
	bds  [16][regs.ShimWords]uint32
	s2mm [2]*shimChannelProc
	mm2s [2]*shimChannelProc
}

func newShim(m *machine, col int) *shim {
	s := &shim{m: m, col: col}
	for i := range 2 {
		s.s2mm[i] = &shimChannelProc{s: s, ch: i, s2mm: true, cur: -1}
		s.mm2s[i] = &shimChannelProc{s: s, ch: i, cur: -1}
		m.e.Register(s.s2mm[i])
		m.e.Register(s.mm2s[i])
	}
	return s
}

func (s *shim) write(off, v uint32) {
	switch {
	case off%4 != 0:
		s.m.fail("shim %d: write to 0x%05x, which is no word", s.col, off)
	case off >= device.BDBase && off < device.BDBase+16*device.ShimBDStride:
		bd, word := int(off-device.BDBase)/device.ShimBDStride, int(off-device.BDBase)%device.ShimBDStride/4
		for _, c := range []*shimChannelProc{s.s2mm[0], s.s2mm[1], s.mm2s[0], s.mm2s[1]} {
			if c.uses(bd) {
				s.m.fail("shim %d: descriptor %d is rewritten while %s has it queued or runs it", s.col, bd, c.label())
				return
			}
		}
		s.bds[bd][word] = v
	case off >= device.ShimS2MM && off < device.ShimMM2S+2*device.ChannelStride:
		i := int(off - device.ShimS2MM)
		dir, ch, queue := i/(2*device.ChannelStride), i%(2*device.ChannelStride)/device.ChannelStride, i%device.ChannelStride == device.QueueOffset
		c := s.mm2s[ch]
		if dir == 0 {
			c = s.s2mm[ch]
		}
		if queue {
			c.push(int(v))
		} else {
			c.enabled = v&1 == 1
		}
	default:
		s.m.fail("shim %d: no register at 0x%05x", s.col, off)
	}
}

func (s *shim) read(off uint32) (uint32, bool) {
	chans := s.mm2s
	switch off {
	case device.ShimStatusS2MM:
		chans = s.s2mm
	case device.ShimStatusMM2S:
	default:
		s.m.fail("shim %d: register 0x%05x cannot be read", s.col, off)
		return 0, false
	}
	v := uint32(0)
	for i, c := range chans {
		if c.cur >= 0 {
			v |= 2<<(2*i) | uint32(c.cur)<<(16+4*i)
		}
		v |= uint32(len(c.queue)) << (6 + 3*i)
	}
	return v, true
}

// shimChannelProc is a DMA channel of a shim.
type shimChannelProc struct {
	pacer
	s       *shim
	ch      int
	s2mm    bool
	enabled bool
	queue   []int
	cur     int
	bd      regs.ShimBD
	done    int64
	stream  *sim.Stream
	busy    sim.Time
}

func (c *shimChannelProc) label() string {
	dir := "mm2s"
	if c.s2mm {
		dir = "s2mm"
	}
	return fmt.Sprintf("shim %d %s %d", c.s.col, dir, c.ch)
}

func (c *shimChannelProc) uses(bd int) bool {
	if c.cur == bd {
		return true
	}
	for _, q := range c.queue {
		if q == bd {
			return true
		}
	}
	return false
}

// Waiting implements sim.Waiter.
func (c *shimChannelProc) Waiting() (string, string) {
	if c.cur < 0 {
		return c.label(), ""
	}
	return c.label(), fmt.Sprintf("descriptor %d has moved %d of %d words", c.cur, c.done, c.bd.Length)
}

func (c *shimChannelProc) push(bd int) {
	switch {
	case !c.enabled:
		c.s.m.fail("%s: started but not enabled", c.label())
		return
	case bd > 15:
		c.s.m.fail("%s: descriptor %d, 0 to 15 is right", c.label(), bd)
		return
	case len(c.queue) >= c.s.m.Device.Shim.QueueDepth:
		c.s.m.fail("%s: queue of %d overflows", c.label(), c.s.m.Device.Shim.QueueDepth)
		return
	}
	c.queue = append(c.queue, bd)
	if c.cur < 0 {
		c.begin()
	}
}

func (c *shimChannelProc) begin() {
	c.cur, c.done = c.queue[0], 0
	c.queue = c.queue[:copy(c.queue, c.queue[1:])]
	c.bd = regs.DecodeShim(c.s.bds[c.cur])
	if !c.bd.Valid || c.bd.Lock.Acquire || c.bd.Lock.Release || c.bd.Length == 0 {
		c.s.m.fail("%s: descriptor %d is not valid, empty, or uses locks that shims of this machine do not have", c.label(), c.cur)
		return
	}
	if c.stream == nil {
		c.s.m.fail("%s: not connected", c.label())
		return
	}
	c.stream.Poke()
}

func (c *shimChannelProc) left() int {
	if c.cur < 0 {
		return 0
	}
	return int(min(c.bd.Length-c.done, 1<<20))
}

func (c *shimChannelProc) advance(words int) {
	c.done += int64(words)
	if c.done < c.bd.Length {
		return
	}
	c.cur = -1
	if c.s2mm {
		c.s.m.useful = c.s.m.e.Now()
	}
	if len(c.queue) > 0 {
		c.begin()
	}
	c.s.m.resume()
}

// Offer, Room, Pace, Send, Sent and Take implement the ends of a stream.
func (c *shimChannelProc) Offer() int { return c.left() }
func (c *shimChannelProc) Room() int  { return c.left() }
func (c *shimChannelProc) Pace(start sim.Time, words int) sim.Time {
	end := c.s.m.serveDDR(start, float64(4*words))
	if !c.s2mm {
		end = max(end, c.pace(start, words))
	}
	c.busy += end - start
	return end
}

func (c *shimChannelProc) Send(words int) ([]byte, error) {
	if c.s.m.opt.TimingOnly {
		return c.s.m.zeros(4 * words), nil
	}
	return c.s.m.at(DDR, c.bd.Address+4*c.done, 4*words)
}

func (c *shimChannelProc) Sent(words int) { c.advance(words) }

func (c *shimChannelProc) Take(data []byte) error {
	if !c.s.m.opt.TimingOnly {
		dst, err := c.s.m.at(DDR, c.bd.Address+4*c.done, len(data))
		if err != nil {
			return err
		}
		copy(dst, data)
	}
	c.advance(len(data) / 4)
	return c.s.m.e.Err()
}
