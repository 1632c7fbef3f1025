// Package knob holds the thresholds that decide between ways to compute the same result. Each has a name, a default with its
// reason, bounds, and an environment variable. A value comes from the first of these that gives one: the program (where a call
// takes thresholds), the environment, the profile of this processor (see Profile), the default.
//
// Environment and profile are read once. A variable that names no legal value is an error of every product, not a remark that
// nobody reads; so is a profile that TESSERA_PROFILE names and that cannot be read. A broken profile in the user's
// configuration folder is reported once on standard error and left out.
package knob

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Def describes a threshold.
type Def struct {
	Name      string // the variable's name without TESSERA_, in lower case, with dashes
	Env       string
	Room      string // the package that uses it
	Default   int
	Low, High int    // bounds, inclusive
	Why       string // what it decides, and why the default is what it is
}

// Check returns an error for a value out of bounds.
func (d *Def) Check(v int) error {
	if v < d.Low || v > d.High {
		return fmt.Errorf("%d, want a number from %d to %d", v, d.Low, d.High)
	}
	return nil
}

// Row ties a threshold to a field of T.
type Row[T any] struct {
	Def
	field func(*T) *int
}

// Int describes a field.
func Int[T any](field func(*T) *int, env string, value, low, high int, why string) Row[T] {
	name, ok := strings.CutPrefix(env, "TESSERA_")
	if !ok || low > value || value > high {
		panic("knob: " + env)
	}
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return Row[T]{Def{Name: name, Env: env, Default: value, Low: low, High: high, Why: why}, field}
}

// Table is the thresholds of one package: a struct of ints, and what each of them means.
type Table[T any] struct {
	room string
	rows []Row[T]
	also func(*T) error // what must hold between the values; nil for nothing
	once func() (*T, error)
}

// NewTable declares the thresholds of a package, at its start. also checks what must hold between them.
func NewTable[T any](room string, also func(*T) error, rows ...Row[T]) *Table[T] {
	t := &Table[T]{room: room, rows: rows, also: also}
	for i := range t.rows {
		t.rows[i].Room = room
		declare(&t.rows[i].Def)
	}
	t.once = sync.OnceValues(t.read)
	checks = append(checks, func() error { _, err := t.once(); return err })
	return t
}

var (
	declared []*Def
	checks   []func() error // one a table
)

func declare(d *Def) {
	for _, other := range declared {
		if other.Name == d.Name {
			panic("knob: declared twice: " + d.Name)
		}
	}
	declared = append(declared, d)
}

// All returns the thresholds of the packages that this program links, by package and in their order.
func All() []*Def {
	list := slices.Clone(declared)
	slices.SortStableFunc(list, func(a, b *Def) int { return strings.Compare(a.Room, b.Room) })
	return list
}

// Check returns what is wrong with the environment or the profile, for any package that this program links.
var Check = sync.OnceValue(func() error {
	var errs []error
	said := map[string]bool{} // a profile that cannot be read is an error of every table
	for _, check := range checks {
		if err := check(); err != nil && !said[err.Error()] {
			said[err.Error()] = true
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
})

// Get returns the thresholds as environment and profile give them, or the error of Check. The result is shared and must not be
// changed.
func (t *Table[T]) Get() (*T, error) {
	if err := Check(); err != nil {
		return nil, err
	}
	return t.once()
}

// Defaults returns the defaults.
func (t *Table[T]) Defaults() *T {
	v := new(T)
	for i := range t.rows {
		*t.rows[i].field(v) = t.rows[i].Default
	}
	return v
}

// Rows returns the thresholds of the table.
func (t *Table[T]) Rows() []Row[T] { return t.rows }

// Of returns the field that a row describes.
func (r *Row[T]) Of(v *T) *int { return r.field(v) }

func (t *Table[T]) read() (*T, error) {
	v, err := t.resolve(true)
	if err != nil {
		return nil, err
	}
	if t.also == nil {
		return v, nil
	}
	err = t.also(v)
	if err == nil {
		return v, nil
	}
	p, err2 := loaded()
	if err2 != nil || p.asked || len(p.knobs) == 0 {
		return nil, err
	}
	warn(fmt.Errorf("%s: %w", p.path, err))
	if v, err = t.resolve(false); err == nil {
		err = t.also(v)
	}
	return v, err
}

func (t *Table[T]) resolve(profile bool) (*T, error) {
	v := t.Defaults()
	for i := range t.rows {
		s, err := resolve(&t.rows[i].Def, profile)
		if err != nil {
			return nil, err
		}
		*t.rows[i].field(v) = s.Value
	}
	return v, nil
}

// With returns a copy of base, or of what Get gives where base is nil, with some values replaced, by name.
func (t *Table[T]) With(base *T, values map[string]int) (*T, error) {
	if base == nil {
		var err error
		if base, err = t.Get(); err != nil {
			return nil, err
		}
	}
	v := *base
	for name, value := range values {
		i := slices.IndexFunc(t.rows, func(r Row[T]) bool { return r.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s has no threshold %q", t.room, name)
		}
		if err := t.rows[i].Check(value); err != nil {
			return nil, fmt.Errorf("threshold %s is %w", name, err)
		}
		*t.rows[i].field(&v) = value
	}
	if t.also != nil {
		if err := t.also(&v); err != nil {
			return nil, err
		}
	}
	return &v, nil
}

// Setting is the value of a threshold and where it comes from: "environment", "profile" or "default".
type Setting struct {
	*Def
	Value  int
	Source string
}

// Resolve returns the value of a threshold in this process.
func Resolve(d *Def) (Setting, error) { return resolve(d, true) }

func resolve(d *Def, profile bool) (Setting, error) {
	if text := os.Getenv(d.Env); text != "" {
		v, err := strconv.Atoi(text)
		if err != nil {
			return Setting{}, fmt.Errorf("%s=%q, want a number from %d to %d", d.Env, text, d.Low, d.High)
		}
		if err := d.Check(v); err != nil {
			return Setting{}, fmt.Errorf("%s=%w", d.Env, err)
		}
		return Setting{d, v, "environment"}, nil
	}
	if !profile {
		return Setting{d, d.Default, "default"}, nil
	}
	p, err := loaded()
	if err != nil {
		return Setting{}, err
	}
	if v, ok := p.knobs[d.Name]; ok {
		if err := d.Check(v); err != nil {
			err = fmt.Errorf("%s: threshold %s is %w", p.path, d.Name, err)
			if p.asked {
				return Setting{}, err
			}
			warn(err)
		} else {
			return Setting{d, v, "profile"}, nil
		}
	}
	return Setting{d, d.Default, "default"}, nil
}
