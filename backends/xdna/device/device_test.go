package device

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLookup(t *testing.T) {
	for name, want := range map[string]*Device{"xdna": XDNA, "NPU1": XDNA, "xdna2": XDNA2, "strix": XDNA2, "Krackan": XDNA2} {
		d, err := Lookup(name)
		require.NoError(t, err)
		require.Same(t, want, d)
	}
	_, err := Lookup("xdna3")
	require.ErrorContains(t, err, `unknown device "xdna3"`)
	_, err = ByGen(7)
	require.Error(t, err)
}

func TestTypes(t *testing.T) {
	for _, n := range typeNames {
		got, err := ParseTypes(n.name)
		require.NoError(t, err)
		require.Equal(t, n.types, got)
		require.Equal(t, n.name, got.String())
	}
	_, err := ParseTypes("int4-int8")
	require.ErrorContains(t, err, "unknown type pair")
	bfp, _ := ParseTypes("bf16-bfp16")
	_, err = XDNA.Mode(bfp)
	require.ErrorContains(t, err, "xdna does not multiply bf16 x bfp16")
	for _, d := range All() {
		for _, m := range d.Modes {
			got, err := d.Mode(m.Types)
			require.NoError(t, err)
			require.Equal(t, m.R, got.R)
		}
	}
}

// TestPeak: 8.19 and 58.98 TOPS of int8 on the arrays used (arXiv 2512.13282, section 3, at turbo clocks).
func TestPeak(t *testing.T) {
	i8, err := ParseTypes("int8-int8")
	require.NoError(t, err)
	m, err := XDNA.Mode(i8)
	require.NoError(t, err)
	require.InDelta(t, 8.192e12, XDNA.PeakOps(m), 1e6)
	m, err = XDNA2.Mode(i8)
	require.NoError(t, err)
	require.InDelta(t, 58.98e12, XDNA2.PeakOps(m), 1e10)
}

func TestRegisters(t *testing.T) {
	for _, d := range All() {
		for k := Shim; k < numKinds; k++ {
			ti := d.Tile(k)
			for i := range ti.BDs {
				require.Equal(t, Reg{Kind: RegBD, Index: i, Word: 3}, ti.Register(ti.BD(i)+12))
			}
			for _, dir := range []Dir{S2MM, MM2S} {
				for c := range ti.Channels(dir) {
					require.Equal(t, Reg{Kind: RegCtrl, Dir: dir, Index: c}, ti.Register(ti.Ctrl(dir, c)))
					require.Equal(t, Reg{Kind: RegQueue, Dir: dir, Index: c}, ti.Register(ti.Queue(dir, c)))
					require.Equal(t, Reg{Kind: RegStatus, Dir: dir, Index: c}, ti.Register(ti.Status(dir, c)))
				}
			}
			for i := range ti.Locks {
				require.Equal(t, Reg{Kind: RegLock, Index: i}, ti.Register(ti.Lock(i)))
			}
			for i := range portCount(ti.MasterPorts) {
				p, ok := ti.MasterPort(i)
				require.True(t, ok)
				back, err := ti.MasterIndex(p)
				require.NoError(t, err)
				require.Equal(t, i, back)
				require.Equal(t, Reg{Kind: RegMaster, Index: i}, ti.Register(ti.SwitchMaster+4*uint32(i)))
			}
			for i := range portCount(ti.SlavePorts) {
				p, ok := ti.SlavePort(i)
				require.True(t, ok)
				back, err := ti.SlaveIndex(p)
				require.NoError(t, err)
				require.Equal(t, i, back)
			}
		}
	}
	tile, off := SplitAddr(Tile{3, 4}.Addr(0x1D0C0))
	require.Equal(t, Tile{3, 4}, tile)
	require.EqualValues(t, 0x1D0C0, off)
	require.EqualValues(t, 0x061A00C0, Tile{3, 1}.Addr(0xA00C0))
	require.Equal(t, Reg{Kind: RegProgram, Index: 4}, XDNA.Tile(Core).Register(ProgramMemory+4))
	require.Equal(t, RegUnknown, XDNA.Tile(Shim).Register(0x30000).Kind)
}

func TestPorts(t *testing.T) {
	next, slave, ok := XDNA.Facing(Tile{1, 1}, Port{PortNorth, 4})
	require.True(t, ok)
	require.Equal(t, Tile{1, 2}, next)
	require.Equal(t, Port{PortSouth, 4}, slave)
	_, _, ok = XDNA.Facing(Tile{3, 2}, Port{PortEast, 0})
	require.False(t, ok, "the east edge")
	_, err := XDNA.Tile(Core).MasterIndex(Port{PortSouth, 4})
	require.ErrorContains(t, err, "ports 0 to 3")
	_, err = XDNA.Tile(Mem).MasterIndex(Port{PortEast, 0})
	require.ErrorContains(t, err, "no master port towards east")
	mem := XDNA.Tile(Mem)
	require.True(t, mem.CanConnect(Port{PortDMA, 2}, Port{PortSouth, 0}))
	require.True(t, mem.CanConnect(Port{PortSouth, 3}, Port{PortNorth, 3}))
	require.False(t, mem.CanConnect(Port{PortSouth, 3}, Port{PortNorth, 2}))
	require.False(t, mem.CanConnect(Port{PortDMA, 2}, Port{PortDMA, 3}))
}
