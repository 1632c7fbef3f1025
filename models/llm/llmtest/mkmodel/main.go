// Command mkmodel writes a model of random weights.
//
//	go run ./models/llm/llmtest/mkmodel -case qwen3-tied -o random-qwen3.gguf
//	go run ./models/llm/llmtest/mkmodel -dim 768 -ffn 2048 -layers 12 -heads 12 -vocab 32000 -context 1024 -type f16 -o random-134m.gguf
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"

	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/tensor"
)

func main() {
	log.SetFlags(0)
	var s llmtest.Shape
	flag.StringVar(&s.Arch, "arch", "llama", "architecture")
	flag.IntVar(&s.Vocab, "vocab", 32000, "tokens")
	flag.IntVar(&s.Context, "context", 1024, "positions")
	flag.IntVar(&s.Dim, "dim", 768, "width")
	flag.IntVar(&s.FFN, "ffn", 2048, "width of the feed-forward part")
	flag.IntVar(&s.Layers, "layers", 12, "layers")
	flag.IntVar(&s.Heads, "heads", 12, "query heads")
	flag.IntVar(&s.KVHeads, "kv-heads", 0, "key heads; 0: as many as query heads")
	flag.BoolVar(&s.Tied, "tied", false, "the head is the embedding")
	flag.Uint64Var(&s.Seed, "seed", 1, "of the weights")
	name := flag.String("case", "", "a model of the tests by name; sizes are ignored")
	list := flag.Bool("cases", false, "print the names of the models of the tests")
	typ := flag.String("type", "f32", "of matrices")
	out := flag.String("o", "random.gguf", "file to write")
	flag.Parse()
	if s.KVHeads == 0 {
		s.KVHeads = s.Heads
	}
	cases := llmtest.Cases()
	if *list {
		for _, n := range slices.Sorted(maps.Keys(cases)) {
			fmt.Println(n)
		}
		return
	}
	if *name != "" {
		var ok bool
		if s, ok = cases[*name]; !ok {
			log.Fatalf("no case %q; -cases prints them", *name)
		}
	}
	var err error
	if s.Type, err = tensor.ParseDType(*typ); err != nil {
		log.Fatal(err)
	}
	f, err := os.Create(*out)
	if err != nil {
		log.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := llmtest.Write(w, s); err != nil {
		log.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
}
