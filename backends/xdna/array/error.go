package array

import (
	"fmt"
	"strings"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Error is what control code did wrong, and where. Dir and Channel count if HasChannel, BD if it is not negative.
type Error struct {
	Tile       device.Tile
	Kind       device.Kind
	HasChannel bool
	Dir        device.Dir
	Channel    int
	BD         int
	Err        error
}

// Error describes the place and the fault.
func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "array: %v tile %v", e.Kind, e.Tile)
	if e.HasChannel {
		fmt.Fprintf(&s, " %v%d", e.Dir, e.Channel)
	}
	if e.BD >= 0 {
		fmt.Fprintf(&s, " descriptor %d", e.BD)
	}
	return s.String() + ": " + e.Err.Error()
}

// Unwrap returns the fault.
func (e *Error) Unwrap() error { return e.Err }

// fault stops the run with an error about a tile.
func (t *tile) fault(format string, args ...any) {
	t.a.eng.Fail(&Error{Tile: t.pos, Kind: t.info.Kind, BD: -1, Err: fmt.Errorf(format, args...)})
}

// fault stops the run with an error about a channel and its descriptor.
func (c *channel) fault(bd int, format string, args ...any) {
	c.t.a.eng.Fail(c.error(bd, format, args...))
}

func (c *channel) error(bd int, format string, args ...any) error {
	return &Error{Tile: c.t.pos, Kind: c.t.info.Kind, HasChannel: true, Dir: c.dir, Channel: c.ch, BD: bd, Err: fmt.Errorf(format, args...)}
}
