package regs

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Kind is the kind of an operation.
type Kind uint8

// The operations. Write, Block and Poll are register accesses; Host is work of the processor between them (packing), of which the text
// only says what it is.
const (
	Write Kind = iota
	Block
	Poll
	Host
)

var kinds = [...]string{"write", "block", "poll", "host"}

// Op is one operation. Poll reads Addr until its value, masked, equals Value.
type Op struct {
	Kind  Kind
	Addr  uint32
	Value uint32
	Mask  uint32
	Data  []uint32 // Block
	Index int      // Host: the number of the task
	Note  string
}

// Program is the ordered list of operations of a run.
type Program struct {
	Device string
	Ops    []Op
}

// Write appends a register write.
func (p *Program) Write(addr, value uint32, note string) {
	p.Ops = append(p.Ops, Op{Kind: Write, Addr: addr, Value: value, Note: note})
}

// Block appends a write of consecutive registers.
func (p *Program) Block(addr uint32, data []uint32, note string) {
	p.Ops = append(p.Ops, Op{Kind: Block, Addr: addr, Data: data, Note: note})
}

// Poll appends a wait for a register.
func (p *Program) Poll(addr, value, mask uint32, note string) {
	p.Ops = append(p.Ops, Op{Kind: Poll, Addr: addr, Value: value, Mask: mask, Note: note})
}

// Host appends a task of the processor.
func (p *Program) Host(index int, note string) {
	p.Ops = append(p.Ops, Op{Kind: Host, Index: index, Note: note})
}

// Words counts the register words written.
func (p *Program) Words() int {
	n := 0
	for i := range p.Ops {
		switch p.Ops[i].Kind {
		case Write:
			n++
		case Block:
			n += len(p.Ops[i].Data)
		}
	}
	return n
}

const header = "# tessera aie register program 1, device "

// WriteTo writes the text form: a line an operation, "# note" behind it.
func (p *Program) WriteTo(w io.Writer) (int64, error) {
	b := bufio.NewWriter(w)
	n := 0
	line := func(format string, args ...any) {
		m, _ := fmt.Fprintf(b, format, args...)
		n += m
	}
	line("%s%s\n", header, p.Device)
	for i := range p.Ops {
		o := &p.Ops[i]
		switch o.Kind {
		case Write:
			line("write 0x%08x 0x%08x", o.Addr, o.Value)
		case Block:
			line("block 0x%08x %d", o.Addr, len(o.Data))
			for _, v := range o.Data {
				line(" 0x%08x", v)
			}
		case Poll:
			line("poll 0x%08x 0x%08x 0x%08x", o.Addr, o.Value, o.Mask)
		case Host:
			line("host %d", o.Index)
		}
		if o.Note != "" {
			line(" # %s", strings.ReplaceAll(o.Note, "\n", " "))
		}
		line("\n")
	}
	return int64(n), b.Flush()
}

// Parse reads the text form.
func Parse(r io.Reader) (*Program, error) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	p := &Program{}
	for n := 1; s.Scan(); n++ {
		text := s.Text()
		if n == 1 {
			dev, ok := strings.CutPrefix(text, header)
			if !ok {
				return nil, fmt.Errorf("line 1: %q: a register program starts with %q and a device", text, header)
			}
			p.Device = dev
			continue
		}
		text, note, _ := strings.Cut(text, "#")
		f := strings.Fields(text)
		if len(f) == 0 {
			continue
		}
		op := Op{Note: strings.TrimSpace(note)}
		var bad error
		num := func(i int) uint32 {
			if i >= len(f) {
				if bad == nil {
					bad = fmt.Errorf("line %d: %s needs more words", n, f[0])
				}
				return 0
			}
			v, err := strconv.ParseUint(f[i], 0, 32)
			if err != nil && bad == nil {
				bad = fmt.Errorf("line %d: %q is no 32-bit number", n, f[i])
			}
			return uint32(v)
		}
		want := 0
		switch f[0] {
		case "write":
			op.Kind, op.Addr, op.Value, want = Write, num(1), num(2), 3
		case "poll":
			op.Kind, op.Addr, op.Value, op.Mask, want = Poll, num(1), num(2), num(3), 4
		case "host":
			op.Kind, op.Index, want = Host, int(num(1)), 2
		case "block":
			op.Kind, op.Addr = Block, num(1)
			count := int(num(2))
			if bad == nil && count != len(f)-3 {
				return nil, fmt.Errorf("line %d: block of %d words has %d", n, count, len(f)-3)
			}
			for i := range len(f) - 3 {
				op.Data = append(op.Data, num(3+i))
			}
			want = len(f)
		default:
			return nil, fmt.Errorf("line %d: unknown operation %q: one of %s is right", n, f[0], strings.Join(kinds[:], ", "))
		}
		if bad != nil {
			return nil, bad
		}
		if len(f) != want {
			return nil, fmt.Errorf("line %d: %s has %d words, %d are right", n, f[0], len(f)-1, want-1)
		}
		p.Ops = append(p.Ops, op)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if p.Device == "" {
		return nil, fmt.Errorf("empty register program")
	}
	return p, nil
}
