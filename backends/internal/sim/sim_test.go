package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

type note struct {
	e   *Engine
	log *[]string
	who string
}

func (n note) Handle(kind int) {
	*n.log = append(*n.log, fmt.Sprintf("%s%d@%d", n.who, kind, n.e.Now()))
}

func TestEngineOrder(t *testing.T) {
	e := &Engine{}
	var log []string
	a, b := note{e, &log, "a"}, note{e, &log, "b"}
	e.After(5, a, 1)
	e.After(3, b, 2)
	e.After(5, b, 3)
	e.After(3, a, 4)
	require.NoError(t, e.Run(context.Background(), 0, nil))
	require.Equal(t, []string{"b2@3", "a4@3", "a1@5", "b3@5"}, log)
}

func TestEngineOrderRandom(t *testing.T) {
	e := &Engine{}
	rng := rand.New(rand.NewPCG(1, 2))
	last := Time(-1)
	n := 0
	var h handlerFunc
	h = func(int) {
		require.GreaterOrEqual(t, e.Now(), last)
		last = e.Now()
		if n++; n < 2000 {
			e.After(Time(rng.IntN(50)), h, 0)
			e.After(Time(rng.IntN(50)), h, 0)
		}
	}
	e.After(0, h, 0)
	require.NoError(t, e.Run(context.Background(), 0, nil))
	require.True(t, e.Idle())
}

// Events come by time, and those of one instant in the order of their scheduling, whether they were scheduled before the instant or in it.
func TestEngineOrderOfAnInstant(t *testing.T) {
	e := &Engine{}
	rng := rand.New(rand.NewPCG(3, 4))
	due := map[int]Time{} // by the number of the event, which is its place in the order of scheduling
	scheduled := 0
	var h handlerFunc
	schedule := func() {
		at := e.Now() + Time(rng.IntN(5)) - 1 // also a time that has passed
		due[scheduled] = max(at, e.Now())
		e.At(at, h, scheduled)
		scheduled++
	}
	h = func(kind int) {
		require.Equal(t, e.Now(), due[kind])
		for other, at := range due {
			require.False(t, at < e.Now() || at == e.Now() && other < kind, "event %d of %d before event %d of %d", kind, e.Now(), other, at)
		}
		delete(due, kind)
		for range 3 {
			if scheduled < 3000 && len(due) < 60 && rng.IntN(2) == 0 {
				schedule()
			}
		}
		if len(due) == 0 && scheduled < 3000 {
			schedule()
		}
	}
	schedule()
	require.NoError(t, e.Run(context.Background(), 0, nil))
	require.True(t, e.Idle())
	require.Empty(t, due)
	require.Equal(t, 3000, scheduled)
}

// An instant that never ends takes no more memory than the events that are due in it.
func TestEngineInstantIsBounded(t *testing.T) {
	e := &Engine{}
	var h handlerFunc
	h = func(int) { e.After(0, h, 0) }
	for range 10 {
		e.After(0, h, 0)
	}
	require.ErrorIs(t, e.Run(context.Background(), 100_000, nil), ErrSteps)
	require.LessOrEqual(t, cap(e.instant), 64)
	e.Drop()
	require.True(t, e.Idle())
}

type handlerFunc func(int)

func (f handlerFunc) Handle(k int) { f(k) }

func TestEngineStepLimit(t *testing.T) {
	e := &Engine{}
	var h handlerFunc
	h = func(int) { e.After(1, h, 0) }
	e.After(0, h, 0)
	require.ErrorIs(t, e.Run(context.Background(), 100, nil), ErrSteps)
}

func TestLockGrantsInOrder(t *testing.T) {
	l := &Lock{Max: 63}
	var log []int
	require.False(t, l.Acquire("x", 2, false, func() { log = append(log, 2) }))
	require.False(t, l.Acquire("y", 1, false, func() { log = append(log, 1) }))
	require.True(t, l.Release(1))
	require.Equal(t, []int{1}, log)
	require.True(t, l.Release(2))
	require.Equal(t, []int{1, 2}, log)
	require.Equal(t, 0, l.Value)
	require.False(t, l.Release(64))
	require.False(t, l.Release(-1))
	require.False(t, l.Acquire("z", 3, true, func() { log = append(log, 3) }))
	l.Set(4)
	require.Equal(t, 1, l.Waiting())
	l.Set(3)
	require.Equal(t, 0, l.Value)
	require.False(t, l.Acquire("w", 1, false, func() { log = append(log, 9) }))
	l.Cancel("w")
	require.True(t, l.Release(1))
	require.Equal(t, []int{1, 2, 3}, log)
	require.Equal(t, 1, l.Value)
}

