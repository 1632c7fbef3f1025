package llm_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/sample"
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

// The logits of a token say how probable each token behind it is: here the logarithms of the probabilities of a sentence's own.
func ExampleSession_EvalAll() {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	ids := m.PromptIDs("The prince said nothing.", llm.GenerateOptions{})
	err = s.EvalAll(context.Background(), ids, func(i int, logits []float32) error {
		if i+1 < len(ids) {
			sample.LogProbs(logits, logits)
			fmt.Printf("%q %.1f\n", m.Tokenizer.Text(ids[i+1]), logits[ids[i+1]])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// " prince" -4.8
	// " said" -5.8
	// " nothing" -3.3
	// "." -1.5
}

// A conversation knows what was said; the model reads only what is new. This model was never trained for it.
func ExampleChat() {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	chat, err := m.NewChat("A talk about the war.", "")
	if err != nil {
		log.Fatal(err)
	}
	defer chat.Close()
	for _, question := range []string{"Where is the prince?", "And the Emperor?"} {
		for _, err := range chat.Send(context.Background(), question, llm.GenerateOptions{MaxTokens: 8}) {
			if err != nil {
				log.Fatal(err) // a canceled context is one: what had been said by then is a message too
			}
		}
	}
	for _, message := range chat.Messages {
		fmt.Println(message.Role)
	}
	// Output:
	// system
	// user
	// assistant
	// user
	// assistant
}

// Vectors of like texts have a large inner product. An encoder (BERT) is better at it than a language model.
func ExampleModel_Embed() {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	var vectors [3][]float32
	for i, text := range []string{"The prince was in the army.", "The prince was with the army.", "Natasha laughed and sang"} {
		if vectors[i], _, err = m.Embed(context.Background(), text, llm.EmbedOptions{Pooling: llm.PoolMean, Normalize: true}); err != nil {
			log.Fatal(err)
		}
	}
	product := func(a, b []float32) (sum float32) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	fmt.Println(len(vectors[0]), product(vectors[0], vectors[1]) > product(vectors[0], vectors[2]))
	// Output: 256 true
}

// Several texts are continued at once: each step reads the weights once for all of them.
func ExampleModel_GenerateBatch() {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	prompts := []string{"The prince said", "It was"}
	texts := make([]string, len(prompts))
	for token, err := range m.GenerateBatch(context.Background(), prompts, 2, llm.GenerateOptions{MaxTokens: 5}) {
		if err != nil {
			log.Fatal(err)
		}
		texts[token.Index] += token.Text
	}
	for i, p := range prompts {
		fmt.Println(p + texts[i])
	}
	// Output:
	// The prince said that the Emperor was not
	// It was a fresh
}

// What a session has read can be saved, so that a long prompt is read once and for all.
func ExampleSession_Save() {
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
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		log.Fatal(err)
	}
	later, err := m.NewSession() // perhaps in another process
	if err != nil {
		log.Fatal(err)
	}
	if err := later.Load(ctx, &file); err != nil {
		log.Fatal(err)
	}
	for token, err := range later.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 3}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	// Output: that the Emperor
}
