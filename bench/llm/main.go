// Command llm runs Tessera and llama.cpp on the same GGUF files of random weights, in processes that alternate, so that a clock
// that drifts or a neighbour on the machine hits both alike. It prints rates, their ratios, the share of what the machine can
// do, the time from the start of the process to the first token, and peak memory.
//
//	go run ./llm                                  # all types, one and two threads
//	go run ./llm -types q8_0,q4_0 -threads 1 -json
//	go run ./llm -rounds 0 -processes 9           # starts only: first token, and memory by then
//
// The speed of a language model does not depend on its weights, so random ones serve. The first run installs the peer from npm
// and makes the files, in bench/.cache/llama, which git ignores.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is what a process of either side reports. Times are in seconds, one a round.
type sample struct {
	Load    float64   `json:"load"`  // of model and context
	First   float64   `json:"first"` // from the start of the process to the logits of a first token
	Prefill []float64 `json:"prefill"`
	Decode  []float64 `json:"decode"`
	PeakRSS int64     `json:"peak_rss"`
}

// side is the best of all processes of one side.
type side struct {
	Prefill float64 `json:"prefill_tok_s"`
	Decode  float64 `json:"decode_tok_s"`
	First   float64 `json:"first_token_ms"`
	// FirstMedian is of all processes, where First is the shortest.
	FirstMedian float64 `json:"first_token_median_ms"`
	PeakRSS     int64   `json:"peak_rss_bytes"`
}

// result is one line of the output.
type result struct {
	Type    string `json:"type"`
	Threads int    `json:"threads"`
	Prompt  int    `json:"prompt_tokens"`
	Tokens  int    `json:"decode_tokens"`

	Ours       side  `json:"ours"`
	OursCached *side `json:"ours_cached,omitempty"`
	Peer       side  `json:"peer"`
	// PeerPlain is the peer without its AMX kernels, on processors that have them.
	PeerPlain *side `json:"peer_without_amx,omitempty"`

	Ratio map[string]float64 `json:"ratio"`

	// What limits: prefill by arithmetic (VPDPBUSD for integer formats, FMA for others), decode by reading weights.
	Peak               float64 `json:"peak_gops"`
	PercentOfPeak      float64 `json:"percent_of_peak"`
	BytesPerToken      float64 `json:"bytes_per_token"` // weights
	CachePerToken      float64 `json:"kv_per_token"`    // keys and values
	Bandwidth          float64 `json:"bandwidth_gb_s"`  // of a product of one row that reads as many bytes
	PercentOfBandwidth float64 `json:"percent_of_bandwidth"`
	PercentWeights     float64 `json:"percent_of_bandwidth_weights_only"`
}

type config struct {
	cache     string
	prompt    int
	tokens    int
	rounds    int
	processes int
	amx       bool
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := child(os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	var c config
	types := flag.String("types", "q8_0,q4_0,q4_k_m,q6_k,f16,bf16", "types to compare")
	threads := flag.String("threads", "1,2", "numbers of threads")
	asJSON := flag.Bool("json", false, "print one JSON document a line")
	flag.StringVar(&c.cache, "cache", defaultCache(), "folder of the peer and the files")
	flag.IntVar(&c.prompt, "prompt", 512, "tokens that are read at once")
	flag.IntVar(&c.tokens, "decode", 64, "tokens that are written one by one")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds in a process; with 0 only starts are measured")
	flag.IntVar(&c.processes, "processes", 3, "processes of each side, alternating")
	flag.BoolVar(&c.amx, "peer-amx", true, "let the peer use AMX where the processor has it; without, it is measured both ways")
	flag.Parse()
	if err := run(&c, strings.Split(*types, ","), strings.Split(*threads, ","), *asJSON); err != nil {
		log.Fatal(err)
	}
}

// defaultCache is bench/.cache/llama, found from the working folder: the program is run with go run from the module bench.
func defaultCache() string {
	dir, err := os.Getwd()
	if err != nil {
		return ".cache/llama"
	}
	for ; ; dir = filepath.Dir(dir) {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.Contains(data, []byte("tessera/bench\n")) {
			return filepath.Join(dir, ".cache", "llama")
		}
		if _, err := os.Stat(filepath.Join(dir, "bench", "go.mod")); err == nil {
			return filepath.Join(dir, "bench", ".cache", "llama")
		}
		if dir == filepath.Dir(dir) {
			return ".cache/llama"
		}
	}
}

func run(c *config, types, threads []string, asJSON bool) error {
	peer := filepath.Join(c.cache, "peer")
	if _, err := os.Stat(peer); err != nil {
		if err := install(c.cache); err != nil {
			return err
		}
	}
	plain := ""
	if !c.amx {
		var err error
		if plain, err = withoutAMX(c.cache); err != nil {
			return err
		}
	}
	for _, typ := range types {
		path, err := model(c.cache, typ)
		if err != nil {
			return err
		}
		for _, t := range threads {
			n, err := strconv.Atoi(t)
			if err != nil || n < 1 {
				return fmt.Errorf("-threads %s: numbers from 1 are right", t)
			}
			r, err := compare(c, typ, path, n, plain)
			if err != nil {
				return fmt.Errorf("%s, %d threads: %w", typ, n, err)
			}
			if asJSON {
				if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
					return err
				}
				continue
			}
			print(r)
		}
	}
	return nil
}

