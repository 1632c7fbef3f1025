// Command classify names the digits in pictures.
//
//	go run ./examples/classify examples/classify/*.png
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/image"
)

func main() {
	log.SetFlags(0)
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "usage: classify PICTURE...") }
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	cpu, err := backends.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	digits, err := cnn.Digits(ctx, cnn.Options{Backends: []backends.Backend{cpu}})
	if err != nil {
		log.Fatal(err)
	}
	defer digits.Close()
	for _, path := range flag.Args() {
		pictures, err := image.ReadFile(path)
		if err != nil {
			log.Fatal(err)
		}
		results, err := digits.Classify(ctx, pictures)
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range results {
			fmt.Printf("%s: %s (%.1f %%)\n", path, r.Label, 100*r.Score.Score)
		}
	}
}
