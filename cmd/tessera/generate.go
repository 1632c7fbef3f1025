package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/sample"
)

// samplingFlags are the flags that say how tokens are drawn.
type samplingFlags struct {
	sample.Options
	bias []string
	stop []string
}

func (s *samplingFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float64Var(&s.Temperature, "temp", 0.8, "temperature; 0 takes the most probable token")
	f.IntVar(&s.TopK, "top-k", 40, "draw from the k most probable tokens; 0 means all")
	f.Float64Var(&s.TopP, "top-p", 0.95, "draw from the most probable tokens whose probabilities reach p")
	f.Float64Var(&s.MinP, "min-p", 0.05, "drop tokens of less than this share of the largest probability")
	f.Float64Var(&s.Repetition, "repeat-penalty", 1, "above 1 weakens tokens that have been said, below 1 strengthens them; 1 is off")
	f.Float64Var(&s.Presence, "presence-penalty", 0, "subtracted from the logit of tokens that have been said")
	f.Float64Var(&s.Frequency, "frequency-penalty", 0, "subtracted for each time that a token has been said")
	f.Uint64Var(&s.Seed, "seed", 0, "of the draws, 0 unless given: the same seed gives the same text again, another one another text")
	f.StringArrayVar(&s.stop, "stop", nil, "text that ends generation (may be repeated)")
	f.StringArrayVar(&s.bias, "logit-bias", nil, "added to a token's logit, `ID=VALUE` (may be repeated); -inf forbids it")
}

func (s *samplingFlags) options() (sample.Options, error) {
	o := &s.Options
	for _, b := range s.bias {
		id, value, ok := strings.Cut(b, "=")
		n, err1 := strconv.ParseInt(id, 10, 32)
		v, err2 := strconv.ParseFloat(value, 64)
		if !ok || err1 != nil || err2 != nil {
			return *o, cli.Usagef("--logit-bias %q: ID=VALUE is right", b)
		}
		if err := (sample.Options{Bias: map[int32]float64{int32(n): v}}).Check(); err != nil {
			return *o, cli.Usagef("--logit-bias %q: %w", b, err)
		}
		if o.Bias == nil {
			o.Bias = map[int32]float64{}
		}
		o.Bias[int32(n)] = v
	}
	for _, stop := range s.stop {
		if !utf8.ValidString(stop) {
			return *o, cli.Usagef("--stop %q: a text in UTF-8 is right", stop)
		}
	}
	if o.Repetition == 0 { // which the library takes for a field that was not set
		return *o, cli.Usagef("--repeat-penalty 0: a number above 0 is right; 1 is off")
	}
	for _, one := range []struct {
		flag string
		only sample.Options
	}{
		{"temp", sample.Options{Temperature: o.Temperature}}, {"top-k", sample.Options{TopK: o.TopK}}, {"top-p", sample.Options{TopP: o.TopP}}, {"min-p", sample.Options{MinP: o.MinP}},
		{"repeat-penalty", sample.Options{Repetition: o.Repetition}}, {"presence-penalty", sample.Options{Presence: o.Presence}}, {"frequency-penalty", sample.Options{Frequency: o.Frequency}},
	} {
		if err := one.only.Check(); err != nil {
			return *o, cli.Usagef("--%s: %w", one.flag, err)
		}
	}
	return *o, nil
}

// check returns an error if the flags name tokens that the model does not have.
func (s *samplingFlags) check(m *llm.Model) error {
	for id := range s.Bias {
		if id < 0 || int(id) >= m.Config.Vocab {
			return cli.Usagef("--logit-bias %d: the vocabulary has %d tokens", id, m.Config.Vocab)
		}
	}
	return nil
}

// generation is the JSON document of generate.
type generation struct {
	Text          string       `json:"text"`
	PromptIDs     []int32      `json:"prompt_ids"`
	IDs           []int32      `json:"ids"`
	PrefillTokens int          `json:"prefill_tokens"` // evaluated: those of the prompt without CachedTokens
	PrefillRate   float64      `json:"prefill_tok_s"`
	DecodeRate    float64      `json:"decode_tok_s"`
	LoadMS        float64      `json:"load_ms"`
	Backend       string       `json:"backend"`
	Model         string       `json:"model"`
	Reason        llm.Reason   `json:"reason"`
	CachedTokens  int          `json:"cached_tokens"`   // of the prompt, from --prompt-cache
	Guessed       int          `json:"guessed_tokens"`  // by the model of --draft
	Accepted      int          `json:"accepted_tokens"` // of those
	Report        graph.Report `json:"report"`
}

