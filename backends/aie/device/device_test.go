package device

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVC1902Totals(t *testing.T) {
	d := &VC1902
	require.Equal(t, 400, d.Tiles())
	require.Equal(t, int64(20_600_000), d.FPGABytes())
	require.Equal(t, 4096, d.BankBytes())
	require.Equal(t, 312, d.PLStreamsIn())
	require.Equal(t, 234, d.PLStreamsOut())
	// UG1079: 1.248 TB/s into the array and 0.936 TB/s out of it.
	require.InEpsilon(t, 1.248e12, float64(d.PLStreamsIn())*d.PLIOBytes()*d.ClockHz, 1e-9)
	require.InEpsilon(t, 0.936e12, float64(d.PLStreamsOut())*d.PLIOBytes()*d.ClockHz, 1e-9)
	require.Equal(t, 32, d.GMIOChannels())
	require.Len(t, d.NoCCols, 16)
	require.Equal(t, d.Core.AccBits, d.Core.AccLanes*d.Core.LaneBits)
	require.LessOrEqual(t, d.FirstPLCol+d.PLCols, d.Cols)
	// 128 int8 MACs a cycle on 400 tiles at 1.25 GHz are the 128 TOPS of the data sheet.
	require.InEpsilon(t, 128e12, 2*128*float64(d.Tiles())*d.ClockHz, 1e-9)
}

func TestAddresses(t *testing.T) {
	d := &VC1902
	for col := range d.Cols {
		for row := range d.CoreRows + 1 {
			c, r, off := d.Split(d.Addr(col, row, 0x1DE14))
			require.Equal(t, [3]int{col, row, 0x1DE14}, [3]int{c, r, int(off)})
		}
	}
	require.Equal(t, uint32(6<<23|3<<18|0x1D000), d.Addr(6, 3, BDBase))
	require.Error(t, d.CheckTile(50, 1))
	require.ErrorContains(t, d.CheckTile(3, 0), "rows 1 to 8")
	require.NoError(t, d.CheckTile(49, 8))
	require.True(t, d.HasDMA(18))
	require.False(t, d.HasDMA(20))
	require.True(t, d.CascadeEast(1))
	require.False(t, d.CascadeEast(8))
}

func TestLockRegister(t *testing.T) {
	require.Equal(t, uint32(0x1E000+0x20), LockRegister(CoreLockBase, 0, false, 0))
	require.Equal(t, uint32(0x1E080+0x70), LockRegister(CoreLockBase, 1, true, 1))
}
