package encode

import (
	"bytes"
	"encoding/binary"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// subject is an encoding function and the values of its arguments: every value of a list stands once beside the first values of the
// others, and beside their last ones.
type subject struct {
	f    any
	args [][]any
}

func list[T any](v ...T) []any {
	out := make([]any, len(v))
	for i := range v {
		out[i] = v[i]
	}
	return out
}

func ints(from, to, step int) []any {
	var v []int
	for i := from; i <= to; i += step {
		v = append(v, i)
	}
	return list(v...)
}

// Registers with each bit of their number set alone, and all of them.
var (
	vs    = list[V](0, 1, 2, 4, 8, 16, 31)
	zs    = list[Z](0, 1, 2, 4, 8, 16, 31)
	low   = list[Z](0, 1, 2, 4, 7)
	ps    = list[P](0, 1, 2, 4, 8, 15)
	gs    = list[P](0, 1, 2, 4, 7)
	xs    = list[X](0, 1, 2, 4, 8, 16, 30)
	bases = list[X](0, 1, 2, 4, 8, 16, 30, SP)
	sizes = list(B, H, S, D)
	elems = ints(0, 3, 1)
	vls   = ints(-8, 7, 1)
)

var arm64 = func() map[string]subject {
	m := map[string]subject{}
	for name, f := range map[string]any{
		"SDOT": SDOT, "UDOT": UDOT, "USDOT": USDOT, "SMMLA": SMMLA, "UMMLA": UMMLA, "USMMLA": USMMLA, "BFDOT": BFDOT, "BFMMLA": BFMMLA,
		"FMLA": FMLA, "FMLS": FMLS, "FADD": FADD, "FSUB": FSUB, "FMUL": FMUL, "FDIV": FDIV, "FMAX": FMAX, "FMIN": FMIN, "FMAXNM": FMAXNM,
		"FMINNM": FMINNM, "FADDP": FADDP, "FCMEQ": FCMEQ, "FCMGE": FCMGE, "FCMGT": FCMGT, "MUL": MUL, "MLA": MLA, "SMAX": SMAX,
		"SMIN": SMIN, "SMULL": SMULL, "SMULL2": SMULL2, "SMLAL": SMLAL, "SMLAL2": SMLAL2,
	} {
		m[name] = subject{f, [][]any{vs, vs, vs}}
	}
	for name, f := range map[string]any{
		"BFCVTN": BFCVTN, "BFCVTN2": BFCVTN2, "FABS": FABS, "FNEG": FNEG, "FSQRT": FSQRT, "FRINTN": FRINTN, "FCVTNS": FCVTNS,
		"FCVTZS": FCVTZS, "SCVTF": SCVTF, "FCVTL": FCVTL, "FCVTL2": FCVTL2, "FCVTN": FCVTN, "FCVTN2": FCVTN2, "FMAXV": FMAXV,
		"FMAXNMV": FMAXNMV, "SADALP": SADALP, "SADDLPB": SADDLPB, "UADDLPB": UADDLPB, "SXTLB": SXTLB, "SXTLB2": SXTLB2, "SXTLH": SXTLH,
		"SXTLH2": SXTLH2, "SHLL": SHLL, "SHLL2": SHLL2, "SQXTNH": SQXTNH, "SQXTNH2": SQXTNH2, "SQXTNB": SQXTNB, "SQXTUNB": SQXTUNB,
	} {
		m[name] = subject{f, [][]any{vs, vs}}
	}
	for name, f := range map[string]any{
		"SDOTElem": SDOTElem, "UDOTElem": UDOTElem, "USDOTElem": USDOTElem, "SUDOTElem": SUDOTElem, "BFDOTElem": BFDOTElem,
		"FMLAElem": FMLAElem, "FMLSElem": FMLSElem, "FMULElem": FMULElem,
	} {
		m[name] = subject{f, [][]any{vs, vs, vs, elems}}
	}
	m["SMLALElem"] = subject{SMLALElem, [][]any{vs, vs, list[V](0, 1, 2, 4, 8, 15), ints(0, 7, 1)}}
	m["SMLAL2Elem"] = subject{SMLAL2Elem, [][]any{vs, vs, list[V](0, 1, 2, 4, 8, 15), ints(0, 7, 1)}}
	m["SSHR"] = subject{SSHR, [][]any{vs, vs, ints(1, 32, 1)}}

	m["PTRUE"] = subject{PTRUE, [][]any{ps, sizes}}
	m["WHILELT"] = subject{WHILELT, [][]any{ps, sizes, bases, bases}}
	m["CNT"] = subject{CNT, [][]any{bases, sizes, ints(1, 16, 1)}}
	m["RDVL"] = subject{RDVL, [][]any{bases, ints(-32, 31, 1)}}
	m["ADDVL"] = subject{ADDVL, [][]any{bases, bases, ints(-32, 31, 1)}}
	for name, f := range map[string]any{
		"LD1B": LD1B, "LD1H": LD1H, "LD1W": LD1W, "ST1B": ST1B, "ST1H": ST1H, "ST1W": ST1W, "LD1HW": LD1HW, "ST1HW": ST1HW,
	} {
		m[name] = subject{f, [][]any{zs, gs, bases, vls}}
	}
	m["LD1WIndex"] = subject{LD1WIndex, [][]any{zs, gs, bases, xs}}
	m["ST1WIndex"] = subject{ST1WIndex, [][]any{zs, gs, bases, xs}}
	m["LD2W"] = subject{LD2W, [][]any{zs, gs, bases, ints(-16, 14, 2)}}
	m["LD1RW"] = subject{LD1RW, [][]any{zs, gs, bases, ints(0, 252, 4)}}
	m["LD1RQW"] = subject{LD1RQW, [][]any{zs, gs, bases, ints(-128, 112, 16)}}
	m["ZFMLA"] = subject{ZFMLA, [][]any{zs, gs, zs, zs}}
	m["ZMLA"] = subject{ZMLA, [][]any{zs, gs, zs, zs}}
	for name, f := range map[string]any{"ZFMLAElem": ZFMLAElem, "ZSDOTElem": ZSDOTElem, "ZUDOTElem": ZUDOTElem, "ZUSDOTElem": ZUSDOTElem} {
		m[name] = subject{f, [][]any{zs, zs, low, elems}}
	}
	for name, f := range map[string]any{
		"ZFADD": ZFADD, "ZFSUB": ZFSUB, "ZFMUL": ZFMUL, "ZADD": ZADD, "ZEOR": ZEOR, "ZAND": ZAND, "ZSDOT": ZSDOT, "ZUDOT": ZUDOT,
		"ZUSDOT": ZUSDOT, "ZSMMLA": ZSMMLA, "ZUMMLA": ZUMMLA, "ZUSMMLA": ZUSMMLA, "ZBFDOT": ZBFDOT, "ZBFMMLA": ZBFMMLA,
	} {
		m[name] = subject{f, [][]any{zs, zs, zs}}
	}
	for name, f := range map[string]any{"ZZIP1": ZZIP1, "ZZIP2": ZZIP2, "ZUZP1": ZUZP1, "ZUZP2": ZUZP2, "ZTRN1": ZTRN1, "ZTRN2": ZTRN2} {
		m[name] = subject{f, [][]any{sizes, zs, zs, zs}}
	}
	m["ZZERO"] = subject{ZZERO, [][]any{zs}}
	m["ZMOV"] = subject{ZMOV, [][]any{zs, zs}}
	m["ZDUP"] = subject{ZDUP, [][]any{zs, bases}}
	m["ZDUPQ"] = subject{ZDUPQ, [][]any{zs, vs}}
	m["ZLSL"] = subject{ZLSL, [][]any{zs, zs, ints(0, 31, 1)}}
	m["ZFCVTHS"] = subject{ZFCVTHS, [][]any{zs, gs, zs}}
	m["ZSCVTF"] = subject{ZSCVTF, [][]any{zs, gs, zs}}
	m["FADDV"] = subject{FADDV, [][]any{vs, gs, zs}}
	return m
}()

var amd64 = func() map[string]subject {
	z := list("Z0", "Z1", "Z2", "Z4", "Z8", "Z16", "Z31")
	y := list("Y0", "Y1", "Y2", "Y4", "Y8", "Y15")
	wide := list("Y0", "Y1", "Y2", "Y4", "Y8", "Y16", "Y31")
	m := map[string]subject{
		"VDPBF16PS":     {VDPBF16PS, [][]any{z, z, z}},
		"VDPBF16PSbcst": {VDPBF16PSbcst, [][]any{list(1000, 4, 0, -4, 1<<20), z, z}},
		"VCVTNEPS2BF16": {VCVTNEPS2BF16, [][]any{z, wide}},
		"VPDPBUSD":      {VPDPBUSD, [][]any{y, y, y}},
	}
	t := list("T0", "T1", "T2", "T4", "T7")
	var memory []any
	for _, base := range generals {
		for _, disp := range []int{0, 8, 64, -128, 128, -1 << 20} {
			memory = append(memory, Mem{base, disp})
		}
	}
	strides := list("AX", "CX", "DX", "BX", "BP", "SI", "DI", "R8", "R9", "R12", "R13", "R15")
	m["LDTILECFG"] = subject{LDTILECFG, [][]any{memory}}
	m["STTILECFG"] = subject{STTILECFG, [][]any{memory}}
	m["TILERELEASE"] = subject{TILERELEASE, [][]any{}}
	m["TILEZERO"] = subject{TILEZERO, [][]any{t}}
	m["TILELOADD"] = subject{TILELOADD, [][]any{memory, strides, t}}
	m["TILELOADDT1"] = subject{TILELOADDT1, [][]any{memory, strides, t}}
	m["TILESTORED"] = subject{TILESTORED, [][]any{t, memory, strides}}
	// The tiles of a product differ, so the lists have none in common.
	for name, f := range map[string]any{"TDPBSSD": TDPBSSD, "TDPBSUD": TDPBSUD, "TDPBUSD": TDPBUSD, "TDPBUUD": TDPBUUD, "TDPBF16PS": TDPBF16PS} {
		m[name] = subject{f, [][]any{list("T0", "T3", "T7"), list("T1", "T4"), list("T2", "T5", "T6")}}
	}
	return m
}()

// each calls f for every choice of arguments.
func (s subject) each(call func(result any)) {
	f := reflect.ValueOf(s.f)
	if len(s.args) == 0 {
		call(f.Call(nil)[0].Interface())
	}
	for _, last := range []bool{false, true} {
		for i, values := range s.args {
			for _, v := range values {
				in := make([]reflect.Value, len(s.args))
				for j, others := range s.args {
					in[j] = reflect.ValueOf(others[0])
					if last {
						in[j] = reflect.ValueOf(others[len(others)-1])
					}
				}
				in[i] = reflect.ValueOf(v)
				call(f.Call(in)[0].Interface())
			}
		}
	}
}

// objdump disassembles bytes and returns the text of each instruction. Where the tool is missing the test is skipped, unless
// TESSERA_REQUIRE_OBJDUMP is set.
func objdump(t *testing.T, tool, machine string, code []byte) []string {
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("TESSERA_REQUIRE_OBJDUMP") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool, "-D", "-z", "-b", "binary", "-m", machine, "--insn-width=16", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var lines []string
	for _, line := range strings.Split(string(out), "\n") {
		if f := strings.SplitN(line, "\t", 3); len(f) == 3 && strings.HasSuffix(f[0], ":") {
			text, _, _ := strings.Cut(f[2], "//")
			lines = append(lines, strings.Join(strings.Fields(text), " "))
		}
	}
	return lines
}

func TestArm64(t *testing.T) {
	var code []byte
	var want []string
	for _, s := range arm64 {
		s.each(func(r any) {
			i := r.(Insn)
			code = binary.LittleEndian.AppendUint32(code, i.Word)
			want = append(want, i.Text)
		})
	}
	got := objdump(t, "aarch64-linux-gnu-objdump", "aarch64", code)
	if len(got) != len(want) || len(want) < 1000 {
		t.Fatalf("%d instructions read back, %d written", len(got), len(want))
	}
	bad := 0
	// Newer versions print a list of two registers with a comma.
	pair := regexp.MustCompile(`\{(z\d+\.s), (z\d+\.s)\}`)
	for i := range want {
		if g := pair.ReplaceAllString(got[i], "{$1-$2}"); g != want[i] && bad < 20 {
			bad++
			t.Errorf("%08x is %q, want %q", binary.LittleEndian.Uint32(code[4*i:]), g, want[i])
		}
	}
}

func TestAMD64(t *testing.T) {
	var code []byte
	var want []string
	register := regexp.MustCompile(`\b([ZYT]\d+|[A-D]X|[SB]P|[SD]I|R\d+)\b`)
	for _, s := range amd64 {
		s.each(func(r any) {
			c := r.(Code)
			code = append(code, c.Bytes...)
			want = append(want, c.Text)
		})
	}
	// objdump writes a displacement of zero only where one is encoded, and an index within the parentheses.
	indexed, zero := regexp.MustCompile(`\((%\w+)\)\((%\w+)\*1\)`), regexp.MustCompile(`(^|[ ,])0\(`)
	got := objdump(t, "objdump", "i386:x86-64", code)
	if len(got) != len(want) || len(want) < 100 {
		t.Fatalf("%d instructions read back, %d written", len(got), len(want))
	}
	for i := range want {
		w := want[i]
		broadcast, vexed := strings.Contains(w, ".BCST"), strings.HasSuffix(w, " (VEX)")
		w = strings.TrimSuffix(strings.Replace(w, ".BCST", "", 1), " (VEX)")
		name, args, _ := strings.Cut(w, " ")
		args = register.ReplaceAllStringFunc(args, func(r string) string {
			r = strings.ToLower(r)
			switch r[0] {
			case 'z':
				r = "zmm" + r[1:]
			case 'y':
				r = "ymm" + r[1:]
			case 't':
				r = "tmm" + r[1:]
			case 'r':
			default:
				r = "r" + r
			}
			return "%" + r
		})
		w = strings.ToLower(name) + " " + strings.ReplaceAll(args, ", ", ",")
		w = indexed.ReplaceAllString(zero.ReplaceAllString(w, "$1("), "($1,$2,1)")
		w = strings.TrimSpace(w)
		if broadcast {
			w = strings.Replace(w, ")", "){1to16}", 1)
		}
		if vexed {
			w = "{vex} " + w
		}
		if g := zero.ReplaceAllString(decimal(got[i]), "$1("); g != w {
			t.Errorf("%q is read back, want %q", g, w)
		}
	}
}

// decimal writes the displacement of a memory operand in decimal.
func decimal(s string) string {
	return regexp.MustCompile(`-?0x[0-9a-f]+\(`).ReplaceAllStringFunc(s, func(h string) string {
		v, err := strconv.ParseInt(h[:len(h)-1], 0, 64)
		if err != nil {
			return h
		}
		return strconv.FormatInt(v, 10) + "("
	})
}

// Every encoding function is read back by one of the two tests.
func TestAllAreTested(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range src.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() {
				continue
			}
			n++
			_, a := arm64[f.Name.Name]
			_, x := amd64[f.Name.Name]
			if !a && !x {
				t.Errorf("%s is in no table", f.Name.Name)
			}
		}
	}
	if n != len(arm64)+len(amd64) {
		t.Errorf("%d functions, %d in the tables", n, len(arm64)+len(amd64))
	}
}

