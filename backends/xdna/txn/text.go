package txn

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Format writes a stream as text, one operation a line, with what it means in a comment. [Parse] reads it back to the same operations.
//
//	txn 0.1 devgen=4 rows=6 cols=8 memtile_rows=1
//	blockwrite 0x0001d000 0x00006000 0x00000000 ...   # shim (0,0) bd 0: 24576 words, 48 x 1, 64 x 192, ... x 24
//	ddr_patch 0x0001d004 arg=2 offset=0x0              # shim (0,0) bd 0 address
//	write 0x0001d204 0x80010000                        # shim (0,0) s2mm0 queue: bd 0, 2 runs, token
//	sync col=0 row=0 dir=s2mm channel=0 cols=1 rows=1
func Format(w io.Writer, s Stream) error {
	bw := bufio.NewWriter(w)
	h := s.Header()
	if _, err := h.optimised(); err != nil {
		return err
	}
	fmt.Fprintf(bw, "txn %d.%d devgen=%d rows=%d cols=%d memtile_rows=%d\n", h.Major, h.Minor, h.DevGen, h.Rows, h.Cols, h.MemTileRows)
	dev, _ := device.ByGen(h.DevGen)
	n := 0
	for op := range s.Ops() {
		line, err := formatOp(&op)
		if err != nil {
			return fmt.Errorf("op %d: %w", n, err)
		}
		if c := comment(dev, &op); c != "" {
			fmt.Fprintf(bw, "%-60s # %s\n", line, c)
		} else {
			fmt.Fprintln(bw, line)
		}
		n++
	}
	return bw.Flush()
}

func formatOp(op *Op) (string, error) {
	var sb strings.Builder
	sb.WriteString(op.Code.String())
	words := func() {
		for _, d := range op.Data {
			fmt.Fprintf(&sb, " 0x%08x", d)
		}
	}
	switch op.Code {
	case Write:
		fmt.Fprintf(&sb, " 0x%08x 0x%08x", op.Addr, op.Value)
	case MaskWrite, MaskPoll:
		fmt.Fprintf(&sb, " 0x%08x 0x%08x 0x%08x", op.Addr, op.Value, op.Mask)
	case BlockWrite:
		if op.TileWord {
			sb.WriteString(".tile")
		}
		fmt.Fprintf(&sb, " 0x%08x", op.Addr)
		words()
	case Sync:
		fmt.Fprintf(&sb, " col=%d row=%d dir=%v channel=%d cols=%d rows=%d", op.Col, op.Row, op.Dir, op.Channel, op.NCols, op.NRows)
	case DDRPatch:
		fmt.Fprintf(&sb, " 0x%08x arg=%d offset=%#x", op.Addr, op.Arg, op.Offset)
	case ReadRegs, RecordTimer, MergeSync:
		words()
	case LoadPDI:
		fmt.Fprintf(&sb, " id=%d size=%d addr=%#x", op.Arg, op.Value, op.Offset)
	case Preempt:
		fmt.Fprintf(&sb, " level=%d", op.Level)
	case Noop:
	default:
		return "", fmt.Errorf("no text form of operation %v", op.Code)
	}
	return sb.String(), nil
}

