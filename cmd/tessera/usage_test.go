package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Arguments that are too many are explained by a flag's value only where one may be meant.
func TestNoHintWithoutReason(t *testing.T) {
	for _, args := range [][]string{{"generate", "file"}, {"generate", "--json", "file"}, {"generate", "--cache=other", "file"}} {
		_, _, err := call(t, args...)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "equals sign", "%v", args)
	}
}

// What is missing or unknown on the command line is wrong usage, whichever sub-command it is.
func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"bench", "swap"}, "--text or --images"},
		{[]string{"xdna", "nonsense"}, `"nonsense"`},
		{[]string{"aie", "nonsense"}, `"nonsense"`},
		{[]string{"bench", "nonsense"}, `"nonsense"`},
		{[]string{"help", "nonsense"}, `"nonsense"`},
		{[]string{"help", "xdna", "nonsense"}, `"xdna nonsense"`},
		{[]string{"xdna", "predict"}, "--size is missing"},
		{[]string{"xdna", "run"}, "--size is missing"},
		{[]string{"xdna", "trace", "-o", "x.json"}, "--size is missing"},
		{[]string{"xdna", "trace", "--size", "64x64x64"}, "--output is missing"},
		{[]string{"aie", "predict"}, "--size is missing"},
		{[]string{"generate", "--cache", "file"}, "a value of --cache is written behind an equals sign: --cache=FILE"},
		{[]string{"perplexity", "--cache", "file", "--file", "usage_test.go"}, "--cache=FILE"},
		{[]string{"inspect", "--cache", "file", "model.gguf"}, "--cache=FILE"},
	} {
		_, _, err := call(t, c.args...)
		require.ErrorContains(t, err, c.want, "%v", c.args)
		require.Equal(t, 2, run(context.Background(), c.args), "%v: %v", c.args, err)
	}
	for _, args := range [][]string{{"xdna"}, {"aie"}, {"bench"}, {"help"}, {"help", "xdna", "plan"}} {
		require.Zero(t, run(context.Background(), args), "%v", args)
	}
}
