package xdna

import (
	"context"
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Executor runs control code: the emulator, or a device.
type Executor interface {
	// Configure loads the configuration of a design. Until the next call every dispatch runs on it.
	Configure(ctx context.Context, d *design.Design) error
	// Dispatch runs a run-time stream on host buffers, which are those of [design.Run] in the order of its arguments.
	Dispatch(ctx context.Context, words []uint32, bufs [][]byte) (Dispatched, error)
	Close() error
}

// Dispatched is what an executor says about a dispatch.
type Dispatched struct {
	Seconds                 float64 // simulated by the emulator, measured on a device
	BytesRead, BytesWritten int64   // between host memory and the array, where known
}

// Emulator is the executor of mode=emulate.
type Emulator struct {
	Array *array.Array
}

// NewEmulator returns an emulator of a device.
func NewEmulator(dev *device.Device, opt array.Options) *Emulator {
	return &Emulator{Array: array.New(dev, opt)}
}

// Configure implements [Executor].
func (e *Emulator) Configure(ctx context.Context, d *design.Design) error {
	p, err := d.Config()
	if err != nil {
		return err
	}
	words, err := txn.Encode(p)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	_, err = e.Array.Configure(ctx, words)
	return err
}

// Dispatch implements [Executor].
func (e *Emulator) Dispatch(ctx context.Context, words []uint32, bufs [][]byte) (Dispatched, error) {
	args := make([]array.Buffer, len(bufs))
	for i, b := range bufs {
		args[i] = array.Buffer{Data: b, Input: i == design.ArgA || i == design.ArgB || i == design.ArgStage}
	}
	res, err := e.Array.Dispatch(ctx, words, args...)
	if err != nil {
		return Dispatched{}, err
	}
	return Dispatched{Seconds: res.Seconds, BytesRead: res.BytesRead, BytesWritten: res.BytesWritten}, nil
}

// Close implements [Executor].
func (e *Emulator) Close() error { return nil }
