// Package llm runs language models: it opens a GGUF file or a folder of safetensors, builds the model's graph for backends that the program has linked, keeps the
// keys and values of what has been read, and generates text, probabilities or vectors.
//
//	m, err := llm.Open("model.gguf", llm.Options{})
//	...
//	defer m.Close()
//	for token, err := range m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 40}) {
//		...
//		fmt.Print(token.Text)
//	}
//
// A Model may be used by several goroutines. Each of its calls, or each [Session], has a cache and activations of its own; weights, and
// what backends have made of them, are shared.
package llm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/tokenizer"
	"github.com/tessera-go/tessera/tensor"
)

// ErrClosed says that a model or session was used after Close.
var ErrClosed = errors.New("llm: closed")

// Options say how a model is opened. The zero value runs on the CPU backend, which the program must have linked.
type Options struct {
	// Backends in order of preference; the last must support everything. They stay open when the model closes. Nil opens "cpu".
	Backends []backends.Backend
	// Context is the number of positions of a session; 0 means what the model was trained for, at most DefaultContext.
	Context int
	// Chunk is the largest number of tokens in one run of the graph; 0 means 512.
	Chunk int
	// CacheType is the element type of keys and values, one of CacheTypes; Invalid means F32.
	CacheType tensor.DType
	// WeightCache is a file in which the weights are kept as the backend has packed them; WeightCachePath is a good place. The next start maps it instead of
	// packing again. A file that belongs to another model, processor or version, or is damaged, is replaced; Model.WeightCache says what happened.
	WeightCache string
	// Progress, if not nil, is called while Open packs weights, from one goroutine at a time, with the bytes of the files read so far and in all. Weights that
	// are not kept in a file may be packed by the first runs instead, which do not call it.
	Progress func(done, total int64)
	// Strict makes a product that an earlier backend refuses an error, not a fallback.
	Strict bool
	// MaxMemory is the number of bytes above which a model is refused; 0 is no limit.
	MaxMemory int64
	// DisablePasses names passes over the graph to leave out, of graph.PassNames, or "all".
	DisablePasses []string
	// Profile measures every node of the graph, for the Profile of Model.Executable.
	Profile bool
	// OnNode, if not nil, is called after each node of the graph; an error ends the run. It is called in the middle of a call on the model, by the
	// goroutines of several calls at one time. It must not close the session or the model, which would wait for that call: cancel its context instead.
	OnNode func(graph.NodeEvent) error
}

// graph returns the options of the graphs that a model is compiled to.
func (o *Options) graph() graph.Options {
	return graph.Options{Backends: o.Backends, Strict: o.Strict, MaxMemory: o.MaxMemory, DisablePasses: o.DisablePasses, Profile: o.Profile, OnNode: o.OnNode}
}

// CacheTypes returns the types that keys and values can have. Q8_0 needs heads whose size is a multiple of 32.
func CacheTypes() []tensor.DType {
	return []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0}
}

// DefaultContext bounds the context that is taken when Options give none.
const DefaultContext = 1 << 15

// Model is an open model. It may be used by several goroutines.
type Model struct {
	Config    *Config
	Tokenizer *tokenizer.Tokenizer
	LoadTime  time.Duration // what Open or Parse took

	w        *weights
	template string // of chats
	opts     Options
	own      []backends.Backend // opened here

	mu       sync.Mutex
	opening  sync.RWMutex // read while a session is opened
	programs map[limits]*program
	sessions map[*Session]struct{}
	idle     []*Session // for calls on the model itself
	closed   bool
	encoder  *encoders // of models that encode
}

// program is a compiled decoder, of which sessions are forks.
type program struct {
	*decoder
	lim limits

	mu    sync.Mutex
	exe   *graph.Executable
	taken bool // exe itself belongs to a session
}