// comment says what an operation does to which part of which tile.
func comment(dev *device.Device, op *Op) string {
	if dev == nil {
		return ""
	}
	switch op.Code {
	case Write, MaskWrite, MaskPoll, BlockWrite, DDRPatch:
	default:
		return ""
	}
	tile, off := device.SplitAddr(op.Addr)
	kind, err := dev.KindAt(tile.Row)
	if err != nil {
		return ""
	}
	ti := dev.Tile(kind)
	at := fmt.Sprintf("%v %v ", kind, tile)
	switch r := ti.Register(off); r.Kind {
	case device.RegData:
		return at + fmt.Sprintf("memory %#x", r.Index)
	case device.RegProgram:
		return at + "kernel"
	case device.RegBD:
		if op.Code == DDRPatch {
			return at + fmt.Sprintf("bd %d address", r.Index)
		}
		if op.Code == BlockWrite && r.Word == 0 && len(op.Data) == ti.BDWords {
			return at + fmt.Sprintf("bd %d: %s", r.Index, describeBD(kind, op.Data))
		}
		return at + fmt.Sprintf("bd %d word %d", r.Index, r.Word)
	case device.RegCtrl:
		return at + fmt.Sprintf("%v%d control", r.Dir, r.Index)
	case device.RegStatus:
		return at + fmt.Sprintf("%v%d status", r.Dir, r.Index)
	case device.RegQueue:
		t, err := DecodeTask(ti, op.Value)
		if err != nil || op.Code != Write {
			return at + fmt.Sprintf("%v%d queue", r.Dir, r.Index)
		}
		s := fmt.Sprintf("%v%d queue: bd %d", r.Dir, r.Index, t.BD)
		if t.Repeat > 1 {
			s += fmt.Sprintf(", %d runs", t.Repeat)
		}
		if t.Token {
			s += ", token"
		}
		return at + s
	case device.RegLock:
		return at + fmt.Sprintf("lock %d", r.Index)
	case device.RegMaster:
		m, _ := ti.MasterPort(r.Index)
		if s, ok := ti.SlavePort(int(op.Value & 0x1F)); ok && op.Value&device.PortEnable != 0 {
			return at + fmt.Sprintf("route %v to %v", s, m)
		}
		return at + fmt.Sprintf("master %v", m)
	case device.RegSlave:
		s, _ := ti.SlavePort(r.Index)
		return at + fmt.Sprintf("slave %v", s)
	case device.RegShimMux:
		return at + "mux"
	case device.RegShimDemux:
		return at + "demux"
	case device.RegCoreCtrl:
		return at + "core control"
	}
	return strings.TrimSpace(at)
}

func describeBD(kind device.Kind, w []uint32) string {
	var p Pattern
	var lock LockUse
	next := ""
	switch kind {
	case device.Shim:
		d, err := DecodeShimBD(w)
		if err != nil {
			return err.Error()
		}
		p, lock = d.Pattern(), d.Lock
		if d.UseNext {
			next = fmt.Sprintf(", then bd %d", d.NextBD)
		}
	case device.Mem:
		d, err := DecodeMemBD(w)
		if err != nil {
			return err.Error()
		}
		p, lock = d.Pattern(), d.Lock
		if d.UseNext {
			next = fmt.Sprintf(", then bd %d", d.NextBD)
		}
	case device.Core:
		d, err := DecodeCoreBD(w)
		if err != nil {
			return err.Error()
		}
		p, lock = d.Pattern(), d.Lock
		if d.UseNext {
			next = fmt.Sprintf(", then bd %d", d.NextBD)
		}
	}
	s := fmt.Sprintf("%d words", p.Length)
	if p.Dims[0].Size != 0 {
		inner := int64(1)
		for _, d := range p.Dims {
			if inner >= p.Length {
				break
			}
			size := "..."
			if d.Size != 0 {
				size = strconv.Itoa(d.Size)
			}
			s += fmt.Sprintf(", %s x %d", size, d.Step)
			if d.Size == 0 {
				break
			}
			inner *= int64(d.Size)
		}
	}
	if p.IterCount > 1 {
		s += fmt.Sprintf(", iteration %d x %d", p.IterCount, p.IterStep)
	}
	if lock.AcqEnable {
		s += fmt.Sprintf(", acquire %d:%d", lock.AcqID, lock.AcqValue)
	}
	if lock.RelValue != 0 {
		s += fmt.Sprintf(", release %d:%+d", lock.RelID, lock.RelValue)
	}
	return s + next
}

// maxLine bounds a line of text: a block write of a whole program memory needs 44 KB.
const maxLine = 16 << 20

// Parse reads the text form. Anything after # is a comment; numbers are decimal or 0x hexadecimal.
func Parse(r io.Reader) (*Program, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), maxLine)
	var p *Program
	line := 0
	for sc.Scan() {
		line++
		text, _, _ := strings.Cut(sc.Text(), "#")
		f := strings.Fields(text)
		if len(f) == 0 {
			continue
		}
		if p == nil {
			h, err := parseHeader(f)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
			p = &Program{Head: h}
			continue
		}
		op, err := parseOp(f)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		p.List = append(p.List, op)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", line+1, err)
	}
	if p == nil {
		return nil, errors.New("control code text: no header line (txn 0.1 devgen=... rows=... cols=... memtile_rows=...)")
	}
	return p, nil
}

