package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/safetensors"
	"github.com/tessera-go/tessera/models/tokenizer"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/tensor"
)

// folderConfig is a config.json, of the architectures that can be run from a folder.
type folderConfig struct {
	ModelType     string       `json:"model_type"`
	Architectures []string     `json:"architectures"`
	Name          string       `json:"_name_or_path"`
	Vocab         int          `json:"vocab_size"`
	Context       int          `json:"max_position_embeddings"`
	Dim           int          `json:"hidden_size"`
	FFN           int          `json:"intermediate_size"`
	Layers        int          `json:"num_hidden_layers"`
	Heads         int          `json:"num_attention_heads"`
	KVHeads       int          `json:"num_key_value_heads"`
	HeadDim       int          `json:"head_dim"`
	RMSEps        float64      `json:"rms_norm_eps"`
	LayerEps      float64      `json:"layer_norm_eps"`
	RopeTheta     float64      `json:"rope_theta"`
	RopeScaling   *ropeScaling `json:"rope_scaling"`
	RopeNow       *ropeScaling `json:"rope_parameters"` // what newer files have instead
	Window        *int         `json:"sliding_window"`
	UseWindow     *bool        `json:"use_sliding_window"`
	Act           string       `json:"hidden_act"`
	Tied          *bool        `json:"tie_word_embeddings"`
	Experts       int          `json:"num_local_experts"`
	TokenTypes    int          `json:"type_vocab_size"`
}

type ropeScaling struct {
	Theta    float64 `json:"rope_theta"`
	Type     string  `json:"rope_type"`
	OldType  string  `json:"type"`
	Factor   float64 `json:"factor"`
	Low      float64 `json:"low_freq_factor"`
	High     float64 `json:"high_freq_factor"`
	Original int     `json:"original_max_position_embeddings"`
	Fast     float64 `json:"beta_fast"`
	Slow     float64 `json:"beta_slow"`
}

// folderTokens is what tokenizer_config.json says beyond tokenizer.json. Tokens are strings or objects with a content.
type folderTokens struct {
	BOS      json.RawMessage `json:"bos_token"`
	EOS      json.RawMessage `json:"eos_token"`
	UNK      json.RawMessage `json:"unk_token"`
	PAD      json.RawMessage `json:"pad_token"`
	CLS      json.RawMessage `json:"cls_token"`
	SEP      json.RawMessage `json:"sep_token"`
	MASK     json.RawMessage `json:"mask_token"`
	AddBOS   *bool           `json:"add_bos_token"`
	AddEOS   *bool           `json:"add_eos_token"`
	Template json.RawMessage `json:"chat_template"`
}

var activations = map[string]ops.Activation{"silu": ops.SiLU, "swish": ops.SiLU, "gelu": ops.GELU, "gelu_new": ops.GELUTanh, "gelu_pytorch_tanh": ops.GELUTanh, "relu": ops.ReLU}

// maxJSON bounds the JSON files of a folder.
const maxJSON = 256 << 20