func TestMemoryDefined(t *testing.T) {
	m := NewMemory("m", 4096)
	require.Equal(t, 0, m.Undefined(0, 4))
	rng := rand.New(rand.NewPCG(3, 4))
	words := make([]bool, 1024)
	for range 200 {
		lo := rng.IntN(1024)
		hi := lo + rng.IntN(1024-lo+1)
		if rng.IntN(20) == 0 {
			m.Define(4*lo, 4*hi)
			for i := lo; i < hi; i++ {
				words[i] = true
			}
		}
		want := -1
		for i := lo; i < hi && want < 0; i++ {
			if !words[i] {
				want = 4 * i
			}
		}
		require.Equal(t, want, m.Undefined(4*lo, 4*hi))
	}
}

// naive lists the word addresses of a walk, -1 for padding, from the definition.
func naive(base, length int, dims []Dim) []int {
	out := make([]int, length)
	for i := range out {
		rest, at, pad := i, base, false
		for d, dim := range dims {
			x := rest
			if dim.Size != 0 && d < len(dims)-1 {
				whole := dim.Before + dim.Size + dim.After
				x, rest = rest%whole, rest/whole
			}
			x -= dim.Before
			if x < 0 || dim.Size != 0 && d < len(dims)-1 && x >= dim.Size {
				pad = true
			}
			at += x * dim.Step
			if dim.Size == 0 {
				break
			}
		}
		if pad {
			at = -1
		}
		out[i] = at
	}
	return out
}

func randomWalk(rng *rand.Rand, padded bool) (base, length int, dims []Dim) {
	dims = make([]Dim, 1+rng.IntN(4))
	for i := range dims {
		dims[i] = Dim{Size: 1 + rng.IntN(6), Step: rng.IntN(9)}
		if i == 0 && rng.IntN(2) == 0 {
			dims[i].Step = 1
		}
		if i > 0 && rng.IntN(3) == 0 {
			dims[i].Step = dims[i-1].Size * dims[i-1].Step
		}
		if rng.IntN(8) == 0 {
			dims[i].Size = 0
		}
		if padded && i < len(dims)-1 && rng.IntN(3) == 0 {
			dims[i].Before = rng.IntN(3)
			if dims[i].Size > 0 {
				dims[i].After = rng.IntN(3)
			}
		}
		if dims[i].Size == 0 {
			dims = dims[:i+1]
			break
		}
	}
	return rng.IntN(10), 1 + rng.IntN(300), dims
}

func TestWalkAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 5000 {
		padded := rng.IntN(2) == 0
		base, length, dims := randomWalk(rng, padded)
		want := naive(base, length, dims)
		lo, hi := base, base
		for _, a := range want {
			if a >= 0 {
				hi = max(hi, a+1)
			}
		}
		var w Walk
		w.Start(base, length, dims)
		boxLo, boxHi := w.Box()
		require.Equal(t, []int{4 * lo, 4 * hi}, []int{boxLo, boxHi}, "%d %d %+v", base, length, dims)

		mem := make([]byte, 4*hi)
		for i := range mem {
			mem[i] = byte(rng.Uint32()) | 1
		}
		got := make([]byte, 4*length)
		for at := 0; at < length; {
			n := 1 + rng.IntN(length-at)
			w.Gather(got[4*at:4*(at+n)], mem)
			at += n
			require.Equal(t, length-at, w.Left())
		}
		for i, a := range want {
			word := []byte{0, 0, 0, 0}
			if a >= 0 {
				word = mem[4*a : 4*a+4]
			}
			require.Equal(t, word, got[4*i:4*i+4], "word %d of %d %d %+v", i, base, length, dims)
		}

		var visited []int
		w.Start(base, length, dims)
		w.Visit(length, func(lo, hi int) bool {
			for a := lo; a < hi; a += 4 {
				if lo < 0 {
					visited = append(visited, -1)
				} else {
					visited = append(visited, a/4)
				}
			}
			return true
		})
		require.Equal(t, want, visited)

		if padded {
			continue
		}
		out, ref := make([]byte, 4*hi), make([]byte, 4*hi)
		w.Start(base, length, dims)
		for at := 0; at < length; {
			n := 1 + rng.IntN(length-at)
			w.Scatter(out, got[4*at:4*(at+n)])
			at += n
		}
		for i, a := range want {
			copy(ref[4*a:4*a+4], got[4*i:4*i+4])
		}
		require.Equal(t, ref, out, "%d %d %+v", base, length, dims)
	}
}

