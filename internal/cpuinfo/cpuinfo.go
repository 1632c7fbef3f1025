// Package cpuinfo describes the processor to the code that chooses kernels and block sizes: which instruction sets may be
// used, and how large the caches are for one worker. Values that a virtual machine reports wrongly are clamped here and
// nowhere else. The environment variable TESSERA_ISA pins an instruction set; it is read once.
package cpuinfo

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/klauspost/cpuid/v2"
)

// ISA is a level of instruction sets. A kernel of a level may run on a processor of that level or a higher one of the same
// architecture; Portable runs everywhere.
type ISA uint8

// The levels, in rising order within an architecture. The zero ISA names none: "the best there is", where it is an option.
const (
	Portable ISA = iota + 1
	AVX2         // AVX2, FMA, F16C
	AVXVNNI      // AVX2 and the VEX-encoded dot products
	AVX512       // AVX-512 F, BW, DQ, VL, and whatever of VNNI and BF16 the processor has
	AMX          // AVX512 and tile registers, for products of int8, of bf16, or both; not on systems that keep tiles from a process
	NEON         // Advanced SIMD, and whatever of dot product, I8MM and BF16 the processor has
	SVE          // NEON and the scalable vectors, of any length
	numISA
)

var isaNames = [numISA]string{"", "portable", "avx2", "avxvnni", "avx512", "amx", "neon", "sve"}

func (i ISA) String() string {
	if 0 < i && i < numISA {
		return isaNames[i]
	}
	return fmt.Sprintf("ISA(%d)", uint8(i))
}

// ParseISA returns the level of that name.
func ParseISA(name string) (ISA, error) {
	for i, n := range isaNames {
		if i > 0 && strings.EqualFold(name, n) {
			return ISA(i), nil
		}
	}
	return Portable, fmt.Errorf("instruction set %q is unknown, known are %s", name, strings.Join(isaNames[1:], ", "))
}

// Features are the extensions that decide between kernels of one level.
type Features struct {
	AVX512VNNI, AVX512BF16 bool // x86, beyond the base of the AVX512 level
	AVX512VBMI             bool // byte permutations across a vector
	VPDPFast               bool // VDPBF16PS runs at the rate of an f32 multiply-add, so that it doubles the product's ceiling
	Zen4                   bool // AMD's first cores with AVX-512, for rules that were measured there only
	OneWideLoad            bool // about one load of 512 bits a cycle for two multiply-adds: servers of Intel's Ice Lake
	FetchesAlone           bool // rows that are read once come faster if kernels leave fetching them to the processor
	AMXInt8, AMXBF16       bool // products of tiles
	DotProd, I8MM, BF16    bool // arm64: SDOT and UDOT, SMMLA and USDOT, BFDOT and BFMMLA
}

// Info describes the processor. Cache sizes are bytes that one worker can count on.
type Info struct {
	Name     string
	Arch     string
	ISA      ISA   // the highest usable level
	ISAs     []ISA // every usable level, rising
	Features Features
	L1D      int // 16 KiB to 256 KiB
	L1DWays  int
	L2       int // 128 KiB to 4 MiB
	L3       int // 0 when there is none, else up to 32 MiB: the share that a worker may assume
	Line     int // bytes in a cache line
	SVEBits  int // vector length of SVE, 0 without it
}

var describe = sync.OnceValue(func() *Info {
	c := cpuid.CPU
	in := &Info{Name: c.BrandName, Arch: runtime.GOARCH, ISAs: []ISA{Portable}}
	in.L1D = clamp(c.Cache.L1D, 32<<10, 16<<10, 256<<10)
	in.L2 = clamp(c.Cache.L2, 512<<10, 128<<10, 4<<20)
	in.L3 = c.Cache.L3
	if in.L3 < 0 {
		in.L3 = 0
	}
	// A hypervisor hands out the L3 of a whole socket (260 MiB seen); what one worker reaches at speed is far less.
	in.L3 = min(in.L3, 32<<20)
	in.Line = 64
	in.L1DWays = 8
	if in.L1D == 48<<10 {
		in.L1DWays = 12
	}
	detect(in)
	in.ISA = in.ISAs[len(in.ISAs)-1]
	if in.Name == "" {
		in.Name = runtime.GOARCH
	}
	return in
})

var described atomic.Pointer[Info] // what describe returned, for small products at the price of a load

// Get returns the description of this processor. The result is shared and must not be changed.
func Get() *Info {
	if in := described.Load(); in != nil {
		return in
	}
	return first()
}

func first() *Info {
	in := describe()
	described.Store(in)
	return in
}

// Has reports whether kernels of the level may run here.
func (in *Info) Has(isa ISA) bool {
	for _, i := range in.ISAs {
		if i == isa {
			return true
		}
	}
	return false
}

// Names returns the names of the usable levels.
func (in *Info) Names() []string {
	names := make([]string, len(in.ISAs))
	for i, isa := range in.ISAs {
		names[i] = isa.String()
	}
	return names
}

var pinned = sync.OnceValues(func() (ISA, error) {
	name := os.Getenv("TESSERA_ISA")
	if name == "" {
		return Get().ISA, nil
	}
	isa, err := ParseISA(name)
	if err != nil {
		return Portable, fmt.Errorf("TESSERA_ISA: %w", err)
	}
	if !Get().Has(isa) {
		return Portable, fmt.Errorf("TESSERA_ISA=%s: this processor (%s, built for %s) has %s", name, Get().Name,
			runtime.GOARCH, strings.Join(Get().Names(), ", "))
	}
	return isa, nil
})

// Pinned returns the level to use: that of TESSERA_ISA, or the highest. It fails when the environment names a level that is
// unknown or missing here.
func Pinned() (ISA, error) { return pinned() }

// clamp replaces an undetected size by its default and keeps a detected one inside its bounds.
func clamp(v, otherwise, low, high int) int {
	if v <= 0 {
		return otherwise
	}
	return min(max(v, low), high)
}
