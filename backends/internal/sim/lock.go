package sim

import "slices"

// Lock is a counting semaphore with a range. Requests are granted in their order, as far as their conditions allow.
type Lock struct {
	Value    int
	Min, Max int // legal values; leaving the range is an error of the program
	waiters  []request
}

type request struct {
	want  int
	equal bool
	grant func()
	who   any
}

// Acquire takes want as soon as the lock holds as much, or, with equal, as soon as it holds exactly want. It returns true if it
// did so at once; otherwise grant is called in the same instant as the release that made it possible. Who identifies the request for Cancel.
func (l *Lock) Acquire(who any, want int, equal bool, grant func()) bool {
	if l.fits(want, equal) {
		l.Value -= want
		return true
	}
	l.waiters = append(l.waiters, request{want, equal, grant, who})
	return false
}

// Cancel withdraws the waiting requests of who.
func (l *Lock) Cancel(who any) {
	l.waiters = slices.DeleteFunc(l.waiters, func(r request) bool { return r.who == who })
}

func (l *Lock) fits(want int, equal bool) bool {
	if equal {
		return l.Value == want
	}
	return l.Value >= want
}

// Release adds delta and grants the waiting requests that now fit. It returns false, and changes nothing, if the value would leave its range.
func (l *Lock) Release(delta int) bool { return l.Set(l.Value + delta) }

// Set sets the value and grants the waiting requests that now fit. It returns false, and changes nothing, if the value is out of range.
func (l *Lock) Set(v int) bool {
	if v < l.Min || v > l.Max {
		return false
	}
	l.Value = v
	for i := 0; i < len(l.waiters); {
		r := l.waiters[i]
		if !l.fits(r.want, r.equal) {
			i++
			continue
		}
		l.Value -= r.want
		l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
		r.grant()
		i = 0 // the grant may have released or asked again
	}
	return true
}

// Waiting is the number of requests that are not granted yet.
func (l *Lock) Waiting() int { return len(l.waiters) }
