package gguf

import (
	"fmt"
	"math"
)

// Lookup returns the value of a key as it is stored.
func (f *File) Lookup(key string) (any, bool) {
	i, ok := f.keys[key]
	if !ok {
		return nil, false
	}
	return f.Metadata[i].Value, true
}

// Has reports whether the file has the key.
func (f *File) Has(key string) bool { _, ok := f.keys[key]; return ok }

// get looks a key up and converts its value; the error says what was found.
func get[T any](f *File, key, want string, convert func(any) (T, bool)) (T, error) {
	v, ok := f.Lookup(key)
	if !ok {
		var zero T
		return zero, fmt.Errorf("gguf: key %q: %w", key, ErrMissing)
	}
	x, ok := convert(v)
	if !ok {
		return x, fmt.Errorf("gguf: key %q: %s is right, it holds %s", key, want, describe(v))
	}
	return x, nil
}

func describe(v any) string {
	switch v := v.(type) {
	case string:
		if len(v) > 40 {
			return fmt.Sprintf("the string %.40q...", v)
		}
		return fmt.Sprintf("the string %q", v)
	case bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64:
		return fmt.Sprintf("%v (%T)", v, v)
	}
	return fmt.Sprintf("a %T", v)
}

func toInt(v any) (int, bool) {
	switch v := v.(type) {
	case uint8:
		return int(v), true
	case int8:
		return int(v), true
	case uint16:
		return int(v), true
	case int16:
		return int(v), true
	case uint32:
		return int(v), uint64(v) <= math.MaxInt
	case int32:
		return int(v), true
	case uint64:
		return int(v), v <= math.MaxInt
	case int64:
		return int(v), int64(int(v)) == v
	}
	return 0, false
}

func toFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	n, ok := toInt(v)
	return float64(n), ok
}

// Int returns an integer of any width.
func (f *File) Int(key string) (int, error) { return get(f, key, "an integer", toInt) }

// Float returns a number of any type.
func (f *File) Float(key string) (float64, error) { return get(f, key, "a number", toFloat) }

// Bool returns a boolean.
func (f *File) Bool(key string) (bool, error) {
	return get(f, key, "a bool", func(v any) (bool, bool) { b, ok := v.(bool); return b, ok })
}

// Str returns a string.
func (f *File) Str(key string) (string, error) {
	return get(f, key, "a string", func(v any) (string, bool) { s, ok := v.(string); return s, ok })
}

// Strings returns an array of strings, which must not be changed.
func (f *File) Strings(key string) ([]string, error) {
	return get(f, key, "an array of strings", func(v any) ([]string, bool) { s, ok := v.([]string); return s, ok })
}

// Ints returns an array of integers of any width; a single integer is an array of one.
func (f *File) Ints(key string) ([]int, error) {
	return get(f, key, "an array of integers", func(v any) ([]int, bool) { return collect(v, toInt) })
}

// Floats returns an array of numbers of any type; a single one is an array of one.
func (f *File) Floats(key string) ([]float64, error) {
	return get(f, key, "an array of numbers", func(v any) ([]float64, bool) { return collect(v, toFloat) })
}

// Bools returns an array of booleans; a single one is an array of one.
func (f *File) Bools(key string) ([]bool, error) {
	return get(f, key, "an array of bools", func(v any) ([]bool, bool) {
		switch v := v.(type) {
		case bool:
			return []bool{v}, true
		case []bool:
			return v, true
		}
		return nil, false
	})
}

func collect[T any](v any, one func(any) (T, bool)) ([]T, bool) {
	switch v := v.(type) {
	case []uint8:
		return each(v, one)
	case []int8:
		return each(v, one)
	case []uint16:
		return each(v, one)
	case []int16:
		return each(v, one)
	case []uint32:
		return each(v, one)
	case []int32:
		return each(v, one)
	case []uint64:
		return each(v, one)
	case []int64:
		return each(v, one)
	case []float32:
		return each(v, one)
	case []float64:
		return each(v, one)
	}
	x, ok := one(v)
	return []T{x}, ok
}

func each[E, T any](v []E, one func(any) (T, bool)) ([]T, bool) {
	all := make([]T, len(v))
	for i, e := range v {
		var ok bool
		if all[i], ok = one(e); !ok {
			return nil, false
		}
	}
	return all, true
}
