// Command perplexity quantizes a model to each type and compares how well Tessera and llama.cpp predict a text with it: both on the file that Tessera
// has quantized, and llama.cpp on one of its own. It makes the table of docs/llm.md, row by row, and its status is 1 where Tessera is worse than
// llama.cpp by more than a limit.
//
//	go run ./perplexity -model ../../shared/data/models/tolstoy-3m.gguf -text ../../shared/data/text/tolstoy-valid.txt
//
// The peer is that of bench/llm; the first run installs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/tokenizer"
)

// types are the recipes that are compared, with llama.cpp's numbers of them; -1 where it writes none for models without experts.
var types = []struct {
	name   string
	number int
}{
	{"f32", 0}, {"f16", 1}, {"bf16", 32}, {"q8_0", 7}, {"q6_k", 18}, {"q5_k_m", 17}, {"q5_1", 9}, {"q5_0", 8}, {"q4_k_m", 15}, {"q4_1", 3}, {"q4_0", 2},
	{"iq4_nl", 25}, {"mxfp4", -1}, {"q3_k_m", 12}, {"q2_k", 10},
}

// limit is by how many percent a perplexity may be above llama.cpp's.
const limit = 0.5

// line is one row of the table.
type line struct {
	Type      string  `json:"type"`
	Bytes     int64   `json:"bytes"`
	Tokens    int     `json:"tokens"`
	Tessera   float64 `json:"tessera"`
	Peer      float64 `json:"llama_cpp"`                    // on the same file
	PeerOwn   float64 `json:"llama_cpp_own_file,omitempty"` // on its own
	BytesOwn  int64   `json:"bytes_own,omitempty"`
	Against   float64 `json:"percent"` // of Tessera above the better of llama.cpp's two
	SameBytes bool    `json:"same_bytes,omitempty"`
}

func main() {
	log.SetFlags(0)
	_, source, _, _ := runtime.Caller(0)
	here := filepath.Dir(source)
	cache := flag.String("cache", filepath.Join(here, "..", ".cache", "llama"), "folder of the peer")
	model := flag.String("model", filepath.Join(here, "..", "..", "..", "shared", "data", "models", "tolstoy-3m.gguf"), "GGUF file to quantize")
	text := flag.String("text", filepath.Join(here, "..", "..", "..", "shared", "data", "text", "tolstoy-valid.txt"), "text to score")
	only := flag.String("types", "", "types to compare, by commas; empty: all")
	threads := flag.Int("threads", 1, "threads of both; the peer waits busily, so on a machine that others use more may be slower")
	asJSON := flag.Bool("json", false, "print one JSON document a line")
	flag.Parse()
	if err := run(here, *cache, *model, *text, *only, *threads, *asJSON); err != nil {
		log.Fatal(err)
	}
}

func run(here, cache, model, text, only string, threads int, asJSON bool) error {
	if _, err := os.Stat(filepath.Join(cache, "libraries")); err != nil {
		if err := command("sh", filepath.Join(here, "..", "llm", "install.sh"), cache); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "tessera-perplexity-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := &peer{exe: filepath.Join(dir, "peer"), libraries: filepath.Join(cache, "libraries"), threads: strconv.Itoa(threads)}
	includes := filepath.Join(cache, "source")
	if err := command("cc", "-O2", "-I", filepath.Join(includes, "include"), "-I", filepath.Join(includes, "ggml", "include"), "-o", p.exe, filepath.Join(here, "peer", "peer.c"), "-ldl", "-lm"); err != nil {
		return err
	}
	words, err := os.ReadFile(text)
	if err != nil {
		return err
	}
	if !asJSON {
		fmt.Println("| type | bytes | Tessera | llama.cpp, same file | llama.cpp, its own file | difference |")
		fmt.Println("|---|---|---|---|---|---|")
	}
	var worse []string
	for _, t := range types {
		if only != "" && !strings.Contains(","+only+",", ","+t.name+",") {
			continue
		}
		l, err := compare(p, dir, model, string(words), t.name, t.number)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if !(l.Against <= limit) { // NaN is no success
			worse = append(worse, t.name)
		}
		if asJSON {
			if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
				return err
			}
			continue
		}
		own := "-"
		if l.PeerOwn > 0 {
			own = fmt.Sprintf("%.4f", l.PeerOwn)
		}
		if l.SameBytes {
			own += " (equal)"
		}
		fmt.Printf("| %s | %d | %.4f | %.4f | %s | %+.3f %% |\n", l.Type, l.Bytes, l.Tessera, l.Peer, own, l.Against)
	}
	if worse != nil {
		return fmt.Errorf("more than %g %% above llama.cpp: %s", limit, strings.Join(worse, ", "))
	}
	return nil
}

