//go:build !linux

package atomicfile

import (
	"errors"
	"os"
)

// unnamed and link are of Linux.
func unnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func link(*os.File, string) (string, error) { return "", errors.ErrUnsupported }
