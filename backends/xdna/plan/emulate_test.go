package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/device"
)

// TestTiming: the emulator's clock and the analytic model share their parameters.
func TestTiming(t *testing.T) {
	for _, name := range Devices {
		m := machine(name)
		dev, err := device.Lookup(name)
		require.NoError(t, err)
		tm := array.DefaultTiming(dev)
		require.InEpsilon(t, m.DRAM, tm.ReadCap*m.Clock, 1e-9)
		require.Equal(t, m.RunHalf, tm.RunHalf)
		require.Equal(t, m.RowShare, tm.RowShare)
		require.Equal(t, m.Line, tm.Line)
		require.Equal(t, m.StoreBytes, tm.Zero)
		require.Equal(t, m.Dispatch, tm.Dispatch)
		require.InEpsilon(t, m.Write*m.Clock, tm.Write, 0.01)
		require.InEpsilon(t, m.Push*m.Clock, tm.QueuePush, 0.25) // the write is part of the planner's
		for ty, k := range m.Kernels {
			mode, err := dev.Mode(ty)
			require.NoError(t, err)
			e := tm.Kernels[array.Kernel{A: ty.A, B: ty.B, C: ty.C, Arith: mode.Arith}]
			require.Equal(t, array.KernelTime{MACs: k.MACs, Element: k.Extra}, e, "%s %s", name, ty)
			require.Equal(t, k.Call, tm.Band)
		}
	}
}

// emulators keep what one test has emulated for the others.
var emulators Emulators

// TestEmulatedTables: emulator against published, 16 rows, and the ablations, which were not used in any fit but the first.
func TestEmulatedTables(t *testing.T) {
	if testing.Short() {
		t.Skip("emulates about 40 products of 4K")
	}
	e := &emulators
	rows := Published().WholeArray
	errs := make([]float64, len(rows))
	require.NoError(t, Parallel(2, len(rows), nil, func(i int) error {
		r := rows[i]
		sec, err := e.Seconds(r.Design(), r.Size())
		errs[i] = 100 * (r.Size().Ops()/sec/1e12/r.TOPS - 1)
		return err
	}))
	t.Logf("16 rows: rms %.2f %%, worst %.2f %%", rms(errs), worst(errs))
	require.LessOrEqual(t, rms(errs), 3.5)
	require.LessOrEqual(t, worst(errs), 8.0)

	list := Ablations()
	got := make([]float64, len(list))
	require.NoError(t, Parallel(2, len(list), nil, func(i int) error {
		a := list[i]
		sec, err := e.Seconds(a.Design, a.Size)
		if err != nil {
			return err
		}
		base := 1.0
		if a.Unit != "TOPS" {
			b, err := e.Seconds(a.Base, a.BaseSize)
			if err != nil {
				return err
			}
			base = a.BaseSize.Ops() / b / 1e12
		}
		got[i] = a.Ratio(a.Size.Ops()/sec/1e12, base)
		return nil
	}))
	for i, a := range list {
		t.Logf("%s %s: published %.2f, emulated %.2f", a.Design.Device, a.What, a.Published, got[i])
		require.InEpsilon(t, a.Published, got[i], 0.10, "%s %s", a.Design.Device, a.What)
	}
}

// TestEmulatorAgainstAnalytic: 100 random sizes above 1,000 in each dimension, all types, both layouts, both devices.
func TestEmulatorAgainstAnalytic(t *testing.T) {
	if testing.Short() {
		t.Skip("emulates 100 products")
	}
	rng := rand.New(rand.NewPCG(7, 11))
	const n = 100
	designs, sizes, errs := make([]Design, n), make([]Size, n), make([]float64, n)
	for i := range n {
		r, ok := Published().row(Devices[i%2], PaperTypes[i/2%4], 1)
		require.True(t, ok)
		designs[i] = r.Design()
		designs[i].RowMajorB = i/8%2 == 1
		sizes[i] = Size{1001 + rng.IntN(2000), 1001 + rng.IntN(2000), 1001 + rng.IntN(2000)}
	}
	e := &emulators
	require.NoError(t, Parallel(2, n, nil, func(i int) error {
		sec, err := e.Seconds(designs[i], sizes[i])
		errs[i] = 100 * (machine(designs[i].Device).Predict(designs[i], sizes[i]).Seconds/sec - 1)
		return err
	}))
	for i := range errs {
		errs[i] = max(errs[i], -errs[i])
	}
	slices.Sort(errs)
	t.Logf("median %.2f %%, worst %.2f %%", errs[n/2], errs[n-1])
	require.LessOrEqual(t, errs[n/2], 4.0)
	require.LessOrEqual(t, errs[n-1], 12.0)
}

// TestTimeOnly: leaving out the data does not change the clock. The backend's own tests run with data.
func TestTimeOnly(t *testing.T) {
	r, _ := Published().row("xdna2", "bf16-bf16", 1)
	a, b := new(Emulator), &Emulator{Data: true}
	s := Size{700, 900, 500}
	x, err := a.Run(t.Context(), r.Design(), s)
	require.NoError(t, err)
	y, err := b.Run(t.Context(), r.Design(), s)
	require.NoError(t, err)
	require.Equal(t, y.Cycles, x.Cycles)
	require.Equal(t, y.BytesRead, x.BytesRead)
}

// TestResidentSlots: the planner's short cut and the design agree on what stays in a MemTile and on the limits of memory.
func TestResidentSlots(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	seen := 0
	for seen < 200 {
		m := machine(Devices[rng.IntN(2)])
		ty, err := ParseTypes(PaperTypes[rng.IntN(4)])
		require.NoError(t, err)
		list := m.Candidates(ty, FamilyBest)
		for range 5 {
			d := list[rng.IntN(len(list))]
			b, err := d.Build()
			if err != nil {
				continue // a descriptor's limit that the planner does not know; it asks Buildable
			}
			seen++
			require.Equal(t, b.ResidentSlots(), d.ResidentSlots(), "%v", d)
			require.Equal(t, b.L1Bytes(), d.L1Bytes(), "%v", d)
			nm, nk, nn := b.Native()
			require.Equal(t, d.Native(), Size{M: nm, N: nn, K: nk})
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	d := Design{Device: "xdna", Types: Types{}, Tile: Tile{1, 2, 3}}
	_, err := new(Emulator).Seconds(d, Size{10, 10, 10})
	require.Error(t, err)
}
