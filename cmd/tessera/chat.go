package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/atomicfile"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/chat"
	"github.com/tessera-go/tessera/models/llm"
)

// conversation is a chat with a model and with the person who types.
type conversation struct {
	m          *languageModel
	chat       *llm.Chat
	options    llm.GenerateOptions
	file       string // where the conversation is kept; empty: nowhere
	json       bool
	out, notes io.Writer
	interrupts <-chan os.Signal
}

// reply is a line of chat --json.
type reply struct {
	Text          string     `json:"text"`
	IDs           []int32    `json:"ids"`
	PrefillTokens int        `json:"prefill_tokens"`
	PrefillRate   float64    `json:"prefill_tok_s"`
	DecodeRate    float64    `json:"decode_tok_s"`
	Backend       string     `json:"backend"`
	Model         string     `json:"model"`
	Reason        llm.Reason `json:"reason"`
	Guessed       int        `json:"guessed_tokens"`  // by the model of --draft
	Accepted      int        `json:"accepted_tokens"` // of those
}

func chatCommand() *cobra.Command {
	var (
		f                         llmFlags
		s                         samplingFlags
		draft                     draftFlags
		keep                      promptCache
		n                         int
		system, template, history string
	)
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Talk with a language model",
		Long: `Chat reads questions, line by line, and writes the model's answers. Ctrl-C stops an answer, not the program: what has been
said stays part of the conversation. A line that ends in a backslash goes on in the next. The embedded model continues texts in
Tolstoy's manner and was not trained to converse: --model names one that was. These lines are commands:

  /retry     ask the last question again
  /clear     forget the conversation
  /history   print the conversation
  /exit      leave, as Ctrl-D does

Any other line that begins with a slash, and a /retry before the first question, is refused, and the conversation goes on. If the
lines come from a pipe or file, the exit status is 1 in the end.`,
		Example: `  tessera chat --model model.gguf
  tessera chat --model model.gguf --system "Answer in one sentence." --history talk.json
  tessera chat --model model.gguf --draft small.gguf --history talk.json --prompt-cache talk.state`,
		Args: cli.NoArgs("a model's file follows --model; what is said to the model is read from standard input"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			sampling, err := s.options()
			if err != nil {
				return err
			}
			if n < 0 {
				return cli.Usagef("--tokens %d: a number from 0 is right", n)
			}
			if err := draft.check(); err != nil {
				return err
			}
			if err := keep.check(); err != nil {
				return err
			}
			if err := cli.CheckFiles(append(f.files(), cli.File{Flag: "--draft", Path: draft.file}, cli.File{Flag: "--template", Path: template},
				cli.File{Flag: "--prompt-cache", Path: keep.path, Written: true}, cli.File{Flag: "--history", Path: history, Written: true})...); err != nil {
				return err
			}
			jinja := ""
			if template != "" {
				data, err := regular.ReadStream(template)
				if err != nil {
					return err
				}
				jinja = string(data)
			}
			// The command's context ends with the first Ctrl-C. This one does not.
			ctx, stop := untilSignal(context.WithoutCancel(cmd.Context()))
			defer stop()
			c := &conversation{file: history, json: f.JSON, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
			c.options = llm.GenerateOptions{MaxTokens: n, Sampling: sampling, Stop: s.stop, Stats: &llm.Stats{}}
			messages, err := readHistory(history)
			if err != nil {
				return err
			}
			if c.m, err = f.open(); err != nil {
				return err
			}
			defer c.m.close()
			if err := s.check(c.m.Model); err != nil {
				return err
			}
			if err := draft.open(&f, c.m, &c.options); err != nil {
				return err
			}
			if c.chat, err = c.m.NewChat(system, jinja); err != nil {
				return err
			}
			defer c.chat.Close()
			if jinja == "" && c.m.options.Model != "" && c.m.ChatTemplate() == "" {
				fmt.Fprintf(c.notes, "%s has no chat template (it may not have been trained to converse): a common one is taken; --template names another.\n", c.m.name)
			}
			if system != "" && len(messages) > 0 && messages[0].Role == "system" {
				messages = messages[1:]
			}
			c.chat.Messages = append(c.chat.Messages, messages...)
			if err := keep.load(ctx, c.chat.Session); err != nil {
				return err
			}
			// From here on Ctrl-C stops answers; before, it ends the program, and the second time at once, also while a model's weights are packed.
			interrupts := make(chan os.Signal, 1)
			signal.Notify(interrupts, os.Interrupt)
			defer signal.Stop(interrupts)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			c.interrupts = interrupts
			err = c.talk(ctx, cli.NewLineReader(cmd.InOrStdin(), c.out, ">>> ", c.m.mostText()))
			err = errors.Join(err, keep.save(c.chat.Session))
			report, err2 := c.m.report(c.notes)
			if line := offloaded(report, "tessera inspect"); err2 == nil && line != "" {
				fmt.Fprintln(c.notes, line)
			}
			return errors.Join(err, err2)
		},
	}
	f.add(cmd)
	f.AddProfile(cmd)
	s.add(cmd)
	draft.add(cmd)
	keep.add(cmd, "keep what the model has read of the conversation in `FILE` when it ends; the next start, with --history, does not read that again")
	cmd.Flags().IntVarP(&n, "tokens", "n", 512, "tokens of an answer at most; 0 means as many as the context holds")
	cmd.Flags().StringVar(&system, "system", "", "system message: what the model is told about itself")
	cmd.Flags().StringVar(&template, "template", "", "Jinja chat template in `FILE`; without it the model's own is used, else ChatML if the vocabulary has its tokens, else lines that begin with User: and Assistant:")
	cmd.Flags().StringVar(&history, "history", "", "JSON `FILE` in which the conversation is kept after each turn, and gone on with at the next start")
	return cmd
}

