// Command generate is the complete program of the README: it continues a sentence with the embedded language model.
package main

import (
	"context"
	"fmt"
	"log"

	_ "github.com/tessera-go/tessera/backends/cpu" // the program decides which backends it links
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/sample"
)

func main() {
	model, err := llm.Parse(tolstoy.GGUF(), llm.Options{}) // or llm.Open("model.gguf", ...)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	prompt := "The prince said"
	fmt.Print(prompt)
	options := llm.GenerateOptions{MaxTokens: 16, Sampling: sample.Options{Temperature: 0}}
	for token, err := range model.Generate(context.Background(), prompt, options) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	fmt.Println()
}
