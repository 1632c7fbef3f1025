package array

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/core"
)

// Record says what a core runs. It is written into program memory by a block write, where a compiled kernel would stand on silicon.
type Record struct {
	Streamed   bool // the seed's micro-kernel; else block kernels
	Type       core.Type
	Out        core.Out
	Narrow     core.Narrow
	M, KB, N   int
	Steps      int // calls in a pass
	Passes     int
	A, B       [2]int // byte addresses of the buffers; B[0] alone if Streamed
	Partial    int
	O          [2]int
	Outs       int
	CascadeIn  bool
	CascadeOut bool
	Params     int // byte address of the run-time parameters, if Streamed: k_c and the number of kernels of a panel
}

const (
	recordMagic = 0x54414531 // "TAE1"
	recordWords = 24
)

// Locks of a core, by buffer: value 0 is free, 1 is full.
const (
	lockA = 0
	lockB = 2
	lockO = 4
)

// Encode returns the words of the record.
func (r *Record) Encode() []uint32 {
	w := make([]uint32, recordWords)
	flags := uint32(0)
	for i, f := range []bool{r.Streamed, r.CascadeIn, r.CascadeOut, r.Narrow.Saturate} {
		if f {
			flags |= 1 << i
		}
	}
	for i, v := range []int{recordMagic, int(flags), int(r.Type), int(r.Out), int(r.Narrow.Shift), int(r.Narrow.Round), r.M, r.KB, r.N, r.Steps, r.Passes,
		r.A[0], r.A[1], r.B[0], r.B[1], r.Partial, r.O[0], r.O[1], r.Outs, r.Params} {
		w[i] = uint32(int32(v))
	}
	return w
}

// DecodeRecord reads a record.
func DecodeRecord(w []uint32) (*Record, error) {
	if len(w) < recordWords || w[0] != recordMagic {
		return nil, fmt.Errorf("program memory holds no kernel record")
	}
	at := func(i int) int { return int(int32(w[i])) }
	r := &Record{Streamed: w[1]&1 != 0, CascadeIn: w[1]&2 != 0, CascadeOut: w[1]&4 != 0, Type: core.Type(w[2]), Out: core.Out(w[3]),
		Narrow: core.Narrow{Saturate: w[1]&8 != 0, Shift: uint(w[4]), Round: core.Rounding(w[5])}, M: at(6), KB: at(7), N: at(8), Steps: at(9), Passes: at(10),
		A: [2]int{at(11), at(12)}, B: [2]int{at(13), at(14)}, Partial: at(15), O: [2]int{at(16), at(17)}, Outs: at(18), Params: at(19)}
	if w[2] > uint32(core.FP32) || w[3] > uint32(core.F32) || r.Narrow.Shift > 47 || r.Narrow.Round > core.ConvOdd {
		return nil, fmt.Errorf("kernel record: type %d, result %d, shift %d or rounding %d out of range", w[2], w[3], w[4], w[5])
	}
	// Blocks beyond these fit no local memory; the bounds keep a wrong record from asking for gigabytes.
	const most = 1 << 13
	if r.M < 1 || r.M > most || r.N < 1 || r.N > most || r.KB < 1 || r.KB > most || r.M*r.N > 1<<16 {
		return nil, fmt.Errorf("kernel record: block of %d x %d x %d", r.M, r.KB, r.N)
	}
	if !r.Streamed && (r.Steps < 1 || r.Passes < 1 || r.Outs < 1 || r.Outs > 2) {
		return nil, fmt.Errorf("kernel record: %d steps, %d passes, %d result buffers", r.Steps, r.Passes, r.Outs)
	}
	return r, nil
}
