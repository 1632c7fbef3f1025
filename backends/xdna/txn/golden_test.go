package txn_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/internal/shared"
)

// number is a JSON number or a hexadecimal string, as the cases write words and addresses.
type number uint64

func (n *number) UnmarshalJSON(raw []byte) error {
	s := strings.Trim(string(raw), `"`)
	base := 10
	if len(s) != len(raw) {
		base = 16
		s = strings.TrimPrefix(strings.ToLower(s), "0x")
	}
	if s == "true" || s == "false" {
		s = map[string]string{"true": "1", "false": "0"}[s]
	}
	v, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		iv, err2 := strconv.ParseInt(s, base, 64)
		if err2 != nil {
			return err
		}
		v = uint64(iv)
	}
	*n = number(v)
	return nil
}

type goldenOp struct {
	Op       string
	Col, Row *number
	Addr     number
	Value    number
	Mask     number
	Data     []number
	Dir      number
	Channel  number
	NCols    number
	NRows    number
	ID       number
	Size     number
	PDIAddr  number `json:"pdi_addr"`
	ArgIdx   number `json:"arg_idx"`
	ArgPlus  number `json:"arg_plus"`
	Level    number
	Count    number
	EmitTile *bool `json:"emit_tile"`
}

func u32s(in []number) []uint32 {
	if in == nil {
		return nil
	}
	out := make([]uint32, len(in))
	for i, v := range in {
		out[i] = uint32(v)
	}
	return out
}

func (g goldenOp) op(t *testing.T) txn.Op {
	addr := uint32(g.Addr)
	tile := g.Col != nil && g.Row != nil
	if tile {
		addr = device.Tile{Col: int(*g.Col), Row: int(*g.Row)}.Addr(addr)
	}
	switch g.Op {
	case "write32":
		return txn.WriteOp(addr, uint32(g.Value))
	case "maskwrite32":
		return txn.MaskWriteOp(addr, uint32(g.Value), uint32(g.Mask))
	case "maskpoll32":
		return txn.MaskPollOp(addr, uint32(g.Value), uint32(g.Mask))
	case "blockwrite32":
		op := txn.BlockWriteOp(addr, u32s(g.Data)...)
		op.TileWord = tile && (g.EmitTile == nil || *g.EmitTile)
		return op
	case "sync":
		return txn.SyncOp(device.Tile{Col: int(*g.Col), Row: int(*g.Row)}, device.Dir(g.Dir), int(g.Channel), int(g.NCols), int(g.NRows))
	case "ddr_patch":
		return txn.DDRPatchOp(addr, uint32(g.ArgIdx), uint64(g.ArgPlus))
	case "read_regs":
		return txn.ReadRegsOp(addr)
	case "load_pdi":
		return txn.LoadPDIOp(uint16(g.ID), uint32(g.Size), uint64(g.PDIAddr))
	case "preempt":
		return txn.PreemptOp(uint8(g.Level))
	case "noop":
		return txn.NoopOp()
	}
	require.Fail(t, "unknown operation in case", g.Op)
	return txn.Op{}
}

type goldenCase struct {
	Name    string
	Kind    string
	Device  struct{ DevGen, Cols, Rows, Memtile_rows uint8 }
	Format  struct{ Major, Minor uint8 }
	Ops     []goldenOp
	Words   []number
	Word2   number
	Fields  map[string]number
	Address *number
	Decoded []goldenOp
	Input   json.RawMessage
	Expect  struct {
		BDAddress      *number  `json:"bd_address"`
		BDWords        []number `json:"bd_words"`
		DerivedBDWords []number `json:"derived_bd_words"`
		Patch          *struct {
			Address number
			ArgIdx  number  `json:"arg_idx"`
			ArgPlus *number `json:"arg_plus"`
		}
		Queue []struct{ Address, Value number }
	}
	Cases []map[string]any
	Gemm  *struct {
		M, K, N        int
		Tm             int `json:"m"`
		Tk             int `json:"k"`
		Tn             int `json:"n"`
		Cols           int
		CoreRows       int  `json:"core_rows"`
		ElemBitsIn     int  `json:"elem_bits_in"`
		ElemBitsOut    int  `json:"elem_bits_out"`
		RowsPerHalf    int  `json:"rows_per_half"`
		AddressPrefill bool `json:"address_prefill"`
	}
}

