package main

import "fmt"

// Offsets of the fields of widening.
const (
	nDst  = 0
	nSrc  = 8
	nN    = 16
	nZero = 24
)

const widenHeader = `
// A widening takes bytes, signed or not, less a zero point, to int16 or float32; n is a multiple of 16.
//
//	DI args     SI source     BX destination     CX bytes to go     Y15 the zero point

`

func widen(dir string) {
	f := &file{}
	for _, signed := range []bool{false, true} {
		for _, wide := range []bool{false, true} {
			f.widening(signed, wide)
		}
	}
	f.write(dir, "widen_amd64", widenHeader, "")
}

func (f *file) widening(signed, wide bool) {
	from, sign := "U8", "ZX"
	if signed {
		from, sign = "S8", "SX"
	}
	to := "S16"
	if wide {
		to = "F32"
	}
	f.text(fmt.Sprintf("widen%sto%sAVX2", from, to), "widening", fmt.Sprintf("takes %s to %s.", from, to))
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), BX", nDst)
	f.p("\tMOVQ %d(DI), SI", nSrc)
	f.p("\tMOVQ %d(DI), CX", nN)
	if wide {
		f.p("\tVPBROADCASTD %d(DI), Y15", nZero)
	} else {
		f.p("\tVPBROADCASTW %d(DI), Y15", nZero)
	}
	f.p("block:")
	if wide {
		for i := range 2 {
			f.p("\tVPMOV%sBD %d(SI), Y%d", sign, 8*i, i)
			f.p("\tVPSUBD Y15, Y%d, Y%d", i, i)
			f.p("\tVCVTDQ2PS Y%d, Y%d", i, i)
			f.p("\tVMOVUPS Y%d, %d(BX)", i, 32*i)
		}
		f.p("\tADDQ $64, BX")
	} else {
		f.p("\tVPMOV%sBW (SI), Y0", sign)
		f.p("\tVPSUBW Y15, Y0, Y0")
		f.p("\tVMOVDQU Y0, (BX)")
		f.p("\tADDQ $32, BX")
	}
	f.p("\tADDQ $16, SI")
	f.p("\tSUBQ $16, CX")
	f.p("\tJNE block")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}
