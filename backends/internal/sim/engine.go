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
	At    Time
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
	heap    []event
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
	if t < e.now {
		t = e.now
	}
	e.seq++
	q := append(e.heap, event{t, e.seq, h, kind})
	i := len(q) - 1
	for i > 0 {
		up := (i - 1) / 4
		if !q[i].before(&q[up]) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
	e.heap = q
}

func (e *Engine) pop() event {
	q := e.heap
	top := q[0]
	n := len(q) - 1
	q[0] = q[n]
	q[n] = event{}
	q = q[:n]
	for i := 0; ; {
		least := i
		for c := 4*i + 1; c <= 4*i+4 && c < n; c++ {
			if q[c].before(&q[least]) {
				least = c
			}
		}
		if least == i {
			break
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
	e.heap = q
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
	for e.err == nil && len(e.heap) > 0 && (done == nil || !done()) {
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
	e.heap = e.heap[:0]
}

// Idle reports whether no event is left.
func (e *Engine) Idle() bool { return len(e.heap) == 0 }

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
	return &DeadlockError{At: e.now, Waits: waits}
}