func compare(p *peer, dir, model, text, name string, number int) (*line, error) {
	ours, own := filepath.Join(dir, name+".gguf"), filepath.Join(dir, name+".own.gguf")
	in, err := gguf.Open(model)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := os.Create(ours)
	if err != nil {
		return nil, err
	}
	defer os.Remove(ours)
	if _, err := gguf.Quantize(context.Background(), out, in, gguf.QuantizeOptions{Type: name}); err != nil {
		return nil, err
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	m, err := llm.Open(ours, llm.Options{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	ids := m.Tokenizer.Encode(text, tokenizer.Options{})
	list := filepath.Join(dir, "ids")
	if err := os.WriteFile(list, []byte(strings.Trim(fmt.Sprint(ids), "[]")), 0o600); err != nil {
		return nil, err
	}
	got, err := m.Perplexity(context.Background(), ids, 0, nil)
	if err != nil {
		return nil, err
	}
	l := &line{Type: name, Tokens: got.Tokens, Tessera: got.Value(), Bytes: size(ours)}
	if l.Peer, err = p.perplexity(ours, list, m.Context(), got.Tokens); err != nil {
		return nil, err
	}
	best := l.Peer
	if number >= 0 {
		if err := command(p.exe, p.libraries, "quantize", model, own, strconv.Itoa(number), p.threads); err != nil {
			return nil, err
		}
		defer os.Remove(own)
		if l.PeerOwn, err = p.perplexity(own, list, m.Context(), got.Tokens); err != nil {
			return nil, err
		}
		l.BytesOwn = size(own)
		best = min(best, l.PeerOwn)
		if l.SameBytes, err = sameTensors(ours, own); err != nil {
			return nil, err
		}
	}
	l.Against = 100 * (l.Tessera/best - 1)
	return l, nil
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// sameTensors reports whether two files hold the same bytes for every tensor. Tensors of other types are an error: recipes must agree.
func sameTensors(ours, theirs string) (bool, error) {
	a, err := gguf.Open(ours)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := gguf.Open(theirs)
	if err != nil {
		return false, err
	}
	defer b.Close()
	same := true
	for i := range a.Tensors {
		x := &a.Tensors[i]
		y := b.Info(x.Name)
		if y == nil || y.Type != x.Type {
			return false, fmt.Errorf("tensor %q: %v here, %v in llama.cpp's file", x.Name, x.Type, y)
		}
		same = same && bytes.Equal(a.Data(x), b.Data(y))
	}
	return same, nil
}

// peer runs llama.cpp.
type peer struct{ exe, libraries, threads string }

func (p *peer) perplexity(file, ids string, context, tokens int) (float64, error) {
	out, err := exec.Command(p.exe, p.libraries, "perplexity", file, ids, strconv.Itoa(context), p.threads).Output()
	if err != nil {
		return 0, fmt.Errorf("llama.cpp on %s: %w", filepath.Base(file), err)
	}
	var nll float64
	var n int
	if _, err := fmt.Sscan(string(out), &nll, &n); err != nil {
		return 0, err
	}
	if n != tokens {
		return 0, fmt.Errorf("llama.cpp scored %d tokens, %d were expected", n, tokens)
	}
	return math.Exp(nll / float64(n)), nil
}

func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
