package array

import (
	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
)

// rerouted is called when a switch register changes. Streams that nothing stands in are found anew when they are next used.
func (a *Array) rerouted(t *tile) {
	if len(a.streams) == 0 {
		return
	}
	busy := false
	a.eachChannel(func(c *channel) {
		if c.stream == nil || c.dir != device.MM2S {
			return
		}
		if c.partial() {
			busy = true
		}
		for i := range c.stream.Sinks() {
			busy = busy || c.stream.Buffered(i) > 0
		}
	})
	if busy {
		t.fault("switch rewritten while words stand in streams")
		return
	}
	a.streams = a.streams[:0]
	a.eachChannel(func(c *channel) { c.stream = nil })
}

// connect follows the switches from a source channel to all of its receivers and opens the stream.
func (c *channel) connect() error {
	a := c.t.a
	r := &router{a: a, from: c, seen: map[hop]bool{}}
	in, err := c.entry()
	if err != nil {
		return err
	}
	if err := r.follow(c.t, in, 0); err != nil {
		return err
	}
	if len(r.sinks) == 0 {
		return c.error(c.bd, "its stream leads nowhere: no enabled master takes from %v", in)
	}
	chunk := a.tm.Chunk
	if c.t.info.Kind == device.Shim {
		chunk = a.tm.ShimChunk
	}
	sinks := make([]sim.Sink, len(r.sinks))
	for i, s := range r.sinks {
		if s.t.info.Kind == device.Shim {
			chunk = a.tm.ShimChunk
		}
		sinks[i] = s
	}
	c.stream = sim.NewStream(a.eng, a.tm.FIFOWords, chunk, c, sinks...)
	a.streams = append(a.streams, c.stream)
	for i, s := range r.sinks {
		s.stream, s.hops = c.stream, r.hops[i]
	}
	return nil
}

// entry is the slave port through which the channel's words enter their switch.
func (c *channel) entry() (device.Port, error) {
	if c.t.info.Kind != device.Shim {
		return device.Port{Type: device.PortDMA, Lane: c.ch}, nil
	}
	lane, shift := 3, 10
	if c.ch == 1 {
		lane, shift = 7, 14
	}
	if sel := c.t.mux >> shift & 3; sel != 1 {
		return device.Port{}, c.error(c.bd, "the shim mux selects %d for south%d, 1 connects the DMA", sel, lane)
	}
	return device.Port{Type: device.PortSouth, Lane: lane}, nil
}

type hop struct {
	pos device.Tile
	in  device.Port
}

type router struct {
	a     *Array
	from  *channel
	seen  map[hop]bool
	sinks []*channel
	hops  []int
}

// follow finds what the words that enter tile t at slave port in reach.
func (r *router) follow(t *tile, in device.Port, hops int) error {
	bad := func(format string, args ...any) error {
		return r.from.error(r.from.bd, "its stream: switch of tile %v: "+format, append([]any{t.pos}, args...)...)
	}
	if r.seen[hop{t.pos, in}] {
		return bad("%v is reached twice", in)
	}
	r.seen[hop{t.pos, in}] = true
	slave, err := t.info.SlaveIndex(in)
	if err != nil {
		return bad("%w", err)
	}
	if w := t.slaves[slave]; w != device.PortEnable {
		return bad("slave %v is %#x, an enabled circuit port is %#x", in, w, uint32(device.PortEnable))
	}
	for m, w := range t.masters {
		if w&device.PortEnable == 0 || int(w&0x7F) != slave {
			continue
		}
		out, ok := t.info.MasterPort(m)
		if !ok || w&^(device.PortEnable|0x7F) != 0 {
			return bad("master register %d is %#x, only circuit routes are emulated", m, w)
		}
		if !t.info.CanConnect(in, out) {
			return bad("%v cannot lead to %v", in, out)
		}
		if out.Type == device.PortDMA {
			r.add(t.chans[device.S2MM][out.Lane], hops)
			continue
		}
		if t.info.Kind == device.Shim && out.Type == device.PortSouth {
			sel := -1
			switch out.Lane {
			case 2:
				sel = int(t.demux >> 4 & 3)
			case 3:
				sel = int(t.demux >> 6 & 3)
			}
			if sel != 1 {
				return bad("%v leads to no DMA channel, the shim demux is %#x", out, t.demux)
			}
			r.add(t.chans[device.S2MM][out.Lane-2], hops)
			continue
		}
		next, slave, ok := r.a.dev.Facing(t.pos, out)
		if !ok {
			return bad("%v leads out of the array or to a port that is not emulated", out)
		}
		if err := r.follow(r.a.tiles[next.Col][next.Row], slave, hops+1); err != nil {
			return err
		}
	}
	return nil
}

func (r *router) add(c *channel, hops int) {
	r.sinks = append(r.sinks, c)
	r.hops = append(r.hops, hops+1)
}
