package llm_test

import (
	"context"
	"fmt"
	"log"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
)

// Text is written token by token; a loop that ends early stops generation.
func ExampleModel_Generate() {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for token, err := range m.Generate(context.Background(), "The prince said", llm.GenerateOptions{MaxTokens: 6}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: that the Emperor was not a
}

// A session keeps what it has read, so that a text can be looked at from several sides.
func ExampleSession() {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	ctx := context.Background()
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Eval(ctx, m.PromptIDs("The prince said", llm.GenerateOptions{})...); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		branch, err := s.Fork()
		if err != nil {
			log.Fatal(err)
		}
		for token, err := range branch.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 3}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%q ", token.Text)
		}
		fmt.Println(branch.Len(), "tokens")
		_ = branch.Close()
	}
	// Output:
	// " that" " the" " Emperor" 6 tokens
	// " that" " the" " Emperor" 6 tokens
}
