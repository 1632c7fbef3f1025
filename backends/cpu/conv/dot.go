package conv

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// Type says what images and filters are made of. Sums of floats are float32, those of integers int32, exact modulo 2^32.
type Type uint8

// The types.
const (
	F32  Type = iota // images of float32, or what Load makes of others
	BF16             // images of bfloat16, filters rounded to it
	Int8             // images of bytes, signed or not, with a zero point; filters of weights less their zero point
)

// kind is the form in which kernels read a type: how many numbers the 4 bytes of a step hold.
type kind uint8

const (
	kindF32  kind = iota
	kindBF16      // pairs
	kindU8        // four unsigned bytes, by signed ones
	kindS16       // pairs of int16
)

// group returns the numbers of a step, size the bytes of one.
func (k kind) group() int { return 4 / k.size() }

func (k kind) size() int { return [...]int{4, 2, 1, 2}[k] }

func (k kind) integer() bool { return k >= kindU8 }

// HasBF16 reports whether there are kernels for pairs of bfloat16 for an instruction set. Without, images of them are better run as F32,
// by way of Load.
func HasBF16(isa cpuinfo.ISA) bool { return kernelsOf(kindBF16, isa).isa != cpuinfo.Portable }

// CanBF16 reports whether a convolution has the form that BF16 takes: pairs never reach over the end of a run of taps, where there
// might be a NaN.
func (s *Spec) CanBF16() bool {
	run := s.C / s.Groups
	if s.DW == 1 && s.Groups == 1 {
		run *= s.KW
	}
	return !s.Transposed && !s.Depthwise() && run%2 == 0
}

// PackInt packs the filter of a convolution of Type Int8. The weights, laid out as for Pack, are less their zero point, so from -255 to
// 255. With a Tile they are packed for Winograd's algorithm, if sums of the image by them leave it room, else as without: the sums are the same.
func PackInt(s Spec, w []int16, isa cpuinfo.ISA) (*Filter, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if n, ok := mem.Mul(s.M, s.C/s.Groups, s.Depth.or(one).Kernel, s.KH, s.KW); !ok || len(w) != n || s.Type != Int8 {
		return nil, fmt.Errorf("conv: %d integer weights for %+v", len(w), s)
	}
	small := true // fits int8
	for _, v := range w {
		if v < -255 || v > 255 {
			return nil, fmt.Errorf("conv: weight %d, -255 to 255 is right", v)
		}
		small = small && v == int16(int8(v))
	}
	f := &Filter{spec: s, k: kernelsOf(kindS16, isa)}
	if s.Tile > 0 {
		if f.wide = !s.fitsIntWinograd(w); !f.wide {
			packIntWinograd(f, w)
			return f, nil
		}
	}
	if small {
		if k := kernelsOf(kindU8, isa); k.isa != cpuinfo.Portable || f.k.isa == cpuinfo.Portable {
			f.k = k
		} else if f.k.small != nil {
			f.k = f.k.small
		}
	}
	direct := s
	direct.Tile = 0 // also where Winograd's algorithm has no room
	f.k = f.k.forLoads(&direct)
	f.packInt(w)
	return f, nil
}

// packInt packs weights for the kernels that the filter has.
func (f *Filter) packInt(w []int16) {
	if f.k.kind == kindU8 || f.k.step == 2 {
		packChannels[int8](f, w, nil, 128)
	} else {
		packChannels[int16](f, w, nil, 128)
	}
	if f.k.kind == kindU8 { // the image keeps its zero point: take out what it adds
		s := &f.spec
		size := len(w) / s.M
		f.extra = make([]int32, s.M)
		for o := range f.extra {
			sum := int32(0)
			for _, v := range w[o*size : (o+1)*size] {
				sum += int32(v)
			}
			f.extra[o] = -s.zeroByte() * sum
		}
	}
}

// zeroByte is the zero point of the image as unsigned kernels see it.
func (s *Spec) zeroByte() int32 {
	if s.Signed {
		return s.XZero + 128
	}
	return s.XZero
}

