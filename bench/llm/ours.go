package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/tensor"
)

// child measures Tessera in a process of its own: model, threads, prompt, tokens, rounds, cache.
func child(args []string) error {
	if len(args) != 6 {
		return fmt.Errorf("child: %d arguments", len(args))
	}
	begin := time.Now()
	if ns, err := strconv.ParseInt(os.Getenv(startVariable), 10, 64); err == nil {
		begin = time.Unix(0, ns)
	}
	var n [4]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[i+1]); err != nil {
			return err
		}
	}
	threads, prompt, tokens, rounds := n[0], n[1], n[2], n[3]
	cpu, err := backends.Open(fmt.Sprintf("cpu:threads=%d", threads))
	if err != nil {
		return err
	}
	defer cpu.Close()
	m, err := llm.Open(args[0], llm.Options{Backends: []backends.Backend{cpu}, Context: prompt + tokens, CacheType: tensor.F16, WeightCache: args[5]})
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	id := func(i int) int32 { return int32(300 + i*37%1000) }
	var out sample
	out.Load = time.Since(begin).Seconds()
	if err := s.Eval(ctx, id(0)); err != nil {
		return err
	}
	out.First = time.Since(begin).Seconds()
	ids := make([]int32, prompt)
	for i := range ids {
		ids[i] = id(i)
	}
	for range rounds {
		if err := s.Rewind(0); err != nil {
			return err
		}
		start := time.Now()
		if err := s.Eval(ctx, ids...); err != nil {
			return err
		}
		out.Prefill = append(out.Prefill, time.Since(start).Seconds())
		start = time.Now()
		for i := range tokens {
			if err := s.Eval(ctx, id(prompt+i)); err != nil {
				return err
			}
		}
		out.Decode = append(out.Decode, time.Since(start).Seconds())
	}
	if out.PeakRSS, err = peakMemory(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// peakMemory returns the most resident memory that this process has had. What getrusage reports is no use: Linux hands a program the
// peak of the process that started it.
func peakMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}

// shape is the model of 134 million parameters.
var shape = llmtest.Shape{Arch: "llama", Vocab: 32000, Context: 1024, Dim: 768, FFN: 2048, Layers: 12, Heads: 12, KVHeads: 12, Type: tensor.F32, Seed: 1}

// model makes the file of a type, unless it exists.
func model(dir, typ string) (string, error) {
	path := filepath.Join(dir, "random-134m."+typ+".gguf")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	full := filepath.Join(dir, "random-134m.f32.gguf")
	if _, err := os.Stat(full); err != nil {
		fmt.Fprintln(os.Stderr, "making", filepath.Base(full))
		if err := create(full, func(w *bufio.Writer) error { return llmtest.Write(w, shape) }); err != nil {
			return "", err
		}
	}
	if typ == "f32" {
		return full, nil
	}
	fmt.Fprintln(os.Stderr, "making", filepath.Base(path))
	f, err := gguf.Open(full)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return path, create(path, func(w *bufio.Writer) error {
		_, err := gguf.Quantize(context.Background(), w, f, gguf.QuantizeOptions{Type: typ})
		return err
	})
}

// create writes a file under a temporary name, so that one cut short is never taken for a model.
func create(path string, write func(*bufio.Writer) error) error {
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

// work returns the weights that the tokens of a prompt meet in all, the bytes of those that a single token does (all matrices but the embedding, of which it reads
// one row), and the bytes of keys and values that it reads behind a number of others. Of a prompt only the last token's logits are wanted: the others meet no
// weights of the head, and of the last layer only those of keys and values.
func work(path string, prompt, behind int) (met, bytes, cache float64, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return 0, 0, 0, err
	}
	last := fmt.Sprintf("blk.%d.", shape.Layers-1)
	defer f.Close()
	cache = float64(behind) * 2 * float64(shape.Layers*shape.KVHeads*shape.Dim/shape.Heads) * 2 // f16
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if len(t.Dims) == 2 && t.Name != "token_embd.weight" {
			tokens := prompt
			name, ofLast := strings.CutPrefix(t.Name, last)
			if t.Name == "output.weight" || ofLast && name != "attn_k.weight" && name != "attn_v.weight" {
				tokens = 1
			}
			met += float64(tokens) * float64(t.Elems())
			bytes += float64(t.Bytes)
		}
	}
	return met, bytes, cache, nil
}

type machine struct{ peak, bandwidth float64 }

// measureMachine returns the arithmetic peak that belongs to a type, and the rate at which a product of one row reads as many bytes as a
// token does: of fewer, a cache would keep a larger part.
func measureMachine(typ string, threads int, read float64) machine {
	arithmetic := gemm.S8
	switch strings.ToLower(typ) {
	case "f32", "f16", "bf16":
		arithmetic = gemm.F32
	}
	m := machine{peak: gemm.Peak(arithmetic, threads, nil)}
	const k = 4096
	n := int(read) / (2 * k) &^ 127
	if row == nil || rowColumns != n {
		p, err := gemm.PackB(gemm.Raw(gemm.BF16, make([]byte, 2*n*k), k, n, n, 1), &gemm.Options{})
		if err != nil {
			return m
		}
		row, rowColumns = p, n
	}
	a, c := make([]float32, k), make([]float32, n)
	best := time.Hour
	for range 5 {
		start := time.Now()
		if err := gemm.MulPacked(gemm.Of(c, 1, n), gemm.Of(a, 1, k), row, &gemm.Options{Threads: threads}); err != nil {
			return m
		}
		best = min(best, time.Since(start))
	}
	m.bandwidth = float64(row.Bytes()) / best.Seconds() / 1e9
	return m
}

// row is the weight that measureMachine reads.
var (
	row        *gemm.PackedB
	rowColumns int
)
