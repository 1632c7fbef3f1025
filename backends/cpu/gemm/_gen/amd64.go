package main

import (
	"fmt"
	"strings"

	"github.com/tessera-go/tessera/backends/cpu/_encode"
)

// Offsets of the fields of kargs; the Go side asserts them.
const (
	oA      = 0
	oB      = 8
	oC      = 16
	oARS    = 24
	oACS    = 32
	oBKS    = 40
	oBPS    = 48
	oLDC    = 56
	oK      = 64
	oPanels = 72
	oTail   = 80
	oAcc    = 88
	oComp   = 96
	oFold   = 104
	oRows   = 112
	oAhead  = 120
	oAheadS = 128
	oNextA  = 136
	oNextAS = 144
	oNextC  = 176
	oAheadL = 184
	oNextAM = 192
	oAStep  = 200
	oCStep  = 208
	oPackTo = 216
	oPackFr = 224
	oHold   = 232
	oHeldC  = 240
	oTile   = 248
	oStrips = 256
	oFar    = 264
)

const header = `
// Every kernel here computes a strip of h rows against a run of panels of B: for each panel, h x NR sums over k ascending with
// one multiply-add each, started from zero or from C. Rows of A are read by broadcast from any strides.
//
//	DI args     AX row 0 of A at k    BX panel of B at k    CX k to go    DX bytes from k to k+1 in A    SI the same in B
//	R8 R9 R10 R11 R12 R13 R14   1 3 5 7 9 11 13 times the bytes between rows of A

`

// rowAddr gives the address of row i of A relative to AX without a second pointer: an odd multiple of the stride, scaled.
func rowAddr(i int) string {
	if i == 0 {
		return "(AX)"
	}
	scale := 1
	for i%2 == 0 && scale < 8 {
		i /= 2
		scale *= 2
	}
	return fmt.Sprintf("(AX)(%s*%d)", oddReg[i], scale)
}

var oddReg = map[int]string{1: "R8", 3: "R9", 5: "R10", 7: "R11", 9: "R12", 11: "R13", 13: "R14"}

// needOdd says which odd multiples rows below h use.
func needOdd(h int) map[int]bool {
	need := map[int]bool{}
	for i := 1; i < h; i++ {
		o := i
		for s := 1; o%2 == 0 && s < 8; s *= 2 {
			o /= 2
		}
		need[o] = true
	}
	return need
}

// strides loads the strides that rows below h need.
func (f *file) strides(h int) {
	need := needOdd(h)
	f.p("\tMOVQ %d(DI), R8", oARS)
	if need[3] || need[7] || need[11] {
		f.p("\tLEAQ (R8)(R8*2), R9")
	}
	if need[5] || need[13] {
		f.p("\tLEAQ (R8)(R8*4), R10")
	}
	if need[7] {
		f.p("\tLEAQ (R9)(R8*4), R11")
	}
	if need[9] {
		f.p("\tLEAQ (R8)(R8*8), R12")
	}
	if need[11] {
		f.p("\tLEAQ (R9)(R8*8), R13")
	}
	if need[13] {
		f.p("\tLEAQ (R10)(R8*8), R14")
	}
	f.p("\tMOVQ %d(DI), DX", oACS)
	f.p("\tMOVQ %d(DI), SI", oBKS)
}

// family512 describes one kind of operand for the AVX-512 skeleton.
type family512 struct {
	name  string
	b     string // f32, bf16 (pairs), f16, dot8, dotbf16
	alone bool   // for processors that fetch streams of memory by themselves: no prefetch far ahead
}

// aForm is how a kernel finds A.
type aForm int

const (
	anyStrides aForm = iota
	packedA
	packedOnce // packedA, loading each element once
	rowsA
	anyPairs // any strides of A and B, whole panels of B in pairs, small enough to lie in L1
	rowsFew  // rowsA for products of few strips, which fetch more of the next chunk of B each
	streams  // rowsA for a single strip, whose B comes from memory: from as many panels at once as there are registers for
)