// packBF16 packs a filter in pairs. The factors of channels stay apart, so that weights of bfloat16 stay what they are.
func packBF16(f *Filter, get func(o, c, tap int) float32) {
	f.packTaps(func(p unsafe.Pointer, o, c, tap int) {
		*(*uint16)(p) = tensor.F32ToBF16(get(o, c, tap))
	})
}

// load brings n numbers of the image from position i on into the form that the kernels read.
func (p *Plan) load(dst unsafe.Pointer, i, n int) {
	a := p.args
	switch p.k.kind {
	case kindF32:
		d := unsafe.Slice((*float32)(dst), n)
		if a.Load != nil {
			a.Load(d, i)
		} else {
			copy(d, a.X[i:])
		}
	case kindBF16:
		copy(unsafe.Slice((*uint16)(dst), n), a.X16[i:])
	case kindU8:
		d := unsafe.Slice((*uint8)(dst), n)
		copy(d, a.X8[i:])
		if p.s.Signed {
			flipSigns(d)
		}
	case kindS16:
		WidenInt16(unsafe.Slice((*int16)(dst), n), a.X8[i:i+n], p.s.Signed, int16(p.s.XZero), p.k.isa)
	}
}

// widening is what a kernel that widens bytes is called with: n of them, a multiple of 16.
type widening struct {
	dst, src unsafe.Pointer
	n        int
	zero     int32
}

var widenings = archWidenings()

// widenCalls are arguments of kernels: a call through a variable moves them to the heap, where they are kept. An address on the stack that is
// hidden from the compiler may be the one before the stack grew.
var widenCalls = sync.Pool{New: func() any { return new(widening) }}

// widenWhole widens whole blocks of bytes where there is a kernel, and returns how many.
func widenWhole(dst unsafe.Pointer, src []byte, signed bool, zero int32, to int, isa cpuinfo.ISA) int {
	const block = 16
	whole := len(src) / block * block
	if widenings == nil || isa == cpuinfo.Portable || whole == 0 {
		return 0
	}
	from := 0
	if signed {
		from = 1
	}
	w := widenCalls.Get().(*widening)
	*w = widening{dst: dst, src: unsafe.Pointer(unsafe.SliceData(src)), n: whole, zero: zero}
	widenings[from][to](w)
	*w = widening{} // what it points to may go
	widenCalls.Put(w)
	return whole
}

// WidenInt16 sets dst to bytes, signed or not, less a zero point.
func WidenInt16(dst []int16, src []byte, signed bool, zero int16, isa cpuinfo.ISA) {
	src = src[:len(dst)]
	at := widenWhole(unsafe.Pointer(unsafe.SliceData(dst)), src, signed, int32(zero), 0, isa)
	dst, src = dst[at:], src[at:]
	for i, v := range src {
		if signed {
			dst[i] = int16(int8(v)) - zero
		} else {
			dst[i] = int16(v) - zero
		}
	}
}

// Widen sets dst to bytes, signed or not, less a zero point. It is for Load.
func Widen(dst []float32, src []byte, signed bool, zero int32, isa cpuinfo.ISA) {
	src = src[:len(dst)]
	at := widenWhole(unsafe.Pointer(unsafe.SliceData(dst)), src, signed, zero, 1, isa)
	dst, src = dst[at:], src[at:]
	for i, v := range src {
		if signed {
			dst[i] = float32(int32(int8(v)) - zero)
		} else {
			dst[i] = float32(int32(v) - zero)
		}
	}
}

// flipSigns adds 128 to bytes.
func flipSigns(d []byte) {
	const signs = 0x8080808080808080
	for len(d) >= 8 {
		v := (*[8]byte)(d)
		*(*uint64)(unsafe.Pointer(v)) ^= signs
		d = d[8:]
	}
	for i := range d {
		d[i] ^= 0x80
	}
}