// UnmarshalJSON tells the tile (lower case) from the size (upper case), which encoding/json does not.
func (c *goldenCase) UnmarshalJSON(raw []byte) error {
	type plain goldenCase
	if err := json.Unmarshal(raw, (*plain)(c)); err != nil {
		return err
	}
	if c.Gemm != nil {
		var g struct{ Gemm map[string]any }
		if err := json.Unmarshal(raw, &g); err != nil {
			return err
		}
		get := func(k string) int { v, _ := g.Gemm[k].(float64); return int(v) }
		c.Gemm.M, c.Gemm.K, c.Gemm.N = get("M"), get("K"), get("N")
		c.Gemm.Tm, c.Gemm.Tk, c.Gemm.Tn = get("m"), get("k"), get("n")
	}
	return nil
}

func (c *goldenCase) header() txn.Header {
	return txn.Header{
		Major: c.Format.Major, Minor: c.Format.Minor, DevGen: c.Device.DevGen,
		Rows: c.Device.Rows, Cols: c.Device.Cols, MemTileRows: c.Device.Memtile_rows,
	}
}

// goldenFiles are the files of $TESSERA_TXN_CASES, relative to the module's root, or the one in the shared folder.
func goldenFiles(t *testing.T) []string {
	if list := os.Getenv("TESSERA_TXN_CASES"); list != "" {
		files := filepath.SplitList(list)
		for i, f := range files {
			if !filepath.IsAbs(f) {
				files[i] = filepath.Join(shared.Root(), f)
			}
		}
		return files
	}
	return []string{shared.File(t, "data/txn/golden.json")}
}

// TestGolden encodes and decodes published control code: every case of the files.
func TestGolden(t *testing.T) {
	for _, file := range goldenFiles(t) {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var doc struct{ Cases []goldenCase }
		require.NoError(t, json.Unmarshal(raw, &doc), file)
		require.NotEmpty(t, doc.Cases, file)
		for _, c := range doc.Cases {
			t.Run(c.Name, func(t *testing.T) { runGolden(t, &c) })
		}
	}
}

func runGolden(t *testing.T, c *goldenCase) {
	switch c.Kind {
	case "stream":
		goldenStream(t, c)
	case "decode_stream":
		goldenDecode(t, c)
	case "gemm_stream":
		goldenStream(t, c)
		goldenGEMM(t, c)
	case "memtile_bd", "core_bd", "shim_bd":
		goldenBD(t, c)
	case "memcpy_nd":
		goldenMemcpy(t, c)
	case "shim_bd_word4":
		for _, sub := range c.Cases {
			goldenBurst(t, sub)
		}
	case "shim_bd_word2":
		bd := txn.ShimBD{Packet: txn.PacketUse{
			Enable: c.Fields["packet_en"] != 0, ID: uint8(c.Fields["packet_id"]), Type: uint8(c.Fields["packet_type"]), OOO: uint8(c.Fields["ooo_bd"]),
		}}
		w, err := bd.Encode()
		require.NoError(t, err)
		require.EqualValues(t, c.Word2, w[2])
	case "queue_push":
		for _, sub := range c.Cases {
			goldenQueue(t, sub)
		}
	case "buffer_write":
		for _, sub := range c.Cases {
			tile := sub["tile"].([]any)
			addr := device.Tile{Col: num(tile[0]), Row: num(tile[1])}.Addr(uint32(num(sub["buffer_byte_address"]) + 4*num(sub["index_words"])))
			require.EqualValues(t, hex(t, sub["address"]), addr)
			g := goldenOp{Op: sub["op"].(string), Addr: number(addr), Value: number(num(sub["value"])), Mask: number(num(sub["mask"]))}
			roundTrip(t, &txn.Program{Head: txn.NewHeader(device.XDNA), List: []txn.Op{g.op(t)}})
		}
	case "ddr_patch":
		for _, sub := range c.Cases {
			arg, offset := uint32(num(sub["arg_idx"])), uint64(num(sub["arg_plus"]))
			if sub["fold_host_offset"] == true {
				offset = txn.FoldHostOffset(arg, offset)
			}
			p := &txn.Program{Head: txn.NewHeader(device.XDNA), List: []txn.Op{txn.DDRPatchOp(uint32(hex(t, sub["reg_address"])), arg, offset)}}
			words := roundTrip(t, p)
			var want []uint32
			for _, w := range sub["words"].([]any) {
				want = append(want, uint32(hex(t, w)))
			}
			require.Equal(t, want, words[txn.HeaderWords:])
		}
	case "ddr_patch_words":
		for _, sub := range c.Cases {
			p := &txn.Program{Head: txn.NewHeader(device.XDNA), List: []txn.Op{txn.DDRPatchOp(0x1D004, 0, uint64(num(sub["arg_plus"])))}}
			words := roundTrip(t, p)
			require.EqualValues(t, hex(t, sub["arg_plus_lo"]), words[txn.HeaderWords+10])
			require.EqualValues(t, hex(t, sub["arg_plus_hi"]), words[txn.HeaderWords+11])
		}
	default:
		require.Fail(t, "unknown kind of case", c.Kind)
	}
}