func TestRefusals(t *testing.T) {
	for name, f := range map[string]func(){
		"register":  func() { SDOT(32, 0, 0) },
		"element":   func() { FMLAElem(0, 0, 0, 4) },
		"predicate": func() { LD1W(0, 8, 0, 0) },
		"vectors":   func() { LD1W(0, 0, 0, 8) },
		"low":       func() { ZFMLAElem(0, 0, 8, 0) },
		"odd":       func() { LD2W(0, 0, 0, 1) },
		"offset":    func() { LD1RQW(0, 0, 0, 8) },
		"word":      func() { LD1RW(0, 0, 0, 2) },
		"shift":     func() { ZLSL(0, 0, 32) },
		"kind":      func() { VDPBF16PS("Y0", "Z0", "Z0") },
		"vex":       func() { VPDPBUSD("Y16", "Y0", "Y0") },
		"tile":      func() { TILEZERO("T8") },
		"same":      func() { TDPBSUD("T0", "T1", "T0") },
		"stride":    func() { TILELOADD(Mem{"AX", 0}, "SP", "T0") },
		"base":      func() { TILELOADD(Mem{"X0", 0}, "AX", "T0") },
		"far":       func() { LDTILECFG(Mem{"AX", 1 << 40}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestText(t *testing.T) {
	if s := SDOT(0, 1, 2).String(); s != "WORD $0x4e829420 // sdot v0.4s, v1.16b, v2.16b" {
		t.Error(s)
	}
	if s := VPDPBUSD("Y1", "Y2", "Y3").String(); s != "LONG $0x506de2c4; BYTE $0xd9 // VPDPBUSD Y1, Y2, Y3 (VEX)" {
		t.Error(s)
	}
	if s := TDPBF16PS("T1", "T2", "T3").String(); s != "LONG $0x5c72e2c4; BYTE $0xda // TDPBF16PS T1, T2, T3" {
		t.Error(s)
	}
	if !bytes.Equal(VDPBF16PS("Z1", "Z2", "Z3").Bytes, []byte{0x62, 0xf2, 0x6e, 0x48, 0x52, 0xd9}) {
		t.Error("VDPBF16PS")
	}
}
