package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/internal/median"
	"github.com/tessera-go/tessera/models/llm"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "Measure matrix products and models on this processor", Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(benchGemmCommand(), benchModelCommand(), benchSwapCommand(), benchPassesCommand(), benchLadderCommand())
	return cmd
}

// gemmResult is the JSON document of bench gemm, a line a size.
type gemmResult struct {
	Op            string             `json:"op"`
	DType         string             `json:"dtype"`
	M             int                `json:"m"`
	N             int                `json:"n"`
	K             int                `json:"k"`
	Threads       int                `json:"threads"`
	Packed        bool               `json:"packed"`
	Kernel        string             `json:"kernel"`
	Seconds       map[string]float64 `json:"seconds"`
	GOPS          map[string]float64 `json:"gops"`
	PeakGOPS      float64            `json:"peak_gops"`
	PercentOfPeak float64            `json:"percent_of_peak"`
}

func benchGemmCommand() *cobra.Command {
	var (
		o           cli.Options
		dtype, size string
		plain       bool
		runs        int
		seconds     float64
	)
	cmd := &cobra.Command{
		Use:     "gemm --dtype D --size MxNxK[,...]",
		Short:   "Measure one matrix product",
		Example: "  tessera bench gemm --dtype f32 --size 1024x1024x1024 --threads 1",
		Args:    cli.NoArgs("a size follows --size"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sizes, err := cli.ParseSizes("size", size)
			if err != nil {
				return err
			}
			format := dtype
			if name, is := productNames[format]; is {
				format = name
			}
			make, ok := products[format]
			if !ok {
				return cli.Usagef("--dtype %s: one of %s is right", dtype, strings.Join(productTypes(), ", "))
			}
			if runs < 1 || !(seconds >= 0 && seconds <= 3600) {
				return cli.Usagef("--runs %d, --seconds %g: at least one run and 0 to 3600 seconds are right", runs, seconds)
			}
			if err := o.CheckThreads(); err != nil {
				return err
			}
			threads := o.Threads
			if threads == 0 {
				threads = runtime.GOMAXPROCS(0)
			}
			for _, s := range sizes {
				if err := s.CheckMemory(); err != nil {
					return err
				}
				p, err := make(s, threads, !plain)
				if err != nil {
					return err
				}
				r, err := measure(cmd.Context(), p, s, runs, seconds)
				p.close()
				if err != nil {
					return err
				}
				r.DType, r.Threads, r.Packed = format, threads, !plain
				if o.JSON {
					if err := cli.PrintJSON(cmd.OutOrStdout(), r); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s, %s, %s: best %.1f, median %.1f GOP/s, %.1f %% of the peak of %.1f\n",
					r.DType, s, cli.Count(threads, "thread"), r.Kernel, r.GOPS["best"], r.GOPS["median"], r.PercentOfPeak, r.PeakGOPS)
			}
			return nil
		},
	}
	f := cmd.Flags()
	cli.WordVar(f, &dtype, "dtype", "f32", "number format: "+strings.Join(productTypes(), ", ")+"; int8 is s8s8s32")
	f.StringVar(&size, "size", "1024x1024x1024", "the products, `MxNxK[,...]`")
	f.BoolVar(&plain, "plain", false, "pack the weights in every call instead of once")
	f.IntVar(&runs, "runs", 11, "least number of runs")
	f.Float64Var(&seconds, "seconds", 0.5, "least time of all runs")
	o.AddThreads(cmd)
	return cmd
}

// product is one product ready to run.
type product struct {
	run    func() error
	kernel string
	peak   func() float64
	close  func()
}