// end is a source or sink of a test: it works in descriptors of random lengths with pauses between them.
type end struct {
	e      *Engine
	s      **Stream
	rng    *rand.Rand
	left   int
	data   []byte
	sentAt int
	got    []byte
	rate   Time
}

func (x *end) Handle(int) { x.left = 1 + x.rng.IntN(40); (*x.s).Poke() }
func (x *end) Offer() int { return min(x.left, (len(x.data)-x.sentAt)/4) }
func (x *end) Room() int  { return x.left }
func (x *end) Pace(start Time, words int) Time {
	return start + Time(words)*x.rate
}
func (x *end) Send(n int) ([]byte, error) { return x.data[x.sentAt : x.sentAt+4*n], nil }
func (x *end) Sent(n int) {
	x.sentAt += 4 * n
	x.use(n)
}
func (x *end) Take(b []byte) error {
	x.got = append(x.got, b...)
	x.use(len(b) / 4)
	return nil
}
func (x *end) use(n int) {
	if x.left -= n; x.left == 0 {
		x.e.After(Time(x.rng.IntN(30)), x, 0)
	}
}

func TestStreamBroadcast(t *testing.T) {
	for seed := range uint64(50) {
		e := &Engine{}
		rng := rand.New(rand.NewPCG(seed, 1))
		var s *Stream
		src := &end{e: e, s: &s, rng: rng, rate: 1, data: make([]byte, 4*2000)}
		for i := range src.data {
			src.data[i] = byte(rng.Uint32())
		}
		sinks := make([]Sink, 1+rng.IntN(4))
		for i := range sinks {
			sinks[i] = &end{e: e, s: &s, rng: rng, rate: Time(1 + rng.IntN(2))}
		}
		s = NewStream(e, rng.IntN(20), 1+rng.IntN(60), src, sinks...)
		e.After(0, src, 0)
		for _, k := range sinks {
			e.After(Time(rng.IntN(9)), k.(*end), 0)
		}
		require.NoError(t, e.Run(context.Background(), 0, nil))
		require.Equal(t, uint64(2000), s.Moved())
		for _, k := range sinks {
			require.Equal(t, src.data, k.(*end).got)
		}
		require.GreaterOrEqual(t, e.Now(), Time(2000))
	}
}

type stuck struct{ what string }

func (s stuck) Waiting() (string, string) { return "channel", s.what }

func TestDeadlockReport(t *testing.T) {
	e := &Engine{}
	e.Register(stuck{""})
	require.NoError(t, e.Deadlock())
	e.Register(stuck{"lock 3 holds 0, wants 1"})
	err := e.Deadlock()
	require.ErrorContains(t, err, "channel: lock 3 holds 0, wants 1")
	var d *DeadlockError
	require.ErrorAs(t, err, &d)
}

func TestServerServesInOrder(t *testing.T) {
	var s Server
	require.Equal(t, Time(15), s.Serve(5, 10))
	require.Equal(t, Time(25), s.Serve(7, 10))
	require.Equal(t, Time(110), s.Serve(100, 10))
	require.Equal(t, Time(30), s.Busy())
}

func BenchmarkWalkGather8(b *testing.B) {
	mem := make([]byte, 1<<16)
	dst := make([]byte, 1<<13)
	b.SetBytes(int64(len(dst)))
	var w Walk
	for b.Loop() {
		w.Start(0, len(dst)/4, []Dim{{Size: 2, Step: 1}, {Size: 128, Step: 18}, {Step: 2}})
		w.Gather(dst, mem)
	}
}
