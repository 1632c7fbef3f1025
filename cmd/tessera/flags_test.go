package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/tensor"
)

// wrong holds, by flag, values that no run can use. What the type of a flag refuses by itself (a word for a number) is tried for every
// flag without being named here.
type wrong map[string][]string

// flagCase is what a sub-command's flags may not be.
type flagCase struct {
	args  []string // with which the flag that is tried is the only mistake
	wrong wrong
	files []string // flags whose value is a file or folder: one that cannot be read or written is a failure that names it
	any   []string // flags of which every value of their type is right; a --cache that cannot be written is a remark, not a failure
}

func both(list ...wrong) wrong {
	all := wrong{}
	for _, w := range list {
		maps.Copy(all, w)
	}
	return all
}

var (
	wrongThreads = wrong{"threads": {"-1", "1025"}}
	wrongBackend = both(wrongThreads, wrong{
		"backend": {"", "cpu:nonsense", "cpu:nonsense=1", "cpu:threads=x", "xdna2:threads=1,threads=1"}, "precision": {"nonsense", "int8"}, "mode": {"nonsense", "fast"},
	})
	wrongModel    = both(wrongBackend, wrong{"max-memory": {"nonsense", "-1", "12x", "NaN"}, "disable-pass": {"nonsense", "glu,nonsense"}})
	wrongLLM      = both(wrongModel, wrong{"context": {"-1", "99999999"}, "cache-type": {"", "nonsense", "q4_0"}})
	wrongSampling = wrong{
		"temp": {"-1"}, "top-k": {"-1"}, "top-p": {"-0.1", "1.1"}, "min-p": {"-0.1", "1.1"}, "repeat-penalty": {"-1", "0"}, "presence-penalty": nil, "frequency-penalty": nil,
		"logit-bias": {"", "1", "x=1", "1=x", "1=NaN", "1=inf", "1=+Inf", "1=1e39", "1=-1e39", "99999999=1", "-1=1"}, "tokens": {"-1"}, "stop": {"\xff", "\xbd w"},
	}
	wrongDraft = wrong{"draft-tokens": {"0", "-1", "65"}}
	wrongAIE   = wrong{
		"size": {"", "64", "64x64", "64x64x64x64", "64x0x64", "64x64xK", "64x64x99999999"}, "dtype": {"", "nonsense"}, "out": {"nonsense", "f32"}, "design": {"", "nonsense"},
		"tiles": {"-1", "401"}, "clock": {"-1", "0.01", "9"}, "mc": {"-1"}, "nc": {"-1"}, "kc": {"-1", "9999999"}, "rows": {"-1", "99"}, "chain": {"-1", "99"}, "groups": {"-1", "99"},
		"mb": {"-1", "9999999"}, "nb": {"-1", "9999999"},
	}
	wrongXDNA = wrong{
		"device": {"", "nonsense"}, "dtype": {"", "nonsense", "int8-bf16"}, "layout": {"", "nonsense"}, "design": {"", "nonsense"}, "tile": {"nonsense", "128,72", "0,8,8", "128,72,112"},
		"kmt": {"-1", "7"}, "bands": {"-1", "7"}, "schedule": {"", "nonsense"},
	}
	wrongXDNASize = wrong{"size": {"", "64", "64x64x64x64", "64x0x64", "64x64x64,64x64x64", "64x64x99999999"}}
)