// talk answers lines until there are no more.
func (c *conversation) talk(ctx context.Context, in *cli.LineReader) error {
	if in.Interactive() {
		fmt.Fprintf(c.notes, "%s on %s. Ctrl-C stops an answer, Ctrl-D or /exit leaves, /help says more.\n", c.m.name, c.m.backend)
		if c.m.options.Model == "" {
			fmt.Fprintln(c.notes, "The embedded model was not trained to converse; --model names one that was.")
		}
		if turns := len(c.chat.Messages); turns > 0 && c.file != "" {
			fmt.Fprintf(c.notes, "Going on with the %d messages of %s.\n", turns, c.file)
		}
	}
	type typed struct {
		line string
		err  error
	}
	next, lines := make(chan struct{}), make(chan typed)
	defer close(next)
	go func() { // as reading cannot be interrupted
		for range next {
			line, err := in.Read()
			lines <- typed{line, err}
		}
	}()
	defer in.Restore()
	var question strings.Builder
	most := c.m.mostText()
	refused := 0 // commands of a pipe or file
	end := func() error {
		if refused > 0 {
			return fmt.Errorf("refused commands: %d", refused)
		}
		return nil
	}
	for {
		var t typed
		next <- struct{}{}
	wait:
		for {
			select {
			case t = <-lines:
				break wait
			case <-c.interrupts: // of a terminal in line mode, where it throws the line away
				if !in.Interactive() {
					return context.Canceled
				}
			case <-ctx.Done():
				go func() { <-lines }()
				return context.Cause(ctx)
			}
		}
		if t.err != nil {
			if errors.Is(t.err, io.EOF) {
				return end()
			}
			return t.err
		}
		rest, more := strings.CutSuffix(t.line, `\`)
		question.WriteString(rest)
		if more {
			if question.Len() >= most {
				return &cli.LengthError{Most: most}
			}
			question.WriteByte('\n')
			continue
		}
		asked := strings.TrimSpace(question.String())
		question.Reset()
		if asked == "" {
			continue
		}
		leave, err := c.do(ctx, asked)
		var command refusedCommand
		switch {
		case leave:
			return end()
		case err == nil:
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case in.Interactive():
		case errors.As(err, &command):
			refused++
		default: // nobody is there who could ask in another way
			return err
		}
		fmt.Fprintln(c.notes, "tessera:", printable(err.Error()))
	}
}

// refusedCommand is a line that looks like a command and cannot be followed. Nothing has changed.
type refusedCommand string

func (r refusedCommand) Error() string { return string(r) }

// do follows a command or asks the model.
func (c *conversation) do(ctx context.Context, line string) (leave bool, err error) {
	if !strings.HasPrefix(line, "/") {
		return false, c.ask(ctx, line)
	}
	m := c.chat.Messages
	switch line {
	case "/exit", "/quit", "/bye":
		return true, nil
	case "/help", "/?":
		fmt.Fprintln(c.notes, "/retry asks the last question again, /clear forgets the conversation, /history prints it, /exit leaves.\nA line that ends in \\ goes on in the next.")
	case "/clear":
		c.chat.Messages = slices.DeleteFunc(m, func(x chat.Message) bool { return x.Role != "system" })
		return false, errors.Join(c.chat.Rewind(0), c.save())
	case "/history":
		for _, x := range m {
			fmt.Fprintf(c.notes, "%s: %s\n", x.Role, x.Content)
		}
	case "/retry":
		n := len(m)
		if n < 2 || m[n-1].Role != "assistant" || m[n-2].Role != "user" {
			return false, refusedCommand("/retry: nothing has been asked yet")
		}
		c.options.Sampling.Seed++ // else the answer would be the same
		c.chat.Messages = slices.Clone(m[:n-2])
		err := c.ask(ctx, m[n-2].Content)
		if len(c.chat.Messages) < n {
			c.chat.Messages = m // there is no other answer
		}
		return false, err
	default:
		return false, refusedCommand(line + ": unknown command; /help prints those there are")
	}
	return false, nil
}

// ask writes the model's answer as it comes. An interrupt ends it; what has been said stays.
func (c *conversation) ask(ctx context.Context, question string) error {
	answering, stop := context.WithCancel(ctx)
	defer stop()
	select {
	case <-c.interrupts: // it was for something earlier
	default:
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-c.interrupts:
			stop()
		case <-done:
		}
	}()
	var text strings.Builder
	var failed error
	for token, err := range c.chat.Send(answering, question, c.options) {
		part := token.Text // beside an error, what had been held back
		if text.Len() == 0 {
			part = strings.TrimLeft(part, " \n")
		}
		text.WriteString(part)
		if !c.json {
			fmt.Fprint(c.out, part)
		}
		if failed = err; err != nil {
			break
		}
	}
	stats := c.options.Stats
	stopped := errors.Is(failed, context.Canceled) && ctx.Err() == nil
	if stopped {
		failed = nil
	}
	if c.json && failed == nil {
		err := cli.PrintJSON(c.out, reply{strings.TrimRight(text.String(), " \n"), append([]int32{}, stats.Tokens...), len(stats.Prompt), finite(stats.PrefillRate()),
			finite(stats.DecodeRate()), c.m.backend, c.m.name, stats.Reason, stats.Guessed, stats.Accepted})
		return errors.Join(err, c.save())
	}
	if !c.json && (text.Len() > 0 || failed == nil) {
		fmt.Fprintln(c.out)
	}
	switch {
	case stopped:
		fmt.Fprintln(c.notes, "(stopped)")
	case failed == nil && stats.Reason == llm.ReasonLength:
		fmt.Fprintf(c.notes, "(-n %d reached)\n", c.options.MaxTokens)
	case failed == nil && stats.Reason == llm.ReasonContext:
		fmt.Fprintf(c.notes, "(the context of %d tokens is full)\n", c.m.Context())
	}
	return errors.Join(failed, c.save())
}

// readHistory reads a conversation that save wrote; a file that does not exist is an empty one.
func readHistory(path string) ([]chat.Message, error) {
	if path == "" {
		return nil, nil
	}
	if err := atomicfile.CheckWritable(path); err != nil { // before somebody talks
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []chat.Message
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: not a conversation: %w", path, err)
	}
	for i, m := range list {
		if m.Role != "user" && m.Role != "assistant" && (m.Role != "system" || i > 0) {
			return nil, fmt.Errorf("%s: message %d has the role %q; user, assistant, and first of all system are right", path, i, m.Role)
		}
	}
	return list, nil
}

// save writes the conversation, so that the file is at every time that of before or that of now.
func (c *conversation) save() error {
	if c.file == "" {
		return nil
	}
	data, err := json.MarshalIndent(c.chat.Messages, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(c.file, 0o600, func(f *os.File) error {
		_, err := f.Write(append(data, '\n'))
		return err
	})
}
