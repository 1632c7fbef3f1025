package sim

// Server is a resource that serves one request after another, such as a DRAM interface: whoever asks first is served first.
// Requests of a few kilobytes make it share its rate fairly.
type Server struct {
	free Time
	busy Time
}

// Serve asks for cost ticks of service from start on and returns when they are over.
func (s *Server) Serve(start, cost Time) Time {
	if s.free < start {
		s.free = start
	}
	s.free += cost
	s.busy += cost
	return s.free
}

// Busy is the service given so far.
func (s *Server) Busy() Time { return s.busy }