func readJSON(dir, name string, v any) error {
	f, err := regular.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJSON+1))
	if err != nil {
		return err
	}
	if len(data) > maxJSON {
		return fmt.Errorf("%s: more than %d bytes", name, maxJSON)
	}
	if raw, ok := v.(*[]byte); ok {
		*raw = data
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// openFolder opens a folder as Hugging Face lays it out: config.json, tokenizer.json, and safetensors files. Llama, Mistral, Qwen2,
// Qwen3 and BERT can be run.
func openFolder(dir string, o Options, start time.Time) (*Model, error) {
	var fc folderConfig
	if err := readJSON(dir, "config.json", &fc); err != nil {
		return nil, err
	}
	c, factors, err := fc.config()
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if err := c.readPooling(dir); err != nil {
		return nil, err
	}
	tok, template, err := folderTokenizer(dir)
	if err != nil {
		return nil, err
	}
	src, err := openShards(dir)
	if err != nil {
		return nil, err
	}
	src.arch, src.layers, src.factors = c.Arch, c.Layers, factors
	if fc.Tied != nil && *fc.Tied {
		src.tied = true
	}
	m, err := newModel(c, tok, src, o, start)
	if err != nil {
		_ = src.Close()
		return nil, err
	}
	m.template = template
	return m, nil
}

func (f *folderConfig) config() (*Config, []float32, error) {
	arch := map[string]string{"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "bert": "bert"}[f.ModelType]
	if arch == "" {
		return nil, nil, fmt.Errorf("model_type %q cannot be run from a folder; llama, mistral, qwen2, qwen3 and bert can", f.ModelType)
	}
	if f.Experts > 0 {
		return nil, nil, fmt.Errorf("a mixture of %d experts cannot be run", f.Experts)
	}
	fam := families[arch]
	if f.Layers < 1 || f.Layers > 1<<12 || f.Heads < 1 {
		return nil, nil, fmt.Errorf("%d layers with %d heads", f.Layers, f.Heads)
	}
	if f.KVHeads == 0 {
		f.KVHeads = f.Heads
	}
	if f.HeadDim == 0 {
		f.HeadDim = f.Dim / f.Heads
	}
	if f.KVHeads < 1 || f.Heads%f.KVHeads != 0 {
		return nil, nil, fmt.Errorf("%d query heads and %d key heads; a multiple of at least one is right", f.Heads, f.KVHeads)
	}
	c := &Config{Arch: arch, Name: f.Name, Context: f.Context, Dim: f.Dim, Layers: f.Layers, HeadDim: f.HeadDim, ValDim: f.HeadDim,
		LayerNorm: fam.layerNorm, Gated: fam.gated, Act: fam.act, Causal: !fam.encoder, NormEps: float32(f.RMSEps), Local: make([]bool, f.Layers)}
	c.Heads, c.KVHeads, c.FFN = slices.Repeat([]int{f.Heads}, f.Layers), slices.Repeat([]int{f.KVHeads}, f.Layers), slices.Repeat([]int{f.FFN}, f.Layers)
	if c.LayerNorm {
		c.NormEps = float32(f.LayerEps)
	}
	if c.NormEps == 0 { // the file does not say it, and the classes that such files are for have these
		if c.NormEps = 1e-6; c.LayerNorm {
			c.NormEps = 1e-12
		}
	}
	if f.Act != "" {
		var ok bool
		if c.Act, ok = activations[f.Act]; !ok {
			return nil, nil, fmt.Errorf("hidden_act %q is unknown", f.Act)
		}
	}
	if fam.encoder {
		c.Pooling = PoolMean
		return c, nil, c.check()
	}
	if f.Window != nil && *f.Window > 0 && (f.UseWindow == nil && f.ModelType == "mistral" || f.UseWindow != nil && *f.UseWindow) {
		c.Window = *f.Window
		for i := range c.Local {
			c.Local[i] = true
		}
	}
	// Checkpoints keep the two halves of a head apart, whatever GGUF files do.
	if f.RopeNow != nil {
		f.RopeScaling = f.RopeNow
		if f.RopeNow.Theta > 0 {
			f.RopeTheta = f.RopeNow.Theta
		}
	}
	r := attention.RoPE{Half: true, Dims: f.HeadDim, Base: float32(f.RopeTheta)}
	if r.Base == 0 {
		r.Base = 10000
	}
	c.Rope = &r
	c.longFactorsFrom = f.Context
	var factors []float32
	if s := f.RopeScaling; s != nil {
		kind := s.Type
		if kind == "" {
			kind = s.OldType
		}
		if kind != "" && kind != "default" && !(s.Factor > 0 && s.Factor <= math.MaxFloat32) {
			return nil, nil, fmt.Errorf("rope_scaling %q with the factor %g", kind, s.Factor)
		}
		if kind != "" && kind != "default" {
			trained := s.Original
			if trained == 0 {
				trained = f.Context
			}
			c.stretched = float64(trained) * s.Factor
		}
		switch kind {
		case "", "default":
		case "linear":
			r.Scale = float32(1 / s.Factor)
		case "yarn":
			r.Scale, r.Extrapolate, r.Context = float32(1/s.Factor), 1, s.Original
			if r.Context == 0 {
				r.Context = f.Context
			}
			r.Fast, r.Slow = float32(s.Fast), float32(s.Slow)
		case "llama3":
			var err error
			if factors, err = llama3Factors(&r, s.Factor, s.Low, s.High, s.Original); err != nil {
				return nil, nil, err
			}
		default:
			return nil, nil, fmt.Errorf("rope_scaling %q cannot be run; linear, yarn and llama3 can", kind)
		}
	}
	return c, factors, c.check()
}

// sentenceModule is an entry of modules.json, in which sentence-transformers lists what stands behind the model.
type sentenceModule struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

// readPooling reads how a sentence encoder makes one vector of a text, where the folder says so. Its vectors' length is the caller's choice, whatever
// the modules say of it.
func (c *Config) readPooling(dir string) error {
	const single = "1_Pooling" // of folders from before there were lists
	modules := []sentenceModule{{single, "Pooling"}}
	if err := readJSON(dir, "modules.json", &modules); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, m := range modules {
		switch kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]; kind {
		case "Transformer", "Normalize":
		case "Pooling":
			if !filepath.IsLocal(m.Path) {
				return fmt.Errorf("modules.json: %q is no folder of the model", m.Path)
			}
			name := filepath.Join(m.Path, "config.json")
			var modes map[string]any
			if err := readJSON(dir, name, &modes); errors.Is(err, os.ErrNotExist) && m.Path == single {
				continue
			} else if err != nil {
				return err
			}
			if err := c.setPooling(modes); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		default:
			return fmt.Errorf("modules.json: modules of the type %q cannot be run; Transformer, Pooling and Normalize can", m.Type)
		}
	}
	return nil
}

// setPooling takes the one mode that a pooling's configuration has: true, or, in newer files, by name.
func (c *Config) setPooling(modes map[string]any) error {
	known := map[string]Pooling{"cls_token": PoolCLS, "mean_tokens": PoolMean, "lasttoken": PoolLast, "cls": PoolCLS, "mean": PoolMean}
	var on []string
	for key, value := range modes {
		if mode, ok := strings.CutPrefix(key, "pooling_mode_"); ok && value == true {
			on = append(on, mode)
		} else if name, ok := value.(string); ok && key == "pooling_mode" {
			on = append(on, name)
		}
	}
	slices.Sort(on)
	if len(on) == 0 {
		return nil
	}
	pool, ok := known[on[0]]
	if !ok || len(on) > 1 {
		return fmt.Errorf("pooling by %s cannot be run; one of cls_token, mean_tokens and lasttoken can", strings.Join(on, " and "))
	}
	c.Pooling = pool
	return nil
}

// llama3Factors are the divisors of Llama 3's stretched frequencies: none for short wavelengths, the factor for long ones, and a smooth
// passage between.
func llama3Factors(r *attention.RoPE, factor, low, high float64, original int) ([]float32, error) {
	if low <= 0 || high <= low || original < 1 {
		return nil, fmt.Errorf("rope_scaling llama3 with low_freq_factor %g, high_freq_factor %g and %d original positions", low, high, original)
	}
	out := make([]float32, r.Dims/2)
	for i := range out {
		freq := math.Pow(float64(r.Base), -2*float64(i)/float64(r.Dims))
		wave := 2 * math.Pi / freq
		switch smooth := (float64(original)/wave - low) / (high - low); {
		case smooth >= 1:
			out[i] = 1
		case smooth <= 0:
			out[i] = float32(factor)
		default:
			out[i] = float32(1 / ((1-smooth)/factor + smooth))
		}
	}
	return out, nil
}

func folderTokenizer(dir string) (*tokenizer.Tokenizer, string, error) {
	var data []byte
	if err := readJSON(dir, "tokenizer.json", &data); err != nil {
		return nil, "", err
	}
	tok, err := tokenizer.FromJSON(data)
	if err != nil {
		return nil, "", err
	}
	var ft folderTokens
	if err := readJSON(dir, "tokenizer_config.json", &ft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	names := map[string]string{}
	for name, raw := range map[string]json.RawMessage{"bos": ft.BOS, "eos": ft.EOS, "unk": ft.UNK, "pad": ft.PAD, "cls": ft.CLS, "sep": ft.SEP, "mask": ft.MASK} {
		var s string
		var object struct {
			Content string `json:"content"`
		}
		if json.Unmarshal(raw, &s) != nil && json.Unmarshal(raw, &object) == nil {
			s = object.Content
		}
		if _, ok := tok.ID(s); ok && s != "" {
			names[name] = s
		}
	}
	if err := tok.SetSpecial(names); err != nil {
		return nil, "", err
	}
	tok.AddSpecial(ft.AddBOS != nil && *ft.AddBOS, ft.AddEOS != nil && *ft.AddEOS)
	// Texts may end with other tokens than the one in the configuration.
	var generation struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err := readJSON(dir, "generation_config.json", &generation); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, "", err
	}
	if len(generation.EOS) > 0 && string(generation.EOS) != "null" {
		var one int32
		var all []int32
		if json.Unmarshal(generation.EOS, &one) == nil {
			all = []int32{one}
		} else if err := json.Unmarshal(generation.EOS, &all); err != nil {
			return nil, "", fmt.Errorf("generation_config.json: eos_token_id: %w", err)
		}
		tok.SetEnd(all...)
	}
	var template string
	if json.Unmarshal(ft.Template, &template) != nil {
		// Several by name.
		var list []struct{ Name, Template string }
		_ = json.Unmarshal(ft.Template, &list)
		for _, t := range list {
			if t.Name == "default" || template == "" {
				template = t.Template
			}
		}
	}
	switch text, err := regular.ReadFile(filepath.Join(dir, "chat_template.jinja")); {
	case err == nil:
		template = string(text)
	case !errors.Is(err, os.ErrNotExist):
		return nil, "", err
	}
	return tok, template, nil
}

// shards is a source of several safetensors files whose tensors are asked for by their GGUF names.
type shards struct {
	files   []*safetensors.File
	stamps  []string
	where   map[string]*safetensors.File
	arch    string
	layers  int
	tied    bool
	factors []float32
}

func openShards(dir string) (*shards, error) {
	names := []string{"model.safetensors"}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	switch err := readJSON(dir, "model.safetensors.index.json", &index); {
	case err == nil:
		names = nil
		for _, file := range index.Map {
			if file != filepath.Base(file) || file == "" || file == ".." {
				return nil, fmt.Errorf("model.safetensors.index.json: %q is no file of the folder", file)
			}
			if !slices.Contains(names, file) {
				names = append(names, file)
			}
		}
		slices.Sort(names)
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	s := &shards{where: map[string]*safetensors.File{}}
	for _, name := range names {
		f, err := safetensors.Open(filepath.Join(dir, name))
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.files = append(s.files, f)
		s.stamps = append(s.stamps, stampOf(filepath.Join(dir, name)))
		for _, t := range f.Tensors {
			if s.where[t.Name] != nil {
				_ = s.Close()
				return nil, fmt.Errorf("tensor %q lies in two files", t.Name)
			}
			s.where[t.Name] = f
		}
	}
	return s, nil
}

// decoderNames and bertNames are the checkpoints' names of tensors, by the GGUF name behind "blk.N.".
var decoderNames = map[string]string{"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
	"attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
	"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}

var bertNames = map[string]string{"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
	"attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm", "ffn_up": "intermediate.dense", "ffn_down": "output.dense",
	"layer_output_norm": "output.LayerNorm"}

var bertTop = map[string]string{"token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
	"token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm"}

var decoderTop = map[string]string{"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}

// find returns the file and the name of a tensor by its GGUF name.
func (s *shards) find(name string) (*safetensors.File, string) {
	if s.tied && strings.HasPrefix(name, "output.") {
		return nil, name
	}
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return nil, name
	}
	stem, kind := name[:dot], name[dot:]
	top, inner, prefixes := decoderTop, decoderNames, []string{"", "model."}
	layer := "model.layers."
	if s.arch == "bert" {
		top, inner, prefixes, layer = bertTop, bertNames, []string{"", "bert."}, "encoder.layer."
	}
	full := top[stem]
	if rest, ok := strings.CutPrefix(stem, "blk."); ok {
		n, part, _ := strings.Cut(rest, ".")
		if inner[part] == "" {
			return nil, name
		}
		full = layer + n + "." + inner[part]
	}
	if full == "" {
		return nil, name
	}
	kinds := []string{kind}
	if s.arch == "bert" { // very old checkpoints call the norm's tensors gamma and beta
		kinds = append(kinds, map[string]string{".weight": ".gamma", ".bias": ".beta"}[kind])
	}
	for _, p := range prefixes {
		for _, k := range kinds {
			if f := s.where[p+full+k]; f != nil {
				return f, p + full + k
			}
		}
		if trimmed, ok := strings.CutPrefix(full, "model."); ok && s.where[trimmed+kind] != nil {
			return s.where[trimmed+kind], trimmed + kind
		}
	}
	return nil, full + kind
}

// Has reports whether there is a tensor of that GGUF name.
func (s *shards) Has(name string) bool {
	if name == "rope_freqs.weight" {
		return s.factors != nil
	}
	f, _ := s.find(name)
	return f != nil
}

// Tensor returns a tensor by its GGUF name.
func (s *shards) Tensor(name string) (tensor.Tensor, error) {
	if name == "rope_freqs.weight" && s.factors != nil {
		return tensor.Of(s.factors, len(s.factors)), nil
	}
	f, full := s.find(name)
	if f == nil {
		return tensor.Tensor{}, fmt.Errorf("tensor %q (%s): %w", full, name, safetensors.ErrMissing)
	}
	return f.Tensor(full)
}

func (s *shards) stamp() string { return strings.Join(s.stamps, "\n") }

func (s *shards) each(f func(string, []byte)) {
	for _, file := range s.files {
		for i := range file.Tensors {
			f(file.Tensors[i].Name, file.Data(&file.Tensors[i]))
		}
	}
}

// Close closes the files.
func (s *shards) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