// Open opens a GGUF file, or a folder with config.json, tokenizer.json and safetensors files (Llama, Mistral, Qwen2, Qwen3, BERT). Files of tensors are
// mapped and must stay as they are until Close: a file that is cut short meanwhile is an error of the calls that read it, one that is overwritten in
// place changes the results.
func Open(path string, o Options) (m *Model, err error) {
	defer mem.Caught(mem.Catch(), &err)
	start := time.Now()
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		m, err := openFolder(path, o, start)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
		return m, nil
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	m, err = fromGGUF(f, stampOf(path), o, start)
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return m, nil
}

// Parse opens a GGUF file that lies in memory, such as an embedded one. The bytes must not change.
func Parse(data []byte, o Options) (m *Model, err error) {
	defer mem.Caught(mem.Catch(), &err) // packed weights may be mapped
	start := time.Now()
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, err
	}
	return fromGGUF(f, "", o, start)
}

// ggufSource is a GGUF file with its stamp.
type ggufSource struct {
	*gguf.File
	made string
}

func (s ggufSource) Has(name string) bool { return s.Info(name) != nil }

func (s ggufSource) stamp() string { return s.made }

func (s ggufSource) each(f func(string, []byte)) {
	for i := range s.Tensors {
		f(s.Tensors[i].Name, s.Data(&s.Tensors[i]))
	}
}

func fromGGUF(f *gguf.File, stamp string, o Options, start time.Time) (*Model, error) {
	c, err := ReadConfig(f)
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		return nil, err
	}
	m, err := newModel(c, tok, ggufSource{f, stamp}, o, start)
	if err == nil {
		m.template, _ = f.Str("tokenizer.chat_template")
	}
	return m, err
}

// newModel checks that vocabulary and embedding agree, opens the backend, and builds and compiles the graph, so that a damaged file is
// found when it is opened. On an error the source may be closed, and may be closed again.
func newModel(c *Config, tok *tokenizer.Tokenizer, src source, o Options, start time.Time) (*Model, error) {
	table, err := src.Tensor("token_embd.weight")
	if err != nil {
		return nil, err
	}
	// Checkpoints may pad the embedding beyond the vocabulary; GGUF files pad the vocabulary too.
	_, folder := src.(*shards)
	if table.Rank != 2 || table.Dims[0] < tok.Size() || table.Dims[0] != tok.Size() && !folder {
		return nil, fmt.Errorf("tensor \"token_embd.weight\" is %v, but the vocabulary has %d tokens", table.Spec, tok.Size())
	}
	c.Vocab = table.Dims[0]
	if o.Context == 0 {
		o.Context = min(c.Context, DefaultContext)
	}
	if o.Context < 1 || o.Context > 1<<30 {
		return nil, fmt.Errorf("context of %d tokens, 0 (as the model was trained for) to %d are right", o.Context, 1<<30)
	}
	if o.Chunk == 0 {
		o.Chunk = 512
	}
	if o.Chunk < 1 {
		return nil, fmt.Errorf("chunk of %d tokens, 0 (512) or more are right", o.Chunk)
	}
	o.Chunk = min(o.Chunk, o.Context)
	if o.CacheType == tensor.Invalid {
		o.CacheType = tensor.F32
	}
	if !slices.Contains(CacheTypes(), o.CacheType) {
		return nil, fmt.Errorf("keys and values of type %v; one of %v is right", o.CacheType, CacheTypes())
	}
	if block := o.CacheType.Block(); c.Causal && (c.HeadDim%block != 0 || c.ValDim%block != 0) {
		return nil, fmt.Errorf("keys and values of type %v need heads whose size is a multiple of %d; they have %d and %d", o.CacheType, block, c.HeadDim, c.ValDim)
	}
	m := &Model{Config: c, Tokenizer: tok, w: &weights{src: src, keep: keeper{path: o.WeightCache, progress: o.Progress}}, opts: o, programs: map[limits]*program{}, sessions: map[*Session]struct{}{}}
	if len(o.Backends) == 0 {
		cpu, err := backends.Open("cpu")
		if err != nil {
			return nil, err
		}
		m.own = []backends.Backend{cpu}
		m.opts.Backends = m.own
	}
	if err = m.w.keep.open(src); err != nil {
		return nil, errors.Join(err, m.closeOwn())
	}
	if c.Causal {
		_, err = m.program(context.Background(), m.limits())
	} else {
		err = m.openEncoder(context.Background())
	}
	if err != nil {
		return nil, errors.Join(err, m.w.close(), m.closeOwn())
	}
	m.w.keep.write()
	m.LoadTime = time.Since(start)
	return m, nil
}