// kernel512 emits one kernel: h rows, nv vectors of 16 columns in each of np panels.
//
// A packed kernel takes A and B packed, with the steps that packing gives them as constants, and lets most multiply-adds
// broadcast their element of A from memory themselves: address and multiply-add are then one micro-operation, which leaves
// more of the front end to the other hyperthread. Broadcasts through a register keep the loads at two a cycle, or, for all rows, at little more than
// one; with an index register the processor splits the two again, so kernels for other strides always use a register.
//
// A row kernel takes B packed and A as rows whose steps lie side by side. One for pairs takes two panels at once: six rows by 64 columns need ten loads
// for 24 multiply-adds, where 14 rows by 32 columns need 16 for 28. It has no index register to spare for broadcasts in the multiply-adds and needs none.
func (f *file) kernel512(fam family512, h, nv, np int, form aForm) string {
	fast, byRows := form != anyStrides && form != anyPairs && form != streams, form == rowsA || form == rowsFew
	cols := nv * 16
	name := fmt.Sprintf("%sAVX512h%dx%d", fam.name, h, cols*np)
	how := "A and B by any strides"
	switch form {
	case packedA:
		name += "p"
		how = "A and B packed"
	case anyPairs:
		name += "s"
		how = "A and B by any strides, whole panels"
	case packedOnce:
		name += "q"
		how = "A and B packed, few loads"
	case rowsA:
		name += "r"
		how = "B packed, A by rows"
	case rowsFew:
		name += "f"
		how = "B packed, A by rows, for few strips"
	case streams:
		name += "m"
		how = "B packed and in memory, A by rows"
	}
	const frame = 32 // where the panels of a strip begin, for the strips that follow
	f.textFrame(name, fmt.Sprintf("multiplies %d rows by %d columns a step, B as %s, %s.", h, cols*np, fam.b, how), frame)
	n := nv * np // vectors a row
	acc := func(i, v int) string { return fmt.Sprintf("Z%d", i*n+v) }
	firstB, firstA, mostA := h*n, h*n+n, 2
	if form == streams { // A stays for a step, vectors of B come one after another
		firstB, firstA, mostA = h*n+h, h*n, h
	}
	var breg []string
	for v := 0; v < n; v++ {
		breg = append(breg, fmt.Sprintf("Z%d", firstB+v))
	}
	var areg []string
	for r := firstA; r < 32 && len(areg) < mostA; r++ {
		areg = append(areg, fmt.Sprintf("Z%d", r))
	}
	maskReg, free := "", 32-firstB
	if fam.b == "bf16" {
		maskReg = "Z31"
		free--
		if form != streams && len(areg) == 2 && areg[1] == "Z31" {
			areg = areg[:1]
		}
	}
	if form == streams {
		breg = breg[:min(free, n)]
	}
	if len(areg) == 0 || len(breg) == 0 {
		panic("registers: " + name)
	}

	f.p("\tMOVQ p+0(FP), DI")
	packed := form == packedA || form == packedOnce
	if !packed {
		f.strides(h)
	}
	pair := (byRows || form == anyPairs) && np > 1
	bare := pair && form == rowsA // has a loop for when nothing is to be fetched
	if form == streams {          // h <= pairRows, too
		f.p("\tMOVQ %d(DI), R11", oBPS)
		f.p("\tLEAQ (R11)(R11*2), R12")
		f.p("\tLEAQ (R11)(R11*4), R13")
	} else if pair { // h <= pairRows: R11 and the following are free
		f.p("\tMOVQ %d(DI), R11", oBPS)
	} else if np > 1 { // h <= 3: R10, R11 are free
		f.p("\tMOVQ %d(DI), R10", oBPS)
		if np > 2 {
			f.p("\tLEAQ (R10)(R10*2), R11")
		}
	}
	if maskReg != "" {
		f.p("\tMOVL $0xffff0000, AX")
		f.p("\tVPBROADCASTD AX, %s", maskReg)
	}
	type local struct {
		at    string
		field int
	}
	first := []local{{"panels-8(SP)", oPanels}, {"b-16(SP)", oB}, {"c-24(SP)", oC}}
	if fam.b == "dot8" {
		first = append(first, local{"comp-32(SP)", oComp})
	}
	for _, x := range first {
		f.p("\tMOVQ %d(DI), AX", x.field)
		f.p("\tMOVQ AX, %s", x.at)
	}
	f.p("panel:")
	f.p("\tMOVQ $-1, R15")
	f.p("\tCMPQ %d(DI), $1", oPanels)
	f.p("\tJNE full")
	f.p("\tMOVQ %d(DI), CX", oTail)
	if np > 1 { // columns of the last panel of the group
		f.p("\tADDQ $%d, CX", 0)
	}
	f.p("\tBZHIQ CX, R15, R15")
	f.p("full:")
	for v := 0; v < nv; v++ {
		f.p("\tKMOVW R15, K%d", v+1)
		if v+1 < nv {
			f.p("\tSHRQ $16, R15")
		}
	}
	mask := func(v int) string { // only the last panel of a group can be short
		if v/nv == np-1 {
			return fmt.Sprintf("K%d, ", v%nv+1)
		}
		return ""
	}
	disp := func(v int) int { return v * 64 }
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ fresh")
	for i := 0; i < h; i++ {
		for v := 0; v < n; v++ {
			z := ""
			if mask(v) != "" {
				z = ".Z"
			}
			f.p("\tVMOVUPS%s %d(AX), %s%s", z, disp(v), mask(v), acc(i, v))
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	afterLoad := "start"
	if fam.b == "dot8" {
		afterLoad = "compensate"
		// An accumulated product still needs what is added once to each row.
		f.p("\tMOVQ %d(DI), BX", oRows)
		f.p("\tTESTQ BX, BX")
		f.p("\tJEQ compensate")
		for i := 0; i < h; i++ {
			for v := 0; v < n; v++ {
				f.p("\tVPADDD.BCST %d(BX), %s, %s", 4*i, acc(i, v), acc(i, v))
			}
		}
	}
	f.p("\tJMP %s", afterLoad)
	f.p("fresh:")
	switch fam.b {
	case "dot8":
		f.p("\tMOVQ %d(DI), BX", oRows)
		for i := 0; i < h; i++ {
			f.p("\tVPBROADCASTD %d(BX), %s", 4*i, acc(i, 0))
			for v := 1; v < n; v++ {
				f.p("\tVMOVDQA32 %s, %s", acc(i, 0), acc(i, v))
			}
		}
	default:
		for i := 0; i < h; i++ {
			for v := 0; v < n; v++ {
				f.p("\tVPXORD %s, %s, %s", acc(i, v), acc(i, v), acc(i, v))
			}
		}
	}
	// The lines of C that this panel writes are fetched while it computes.
	if fast {
		f.p("\tCMPQ %d(DI), $0", oAhead)
		f.p("\tJEQ %s", afterLoad)
	}
	if h >= 4 && form != anyPairs && form != streams {
		for i := 0; i < h; i++ {
			for v := 0; v < n; v++ {
				f.p("\tPREFETCHT0 %d(AX)", disp(v))
			}
			if i+1 < h {
				f.p("\tADDQ CX, AX")
			}
		}
	}
	if fam.b == "dot8" {
		f.p("compensate:")
		f.p("\tCMPL %d(DI), $0", oFold)
		f.p("\tJEQ start")
		f.p("\tMOVQ %d(DI), BX", oComp)
		fold, join := areg[0], breg[0]
		if form != streams {
			join = areg[1]
		}
		f.p("\tVPBROADCASTD %d(DI), %s", oFold, fold)
		for v := 0; v < n; v++ {
			f.p("\tVPMULLD %d(BX), %s, %s", disp(v), fold, join)
			for i := 0; i < h; i++ {
				f.p("\tVPADDD %s, %s, %s", join, acc(i, v), acc(i, v))
			}
		}
	}
	f.p("start:")
	if fast {
		f.p("\tMOVQ %d(DI), SI", oAhead)
		f.p("\tTESTQ SI, SI")
		if bare {
			f.p("\tJEQ sums")
		} else {
			f.p("\tJEQ near")
		}
		f.p("\tMOVQ %d(DI), DX", oAheadS)
		if pair {
			f.p("\tMOVQ %d(DI), R12", oAheadL)
			if form != rowsFew {
				f.p("\tSHLQ $2, R12 // in four steps")
			}
			f.p("\tLEAQ (SI)(DX*1), R13")
			f.p("\tADDQ DX, DX")
		}
		f.p("\tADDQ SI, DX")
		f.p("\tMOVQ DX, %d(DI)", oAhead)
		f.p("\tMOVQ %d(DI), DX", oNextA)
		f.p("\tMOVQ %d(DI), CX", oNextAS)
		f.p("\tADDQ $%d, %d(DI)", 128*np, oNextA)
		for i := 0; i < h; i++ {
			for line := range 2 * np {
				f.p("\tPREFETCHT1 %s", withDisp("(DX)", 64*line))
			}
			if i+1 < h {
				f.p("\tADDQ CX, DX")
			}
		}
		if !bare {
			f.p("\tJMP sums")
			f.p("near: // nothing to fetch: the address stays in A")
			f.p("\tMOVQ %d(DI), SI", oA)
			if pair {
				f.p("\tMOVQ SI, R13")
				f.p("\tXORL R12, R12")
			}
		}
		f.p("sums:")
	}
	f.p("\tMOVQ %d(DI), AX", oA)
	f.p("\tMOVQ %d(DI), BX", oB)
	f.p("\tMOVQ %d(DI), CX", oK)
	if form == streams {
		f.p("\tMOVQ %d(DI), R14", oFar)
		f.p("\tADDQ BX, R14")
	}

	bytesV := 64 // bytes of a vector of B in memory
	if fam.b == "f16" {
		bytesV = 32
	}
	baddr := func(v int) string {
		d := (v % nv) * bytesV
		idx := ""
		switch panel := v / nv; {
		case panel == 1 && pair:
			idx = "(R11*1)"
		case panel == 1:
			idx = "(R10*1)"
		case panel == 2:
			idx = "(R10*2)"
		case panel == 3:
			idx = "(R11*1)"
		}
		if d == 0 {
			return "(BX)" + idx
		}
		return fmt.Sprintf("%d(BX)%s", d, idx)
	}
	fma := func(a, b, c string) string {
		switch fam.b {
		case "dot8":
			return fmt.Sprintf("\tVPDPBUSD %s, %s, %s", a, b, c) // B is the unsigned one
		case "dotbf16":
			return "\t" + encode.VDPBF16PS(b, a, c).String()
		}
		return fmt.Sprintf("\tVFMADD231PS %s, %s, %s", b, a, c)
	}
	rows := func() {
		for i := 0; i < h; i++ {
			a := areg[i%len(areg)]
			if fam.b == "dot8" || fam.b == "dotbf16" {
				f.p("\tVPBROADCASTD %s, %s", rowAddr(i), a)
			} else {
				f.p("\tVBROADCASTSS %s, %s", rowAddr(i), a)
			}
			for v := 0; v < n; v++ {
				f.p("%s", fma(a, breg[v], acc(i, v)))
			}
		}
		f.p("\tADDQ DX, AX")
	}
	// A B in place ends where its last column does. A load under a mask takes a turn of a port that multiplies, so only a short panel has them.
	inPlace, short := fam.b == "f32" && form == anyStrides, false
	loadB := func(v int, from string) {
		if m := mask(v); m != "" && short {
			f.p("\tVMOVUPS.Z %s, %s%s", from, m, breg[v])
			return
		}
		f.p("\tVMOVUPS %s, %s", from, breg[v])
	}
	prefetch := func() {
		if form == anyPairs {
			return
		}
		for v := 0; v < n; v++ {
			if fam.b == "f16" && v%2 == 1 {
				continue
			}
			switch low := np > 1 || h < 4; {
			case low && fam.alone:
			case low:
				a := baddr(v)
				if a[0] == '(' {
					a = "0" + a
				}
				var d int
				var rest string
				fmt.Sscanf(a, "%d%s", &d, &rest)
				f.p("\tPREFETCHT0 %d%s", d+far512(h), rest)
			default:
				f.p("\tPREFETCHT0 %d(BX)(SI*8)", (v%nv)*bytesV)
			}
		}
	}
	step := func() {
		switch fam.b {
		case "bf16":
			prefetch()
			for v := 0; v < n; v++ {
				f.p("\tVPSLLD $16, %s, %s", baddr(v), breg[v])
			}
			rows()
			for v := 0; v < n; v++ {
				f.p("\tVPANDD %s, %s, %s", baddr(v), maskReg, breg[v])
			}
			f.p("\tADDQ SI, BX")
			rows()
		case "f16":
			for v := 0; v < n; v++ {
				f.p("\tVCVTPH2PS %s, %s", baddr(v), breg[v])
			}
			prefetch()
			f.p("\tADDQ SI, BX")
			rows()
		default:
			for v := 0; v < n; v++ {
				loadB(v, baddr(v))
			}
			prefetch()
			f.p("\tADDQ SI, BX")
			rows()
		}
	}
	aStep, bStep := 4*((h+7)/8*8), 64*nv
	if byRows {
		aStep = 4
	}
	halves := 1 // k of a step
	if form == streams {
		if aStep, bStep = 4, bytesV*nv; fam.b == "bf16" {
			halves, aStep = 2, 8
		}
	}
	// half of a step of streams: of bf16, the even or the odd k
	streamHalf := func(u, half int) {
		for i := range h {
			from, op := withDisp(rowAddr(i), u*aStep+4*half), "VBROADCASTSS"
			if fam.b == "dot8" {
				op = "VPBROADCASTD"
			}
			f.p("\t%s %s, %s", op, from, areg[i])
		}
		for v := range n {
			at := func(base string) string {
				index := [...]string{"", "(R11*1)", "(R11*2)", "(R12*1)", "(R11*4)", "(R13*1)"}[v/nv]
				return withDisp("("+base+")"+index, u*bStep+bytesV*(v%nv))
			}
			from, b := at("BX"), breg[v%len(breg)]
			switch {
			case fam.b == "f16":
				f.p("\tVCVTPH2PS %s, %s", from, b)
			case fam.b == "bf16" && half == 0:
				f.p("\tVPSLLD $16, %s, %s", from, b)
			case fam.b == "bf16":
				f.p("\tVPANDD %s, %s, %s", from, maskReg, b)
			default:
				f.p("\tVMOVUPS %s, %s", from, b)
			}
			if half == 0 && (bytesV == 64 || v%2 == 0) {
				f.p("\tPREFETCHT0 %s", at("R14"))
			}
			for i := range h {
				f.p("%s", fma(areg[i], b, acc(i, v)))
			}
		}
	}
	streamSteps := func(steps int) {
		for i := range steps * halves {
			streamHalf(i/halves, i%halves)
		}
		f.p("\tADDQ $%d, AX", steps*aStep)
		f.p("\tADDQ $%d, BX", steps*bStep)
		f.p("\tADDQ $%d, R14", steps*bStep)
	}
	fastStep := func(u int) {
		at := func(v, ahead int) string {
			index := ""
			if v >= nv {
				index = "(R11*1)"
			}
			return fmt.Sprintf("%d(BX)%s", u*bStep+64*(v%nv)+ahead, index)
		}
		for v := 0; v < n; v++ {
			loadB(v, at(v, 0))
		}
		if form == rowsFew { // of what the worker needs next: up to a line of each panel
			f.p("\tPREFETCHT1 (SI)")
			f.p("\tPREFETCHT1 (R13)")
			f.p("\tADDQ R12, SI")
			f.p("\tADDQ R12, R13")
		} else if h <= 8 && !pair {
			for v := 0; v < n; v++ {
				f.p("\tPREFETCHT0 %s", at(v, farPrefetch))
			}
		}
		const share, of = 2, 7 // of the rows go through a register
		regs := max(h*share/of, 2)
		used := 0
		for i := 0; i < h; i++ {
			at := u*aStep + 4*i
			if byRows || form == packedOnce || i*regs/h != (i+1)*regs/h && nv > 1 {
				a := areg[used%len(areg)]
				used++
				from := fmt.Sprintf("%d(AX)", at)
				if byRows {
					from = withDisp(rowAddr(i), u*aStep)
				}
				if fam.b == "f32" {
					f.p("\tVBROADCASTSS %s, %s", from, a)
				} else {
					f.p("\tVPBROADCASTD %s, %s", from, a)
				}
				for v := 0; v < n; v++ {
					f.p("%s", fma(a, breg[v], acc(i, v)))
				}
				continue
			}
			for v := 0; v < n; v++ {
				switch fam.b {
				case "dot8":
					f.p("\tVPDPBUSD.BCST %d(AX), %s, %s", at, breg[v], acc(i, v))
				case "dotbf16":
					f.p("\t%s", encode.VDPBF16PSbcst(at, breg[v], acc(i, v)))
				default:
					f.p("\tVFMADD231PS.BCST %d(AX), %s, %s", at, breg[v], acc(i, v))
				}
			}
		}
	}
	unroll := 4
	if fam.b == "bf16" {
		unroll = 2
		f.p("\tSHRQ $1, CX")
		f.p("\tJZ odd")
	}
	if inPlace {
		f.p("\tCMPQ %d(DI), $1", oPanels)
		f.p("\tJNE wide")
		f.p("\tCMPQ %d(DI), $%d", oTail, cols)
		f.p("\tJLT short")
		f.p("wide:")
	}
	f.p("\tSUBQ $%d, CX", unroll)
	f.p("\tJLT rest")
	if bare {
		f.p("\tTESTQ SI, SI")
		f.p("\tJNE loop")
		f.p("\tPCALIGN $32")
		f.p("bare:")
		for u := range unroll {
			fastStep(u)
		}
		f.p("\tADDQ $%d, AX", unroll*aStep)
		f.p("\tADDQ $%d, BX", unroll*bStep)
		f.p("\tSUBQ $%d, CX", unroll)
		f.p("\tJGE bare")
		f.p("\tJMP rest")
	}
	f.p("\tPCALIGN $32")
	f.p("loop:")
	if form == streams {
		streamSteps(unroll)
	}
	for u := 0; u < unroll && form != streams; u++ {
		if fast {
			fastStep(u)
		} else {
			step()
		}
	}
	if fast {
		if form != rowsFew {
			f.p("\tPREFETCHT1 (SI) // of what the worker needs next")
			if pair {
				f.p("\tPREFETCHT1 (R13)")
				f.p("\tADDQ R12, SI")
				f.p("\tADDQ R12, R13")
			} else {
				f.p("\tADDQ $64, SI")
			}
		}
		f.p("\tADDQ $%d, AX", unroll*aStep)
		f.p("\tADDQ $%d, BX", unroll*bStep)
	}
	f.p("\tSUBQ $%d, CX", unroll)
	f.p("\tJGE loop")
	f.p("rest:")
	f.p("\tADDQ $%d, CX", unroll)
	f.p("\tJZ done")
	f.p("single:")
	switch {
	case form == streams:
		streamSteps(1)
	case fast:
		fastStep(0)
		f.p("\tADDQ $%d, AX", aStep)
		f.p("\tADDQ $%d, BX", bStep)
	default:
		step()
	}
	f.p("\tDECQ CX")
	f.p("\tJNZ single")
	if inPlace {
		f.p("\tJMP done")
		f.p("short:")
		short = true
		step()
		f.p("\tDECQ CX")
		f.p("\tJNZ short")
	}
	f.p("done:")
	if fam.b == "bf16" {
		f.p("odd:")
		f.p("\tTESTQ $1, %d(DI)", oK)
		f.p("\tJZ store")
		if form == streams {
			streamHalf(0, 0)
		} else {
			for v := 0; v < n; v++ {
				f.p("\tVPSLLD $16, %s, %s", baddr(v), breg[v])
			}
			rows()
		}
		f.p("store:")
	}
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	for i := 0; i < h; i++ {
		for v := 0; v < n; v++ {
			f.p("\tVMOVUPS %s, %s%d(AX)", acc(i, v), mask(v), disp(v))
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tDECQ %d(DI)", oPanels)
	f.p("\tJZ end")
	f.p("\tMOVQ %d(DI), BX", oBPS)
	if np > 1 {
		f.p("\tIMULQ $%d, BX", np)
	}
	f.p("\tADDQ BX, %d(DI)", oB)
	f.p("\tADDQ $%d, %d(DI)", cols*np*4, oC)
	if fam.b == "dot8" {
		f.p("\tADDQ $%d, %d(DI)", cols*np*4, oComp)
	}
	f.p("\tJMP panel")
	f.p("end:")
	f.p("\tDECQ %d(DI)", oStrips)
	f.p("\tJLE out")
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.p("\tIMULQ $%d, CX", h)
	f.p("\tADDQ CX, c-24(SP)")
	for _, x := range first {
		f.p("\tMOVQ %s, AX", x.at)
		f.p("\tMOVQ AX, %d(DI)", x.field)
	}
	f.p("\tMOVQ %d(DI), AX", oAPS)
	f.p("\tADDQ AX, %d(DI)", oA)
	if fam.b == "dot8" {
		f.p("\tCMPQ %d(DI), $0", oRows)
		f.p("\tJEQ panel")
		f.p("\tADDQ $%d, %d(DI)", 4*h, oRows)
	}
	f.p("\tJMP panel")
	f.p("out:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	return name
}

// farPrefetch is the distance in bytes at which low kernels, which are bound by memory, ask for B.
const farPrefetch = 2048

// far512 is that distance for a height. One row takes a step of several panels in some 30 ns, and memory takes 100 and more: four times as far is 15 to 20 %
// faster for f32 and bf16 on an Ice Lake server, where two rows are as fast with either.
func far512(h int) int {
	if h == 1 {
		return 4 * farPrefetch
	}
	return farPrefetch
}

// wide512 says how many panels a low kernel takes at once, so that it has enough sums in flight.
func wide512(h int) int {
	switch h {
	case 1:
		return 4
	case 2, 3:
		return 2
	}
	return 1
}

// streamPanels says how many panels a kernel for a B in memory takes at once, of six rows at most: as many as leave a register for each row and one for B,
// but no more than six.
func streamPanels(h int) int { return [...]int{1: 6, 2: 6, 3: 4, 4: 3, 5: 2, 6: 2}[h] }

// pairRows bounds the height of kernels for pairs of panels: 24 sums, four vectors of B and two of A.
const pairRows = 6

// kernelAVX2 emits h rows by nv vectors of 8 columns.
func (f *file) kernelAVX2(fam family512, h, nv, np int) string {
	cols := nv * 8
	name := fmt.Sprintf("%sAVX2h%dx%d", fam.name, h, cols*np)
	f.text(name, fmt.Sprintf("multiplies %d rows by %d columns a step, B as %s.", h, cols*np, fam.b))
	n := nv * np
	acc := func(i, v int) string { return fmt.Sprintf("Y%d", i*n+v) }
	firstB := h * n
	breg := func(v int) string { return fmt.Sprintf("Y%d", firstB+v) }
	var areg []string
	for r := firstB + n; r < 16 && len(areg) < 2; r++ {
		areg = append(areg, fmt.Sprintf("Y%d", r))
	}
	product := ""
	if fam.b == "madd8" {
		product = fmt.Sprintf("Y%d", firstB+n)
		areg = areg[1:]
		if firstB+n+2 < 16 {
			areg = append(areg, fmt.Sprintf("Y%d", firstB+n+2))
		}
	}
	if len(areg) == 0 {
		panic("registers: " + name)
	}
	f.p("\tMOVQ p+0(FP), DI")
	f.strides(h)
	if np > 1 {
		f.p("\tMOVQ %d(DI), R10", oBPS)
		if np > 2 {
			f.p("\tLEAQ (R10)(R10*2), R11")
		}
	}
	f.p("panel:")
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ fresh")
	short := np == 1
	masks := func() {
		// mask of v: lanes below tail-8v
		f.p("\tMOVQ %d(DI), R15", oTail)
		f.p("\tNEGQ R15")
		f.p("\tLEAQ laneMasks<>+%d(SB), BX", 64)
		f.p("\tLEAQ (BX)(R15*4), BX")
		for v := 0; v < nv; v++ {
			f.p("\tVMOVDQU %d(BX), %s", v*32, breg(v))
		}
	}
	isShort := func(label string) {
		f.p("\tCMPQ %d(DI), $1", oPanels)
		f.p("\tJNE %s", label)
		f.p("\tCMPQ %d(DI), $%d", oTail, cols)
		f.p("\tJGE %s", label)
	}
	afterLoad := "start"
	integer := fam.b == "vnni8" || fam.b == "madd8"
	if integer {
		afterLoad = "compensate"
	}
	if short {
		isShort("loadFull")
		masks()
		for i := 0; i < h; i++ {
			for v := 0; v < n; v++ {
				f.p("\tVMASKMOVPS %d(AX), %s, %s", v*32, breg(v), acc(i, v))
			}
			if i+1 < h {
				f.p("\tADDQ CX, AX")
			}
		}
		f.p("\tJMP %s", afterLoad)
		f.p("loadFull:")
	}
	for i := 0; i < h; i++ {
		for v := 0; v < n; v++ {
			f.p("\tVMOVUPS %d(AX), %s", v*32, acc(i, v))
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tJMP %s", afterLoad)
	f.p("fresh:")
	for i := 0; i < h; i++ {
		for v := 0; v < n; v++ {
			f.p("\tVXORPS %s, %s, %s", acc(i, v), acc(i, v), acc(i, v))
		}
	}
	if integer {
		// what is added once to each row
		f.p("compensate:")
		f.p("\tMOVQ %d(DI), BX", oRows)
		f.p("\tTESTQ BX, BX")
		f.p("\tJEQ columns")
		for i := 0; i < h; i++ {
			f.p("\tVPBROADCASTD %d(BX), %s", 4*i, areg[0])
			for v := 0; v < n; v++ {
				f.p("\tVPADDD %s, %s, %s", areg[0], acc(i, v), acc(i, v))
			}
		}
		f.p("columns:")
	}
	if integer {
		// fold * column sum joins every sum: the compensation of a signed or shifted A
		f.p("\tCMPL %d(DI), $0", oFold)
		f.p("\tJEQ start")
		f.p("\tMOVQ %d(DI), BX", oComp)
		f.p("\tVPBROADCASTD %d(DI), %s", oFold, areg[0])
		for v := 0; v < n; v++ {
			f.p("\tVPMULLD %d(BX), %s, %s", v*32, areg[0], breg(v))
			for i := 0; i < h; i++ {
				f.p("\tVPADDD %s, %s, %s", breg(v), acc(i, v), acc(i, v))
			}
		}
	} else if h >= 3 {
		for i := 0; i < h; i++ {
			f.p("\tPREFETCHT0 (AX)")
			if i+1 < h {
				f.p("\tADDQ CX, AX")
			}
		}
	}
	f.p("start:")
	f.p("\tMOVQ %d(DI), AX", oA)
	f.p("\tMOVQ %d(DI), BX", oB)
	f.p("\tMOVQ %d(DI), CX", oK)
	bytesV := 32
	if fam.b == "f16" || fam.b == "madd8" {
		bytesV = 16
	}
	baddr := func(v int) string {
		d := (v % nv) * bytesV
		idx := ""
		switch v / nv {
		case 1:
			idx = "(R10*1)"
		case 2:
			idx = "(R10*2)"
		case 3:
			idx = "(R11*1)"
		}
		if d == 0 {
			return "(BX)" + idx
		}
		return fmt.Sprintf("%d(BX)%s", d, idx)
	}
	rows := func() {
		for i := 0; i < h; i++ {
			a := areg[i%len(areg)]
			f.p("\tVBROADCASTSS %s, %s", rowAddr(i), a)
			for v := 0; v < n; v++ {
				switch fam.b {
				case "vnni8":
					f.p("\t%s", encode.VPDPBUSD(a, breg(v), acc(i, v)))
				case "madd8":
					// Two products before two sums: the ports that multiply also add, and a sum that waits for its product takes
					// their turns. The last product replaces A.
					if n > 1 && v == n-1 {
						f.p("\tVPMADDWD %s, %s, %s", breg(v), a, a)
						f.p("\tVPADDD %s, %s, %s", product, acc(i, v-1), acc(i, v-1))
						f.p("\tVPADDD %s, %s, %s", a, acc(i, v), acc(i, v))
						continue
					}
					f.p("\tVPMADDWD %s, %s, %s", breg(v), a, product)
					if v < n-2 || n == 1 {
						f.p("\tVPADDD %s, %s, %s", product, acc(i, v), acc(i, v))
					}
				default:
					f.p("\tVFMADD231PS %s, %s, %s", breg(v), a, acc(i, v))
				}
			}
		}
		f.p("\tADDQ DX, AX")
	}
	step := func() {
		switch fam.b {
		case "bf16":
			for v := 0; v < n; v++ {
				f.p("\tVMOVDQU %s, %s", baddr(v), breg(v))
				f.p("\tVPSLLD $16, %s, %s", breg(v), breg(v))
			}
			rows()
			for v := 0; v < n; v++ {
				f.p("\tVMOVDQU %s, %s", baddr(v), breg(v))
				f.p("\tVPSRLD $16, %s, %s", breg(v), breg(v))
				f.p("\tVPSLLD $16, %s, %s", breg(v), breg(v))
			}
			f.p("\tADDQ SI, BX")
			rows()
		case "f16":
			for v := 0; v < n; v++ {
				f.p("\tVCVTPH2PS %s, %s", baddr(v), breg(v))
			}
			f.p("\tADDQ SI, BX")
			rows()
		case "madd8":
			for v := 0; v < n; v++ {
				f.p("\tVPMOVSXBW %s, %s", baddr(v), breg(v))
			}
			f.p("\tADDQ SI, BX")
			rows()
		default:
			for v := 0; v < n; v++ {
				f.p("\tVMOVUPS %s, %s", baddr(v), breg(v))
			}
			if h < 4 {
				for p := 0; p < np; p++ {
					idx := [...]string{"", "(R10*1)", "(R10*2)", "(R11*1)"}[p]
					f.p("\tPREFETCHT0 %d(BX)%s", farPrefetch, idx)
				}
			} else {
				f.p("\tPREFETCHT0 (BX)(SI*8)")
			}
			f.p("\tADDQ SI, BX")
			rows()
		}
	}
	unroll := 4
	if fam.b == "bf16" {
		unroll = 2
		f.p("\tSHRQ $1, CX")
		f.p("\tJZ odd")
	}
	f.p("\tSUBQ $%d, CX", unroll)
	f.p("\tJLT rest")
	f.p("\tPCALIGN $32")
	f.p("loop:")
	for u := 0; u < unroll; u++ {
		step()
	}
	f.p("\tSUBQ $%d, CX", unroll)
	f.p("\tJGE loop")
	f.p("rest:")
	f.p("\tADDQ $%d, CX", unroll)
	f.p("\tJZ done")
	f.p("single:")
	step()
	f.p("\tDECQ CX")
	f.p("\tJNZ single")
	f.p("done:")
	if fam.b == "bf16" {
		f.p("odd:")
		f.p("\tTESTQ $1, %d(DI)", oK)
		f.p("\tJZ store")
		for v := 0; v < n; v++ {
			f.p("\tVMOVDQU %s, %s", baddr(v), breg(v))
			f.p("\tVPSLLD $16, %s, %s", breg(v), breg(v))
		}
		rows()
		f.p("store:")
	}
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	if short {
		isShort("storeFull")
		masks()
		for i := 0; i < h; i++ {
			for v := 0; v < n; v++ {
				f.p("\tVMASKMOVPS %s, %s, %d(AX)", acc(i, v), breg(v), v*32)
			}
			if i+1 < h {
				f.p("\tADDQ CX, AX")
			}
		}
		f.p("\tJMP next")
		f.p("storeFull:")
	}
	for i := 0; i < h; i++ {
		for v := 0; v < n; v++ {
			f.p("\tVMOVUPS %s, %d(AX)", acc(i, v), v*32)
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("next:")
	f.p("\tDECQ %d(DI)", oPanels)
	f.p("\tJZ end")
	f.p("\tMOVQ %d(DI), BX", oBPS)
	if np > 1 {
		f.p("\tIMULQ $%d, BX", np)
	}
	f.p("\tADDQ BX, %d(DI)", oB)
	f.p("\tADDQ $%d, %d(DI)", cols*np*4, oC)
	if integer {
		f.p("\tADDQ $%d, %d(DI)", cols*np*4, oComp)
	}
	f.p("\tJMP panel")
	f.p("end:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	return name
}

func amd64(out string) {
	const tags = "amd64 && !noasm"
	{
		f := &file{}
		f.peaks()
		f.write(out, "peak_amd64", tags, "", "")
	}
	{
		f := &file{}
		f.axpy("Z", 64, "AVX512")
		f.axpy("Y", 32, "AVX2")
		f.write(out, "gemv_amd64", tags, "", "\nimport \"unsafe\"\n")
	}
	vecFile(out, tags, "AVX512", "Z", 64)
	vecFile(out, tags, "AVX2", "Y", 32)
	{
		f := &file{}
		f.packing()
		f.sumBytes512()
		f.copyPanels()
		f.transposeRows(false)
		f.transposeRows(true)
		f.wordRows()
		f.interleaves()
		tables := f.transposes512(false) + f.transposes512(true)
		f.write(out, "pack_amd64", tags, "", "\nimport \"unsafe\"\n"+tables)
	}
	for _, fam := range []struct {
		family512
		mr int
	}{
		{family512{name: "f32", b: "f32"}, 14},
		{family512{name: "bf16", b: "bf16"}, 8}, // only for few rows; more are served by the f32 kernels
		{family512{name: "f16", b: "f16"}, 8},
		{family512{name: "dot8", b: "dot8"}, 14},
		{family512{name: "dotBF16", b: "dotbf16"}, 14},
	} {
		f, tables := &file{}, ""
		full, half, wide, fast, once, rows := map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}
		pairs, pairsFew, pairsAny, alone, many := map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}
		for h := 1; h <= fam.mr; h++ {
			full[h] = f.kernel512(fam.family512, h, 2, 1, anyStrides)
			half[h] = f.kernel512(fam.family512, h, 1, 1, anyStrides)
			if np := wide512(h); np > 1 {
				wide[h] = f.kernel512(fam.family512, h, 2, np, anyStrides)
			}
			if h <= pairRows && fam.b != "dotbf16" {
				many[h] = f.kernel512(fam.family512, h, 2, streamPanels(h), streams)
			}
			if fam.b == "bf16" || fam.b == "f16" {
				if wide[h] != "" {
					byItself := family512{fam.name + "Alone", fam.b, true}
					alone[h] = f.kernel512(byItself, h, 2, wide512(h), anyStrides)
				}
				continue
			}
			if h >= 4 {
				fast[h] = f.kernel512(fam.family512, h, 2, 1, packedA)
				if fam.b != "dotbf16" { // no processor that multiplies bf16 loads as little
					once[h] = f.kernel512(fam.family512, h, 2, 1, packedOnce)
				}
				rows[h] = f.kernel512(fam.family512, h, 2, 1, rowsA)
			}
			if h <= pairRows {
				pairs[h] = f.kernel512(fam.family512, h, 2, 2, rowsA)
				pairsFew[h] = f.kernel512(fam.family512, h, 2, 2, rowsFew)
				if fam.b == "f32" {
					pairsAny[h] = f.kernel512(fam.family512, h, 2, 2, anyPairs)
				}
			}
		}
		if len(fast) > 0 {
			tables += table(fam.name+"AVX512fast", "take both operands packed.", fast, fam.mr)
			if len(once) > 0 {
				tables += table(fam.name+"AVX512once", "do as fast with few loads.", once, fam.mr)
			}
			tables += table(fam.name+"AVX512rows", "take B packed and A by rows.", rows, fam.mr)
			tables += table(fam.name+"AVX512pairs", "do as rows with two panels at once.", pairs, pairRows)
			tables += table(fam.name+"AVX512pairsFew", "do as pairs in products of few strips.", pairsFew, pairRows)
		}
		tables += table(fam.name+"AVX512full", "are the kernels of one panel, by height.", full, fam.mr)
		tables += table(fam.name+"AVX512half", "compute the lower 16 columns of a last panel.", half, fam.mr)
		tables += table(fam.name+"AVX512wide", "compute several panels at once.", wide, fam.mr)
		if len(many) > 0 {
			tables += table(fam.name+"AVX512streams", "take B from memory, several panels at once.", many, pairRows)
		}
		if len(pairsAny) > 0 {
			tables += table(fam.name+"AVX512pairsAny", "do as pairs with any strides, where all lies in caches.", pairsAny, pairRows)
		}
		if len(alone) > 0 {
			tables += table(fam.name+"AVX512alone", "do so and leave fetching to the processor.", alone, fam.mr)
		}
		f.write(out, "kernels_"+strings.ToLower(fam.name)+"_avx512_amd64", tags, header, tables)
	}
	for _, fam := range []family512{{name: "f32", b: "f32"}, {name: "bf16", b: "bf16"}, {name: "f16", b: "f16"}, {name: "vnni8", b: "vnni8"}, {name: "madd8", b: "madd8"}} {
		f, tables := &file{}, ""
		const mr = 6
		full, half, wide, fast, rows := map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}
		fastDown, rowsDown := map[int]string{}, map[int]string{}
		fastDownPack, rowsDownPack := map[int]string{}, map[int]string{}
		for h := 1; h <= mr; h++ {
			full[h] = f.kernelAVX2(fam, h, 2, 1)
			half[h] = f.kernelAVX2(fam, h, 1, 1)
			integer := fam.b == "vnni8" || fam.b == "madd8"
			if !integer && h <= 3 {
				wide[h] = f.lowAVX2(fam, h, lowPanels(h))
			} else if integer {
				switch h {
				case 1:
					wide[h] = f.kernelAVX2(fam, h, 2, 3)
				case 2:
					wide[h] = f.kernelAVX2(fam, h, 2, 2)
				}
			}
			if h >= 4 && fam.b == "f32" {
				fast[h] = f.fastAVX2(h, packedA, across)
				rows[h] = f.fastAVX2(h, rowsA, across)
				fastDown[h] = f.fastAVX2(h, packedA, down)
				rowsDown[h] = f.fastAVX2(h, rowsA, down)
				fastDownPack[h] = f.fastAVX2(h, packedA, downPack)
				rowsDownPack[h] = f.fastAVX2(h, rowsA, downPack)
			}
		}
		if len(fast) > 0 {
			tables += table(fam.name+"AVX2fast", "take both operands packed.", fast, mr)
			tables += table(fam.name+"AVX2rows", "take B packed and A by rows.", rows, mr)
			tables += table(fam.name+"AVX2fastDown", "take both operands packed and go down the strips of a panel.", fastDown, mr)
			tables += table(fam.name+"AVX2rowsDown", "take B packed and A by rows and go down the strips of a panel.", rowsDown, mr)
			tables += table(fam.name+"AVX2fastDownPack", "do as fastDown and pack another panel.", fastDownPack, mr)
			tables += table(fam.name+"AVX2rowsDownPack", "do as rowsDown and pack another panel.", rowsDownPack, mr)
		}
		tables += table(fam.name+"AVX2full", "are the kernels of one panel, by height.", full, mr)
		tables += table(fam.name+"AVX2half", "compute the lower 8 columns of a last panel.", half, mr)
		tables += table(fam.name+"AVX2wide", "compute several panels at once.", wide, mr)
		f.write(out, "kernels_"+fam.name+"_avx2_amd64", tags, header+laneMasks, tables)
	}
	inner(out, tags)
	tileFile(out, tags)
}

// laneMasks is 16 lanes of ones and then 16 of zeros: read at 64-4c it masks the first c of 16 columns.
var laneMasks = func() string {
	s := ""
	for i := 0; i < 32; i++ {
		v := 0
		if i < 16 {
			v = 0xffffffff
		}
		s += fmt.Sprintf("DATA laneMasks<>+%d(SB)/4, $0x%x\n", i*4, v)
	}
	return s + "GLOBL laneMasks<>(SB), RODATA|NOPTR, $128\n"
}()
