//go:build !linux

package amdxdna

import (
	"fmt"
	"runtime"
)

// OpenNode reports that this operating system has no amdxdna driver.
func OpenNode(path string) (Sys, error) {
	return nil, fmt.Errorf("open NPU %s on %s: %w", path, runtime.GOOS, ErrUnsupported)
}