// flagCases returns the cases by the path of the sub-command.
func flagCases(t *testing.T) map[string]flagCase {
	const digits, picture = "../../models/cnn/digits.onnx", "../../examples/classify/3.png"
	dir := t.TempDir()
	image, result := filepath.Join(dir, "image.npy"), filepath.Join(dir, "out")
	require.NoError(t, writeNPY(image, tensor.New(tensor.F32, 1, 1, 28, 28)))
	page := filepath.Join(dir, "page.svg")
	return map[string]flagCase{
		"backends": {},
		"generate": {args: []string{"-n", "1"}, wrong: both(wrongLLM, wrongSampling, wrongDraft, wrong{"overflow": {"", "nonsense"}}),
			files: []string{"model", "trace", "draft", "prompt-cache"}, any: []string{"cache", "prompt", "seed"}},
		"chat":  {wrong: both(wrongLLM, wrongSampling, wrongDraft), files: []string{"model", "trace", "template", "history", "draft", "prompt-cache"}, any: []string{"cache", "system", "seed"}},
		"embed": {args: []string{"a text"}, wrong: both(wrongLLM, wrong{"pooling": {"nonsense"}}), files: []string{"model", "trace"}, any: []string{"cache"}},
		"perplexity": {args: []string{"--file", "main_test.go"}, wrong: both(wrongLLM, wrong{"context": {"-1", "1", "99999999"}, "file": {""}}),
			files: []string{"model", "trace", "file"}, any: []string{"cache"}},
		"classify": {args: []string{picture}, wrong: both(wrongModel, wrong{"mean": {"nonsense", "1,x", "NaN", "1,2"}, "std": {"nonsense", "0", "1,x", "Inf", "1,2"}, "scale": nil,
			"top": {"0", "-1"}, "batch": {"-1", "65537"}}), files: []string{"model", "trace", "labels", "expect"}},
		"inspect": {args: []string{"--model", digits}, wrong: both(wrongLLM, wrong{"shape": {"", "nonsense", "image", "image=", "image=x", "image=-1x1x28x28", "nonsense=1x1", "image=1x1x28x28x99999999999"},
			"at": {"nonsense", "batch=x", "nonsense=1", "batch=0", "batch=-1"}}), files: []string{"model", "dot"}, any: []string{"cache"}},
		"run": {args: []string{"--model", digits, "--output", result, "--input", "image=" + image}, wrong: both(wrongModel, wrong{"input": {"", "nonsense", "nonsense=" + image, "image=" + image},
			"output": {""}, "model": {""}}), files: []string{"model", "trace"}},
		"quantize": {args: []string{"no.gguf", filepath.Join(dir, "out.gguf"), "--type", "q8_0"}, wrong: wrong{"type": {"", "nonsense"}}},
		"tune":     {args: []string{"--dry-run"}, wrong: both(wrongThreads, wrong{"knob": {"nonsense", "kc-max,nonsense"}, "runs": {"0", "-1", "1001"}, "margin": {"-0.1", "1"}}), any: []string{"output"}},
		"bench gemm": {args: []string{"--size", "8x8x8"}, wrong: both(wrongThreads, wrong{"dtype": {"", "nonsense"}, "size": {"", "8", "8x8x8x8", "8x0x8", "8x8xK", "8x8x99999999"},
			"runs": {"0", "-1"}, "seconds": {"-1", "3601"}})},
		"bench model": {wrong: both(wrongLLM, wrong{"prompt-tokens": {"0", "-1", "99999999"}, "decode-tokens": {"-1", "99999999"}, "runs": {"0", "-1", "1000001"}, "shape": {"", "nonsense", "a=1"}}), files: []string{"model", "trace"}, any: []string{"cache"}},
		"bench passes": {args: []string{"--model", digits, "--rounds", "1"}, wrong: both(wrongThreads, wrong{"shape": {"", "nonsense", "image", "image=", "image=x", "image=-1x1x28x28", "nonsense=1x1",
			"image=1x1x28x28x99999999999"}, "rounds": {"0", "-1", "1000001"}, "tokens": {"0", "-1", "1048577"}}), files: []string{"model"}},
		"bench swap": {args: []string{"--text", "main_test.go", "--images", "main_test.go", "--labels", "main_test.go"}, wrong: both(wrongThreads, wrong{"limit": {"-1"}, "context": {"-1", "1", "99999999"}, "backends": {""}}),
			files: []string{"model", "text", "images", "labels"}},
		"bench ladder": {args: []string{"--size", "8x8x8"}, wrong: both(wrongThreads, wrong{"size": {"", "8", "8x8x8x8", "8x0x8", "8x8xK", "8x8x99999999"}, "stage": {"nonsense", "0", "8", "1,nonsense"},
			"runs": {"0", "-1", "1048577"}, "seconds": {"-1", "3601"}}), any: []string{"seed"}},

		"xdna plan": {wrong: wrong{"device": wrongXDNA["device"], "dtype": wrongXDNA["dtype"], "layout": wrongXDNA["layout"], "design": wrongXDNA["design"],
			"sizes": {"64", "64x64x64x64", "64x0x64", "64x64x64,x", "64x64x99999999"}}, files: []string{"manifest", "config"}},
		"xdna predict": {args: []string{"--size", "512x512x512"}, wrong: both(wrongXDNA, wrongXDNASize)},
		"xdna trace":   {args: []string{"--size", "512x512x512", "--output", page}, wrong: both(wrongXDNA, wrongXDNASize, wrong{"from": {"-2"}, "length": {"-1"}, "output": {"", "page", "page.gif"}}), files: []string{"output"}},
		"xdna plot": {args: []string{"--output", page}, wrong: both(wrongXDNA, wrong{"layout": {"", "nonsense", "col,nonsense"}, "kind": {"", "nonsense"}, "output": {"", "page", "page.gif"}, "points": {"0", "-1"},
			"emulate": {"-1"}}), files: []string{"output"}},
		"xdna run": {args: []string{"--size", "64x64x64"}, wrong: both(wrongThreads, wrongXDNASize, wrong{"device": wrongXDNA["device"], "dtype": wrongXDNA["dtype"], "mode": {"", "nonsense"}, "layout": {"", "nonsense"},
			"schedule": {"", "nonsense"}, "padding": {"", "nonsense"}, "rounding": {"", "nonsense"}, "overflow": {"", "nonsense"}, "check": {"-1"}}), any: []string{"seed"}},
		"xdna tables": {},
		"xdna encode": {args: []string{"../../backends/xdna/txn/testdata/no.txt"}, wrong: wrong{"dialect": {"nonsense", "2.0"}}, files: nil, any: []string{"output"}},
		"xdna decode": {args: []string{"no.bin"}, any: []string{"output"}},

		"aie plan":    {args: []string{"--size", "64x64x64"}, wrong: wrongAIE, files: []string{"svg"}},
		"aie predict": {args: []string{"--size", "64x64x64"}, wrong: both(wrongAIE, wrong{"kernel": {"nonsense", "16x5"}})},
		"aie run": {args: []string{"--size", "64x64x64"}, wrong: both(wrongAIE, wrongThreads, wrong{"mode": {"", "nonsense"}, "check": {"-2"}, "size": append([]string{"64x64x64,64x64x64"}, wrongAIE["size"]...)}),
			files: []string{"registers"}, any: []string{"seed"}},
		"aie trace": {args: []string{"--size", "64x64x64", "--output", page}, wrong: both(wrongAIE, wrong{"output": {""}, "size": append([]string{"64x64x64,64x64x64"}, wrongAIE["size"]...)}),
			files: []string{"output"}},
		"aie tables": {},
	}
}