func num(v any) int {
	f, _ := v.(float64)
	return int(f)
}

func hex(t *testing.T, v any) uint64 {
	s, _ := v.(string)
	x, err := strconv.ParseUint(s, 16, 64)
	require.NoError(t, err)
	return x
}

// roundTrip encodes, decodes and compares, in binary and in text, and returns the words.
func roundTrip(t *testing.T, p *txn.Program) []uint32 {
	t.Helper()
	words, err := txn.Encode(p)
	require.NoError(t, err)
	back, err := txn.Decode(words)
	require.NoError(t, err)
	require.Equal(t, p.Head, back.Head)
	require.Equal(t, len(p.List), len(back.List))
	for i := range p.List {
		require.Equal(t, p.List[i], back.List[i], "op %d", i)
	}
	var sb strings.Builder
	require.NoError(t, txn.Format(&sb, p))
	parsed, err := txn.Parse(strings.NewReader(sb.String()))
	require.NoError(t, err)
	again, err := txn.Encode(parsed)
	require.NoError(t, err)
	require.Equal(t, words, again)
	return words
}

func goldenStream(t *testing.T, c *goldenCase) {
	p := &txn.Program{Head: c.header()}
	for _, g := range c.Ops {
		p.Add(g.op(t))
	}
	words := roundTrip(t, p)
	require.Equal(t, u32s(c.Words), words)
}

func goldenDecode(t *testing.T, c *goldenCase) {
	p, err := txn.Decode(u32s(c.Words))
	require.NoError(t, err)
	require.Equal(t, c.header(), p.Head)
	require.Len(t, p.List, len(c.Decoded))
	for i, g := range c.Decoded {
		want := g.op(t)
		got := p.List[i]
		got.TileWord = false
		require.Equal(t, want, got, "op %d", i)
	}
	// What was decoded encodes to a stream that decodes to the same.
	roundTrip(t, p)
}

func goldenGEMM(t *testing.T, c *goldenCase) {
	require.NotNil(t, c.Gemm)
	dev, err := device.ByGen(c.Device.DevGen)
	require.NoError(t, err)
	g := c.Gemm
	require.EqualValues(t, dev.CoreRows, g.CoreRows)
	pub := design.Public{
		Dev: dev, Dialect: c.header(), M: g.M, K: g.K, N: g.N, TileM: g.Tm, TileK: g.Tk, TileN: g.Tn,
		InBits: g.ElemBitsIn, OutBits: g.ElemBitsOut, Prefill: g.AddressPrefill, RowsPerHalf: g.RowsPerHalf, Burst: 2,
	}
	p, err := pub.Program()
	require.NoError(t, err)
	words, err := txn.Encode(p)
	require.NoError(t, err)
	require.Equal(t, u32s(c.Words), words)
}