func generateCommand() *cobra.Command {
	var (
		f        llmFlags
		s        samplingFlags
		draft    draftFlags
		keep     promptCache
		prompt   string
		n        int
		overflow string
	)
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Continue a text with a language model",
		Example: `  tessera generate -p "The prince said"
  tessera generate --model model.gguf -p "Once upon a time" -n 100 --temp 0 --json
  tessera generate --model model.gguf --draft small.gguf --prompt-cache rules.state -p "These are the rules." -n 100
  tessera generate --model model.gguf -p - < prompt.txt`,
		Args: cli.NoArgs("a text follows -p and a model's file --model"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sampling, err := s.options()
			if err != nil {
				return err
			}
			if n < 0 {
				return cli.Usagef("--tokens %d: a number from 0 is right", n)
			}
			o := llm.GenerateOptions{MaxTokens: n, Sampling: sampling, Stop: s.stop, Stats: &llm.Stats{}}
			switch overflow {
			case "stop":
			case "shift":
				o.Overflow = llm.Shift
			default:
				return cli.Usagef("--overflow %s: stop or shift is right", overflow)
			}
			if err := draft.check(); err != nil {
				return err
			}
			if err := keep.check(); err != nil {
				return err
			}
			if err := cli.CheckFiles(append(f.files(), cli.File{Flag: "--draft", Path: draft.file}, cli.File{Flag: "--prompt-cache", Path: keep.path, Written: true})...); err != nil {
				return err
			}
			m, err := f.open()
			if err != nil {
				return err
			}
			defer m.close()
			if err := s.check(m.Model); err != nil {
				return err
			}
			if err := draft.open(&f, m, &o); err != nil {
				return err
			}
			if prompt == "-" {
				text, err := cli.ReadText(cmd.InOrStdin(), m.mostText())
				if err != nil {
					return err
				}
				prompt = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
			}
			tokens, ids := m.Generate(cmd.Context(), prompt, o), m.PromptIDs(prompt, o)
			cached, reading := 0, time.Duration(0)
			if keep.path != "" {
				session, err := m.NewSession()
				if err != nil {
					return err
				}
				defer session.Close()
				start := time.Now()
				if cached, err = keep.read(cmd.Context(), session, ids); err != nil {
					return err
				}
				reading = time.Since(start)
				tokens = session.GenerateIDs(cmd.Context(), nil, o)
			}
			out := cmd.OutOrStdout()
			var text strings.Builder
			begun := f.JSON // the prompt is repeated once it is sure that there is an answer
			for token, err := range tokens {
				if err != nil {
					if !f.JSON && begun {
						fmt.Fprintln(out, token.Text) // what had been held back
					}
					return err
				}
				if !begun {
					fmt.Fprint(out, prompt)
					begun = true
				}
				text.WriteString(token.Text)
				if !f.JSON {
					fmt.Fprint(out, token.Text)
				}
			}
			if !f.JSON {
				fmt.Fprintln(out)
			}
			o.Stats.Prompt = ids[cached:]
			o.Stats.Prefill += reading
			report, err := m.report(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.PrintJSON(out, generation{text.String(), append([]int32{}, ids...), append([]int32{}, o.Stats.Tokens...), len(o.Stats.Prompt), finite(o.Stats.PrefillRate()),
					finite(o.Stats.DecodeRate()), m.loadTime.Seconds() * 1e3, m.backend, m.name, o.Stats.Reason, cached, o.Stats.Guessed, o.Stats.Accepted, report})
			}
			rate := "" // the first token belongs to the reading
			if r := finite(o.Stats.DecodeRate()); r > 0 {
				rate = fmt.Sprintf(" at %.0f a second", r)
			}
			behind := ""
			if cached > 0 {
				behind = fmt.Sprintf(" behind %d of %s", cached, keep.path)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s on %s: %s read%s at %.0f a second, %d written%s%s%s\n", m.name, m.backend, cli.Count(len(o.Stats.Prompt), "token"), behind,
				o.Stats.PrefillRate(), len(o.Stats.Tokens), rate, accepted(o), ending(o.Stats.Reason, n, m.Context()))
			if line := offloaded(report, "--json"); line != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), line+"; the rates are this machine's")
			}
			return nil
		},
	}
	f.add(cmd)
	f.AddProfile(cmd)
	s.add(cmd)
	draft.add(cmd)
	keep.add(cmd, "keep what the model has read of the prompt in `FILE`; the next start does not read again what its prompt begins with")
	cmd.Flags().StringVarP(&prompt, "prompt", "p", "", "text to continue; - is that of standard input")
	cmd.Flags().IntVarP(&n, "tokens", "n", 64, "tokens to generate at most; 0 means until the model ends the text or the context is full")
	cli.WordVar(cmd.Flags(), &overflow, "overflow", "stop", "when the context is full: stop, or shift (forget the older half)")
	return cmd
}

// ending says why a generation ended.
func ending(reason llm.Reason, n, context int) string {
	switch reason {
	case llm.ReasonEnd:
		return "; the model ended the text"
	case llm.ReasonLength:
		return fmt.Sprintf("; -n %d reached", n)
	case llm.ReasonContext:
		return fmt.Sprintf("; the context of %d tokens is full (--overflow shift forgets the older half and goes on)", context)
	case llm.ReasonStop:
		return "; a text of --stop came"
	}
	return ""
}

// finite turns rates of nothing into 0, which JSON can hold.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
