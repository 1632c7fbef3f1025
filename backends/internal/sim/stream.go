package sim

// Source is the sending end of a stream: a DMA channel that reads memory, a PL port, a core.
type Source interface {
	// Offer is the number of words that the source can send now, 0 if none.
	Offer() int
	// Pace is the earliest time at which words words can have left the source if they start to leave at start.
	// It may reserve shared resources and is called once per transfer.
	Pace(start Time, words int) Time
	// Send returns the next words words, in memory that stays as it is until the call to Sent, or an error that ends the run.
	Send(words int) ([]byte, error)
	// Sent tells that the words have been delivered; the source may move on to its next descriptor.
	Sent(words int)
}

// Sink is a receiving end.
type Sink interface {
	// Room is the number of words that the sink can take now, 0 if none.
	Room() int
	// Pace is as for Source.
	Pace(start Time, words int) Time
	// Take stores len(data)/4 words; the sink may move on to its next descriptor.
	Take(data []byte) error
}

// Stream carries words from one source to all of its sinks, each of which sees every word. A word advances only when every sink has
// room for it, in itself or in the FIFO of Depth words on the way to it, so that the slowest sink stalls all.
//
// Whoever changes what an end can do calls Poke. The stream then moves as many words at once as all ends allow, at most Chunk, and ends see
// them at the time when the last of them has arrived.
type Stream struct {
	Depth int // words of FIFO between the source and each sink
	Chunk int // most words in one transfer

	e     *Engine
	src   Source
	sinks []sinkEnd
	words int  // in flight
	busy  bool // a transfer is in flight
	again bool // poked while delivering
	inner bool // delivering
	moved uint64
}

type sinkEnd struct {
	Sink
	fifo []byte
}

// NewStream connects a source with its sinks.
func NewStream(e *Engine, depth, chunk int, src Source, sinks ...Sink) *Stream {
	s := &Stream{Depth: depth, Chunk: chunk, e: e, src: src}
	for _, k := range sinks {
		s.sinks = append(s.sinks, sinkEnd{Sink: k})
	}
	return s
}

// Moved is the number of words that have left the source.
func (s *Stream) Moved() uint64 { return s.moved }

// Buffered is the number of words that stand in the FIFO before sink i.
func (s *Stream) Buffered(i int) int { return len(s.sinks[i].fifo) / 4 }

// InFlight reports whether a transfer is under way.
func (s *Stream) InFlight() bool { return s.busy }

// Poke starts a transfer if none is in flight and all ends allow one.
func (s *Stream) Poke() {
	if s.inner {
		s.again = true
		return
	}
	s.inner = true
	for {
		s.again = false
		s.drain()
		if !s.again {
			break
		}
	}
	s.inner = false
	if s.busy || s.e.err != nil {
		return
	}
	n := min(s.src.Offer(), s.Chunk)
	for i := range s.sinks {
		k := &s.sinks[i]
		if room := k.Room(); room > 0 && len(k.fifo) == 0 {
			n = min(n, room)
		} else {
			n = min(n, s.Depth-len(k.fifo)/4)
		}
	}
	if n <= 0 {
		return
	}
	now := s.e.now
	end := s.src.Pace(now, n)
	for i := range s.sinks {
		end = max(end, s.sinks[i].Pace(now, n))
	}
	s.busy, s.words = true, n
	s.e.At(end, s, 0)
}

// drain moves words that wait in the FIFOs into sinks that have come to have room.
func (s *Stream) drain() {
	for i := range s.sinks {
		k := &s.sinks[i]
		for len(k.fifo) > 0 && s.e.err == nil {
			n := 4 * min(k.Room(), len(k.fifo)/4)
			if n == 0 {
				break
			}
			if err := k.Take(k.fifo[:n]); err != nil {
				s.e.Fail(err)
			}
			k.fifo = k.fifo[:copy(k.fifo, k.fifo[n:])]
		}
	}
}

// Handle ends a transfer; the engine calls it.
func (s *Stream) Handle(int) {
	n := s.words
	data, err := s.src.Send(n)
	if err != nil {
		s.e.Fail(err)
		return
	}
	s.inner = true // ends poke the stream when they move on
	for i := range s.sinks {
		k := &s.sinks[i]
		take := 0
		if len(k.fifo) == 0 {
			take = 4 * min(k.Room(), n)
		}
		if take > 0 {
			if err := k.Take(data[:take]); err != nil {
				s.e.Fail(err)
				return
			}
		}
		k.fifo = append(k.fifo, data[take:]...)
	}
	s.busy = false
	s.moved += uint64(n)
	s.src.Sent(n)
	s.inner = false
	s.Poke()
}

// Sinks is the number of receiving ends.
func (s *Stream) Sinks() int { return len(s.sinks) }
