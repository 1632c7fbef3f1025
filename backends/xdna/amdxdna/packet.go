package amdxdna

import (
	"encoding/binary"
	"fmt"
)

// State is what the first four bits of a command packet say (enum ert_cmd_state).
type State uint8

// The states that a packet of ours can have.
const (
	StateNew        State = 1
	StateQueued     State = 2
	StateRunning    State = 3
	StateCompleted  State = 4
	StateError      State = 5
	StateAbort      State = 6
	StateSubmitted  State = 7
	StateTimeout    State = 8
	StateNoResponse State = 9
)

var stateNames = map[State]string{
	StateNew: "new", StateQueued: "queued", StateRunning: "running", StateCompleted: "completed", StateError: "error", StateAbort: "aborted",
	StateSubmitted: "submitted", StateTimeout: "timeout", StateNoResponse: "no response from the firmware",
}

// String names the state.
func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// OpStartCU is the opcode of a packet's header (enum ert_cmd_opcode) that runs a compute unit with a register map as arguments.
const OpStartCU = 0

const (
	// PacketBytes is the size of a command buffer object.
	PacketBytes = 4096
	// kernelOpcode is the first argument of a kernel that interprets a TXN stream.
	kernelOpcode = 3
	// maxPayloadWords is the driver's limit for a START_CU register map.
	maxPayloadWords = 19
	argsBefore      = 5 // words: u64 opcode, u64 instruction address, u32 instruction words
	// MaxBuffers is the number of buffers that one command can name.
	MaxBuffers = (maxPayloadWords - argsBefore) / 2
)

// Packet is a START_CU command that runs a TXN stream: the kernel's arguments are (opcode 3, address and words of the stream, one address a
// buffer). DDR_PATCH argument i of the stream is Buffers[i].
type Packet struct {
	CU      int    // index of the compute unit in the context
	Stream  uint64 // device address of the instruction buffer
	Words   uint32 // in it
	Buffers []uint64
}

// Encode writes the packet, state new, at the start of a command buffer.
func (p Packet) Encode(dst []byte) error {
	if len(p.Buffers) > MaxBuffers {
		return fmt.Errorf("command with %d buffers, the driver takes %d", len(p.Buffers), MaxBuffers)
	}
	if p.CU < 0 || p.CU > 31 {
		return fmt.Errorf("compute unit %d, want 0 to 31", p.CU)
	}
	words := []uint32{0, 1 << p.CU, kernelOpcode, 0, uint32(p.Stream), uint32(p.Stream >> 32), p.Words}
	for _, b := range p.Buffers {
		words = append(words, uint32(b), uint32(b>>32))
	}
	words[0] = uint32(StateNew) | uint32(len(words)-1)<<12 | OpStartCU<<23
	if len(dst) < 4*len(words) {
		return fmt.Errorf("command buffer of %d bytes, want %d", len(dst), 4*len(words))
	}
	for i, w := range words {
		binary.LittleEndian.PutUint32(dst[4*i:], w)
	}
	return nil
}

// DecodePacket reads a START_CU packet and its state, for the fake device and for messages.
func DecodePacket(src []byte) (Packet, State, error) {
	if len(src) < 4 {
		return Packet{}, 0, fmt.Errorf("command packet of %d bytes", len(src))
	}
	head := binary.LittleEndian.Uint32(src)
	state, count, opcode := State(head&0xF), int(head>>12&0x7FF), head>>23&0x1F
	if opcode != OpStartCU || head>>28 != 0 || head>>4&0xFF != 0 {
		return Packet{}, state, fmt.Errorf("command packet header %#08x: want opcode %d, type 0, no reserved bits", head, OpStartCU)
	}
	if count < 1+argsBefore || count > 1+maxPayloadWords || (count-1-argsBefore)%2 != 0 || len(src) < 4*(count+1) {
		return Packet{}, state, fmt.Errorf("command packet of %d words after the header, want %d and two a buffer, at most %d", count, 1+argsBefore, 1+maxPayloadWords)
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(src[4*i:])) }
	mask := uint32(word(1))
	p := Packet{CU: -1, Stream: word(4) | word(5)<<32, Words: uint32(word(6))}
	for i := range 32 {
		if mask == 1<<i {
			p.CU = i
		}
	}
	if p.CU < 0 {
		return Packet{}, state, fmt.Errorf("command packet for compute units %#x, want one", mask)
	}
	if op := word(2) | word(3)<<32; op != kernelOpcode {
		return Packet{}, state, fmt.Errorf("kernel opcode %d, want %d", op, kernelOpcode)
	}
	for i := 7; i < count+1; i += 2 {
		p.Buffers = append(p.Buffers, word(i)|word(i+1)<<32)
	}
	return p, state, nil
}

// packetState reads the state of a packet.
func packetState(src []byte) State { return State(src[0] & 0xF) }
