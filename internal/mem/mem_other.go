//go:build !windows && (!unix || aix || solaris)

package mem

import (
	"errors"
	"os"
)

func mapAnonymous(int) ([]byte, error)      { return nil, errors.ErrUnsupported }
func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }
func unmap([]byte) error                    { return nil }
func advise([]byte, Advice)                 {}

// Guarded needs page protection, which this system does not give.
func Guarded(int) ([]byte, func() error, error) { return nil, nil, errors.ErrUnsupported }