func print(r *result) {
	fmt.Printf("%-7s %d threads\n", r.Type, r.Threads)
	if r.Peak == 0 {
		printStart(r)
		return
	}
	row := func(name string, s *side) {
		if s != nil {
			fmt.Printf("  %-16s prefill %7.1f tok/s  decode %6.1f tok/s  first token %6.0f ms  peak memory %6.1f MB\n",
				name, s.Prefill, s.Decode, s.First, float64(s.PeakRSS)/1e6)
		}
	}
	row("tessera", &r.Ours)
	row("tessera --cache", r.OursCached)
	row("llama.cpp", &r.Peer)
	row("  without AMX", r.PeerPlain)
	fmt.Printf("  ratio prefill %.2f, decode %.2f, first token %.2f, memory %.2f", r.Ratio["prefill"], r.Ratio["decode"], r.Ratio["first"], r.Ratio["memory"])
	if r.PeerPlain != nil {
		fmt.Printf(" (without AMX: prefill %.2f, decode %.2f)", r.Ratio["prefill_without_amx"], r.Ratio["decode_without_amx"])
	}
	if r.OursCached != nil {
		fmt.Printf("\n  with --cache: first token %.2f, memory %.2f", r.Ratio["first_cached"], r.Ratio["memory_cached"])
	}
	fmt.Printf("\n  prefill %.0f %% of the peak of %.0f GOP/s, decode %.0f %% of %.1f GB/s (%.1f MB of weights, %.1f MB of keys and values a token; %.0f %% with weights alone)\n",
		r.PercentOfPeak, r.Peak, r.PercentOfBandwidth, r.Bandwidth, r.BytesPerToken/1e6, r.CachePerToken/1e6, r.PercentWeights)
}

// printStart prints what there is of processes without rounds.
func printStart(r *result) {
	for _, s := range []struct {
		name string
		side *side
	}{{"tessera", &r.Ours}, {"tessera --cache", r.OursCached}, {"llama.cpp", &r.Peer}} {
		fmt.Printf("  %-16s first token %6.0f ms (median %6.0f)  peak memory %6.1f MB\n", s.name, s.side.First, s.side.FirstMedian, float64(s.side.PeakRSS)/1e6)
	}
	fmt.Printf("  ratio first token %.2f, memory %.2f; with --cache %.2f, %.2f (medians %.2f, %.2f)\n", r.Ratio["first"], r.Ratio["memory"],
		r.Ratio["first_cached"], r.Ratio["memory_cached"], r.Ours.FirstMedian/r.Peer.FirstMedian, r.OursCached.FirstMedian/r.Peer.FirstMedian)
}