func goldenBD(t *testing.T, c *goldenCase) {
	f := c.Fields
	u := func(k string) uint32 { return uint32(f[k]) }
	s7 := func(k string) int8 { return int8(uint8(f[k])<<1) >> 1 } // raw 7-bit field, sign extended
	on := func(k string) bool { return f[k] != 0 }
	lock := txn.LockUse{
		AcqEnable: on("lock_acq_en"), AcqID: uint8(u("lock_acq_id")), AcqValue: s7("lock_acq_val"),
		RelID: uint8(u("lock_rel_id")), RelValue: s7("lock_rel_val"),
	}
	packet := txn.PacketUse{Enable: on("packet_en"), Type: uint8(u("packet_type")), ID: uint8(u("packet_id")), OOO: uint8(u("ooo_bd"))}
	var words []uint32
	kind := device.Shim
	switch c.Kind {
	case "memtile_bd":
		kind = device.Mem
		bd := txn.MemBD{
			Length: u("length"), Base: u("base_word"), Packet: packet, Compression: on("compression"), TLASTSuppress: on("tlast_suppress"),
			D0Wrap: u("d0_wrap"), D0Step: u("d0_step"), D1Wrap: u("d1_wrap"), D1Step: u("d1_step"), D2Wrap: u("d2_wrap"), D2Step: u("d2_step"), D3Step: u("d3_step"),
			Before:      [3]uint8{uint8(u("d0_zero_before")), uint8(u("d1_zero_before")), uint8(u("d2_zero_before"))},
			After:       [3]uint8{uint8(u("d0_zero_after")), uint8(u("d1_zero_after")), uint8(u("d2_zero_after"))},
			IterCurrent: u("iter_current"), IterWrap: u("iter_wrap"), IterStep: u("iter_step"),
			NextBD: uint8(u("next_bd")), UseNext: on("use_next"), Valid: on("valid"), Lock: lock,
		}
		w, err := bd.Encode()
		require.NoError(t, err)
		back, err := txn.DecodeMemBD(w[:])
		require.NoError(t, err)
		require.Equal(t, bd, back)
		words = w[:]
	case "core_bd":
		kind = device.Core
		bd := txn.CoreBD{
			Length: u("length"), Base: u("base_word"), Packet: packet, Compression: on("compression"), TLASTSuppress: on("tlast_suppress"),
			D0Wrap: u("d0_wrap"), D0Step: u("d0_step"), D1Wrap: u("d1_wrap"), D1Step: u("d1_step"), D2Step: u("d2_step"),
			IterCurrent: u("iter_current"), IterWrap: u("iter_wrap"), IterStep: u("iter_step"),
			NextBD: uint8(u("next_bd")), UseNext: on("use_next"), Valid: on("valid"), Lock: lock,
		}
		w, err := bd.Encode()
		require.NoError(t, err)
		back, err := txn.DecodeCoreBD(w[:])
		require.NoError(t, err)
		require.Equal(t, bd, back)
		words = w[:]
	case "shim_bd":
		bd := txn.ShimBD{
			Length: u("length"), Addr: uint64(f["address"]), Packet: packet, Secure: on("secure"), TLASTSuppress: on("tlast_suppress"),
			D0Wrap: u("d0_wrap"), D0Step: u("d0_step"), D1Wrap: u("d1_wrap"), D1Step: u("d1_step"), D2Step: u("d2_step"),
			Burst: uint8(u("burst")), SMID: uint8(u("smid")), Cache: uint8(u("axcache")), QoS: uint8(u("axqos")),
			IterCurrent: u("iter_current"), IterWrap: u("iter_wrap"), IterStep: u("iter_step"),
			NextBD: uint8(u("next_bd")), UseNext: on("use_next"), Valid: on("valid"), Lock: lock,
		}
		w, err := bd.Encode()
		require.NoError(t, err)
		back, err := txn.DecodeShimBD(w[:])
		require.NoError(t, err)
		require.Equal(t, bd, back)
		words = w[:]
	}
	require.Equal(t, u32s(c.Words), words)
	if c.Address != nil {
		addr := device.Tile{Col: int(f["col"]), Row: int(f["row"])}.Addr(device.XDNA.Tile(kind).BD(int(f["bd_id"])))
		require.EqualValues(t, *c.Address, addr)
	}
}

// deviceOf maps a compiler's device name (npu1, npu1_1col, npu2_4col, ...) to ours.
func deviceOf(t *testing.T, name string) *device.Device {
	base, _, _ := strings.Cut(name, "_")
	d, err := device.Lookup(base)
	require.NoError(t, err)
	return d
}