// leaves returns the sub-commands that do something, by their paths below tessera.
func leaves(cmd *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, c := range cmd.Commands() {
		if c.HasSubCommands() {
			maps.Copy(all, leaves(c))
		} else if c.Name() != "help" {
			all[strings.TrimPrefix(c.CommandPath(), "tessera ")] = c
		}
	}
	return all
}

// unknown are flags that name what may be elsewhere, and values that are not here: a failure that names the flag, as a file that is missing is one.
var unknown = map[string][]string{"backend": {"nonsense", "nonsense:threads=1"}, "backends": {"nonsense", "cpu,nonsense"}}

// A wrong value of any flag of any sub-command is wrong usage that names the flag; a file that cannot be had, or a backend, is a failure that names
// it. Neither leaves anything on standard output. A flag that is in no case fails the test.
func TestWrongValues(t *testing.T) {
	cases := flagCases(t)
	commands := leaves(newRoot())
	require.Equal(t, slices.Sorted(maps.Keys(commands)), slices.Sorted(maps.Keys(cases)))
	for _, path := range slices.Sorted(maps.Keys(commands)) {
		c := cases[path]
		try := func(t *testing.T, flag, value string, status int, names string) {
			args := append(strings.Fields(path), c.args...)
			out, _, err := call(t, append(args, "--"+flag+"="+value)...)
			require.Error(t, err, "%s --%s=%s", path, flag, value)
			require.Equal(t, status, cli.ExitCode(err), "%s --%s=%s: %v", path, flag, value, err)
			require.Contains(t, err.Error(), names, "%s --%s=%s", path, flag, value)
			require.NotRegexp(t, `strconv|invalid argument|\[[a-z]\w* [a-z]`, err.Error(), "%s --%s=%s: a message of Go's, or a list as Go prints it", path, flag, value)
			require.Empty(t, out, "%s --%s=%s", path, flag, value)
		}
		commands[path].Flags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			t.Run(path+" --"+f.Name, func(t *testing.T) {
				values, known := c.wrong[f.Name]
				switch kind := f.Value.Type(); kind {
				case "bool":
					known = true
					values = append(values, "nonsense")
				case "int", "uint64":
					values = append(values, "nonsense", "1.5", "99999999999999999999")
				case "float64", "float32":
					values = append(values, "nonsense", "NaN", "Inf", "-Inf")
				}
				for _, value := range values {
					try(t, f.Name, value, 2, "--"+f.Name)
				}
				for _, value := range unknown[f.Name] {
					try(t, f.Name, value, 1, "--"+f.Name)
				}
				if slices.Contains(c.files, f.Name) {
					known = true
					missing := filepath.Join(t.TempDir(), "none", "file")
					if f.Name == "output" {
						missing += ".svg"
					}
					try(t, f.Name, missing, 1, missing)
				}
				require.True(t, known || slices.Contains(c.any, f.Name), "which values of --%s of %s are wrong?", f.Name, path)
			})
		})
	}
}