// compare alternates processes of both sides.
func compare(c *config, typ, path string, threads int, plain string) (*result, error) {
	r := &result{Type: typ, Threads: threads, Prompt: c.prompt, Tokens: c.tokens, Ratio: map[string]float64{}}
	libraries := filepath.Join(c.cache, "libraries")
	met, read, cache, err := work(path, c.prompt, c.prompt+c.tokens/2)
	if err != nil {
		return nil, err
	}
	cached := filepath.Join(c.cache, filepath.Base(path)+".packed")
	if _, err := start([]string{self(), "child", path, strconv.Itoa(threads), "1", "1", "1", cached}); err != nil { // which makes the file
		return nil, err
	}
	var ours, withCache, peer, peerPlain []sample
	for range c.processes {
		for _, s := range []struct {
			to   *[]sample
			skip bool
			args []string
		}{
			{&ours, false, c.ours(path, threads, "")},
			{&peer, false, c.peer(libraries, path, threads)},
			{&withCache, false, c.ours(path, threads, cached)},
			{&peerPlain, plain == "", c.peer(plain, path, threads)},
		} {
			if s.skip {
				continue
			}
			one, err := start(s.args)
			if err != nil {
				return nil, err
			}
			*s.to = append(*s.to, *one)
			if c.rounds > 0 {
				m := measureMachine(typ, threads, read+cache)
				r.Peak, r.Bandwidth = max(r.Peak, m.peak), max(r.Bandwidth, m.bandwidth)
			}
		}
	}
	r.Ours, r.Peer = c.best(ours), c.best(peer)
	if len(withCache) > 0 {
		s := c.best(withCache)
		r.OursCached = &s
		r.Ratio["first_cached"], r.Ratio["memory_cached"] = s.First/r.Peer.First, float64(s.PeakRSS)/float64(r.Peer.PeakRSS)
	}
	r.Ratio["first"], r.Ratio["memory"] = r.Ours.First/r.Peer.First, float64(r.Ours.PeakRSS)/float64(r.Peer.PeakRSS)
	r.BytesPerToken, r.CachePerToken = read, cache
	if c.rounds == 0 {
		return r, nil
	}
	r.Ratio["prefill"], r.Ratio["decode"] = r.Ours.Prefill/r.Peer.Prefill, r.Ours.Decode/r.Peer.Decode
	if len(peerPlain) > 0 {
		s := c.best(peerPlain)
		r.PeerPlain = &s
		r.Ratio["prefill_without_amx"], r.Ratio["decode_without_amx"] = r.Ours.Prefill/s.Prefill, r.Ours.Decode/s.Decode
	}
	r.PercentOfPeak = 100 * 2 * met / float64(c.prompt) * r.Ours.Prefill / 1e9 / r.Peak
	r.PercentOfBandwidth = 100 * (read + cache) * r.Ours.Decode / 1e9 / r.Bandwidth
	r.PercentWeights = 100 * read * r.Ours.Decode / 1e9 / r.Bandwidth
	return r, nil
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func (c *config) ours(path string, threads int, cache string) []string {
	return []string{self(), "child", path, strconv.Itoa(threads), strconv.Itoa(c.prompt), strconv.Itoa(c.tokens), strconv.Itoa(c.rounds), cache}
}

func (c *config) peer(libraries, path string, threads int) []string {
	return []string{filepath.Join(c.cache, "peer"), libraries, path, strconv.Itoa(threads), strconv.Itoa(c.prompt), strconv.Itoa(c.tokens), strconv.Itoa(c.rounds)}
}

// startVariable tells a child when it was started, in nanoseconds of the real-time clock.
const startVariable = "LLM_BENCH_START"

func start(args []string) (*sample, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", startVariable, time.Now().UnixNano()))
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	var s sample
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	if s.First <= 0 {
		return nil, errors.New("no token was evaluated")
	}
	return &s, nil
}

// best takes the best rate, the shortest start, and the medians of starts and memory.
func (c *config) best(list []sample) side {
	var fill, step, first []float64
	var rss []int64
	for _, s := range list {
		fill, step = append(fill, s.Prefill...), append(step, s.Decode...)
		first, rss = append(first, s.First), append(rss, s.PeakRSS)
	}
	slices.Sort(first)
	slices.Sort(rss)
	b := side{First: first[0] * 1e3, FirstMedian: first[len(first)/2] * 1e3, PeakRSS: rss[len(rss)/2]}
	if c.rounds > 0 {
		b.Prefill, b.Decode = float64(c.prompt)/slices.Min(fill), float64(c.tokens)/slices.Min(step)
	}
	return b
}

// install runs the script beside this program's source.
func install(cache string) error {
	script := filepath.Join(filepath.Dir(filepath.Dir(cache)), "llm", "install.sh")
	if _, err := os.Stat(script); err != nil {
		_, file, _, ok := runtime.Caller(0)
		if !ok {
			return err
		}
		script = filepath.Join(filepath.Dir(file), "install.sh")
	}
	cmd := exec.Command(script, cache)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// withoutAMX makes a folder of the peer's libraries without those builds that use AMX, so that ggml takes the next best.
func withoutAMX(cache string) (string, error) {
	dir := filepath.Join(cache, "libraries-without-amx")
	from, err := filepath.EvalSymlinks(filepath.Join(cache, "libraries"))
	if err != nil {
		return "", err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, f := range files {
		if strings.Contains(f.Name(), "sapphirerapids") {
			continue
		}
		if err := os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, f.Name())); err != nil && !os.IsExist(err) {
			return "", err
		}
	}
	return dir, nil
}