// measure runs a product at least so many times and seconds, with the machine's peak measured around it.
func measure(ctx context.Context, p *product, s cli.Size, runs int, seconds float64) (*gemmResult, error) {
	for range 2 {
		if err := p.run(); err != nil {
			return nil, err
		}
	}
	var times, peaks []float64
	peaks = append(peaks, p.peak())
	for total := 0.0; len(times) < runs || total < seconds; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := p.run(); err != nil {
			return nil, err
		}
		t := time.Since(start).Seconds()
		times = append(times, t)
		total += t
		if len(peaks) < 5 && len(times)%max(1, runs/4) == 0 {
			peaks = append(peaks, p.peak())
		}
	}
	ops := 2 * float64(s.M) * float64(s.N) * float64(s.K) / 1e9
	middle, least := median.Of(times), slices.Min(times)
	r := &gemmResult{Op: "matmul", M: s.M, N: s.N, K: s.K, Kernel: p.kernel,
		Seconds:  map[string]float64{"min": least, "median": middle},
		GOPS:     map[string]float64{"best": ops / least, "median": ops / middle},
		PeakGOPS: slices.Max(peaks)}
	if r.PeakGOPS > 0 {
		r.PercentOfPeak = 100 * r.GOPS["median"] / r.PeakGOPS
	}
	return r, nil
}

// cpuPeak returns the f32 rate of this processor with all threads, 0 where it cannot be measured.
func cpuPeak() float64 { return gemm.Peak(gemm.F32, runtime.GOMAXPROCS(0), nil) }

func benchModelCommand() *cobra.Command {
	var (
		f              llmFlags
		prompt, decode int
		shapes         []string
		runs           int
	)
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Measure how fast a language model reads and writes, or an ONNX model runs",
		Long: `Model measures a language model on random tokens: reading --prompt-tokens of them at once, then writing --decode-tokens one by one.
An ONNX model is run on random numbers, at least --runs times and half a second, after runs that warm up.`,
		Example: "  tessera bench model --model model.gguf --threads 1\n  tessera bench model --model model.onnx --shape x=1x3x640x640",
		Args:    cli.NoArgs("a model's file follows --model"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prompt < 1 || decode < 0 || prompt > maxContext || decode > maxContext-prompt {
				return cli.Usagef("--prompt-tokens %d, --decode-tokens %d: at least 1 and 0, and %d in all at most, are right", prompt, decode, maxContext)
			}
			if runs < 1 || runs > 1e6 {
				return cli.Usagef("--runs %d: a number from 1 to 1000000 is right", runs)
			}
			if isONNX(f.Model) {
				for _, flag := range []string{"prompt-tokens", "decode-tokens", "context", "cache-type", "cache"} {
					if cmd.Flags().Changed(flag) {
						return cli.Usagef("--%s: only language models have tokens, or a cache of them or of weights", flag)
					}
				}
				return benchONNX(cmd, &f, shapes, runs)
			}
			switch {
			case len(shapes) > 0:
				return errNoShape
			case cmd.Flags().Changed("runs"):
				return cli.Usagef("--runs: a language model is measured by --prompt-tokens and --decode-tokens")
			}
			if f.context == 0 {
				f.context = prompt + decode
			}
			m, err := f.open()
			if err != nil {
				return err
			}
			defer m.close()
			r, err := benchModel(cmd, m.Model, prompt, decode)
			if err != nil {
				return err
			}
			report, err := m.report(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			threads := f.Threads
			if threads == 0 {
				threads = runtime.GOMAXPROCS(0)
			}
			doc := map[string]any{"model": m.name, "threads": threads, "backend": m.backend, "prefill_tok_s": r[0], "decode_tok_s": r[1],
				"load_ms": m.LoadTime.Seconds() * 1e3, "peak_rss_bytes": peakRSS()}
			if f.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), doc)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s on %s, %s: prefill %.1f, decode %.1f tokens a second; loaded in %.0f ms, %s of memory\n",
				m.name, m.backend, cli.Count(threads, "thread"), r[0], r[1], m.LoadTime.Seconds()*1e3, cli.FormatBytes(peakRSS()))
			if line := offloaded(report, "tessera inspect"); line != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), line+"; the rates are this machine's")
			}
			return nil
		},
	}
	f.add(cmd)
	f.AddProfile(cmd)
	cmd.Flags().Lookup("model").Usage = "GGUF or ONNX file or folder of safetensors; without it the embedded language model"
	cmd.Flags().IntVar(&prompt, "prompt-tokens", 512, "tokens that are read at once")
	cmd.Flags().IntVar(&decode, "decode-tokens", 64, "tokens that are written one by one")
	cmd.Flags().StringArrayVar(&shapes, "shape", nil, "of an ONNX input whose shape is open, `NAME=AxBxC` (may be repeated)")
	cmd.Flags().IntVar(&runs, "runs", 11, "least number of runs of an ONNX model")
	return cmd
}