// keys reads key=value fields; every wanted key must be there, once, and no other.
func keys(f []string, want map[string]func(string) error) error {
	seen := map[string]bool{}
	for _, s := range f {
		k, v, ok := strings.Cut(s, "=")
		set, known := want[k]
		if !ok || !known {
			return fmt.Errorf("unexpected %q", s)
		}
		if seen[k] {
			return fmt.Errorf("%s given twice", k)
		}
		seen[k] = true
		if err := set(v); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	if len(seen) != len(want) {
		for k := range want {
			if !seen[k] {
				return fmt.Errorf("%s= is missing", k)
			}
		}
	}
	return nil
}

func number[T uint8 | uint16 | uint32 | uint64](dst *T, bits int) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseUint(s, 0, bits)
		if err != nil {
			return fmt.Errorf("%q is not a number of %d bits", s, bits)
		}
		*dst = T(v)
		return nil
	}
}

func parseHeader(f []string) (Header, error) {
	var h Header
	if f[0] != "txn" || len(f) < 2 {
		return h, fmt.Errorf("want a header line starting with txn, found %q", f[0])
	}
	switch f[1] {
	case "0.1":
		h.Minor = 1
	case "1.0":
		h.Major = 1
	default:
		return h, fmt.Errorf("dialect %q, want 0.1 or 1.0", f[1])
	}
	return h, keys(f[2:], map[string]func(string) error{
		"devgen": number(&h.DevGen, 8), "rows": number(&h.Rows, 8), "cols": number(&h.Cols, 8), "memtile_rows": number(&h.MemTileRows, 8),
	})
}

func parseOp(f []string) (Op, error) {
	name, tile := strings.CutSuffix(f[0], ".tile")
	var op Op
	found := false
	for c, n := range codeNames {
		if n == name {
			op.Code, found = c, true
		}
	}
	if !found || tile && op.Code != BlockWrite {
		return op, fmt.Errorf("unknown operation %q", f[0])
	}
	op.TileWord = tile
	f = f[1:]
	words := func(f []string) error {
		for _, s := range f {
			var v uint32
			if err := number(&v, 32)(s); err != nil {
				return err
			}
			op.Data = append(op.Data, v)
		}
		return nil
	}
	fixed := func(dst ...*uint32) error {
		if len(f) != len(dst) {
			return fmt.Errorf("%v: %d operands, want %d", op.Code, len(f), len(dst))
		}
		for i, d := range dst {
			if err := number(d, 32)(f[i]); err != nil {
				return err
			}
		}
		return nil
	}
	switch op.Code {
	case Write:
		return op, fixed(&op.Addr, &op.Value)
	case MaskWrite, MaskPoll:
		return op, fixed(&op.Addr, &op.Value, &op.Mask)
	case BlockWrite:
		if len(f) == 0 {
			return op, errors.New("blockwrite: no address")
		}
		if err := number(&op.Addr, 32)(f[0]); err != nil {
			return op, err
		}
		return op, words(f[1:])
	case ReadRegs, RecordTimer, MergeSync:
		return op, words(f)
	case Noop:
		return op, fixed()
	case Preempt:
		return op, keys(f, map[string]func(string) error{"level": number(&op.Level, 8)})
	case LoadPDI:
		var id uint16
		err := keys(f, map[string]func(string) error{"id": number(&id, 16), "size": number(&op.Value, 32), "addr": number(&op.Offset, 64)})
		op.Arg = uint32(id)
		return op, err
	case DDRPatch:
		if len(f) == 0 {
			return op, errors.New("ddr_patch: no address")
		}
		if err := number(&op.Addr, 32)(f[0]); err != nil {
			return op, err
		}
		return op, keys(f[1:], map[string]func(string) error{"arg": number(&op.Arg, 32), "offset": number(&op.Offset, 64)})
	case Sync:
		dir := func(s string) error {
			switch s {
			case "s2mm":
				op.Dir = device.S2MM
			case "mm2s":
				op.Dir = device.MM2S
			default:
				return fmt.Errorf("%q, want s2mm or mm2s", s)
			}
			return nil
		}
		return op, keys(f, map[string]func(string) error{
			"col": number(&op.Col, 8), "row": number(&op.Row, 8), "dir": dir, "channel": number(&op.Channel, 8),
			"cols": number(&op.NCols, 8), "rows": number(&op.NRows, 8),
		})
	}
	return op, fmt.Errorf("unknown operation %q", name)
}