// maxLogits bounds the bytes of logits in one run.
const maxLogits = 32 << 20

// limits are those of the model's sessions.
func (m *Model) limits() limits {
	rows := min(m.opts.Chunk, max(1, maxLogits/4/m.Config.Vocab))
	return limits{context: m.opts.Context, tokens: m.opts.Chunk, rows: rows, seqs: 1, cache: m.opts.CacheType}
}

// program returns the compiled decoder for limits, built by the first caller.
func (m *Model) program(ctx context.Context, lim limits) (p *program, err error) {
	defer mem.Caught(mem.Catch(), &err) // weights may be packed or converted
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if p = m.programs[lim]; p != nil {
		return p, nil
	}
	d, err := buildDecoder(m.Config, m.w, lim)
	if err != nil {
		return nil, err
	}
	exe, err := d.g.Compile(ctx, m.opts.graph())
	if err != nil {
		return nil, err
	}
	p = &program{decoder: d, lim: lim, exe: exe}
	m.programs[lim] = p
	return p, nil
}

// fork returns an executable for one session.
func (p *program) fork(ctx context.Context) (*graph.Executable, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.taken {
		p.taken = true
		return p.exe, nil
	}
	return p.exe.Fork(ctx)
}

// Executable returns the compiled graph of the model's sessions, for reports on placement and memory.
func (m *Model) Executable() (*graph.Executable, error) {
	if !m.Config.Causal {
		return m.encoder.first, nil
	}
	p, err := m.program(context.Background(), m.limits())
	if err != nil {
		return nil, err
	}
	return p.exe, nil
}

// Context returns the number of positions of a session.
func (m *Model) Context() int { return m.opts.Context }

// CacheBytes returns the bytes of keys and values of one session.
func (m *Model) CacheBytes() int64 {
	var n int64
	for _, g := range m.Config.KVHeads {
		n += int64(g) * int64(m.opts.Context) * int64(m.Config.HeadDim+m.Config.ValDim)
	}
	return n * int64(m.opts.CacheType.Size()) / int64(m.opts.CacheType.Block())
}

// Close closes sessions, waits for what they are doing, and releases weights and file. A second call does nothing.
func (m *Model) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	m.opening.Lock() // sessions that are being opened are done now; later ones see that the model is closed
	m.opening.Unlock()
	m.mu.Lock()
	open := make([]*Session, 0, len(m.sessions))
	for s := range m.sessions {
		open = append(open, s)
	}
	m.mu.Unlock()
	var errs []error
	for _, s := range open {
		errs = append(errs, s.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.programs {
		if !p.taken { // else the session that had it has closed it
			errs = append(errs, p.exe.Close())
		}
		errs = append(errs, p.g.Close())
	}
	if m.encoder != nil {
		errs = append(errs, m.encoder.close())
	}
	return errors.Join(errors.Join(errs...), m.w.close(), m.closeOwn())
}

func (m *Model) closeOwn() error {
	var errs []error
	for _, b := range m.own {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// String describes the model in one line.
func (m *Model) String() string {
	c := m.Config
	text := fmt.Sprintf("%s, %d layers, width %d, vocabulary %d, context %d", c.Arch, c.Layers, c.Dim, c.Vocab, m.opts.Context)
	if name := strings.TrimSpace(c.Name); name != "" { // folders have none
		text = name + ": " + text
	}
	return text
}