// Flags that a kind of model does not look at are refused beside it.
func TestMeaninglessFlags(t *testing.T) {
	sentences := t.TempDir() // looks like a folder of the Universal Sentence Encoder
	require.NoError(t, os.WriteFile(filepath.Join(sentences, "vocab.json"), nil, 0o600))
	for _, c := range []struct {
		args  []string
		flags []string
	}{
		{[]string{"embed", "a text", "--model", sentences}, []string{"--pooling=mean", "--profile", "--trace=x", "--strict", "--max-memory=1GiB", "--disable-pass=all", "--context=8", "--cache=x", "--cache-type=f16"}},
		{[]string{"inspect", "../../models/cnn/digits.onnx"}, []string{"--context=8", "--cache-type=f16", "--cache=x", "--model=other.onnx"}},
		{[]string{"inspect"}, []string{"--shape=a=1"}},
		{[]string{"generate"}, []string{"--draft-tokens=4"}},
		{[]string{"chat"}, []string{"--draft-tokens=4"}},
		{[]string{"bench", "passes"}, []string{"--shape=a=1"}},
		{[]string{"bench", "model"}, []string{"--shape=a=1", "--runs=2"}},
		{[]string{"bench", "model", "--model", "../../models/cnn/digits.onnx"}, []string{"--prompt-tokens=2", "--decode-tokens=2", "--context=8", "--cache-type=f16", "--cache=x", "--shape=a=1"}},
		{[]string{"bench", "swap", "--text", "main_test.go"}, []string{"--labels=main_test.go"}},
		{[]string{"bench", "swap"}, []string{"--images=main_test.go"}},
	} {
		for _, flag := range c.flags {
			out, _, err := call(t, append(c.args, flag)...)
			require.Equal(t, 2, cli.ExitCode(err), "%v %s: %v", c.args, flag, err)
			name, _, _ := strings.Cut(flag, "=")
			require.ErrorContains(t, err, name)
			require.Empty(t, out)
		}
	}
}