// fill writes what stands outside the image into n numbers.
func (p *Plan) fill(dst unsafe.Pointer, n int) {
	d := unsafe.Slice((*byte)(dst), n*p.k.kind.size())
	if p.k.kind != kindU8 {
		clear(d)
		return
	}
	zero := byte(p.s.zeroByte())
	for i := range d {
		d[i] = zero
	}
}

// pixels returns the address of position i of the image, where kernels can read it as it is.
func (p *Plan) pixels(i int) unsafe.Pointer {
	a := p.args
	switch p.k.kind {
	case kindBF16:
		return unsafe.Pointer(&a.X16[i])
	case kindU8:
		return unsafe.Pointer(&a.X8[i])
	}
	return unsafe.Pointer(&a.X[i])
}

// loads reports whether kernels cannot read the image as it is: they take other numbers, or read beyond its end.
func (p *Plan) loads() bool {
	switch p.k.kind {
	case kindF32:
		return p.args.Load != nil || p.feeder != nil
	case kindBF16:
		return false
	case kindU8:
		return p.s.Signed || p.cur.ph.k%4 != 0
	}
	return true
}

// tileDot is the tile kernel for steps of several numbers in Go, and the definition of the others; small says that a filter of words is kept as bytes. Pairs of bfloat16 are added as the
// instruction adds them, the odd one first, but for subnormal numbers, which it takes for zero.
func tileDot(p *tile, h int, k kind, small bool) {
	step := 4
	if small {
		step = 2
	}
	var facc [portableMR][portableNR]float32
	var iacc [portableMR][portableNR]int32
	b := p.b
	for _, off := range unsafe.Slice((*int)(p.offs), p.segs) {
		a := unsafe.Add(p.a, off)
		for t := range p.k {
			for i := range h {
				x := unsafe.Add(a, i*p.ars+4*t)
				for j := range portableNR {
					y := unsafe.Add(b, step*j)
					switch k {
					case kindBF16:
						u, v := (*[2]uint16)(x), (*[2]uint16)(y)
						facc[i][j] += tensor.BF16ToF32(u[1]) * tensor.BF16ToF32(v[1])
						facc[i][j] += tensor.BF16ToF32(u[0]) * tensor.BF16ToF32(v[0])
					case kindU8:
						u, v := (*[4]uint8)(x), (*[4]int8)(y)
						for e := range u {
							iacc[i][j] += int32(u[e]) * int32(v[e])
						}
					default:
						u, v := (*[2]int16)(x), [2]int16{}
						if small {
							w := (*[2]int8)(y)
							v = [2]int16{int16(w[0]), int16(w[1])}
						} else {
							v = *(*[2]int16)(y)
						}
						iacc[i][j] += int32(u[0])*int32(v[0]) + int32(u[1])*int32(v[1])
					}
				}
			}
			b = unsafe.Add(b, portableNR*step)
		}
	}
	for i := range h {
		for j := range p.cols {
			x := facc[i][j]
			if k.integer() {
				sum := iacc[i][j] + int32(math.Float32bits(*at(p.extra, 4*j)))
				if p.mode == raw {
					*(*int32)(unsafe.Add(p.c, i*p.ldc+4*j)) = sum
					continue
				}
				x = float32(sum)
			}
			x = x**at(p.scale, 4*j) + *at(p.init, 4*j)
			if p.res != nil {
				x += *at(p.res, i*p.ldr+4*j)
			}
			x = finish(x, p.lo, p.hi, p.p, p.q, p.mode, p.s, p.t)
			if p.narrow != 0 {
				*(*uint8)(unsafe.Add(p.c, i*p.ldc+j)) = p.quantize(x)
			} else {
				*at(p.c, i*p.ldc+4*j) = x
			}
		}
	}
}

// quantize makes a byte of a result. Of NaN it is the least, as the kernels' VMAXPS has it.
func (p *tile) quantize(x float32) uint8 {
	if x = float32(x * p.qscale); !(x > p.qlo) {
		x = p.qlo
	}
	return uint8(int32(math.RoundToEven(float64(min(x, p.qhi)))) + p.qzero)
}
