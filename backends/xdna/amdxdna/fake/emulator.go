package fake

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Emulator is an [Array] that executes on Tessera's array emulator. Its images are configurations in control code, where a chip has a PDI.
type Emulator struct{ Array *array.Array }

// NewEmulator returns the array of one context.
func NewEmulator(dev *device.Device) *Emulator {
	return &Emulator{array.New(dev, array.Options{})}
}

// ForDevice are the options of a fake that emulates dev.
func ForDevice(dev *device.Device) Options {
	cols := dev.Cols
	if dev == device.XDNA {
		cols = 5 // as the driver counts: one column has no shim DMA
	}
	return Options{Columns: cols, NewArray: func(columns int) (Array, error) {
		if columns != dev.Cols {
			return nil, fmt.Errorf("context of %d columns, the emulator has %d", columns, dev.Cols)
		}
		return NewEmulator(dev), nil
	}}
}

// Configure implements [Array]. The image ends where its header says; the buffer that holds it may be longer.
func (e *Emulator) Configure(image []byte) error {
	if len(image) < 16 {
		return fmt.Errorf("image of %d bytes", len(image))
	}
	n := binary.LittleEndian.Uint32(image[12:])
	if n < 16 || n%4 != 0 || uint64(n) > uint64(len(image)) {
		return fmt.Errorf("image says %d bytes and has %d", n, len(image))
	}
	words := make([]uint32, n/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(image[4*i:])
	}
	_, err := e.Array.Configure(context.Background(), words)
	return err
}

// Execute implements [Array].
func (e *Emulator) Execute(ctx context.Context, stream []uint32, bufs [][]byte) error {
	args := make([]array.Buffer, len(bufs))
	for i, b := range bufs {
		args[i] = array.In(b) // memory of the host: the driver does not know what is defined
	}
	_, err := e.Array.Dispatch(ctx, stream, args...)
	return err
}