// onnxResult is the JSON document of bench model for an ONNX model.
type onnxResult struct {
	Model   string             `json:"model"`
	Threads int                `json:"threads"`
	Backend string             `json:"backend"`
	Runs    int                `json:"runs"`
	Seconds map[string]float64 `json:"seconds"`            // of a run: min, median
	Images  float64            `json:"images_s,omitempty"` // images a second in the median run, of models that take images
	LoadMS  float64            `json:"load_ms"`            // to the end of the first run
	PeakRSS int64              `json:"peak_rss_bytes"`
	Report  graph.Report       `json:"report"`
}

// benchONNX measures runs of an ONNX model on random numbers.
func benchONNX(cmd *cobra.Command, f *llmFlags, shapes []string, runs int) error {
	const least = 500 * time.Millisecond
	given, err := shapesOf([]string{f.Model}, shapes)
	if err != nil {
		return err
	}
	start := time.Now()
	s, err := onnxSubject(cmd.Context(), &f.Options, given)
	if err != nil {
		return err
	}
	defer s.close()
	if s.note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "tessera:", s.note)
	}
	name, _, _ := strings.Cut(f.Backend, ":")
	r := onnxResult{Model: filepath.Base(f.Model), Threads: f.Threads, Backend: name, LoadMS: time.Since(start).Seconds() * 1e3}
	if r.Threads == 0 {
		r.Threads = runtime.GOMAXPROCS(0)
	}
	run := s.works[0].run
	for range 2 { // weights are packed and pages touched
		if err := run(cmd.Context()); err != nil {
			return err
		}
	}
	var times []float64
	for begun := time.Now(); len(times) < runs || time.Since(begun) < least; {
		start := time.Now()
		if err := run(cmd.Context()); err != nil {
			return err
		}
		times = append(times, time.Since(start).Seconds())
	}
	r.Runs, r.PeakRSS, r.Report = len(times), peakRSS(), s.exe().Report()
	r.Seconds = map[string]float64{"min": slices.Min(times), "median": median.Of(times)}
	r.Images = float64(s.images) / r.Seconds["median"]
	if err := writeProfile(&f.Options, s.exe(), cmd.ErrOrStderr()); err != nil {
		return err
	}
	if f.JSON {
		return cli.PrintJSON(cmd.OutOrStdout(), r)
	}
	rate := ""
	if r.Images > 0 {
		rate = fmt.Sprintf(" (%.0f images a second)", r.Images)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s on %s, %s: median %.3g ms%s, best %.3g ms of %s; loaded and run once in %.0f ms, %s of memory\n",
		r.Model, r.Backend, cli.Count(r.Threads, "thread"), 1e3*r.Seconds["median"], rate, 1e3*r.Seconds["min"], cli.Count(r.Runs, "run"), r.LoadMS, cli.FormatBytes(r.PeakRSS))
	if line := offloaded(r.Report, "tessera inspect"); line != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), line+"; the times are this machine's")
	}
	return nil
}

// benchModel returns tokens a second of reading and writing, after a warm-up.
func benchModel(cmd *cobra.Command, m *llm.Model, prompt, decode int) (rates [2]float64, err error) {
	s, err := m.NewSession()
	if err != nil {
		return rates, err
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, prompt)
	for i := range ids {
		ids[i] = int32(rng.IntN(m.Config.Vocab))
	}
	for range 2 { // the first round warms up: plans are compiled, pages are touched
		if err := s.Rewind(0); err != nil {
			return rates, err
		}
		start := time.Now()
		if err := s.Eval(cmd.Context(), ids...); err != nil {
			return rates, err
		}
		rates[0] = float64(prompt) / time.Since(start).Seconds()
		start = time.Now()
		for range decode {
			if err := s.Eval(cmd.Context(), int32(rng.IntN(m.Config.Vocab))); err != nil {
				return rates, err
			}
		}
		if decode > 0 {
			rates[1] = float64(decode) / time.Since(start).Seconds()
		}
	}
	return rates, nil
}