func goldenMemcpy(t *testing.T, c *goldenCase) {
	var in struct {
		Device       string
		Col          int
		Dir          string
		Channel      int
		BDID         int `json:"bd_id"`
		ElemBits     int `json:"elem_bits"`
		Offsets      [4]int64
		Sizes        [4]int64
		Strides      [4]int64
		Arg          uint32
		Token        bool
		AxCache      uint8
		BurstCode    uint8 `json:"burst_code"`
		IterSize     int64 `json:"iter_size"`
		IterStride   int64 `json:"iter_stride_elems"`
		RepeatCount  int   `json:"repeat_count"`
		ViewOffset   int64 `json:"view_byte_offset"`
		PacketEnable bool  `json:"packet_en"`
	}
	require.NoError(t, json.Unmarshal(c.Input, &in))
	m := txn.Memcpy{
		Dev: deviceOf(t, in.Device), Col: in.Col, Channel: in.Channel, BD: in.BDID, ElemBits: in.ElemBits,
		Offsets: in.Offsets, Sizes: in.Sizes, Strides: in.Strides, Arg: in.Arg, Token: in.Token, Cache: in.AxCache, Burst: in.BurstCode,
		IterSize: in.IterSize, IterStride: in.IterStride, RepeatCount: in.RepeatCount, ViewByte: in.ViewOffset,
	}
	switch in.Dir {
	case "S2MM":
		m.Dir = device.S2MM
	case "MM2S":
		m.Dir = device.MM2S
	default:
		require.Fail(t, "direction", in.Dir)
	}
	tr, err := m.Lower()
	require.NoError(t, err)
	e := &c.Expect
	if e.BDAddress != nil {
		require.EqualValues(t, *e.BDAddress, tr.BDAddr)
	}
	words, err := tr.BD.Encode()
	require.NoError(t, err)
	want := e.BDWords
	if want == nil {
		want = e.DerivedBDWords
	}
	require.NotNil(t, want)
	require.Equal(t, u32s(want), words[:])
	if e.Patch != nil {
		require.EqualValues(t, e.Patch.Address, tr.PatchAddr)
		require.EqualValues(t, e.Patch.ArgIdx, tr.Arg)
		if e.Patch.ArgPlus != nil {
			require.EqualValues(t, *e.Patch.ArgPlus, tr.Offset)
		}
	}
	require.NotEmpty(t, e.Queue)
	for _, q := range e.Queue {
		require.EqualValues(t, q.Address, tr.QueueAddr)
		require.EqualValues(t, q.Value, tr.QueueWord)
	}
	ops, err := tr.Ops()
	require.NoError(t, err)
	roundTrip(t, &txn.Program{Head: txn.NewHeader(m.Dev), List: ops})
}

func goldenBurst(t *testing.T, sub map[string]any) {
	bd := txn.ShimBD{Burst: map[int]uint8{64: 0, 128: 1, 256: 2, 512: 3}[num(sub["burst_bytes"])]}
	if note, _ := sub["note"].(string); strings.HasPrefix(note, "transfer ") {
		var s, d [4]int64
		_, err := fmt.Sscanf(note, "transfer [%d,%d,%d,%d] strides [%d,%d,%d,%d] i32", &s[0], &s[1], &s[2], &s[3], &d[0], &d[1], &d[2], &d[3])
		require.NoError(t, err)
		m := txn.Memcpy{Dev: deviceOf(t, sub["device"].(string)), Dir: device.MM2S, ElemBits: 32, Sizes: s, Strides: d, Burst: bd.Burst}
		tr, err := m.Lower()
		require.NoError(t, err)
		bd = tr.BD
	} else {
		bd.D1Wrap, bd.D1Step = uint32(num(sub["d1_size"])), uint32(num(sub["d1_stride"]))
	}
	w, err := bd.Encode()
	require.NoError(t, err)
	require.EqualValues(t, hex(t, sub["word4"]), w[4])
}

func goldenQueue(t *testing.T, sub map[string]any) {
	dir := device.S2MM
	if sub["dir"] == "MM2S" {
		dir = device.MM2S
	}
	kind, err := device.XDNA.KindAt(num(sub["row"]))
	require.NoError(t, err)
	ti := device.XDNA.Tile(kind)
	require.EqualValues(t, hex(t, sub["address"]), device.Tile{Col: num(sub["col"]), Row: num(sub["row"])}.Addr(ti.Queue(dir, num(sub["channel"]))))
	task := txn.Task{BD: num(sub["bd_id"]), Repeat: num(sub["repeat"]) + 1, Token: sub["token"] == true}
	w, err := task.Encode(ti)
	require.NoError(t, err)
	require.EqualValues(t, hex(t, sub["value"]), w)
	back, err := txn.DecodeTask(ti, w)
	require.NoError(t, err)
	require.Equal(t, task, back)
}
