package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Time is simulated time in ticks. Whoever builds an array fixes the tick; Tessera's arrays use a thousandth of a core clock cycle.
type Time int64

// Handler is a state machine that events drive. Kind is the handler's own number for what happened.
type Handler interface {
	Handle(kind int)
}

// Waiter is a process that can say what it waits for. A process that is at rest, and may stay there, returns an empty reason.
type Waiter interface {
	// Waiting returns the process's name and the reason why it does not proceed.
	Waiting() (who, what string)
}

// ErrSteps reports that a run used up its step limit.
var ErrSteps = errors.New("step limit reached")

// DeadlockError reports that nothing can proceed although somebody waits.
type DeadlockError struct {
	Waits []string // "who: what", in the order of registration
}

// Error lists who waits for what.
func (e *DeadlockError) Error() string {
	return fmt.Sprintf("deadlock: nothing can proceed and %d wait:\n  %s", len(e.Waits), strings.Join(e.Waits, "\n  "))
}

type event struct {
	at   Time
	seq  uint64
	h    Handler
	kind int
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// Engine holds the clock and the events to come. The zero value is ready.
type Engine struct {
	now     Time
	seq     uint64
	heap    []event // four children a node, by time and order of scheduling
	instant []event // of the present instant, scheduled in it: they come after those of the heap that are due now
	next    int     // of instant
	waiters []Waiter
	err     error
	steps   uint64
	limit   uint64 // steps at which the run ends, 0 = none
	charged uint64
}

// Now is the current simulated time.
func (e *Engine) Now() Time { return e.now }

// Steps is the number of events handled so far.
func (e *Engine) Steps() uint64 { return e.steps }

// Register adds a process to those that a deadlock report asks.
func (e *Engine) Register(w Waiter) { e.waiters = append(e.waiters, w) }

// Fail stops the run with err. The first failure counts.
func (e *Engine) Fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// Err is the failure that stopped the run, if any.
func (e *Engine) Err() error { return e.err }

// After schedules h.Handle(kind) d ticks from now. Events of one instant are handled in the order of their scheduling.
func (e *Engine) After(d Time, h Handler, kind int) { e.At(e.now+d, h, kind) }

// At schedules h.Handle(kind) at time t, or now if t has passed.
func (e *Engine) At(t Time, h Handler, kind int) {
	e.seq++
	ev := event{t, e.seq, h, kind}
	if t <= e.now {
		ev.at = e.now
		if n := len(e.instant); n == cap(e.instant) && e.next > n/2 { // an instant may go on for ever
			n = copy(e.instant, e.instant[e.next:])
			clear(e.instant[n:])
			e.instant, e.next = e.instant[:n], 0
		}
		e.instant = append(e.instant, ev)
		return
	}
	q := append(e.heap, event{})
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !ev.before(&q[up]) {
			break
		}
		q[i] = q[up]
		i = up
	}
	q[i] = ev
	e.heap = q
}

// pop takes the next event. There must be one.
func (e *Engine) pop() event {
	q := e.heap
	if e.next < len(e.instant) {
		if len(q) == 0 || q[0].at > e.now {
			ev := e.instant[e.next]
			e.instant[e.next] = event{}
			if e.next++; e.next == len(e.instant) {
				e.instant, e.next = e.instant[:0], 0
			}
			return ev
		}
	}
	top := q[0]
	n := len(q) - 1
	last := q[n]
	q[n] = event{}
	e.heap = q[:n]
	if n == 0 {
		return top
	}
	q = q[:n]
	i := 0
	for {
		c := 4*i + 1
		if c >= n {
			break
		}
		least := c
		for end := min(c+4, n); c+1 < end; {
			if c++; q[c].before(&q[least]) {
				least = c
			}
		}
		if !q[least].before(&last) {
			break
		}
		q[i] = q[least]
		i = least
	}
	q[i] = last
	return top
}

// Run handles events until none is left, done returns true, ctx ends, a handler fails or maxSteps events were handled (0 = no limit).
// done may be nil. It returns the failure; running out of events is none (see [Engine.Deadlock]).
func (e *Engine) Run(ctx context.Context, maxSteps uint64, done func() bool) error {
	e.limit = 0
	if maxSteps > 0 {
		e.limit = e.steps + maxSteps
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for e.err == nil && !e.Idle() && (done == nil || !done()) {
		if e.limit > 0 && e.steps >= e.limit {
			return fmt.Errorf("%w: %d without an end", ErrSteps, maxSteps)
		}
		if e.steps&0xFFF == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		e.steps++
		ev := e.pop()
		e.now = ev.at
		ev.h.Handle(ev.kind)
	}
	return e.err
}

// Charge counts n units of work that a handler does in a loop of its own; a thousand units are a step. It returns false when the limit is
// reached, and the handler should give up then.
func (e *Engine) Charge(n int) bool {
	e.charged += uint64(n)
	e.steps += e.charged / 1000
	e.charged %= 1000
	return e.limit == 0 || e.steps < e.limit
}

// Drop forgets all events to come, for instance after a failure.
func (e *Engine) Drop() {
	clear(e.heap)
	clear(e.instant)
	e.heap, e.instant, e.next = e.heap[:0], e.instant[:0], 0
}

// Idle reports whether no event is left.
func (e *Engine) Idle() bool { return len(e.heap) == 0 && len(e.instant) == 0 }

// Deadlock asks every registered process what it waits for and returns a [DeadlockError], or nil if all are at rest.
func (e *Engine) Deadlock() error {
	var waits []string
	for _, w := range e.waiters {
		if who, what := w.Waiting(); what != "" {
			waits = append(waits, who+": "+what)
		}
	}
	if len(waits) == 0 {
		return nil
	}
	return &DeadlockError{Waits: waits}
}
