package design_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/design/check"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// expect says what a run must move, from the problem and the staging plan.
func expect(r *design.Run) *check.Expect {
	d, p := r.Design, r.Problem
	e := &check.Expect{
		Dev: d.Dev, BufferBytes: r.BufferBytes[:],
		Variable: d.Padding == design.PadMemTile || d.ResidentB,
		A:        check.Matrix{Rows: int64(p.M), RowBytes: int64(d.Types.A.Bytes(p.K)), Pitch: p.PitchA},
		B:        check.Matrix{Rows: int64(p.K), RowBytes: int64(d.Types.B.Bytes(p.N)), Pitch: p.PitchB},
		C:        check.Matrix{Rows: int64(p.M), RowBytes: int64(d.Types.C.Bytes(p.N)), Pitch: p.PitchC},
	}
	linear := func(n int64) check.Matrix { return check.Matrix{Rows: 1, RowBytes: n, Pitch: n} }
	if d.Types.A == kernel.BFP16 {
		e.A = linear(r.BufferBytes[design.ArgA])
	}
	switch d.BLayout {
	case design.ColMajor:
		e.B.Rows, e.B.RowBytes = int64(p.N), int64(d.Types.B.Bytes(p.K))
	case design.Tiled:
		e.B = linear(r.BufferBytes[design.ArgB])
	}
	for _, c := range r.Staging.In {
		e.In = append(e.In, check.Copy(c))
	}
	for _, c := range r.Staging.Out {
		e.Out = append(e.Out, check.Copy(c))
	}
	return e
}

// randomDesign draws a device, types, layout, schedule and the options, on a published tile or a smaller one.
func randomDesign(t testing.TB, rng *rand.Rand) *design.Design {
	for {
		dev := device.All()[rng.IntN(2)]
		mode := dev.Modes[rng.IntN(len(dev.Modes))]
		d := &design.Design{Dev: dev, Types: mode.Types, BLayout: design.Layout(rng.IntN(3)), Schedule: design.Schedule(rng.IntN(3))}
		if mode.Types.B == kernel.BFP16 {
			d.BLayout = design.Tiled
		}
		if p, err := design.Published(dev, mode.Types, 1+rng.IntN(2)); err == nil && rng.IntN(4) > 0 {
			d.Tile, d.KMT = p.Tile, p.KMT
		} else {
			d.Tile = design.Tile{M: 16 * (2 + rng.IntN(8)), K: 8 * (1 + rng.IntN(16)), N: 16 * (2 + rng.IntN(8))}
			d.KMT = d.Tile.K * (1 + rng.IntN(6))
		}
		if rng.IntN(4) == 0 {
			d.CBuffers = 2
		}
		if rng.IntN(4) == 0 {
			d.Transposed = true
		}
		if rng.IntN(4) == 0 {
			d.Bands = 2
		}
		if rng.IntN(3) == 0 {
			d.Padding = design.PadMemTile
		}
		if rng.IntN(6) == 0 && !d.Transposed {
			d.ResidentB = true
		}
		if len(d.Check()) == 0 {
			return d
		}
	}
}

// logUniform draws from 1 to most.
func logUniform(rng *rand.Rand, most int) int {
	return int(math.Exp(rng.Float64() * math.Log(float64(most)+1)))
}

// randomProblem draws sizes log-uniformly from 1 to 70,000 and, now and then, gaps between rows.
func randomProblem(rng *rand.Rand, d *design.Design) design.Problem {
	p := design.Problem{M: logUniform(rng, 70000), K: logUniform(rng, 70000), N: logUniform(rng, 70000)}
	gap := func(pitch *int64, dense int) {
		switch rng.IntN(4) {
		case 0:
			*pitch = int64(dense) + rng.Int64N(100)
		case 1:
			*pitch = (int64(dense)+3)&^3 + 4*rng.Int64N(20)
		}
	}
	if d.Types.A != kernel.BFP16 {
		gap(&p.PitchA, d.Types.A.Bytes(p.K))
	}
	switch d.BLayout {
	case design.RowMajor:
		gap(&p.PitchB, d.Types.B.Bytes(p.N))
	case design.ColMajor:
		gap(&p.PitchB, d.Types.B.Bytes(p.K))
	}
	gap(&p.PitchC, d.Types.C.Bytes(p.N))
	return p
}

// TestStreams: 2,000 random sizes up to 70,000 a side on random designs of every kind, each stream checked from its words.
func TestStreams(t *testing.T) {
	n := 2000
	if testing.Short() {
		n = 200
	}
	var mu sync.Mutex
	var total check.Report
	var wg sync.WaitGroup
	seeds := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for seed := range seeds {
				rep, err := checkRandom(t, seed)
				mu.Lock()
				if err != nil {
					t.Error(err)
				} else {
					total.Ops += rep.Ops
					total.Words += rep.Words
					total.Transfers += rep.Transfers
					total.InFlight = max(total.InFlight, rep.InFlight)
					total.Queued = max(total.Queued, rep.Queued)
				}
				mu.Unlock()
			}
		}()
	}
	for i := range n {
		seeds <- uint64(i)
	}
	close(seeds)
	wg.Wait()
	t.Logf("%d streams: %d operations, %d words, %d transfers; at most %d descriptors of a shim in use, %d tasks waiting in a queue",
		n, total.Ops, total.Words, total.Transfers, total.InFlight, total.Queued)
	require.LessOrEqual(t, total.InFlight, 16)
	require.LessOrEqual(t, total.Queued, 4)
}

func checkRandom(t testing.TB, seed uint64) (*check.Report, error) {
	rng := rand.New(rand.NewPCG(seed, 70))
	d := randomDesign(t, rng)
	p := randomProblem(rng, d)
	if d.ResidentB {
		if d.ResidentSlots() < 2 || rng.IntN(3) > 0 { // most of them short enough to stay
			p.K = 1 + (p.K-1)%(d.ResidentSlots()*d.KMT)
		}
		p.PitchA, p.PitchB = 0, 0
	}
	cfg, err := d.Config()
	if err != nil {
		return nil, fmt.Errorf("seed %d, %v: %w", seed, d, err)
	}
	r, err := d.Run(p)
	if err != nil {
		return nil, fmt.Errorf("seed %d, %v, %+v: %w", seed, d, p, err)
	}
	rep, err := check.Stream(cfg, r, expect(r))
	if err != nil {
		return nil, fmt.Errorf("seed %d, %v, %v, padding %v, %+v: %w", seed, d, d.Schedule, d.Padding, p, err)
	}
	return rep, nil
}

var _ txn.Stream = (*design.Run)(nil)
