package llm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
)

// Pooling says how an encoder makes one vector of a text.
type Pooling uint8

// The poolings, with the numbers of GGUF files.
const (
	PoolNone Pooling = iota
	PoolMean
	PoolCLS // the first token
	PoolLast
)

func (p Pooling) String() string { return [...]string{"none", "mean", "cls", "last"}[p] }

// Config is what a file says about a model's shape. Slices have an element for each layer.
type Config struct {
	Arch    string
	Name    string
	Vocab   int
	Context int // that the model was trained for
	Dim     int // of the vector that stands for a token between layers
	Layers  int
	Heads   []int // of queries
	KVHeads []int // of keys and values, each of which serves as many heads of queries
	FFN     []int // width of the feed-forward part
	HeadDim int   // of queries and keys
	ValDim  int   // of values

	LayerNorm bool // else RMS
	NormEps   float32
	Act       ops.Activation
	Gated     bool // act(gate x) * (up x), else act(up x)

	Rope      *attention.RoPE // nil: none
	LocalRope *attention.RoPE // of local layers, where it differs
	Local     []bool          // layers that attend to the last Window tokens only
	Window    int

	AttnScale    float32 // 0: 1/sqrt(HeadDim)
	AttnSoftcap  float32 // bounds scores, as c tanh(x / c); 0: none
	FinalSoftcap float32 // bounds logits likewise
	EmbedScale   float32 // 0: 1
	Causal       bool    // a decoder, which generates; else an encoder, for Embed alone
	Pooling      Pooling

	longFactorsFrom int     // contexts above it use the long frequency factors, where a file has two sets
	stretched       float64 // positions that the scaling of rotary positions reaches; 0: none is scaled
}

// Reach returns how many positions the model is good for: those that it was trained for, or those to which the scaling of its rotary positions
// stretches them. A longer context runs, but what stands behind that may make no sense.
func (c *Config) Reach() int {
	return max(c.Context, int(min(c.stretched, 1<<30)))
}

// family is what an architecture's name decides; everything else is in the file.
type family struct {
	half       bool // rotary pairs are (i, i + n/2)
	noRope     bool
	layerNorm  bool
	act        ops.Activation
	gated      bool
	encoder    bool
	embedScale bool // by sqrt(Dim)
	pattern    int  // every pattern-th layer is global, where a window is given; 0: none is local
}

var families = map[string]family{
	"llama":  {act: ops.SiLU, gated: true},
	"qwen2":  {act: ops.SiLU, gated: true, half: true},
	"qwen3":  {act: ops.SiLU, gated: true, half: true},
	"phi3":   {act: ops.SiLU, gated: true, half: true},
	"gemma":  {act: ops.GELUTanh, gated: true, half: true, embedScale: true},
	"gemma2": {act: ops.GELUTanh, gated: true, half: true, embedScale: true, pattern: 2},
	"gemma3": {act: ops.GELUTanh, gated: true, half: true, embedScale: true, pattern: 6},
	"gpt2":   {act: ops.GELUTanh, layerNorm: true, noRope: true},
	"bert":   {act: ops.GELU, layerNorm: true, noRope: true, encoder: true},
}

// Architectures returns the names of the architectures that can be run, sorted.
func Architectures() []string {
	names := make([]string, 0, len(families))
	for n := range families {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// keys reads metadata below the architecture's name and keeps the first error.
type keys struct {
	f    *gguf.File
	arch string
	err  error
}

func (k *keys) fail(err error) {
	if k.err == nil {
		k.err = err
	}
}

func read[T any](k *keys, get func(string) (T, error), key string, def *T) T {
	v, err := get(k.arch + "." + key)
	if err == nil {
		return v
	}
	if def != nil && errors.Is(err, gguf.ErrMissing) {
		return *def
	}
	k.fail(err)
	var zero T
	return zero
}

func (k *keys) int(key string) int               { return read(k, k.f.Int, key, nil) }
func (k *keys) intOr(key string, def int) int    { return read(k, k.f.Int, key, &def) }
func (k *keys) strOr(key, def string) string     { return read(k, k.f.Str, key, &def) }
func (k *keys) boolOr(key string, def bool) bool { return read(k, k.f.Bool, key, &def) }

// floatOr reads a number that is not negative. All that files give are such, and are float32 where they are used.
func (k *keys) floatOr(key string, def float64) float64 {
	v := read(k, k.f.Float, key, &def)
	if !(v >= 0 && v <= math.MaxFloat32) {
		k.fail(fmt.Errorf("%s.%s is %g, a number from 0 is right", k.arch, key, v))
	}
	return v
}

// perLayer reads a number that may be given once or for each layer.
func (k *keys) perLayer(key string, layers int, def []int) []int {
	v := read(k, k.f.Ints, key, &def)
	switch {
	case k.err != nil:
		return nil
	case len(v) == 1:
		return slices.Repeat(v, layers)
	case len(v) != layers:
		k.fail(fmt.Errorf("%s.%s has %d numbers, the model has %d layers", k.arch, key, len(v), layers))
	}
	return v
}

// ReadConfig reads the shape of the model in a GGUF file.
func ReadConfig(f *gguf.File) (*Config, error) {
	arch, err := f.Str("general.architecture")
	if err != nil {
		return nil, err
	}
	fam, ok := families[arch]
	if !ok {
		return nil, fmt.Errorf("architecture %q is unknown; known are %s", arch, strings.Join(Architectures(), ", "))
	}
	c := &Config{Arch: arch, LayerNorm: fam.layerNorm, Act: fam.act, Gated: fam.gated, Causal: !fam.encoder}
	c.Name, _ = f.Str("general.name")
	k := &keys{f: f, arch: arch}
	c.Layers = k.int("block_count")
	c.Context = k.int("context_length")
	c.Dim = k.int("embedding_length")
	if k.err == nil && (c.Layers < 1 || c.Layers > len(f.Tensors)) {
		return nil, fmt.Errorf("%s.block_count is %d, the file has %d tensors", arch, c.Layers, len(f.Tensors))
	}
	if k.err != nil {
		return nil, k.err
	}
	c.FFN = k.perLayer("feed_forward_length", c.Layers, nil)
	c.Heads = k.perLayer("attention.head_count", c.Layers, nil)
	c.KVHeads = k.perLayer("attention.head_count_kv", c.Layers, c.Heads)
	if k.err != nil {
		return nil, k.err
	}
	for i := range c.Layers {
		if c.Heads[i] < 1 || c.KVHeads[i] < 1 || c.Heads[i]%c.KVHeads[i] != 0 {
			return nil, fmt.Errorf("layer %d has %d query heads and %d key heads; a multiple of at least one is right", i, c.Heads[i], c.KVHeads[i])
		}
	}
	if n := k.intOr("expert_count", 0); n > 0 {
		return nil, fmt.Errorf("a mixture of %d experts cannot be run", n)
	}
	head := 0
	if c.Dim > 0 {
		head = c.Dim / c.Heads[0]
	}
	c.HeadDim = k.intOr("attention.key_length", head)
	c.ValDim = k.intOr("attention.value_length", c.HeadDim)
	eps := "attention.layer_norm_rms_epsilon"
	if c.LayerNorm {
		eps = "attention.layer_norm_epsilon"
	}
	c.NormEps = float32(k.floatOr(eps, 1e-5))
	c.Causal = k.boolOr("attention.causal", c.Causal)
	c.AttnSoftcap = float32(k.floatOr("attn_logit_softcapping", 0))
	c.FinalSoftcap = float32(k.floatOr("final_logit_softcapping", 0))
	pool := k.intOr("pooling_type", int(PoolNone))
	if k.err != nil {
		return nil, k.err
	}
	if pool < 0 || pool > int(PoolLast) {
		return nil, fmt.Errorf("%s.pooling_type %d cannot be run; 0 (none), 1 (mean), 2 (cls) and 3 (last) can", arch, pool)
	}
	c.Pooling = Pooling(pool)
	if fam.embedScale {
		c.EmbedScale = float32(math.Sqrt(float64(c.Dim)))
	}
	if (arch == "gemma2" && c.Layers == 46 || arch == "gemma3" && c.Layers == 62) && c.Heads[0] > 0 {
		// The 27B models scale by the width of the model over its heads, not by the size of a head.
		c.AttnScale = float32(1 / math.Sqrt(float64(c.Dim)/float64(c.Heads[0])))
	}
	if err := c.readRope(k, fam); err != nil {
		return nil, err
	}
	window := 0
	if arch == "gemma2" { // whose first files do not say it
		window = 4096
	}
	c.Window = k.intOr("attention.sliding_window", window)
	c.Local = make([]bool, c.Layers)
	if fam.pattern > 0 && c.Window > 0 {
		const key = "attention.sliding_window_pattern"
		if each, err := f.Bools(arch + "." + key); err == nil && len(each) == c.Layers {
			copy(c.Local, each)
		} else {
			pattern := k.intOr(key, fam.pattern)
			for i := range c.Local {
				c.Local[i] = pattern <= 0 || i%pattern < pattern-1
			}
		}
	}
	if k.err != nil {
		return nil, k.err
	}
	return c, c.check()
}

func (c *Config) readRope(k *keys, fam family) error {
	if fam.noRope {
		return nil
	}
	r := attention.RoPE{Half: fam.half, Dims: k.intOr("rope.dimension_count", c.HeadDim), Base: float32(k.floatOr("rope.freq_base", 10000))}
	factor := k.floatOr("rope.scaling.factor", k.floatOr("rope.scale_linear", 0))
	kind := k.strOr("rope.scaling.type", "")
	if kind == "" && factor > 0 {
		kind = "linear"
	}
	trained := k.intOr("rope.scaling.original_context_length", c.Context)
	r.Magnitude = float32(k.floatOr("rope.scaling.attn_factor", 0))
	switch kind {
	case "", "none":
	case "linear":
		if factor > 0 {
			r.Scale = float32(1 / factor)
			c.stretched = float64(trained) * factor
		}
	case "yarn":
		if factor > 0 {
			r.Scale = float32(1 / factor)
			c.stretched = float64(trained) * factor
		}
		r.Extrapolate, r.Context = 1, trained
		r.Fast = float32(k.floatOr("rope.scaling.yarn_beta_fast", 32))
		r.Slow = float32(k.floatOr("rope.scaling.yarn_beta_slow", 1))
	case "longrope": // the file's frequency factors are all of it
	default:
		return fmt.Errorf("%s.rope.scaling.type %q cannot be run; none, linear, yarn and longrope can", c.Arch, kind)
	}
	c.longFactorsFrom = trained
	c.Rope = &r
	if c.Arch == "gemma3" {
		local := attention.RoPE{Half: true, Dims: r.Dims, Base: float32(k.floatOr("rope.freq_base_swa", 10000))}
		c.LocalRope = &local
	}
	return nil
}

// check refuses shapes that no model has, so that no size computed from them overflows.
func (c *Config) check() error {
	const most = 1 << 24
	for what, n := range map[string]int{"embedding_length": c.Dim, "attention.key_length": c.HeadDim, "attention.value_length": c.ValDim} {
		if n < 1 || n > most {
			return fmt.Errorf("%s.%s is %d", c.Arch, what, n)
		}
	}
	if c.Context < 1 || c.Context > 1<<30 {
		return fmt.Errorf("%s.context_length is %d", c.Arch, c.Context)
	}
	for i := range c.Layers {
		if c.Heads[i] > most/c.HeadDim || c.FFN[i] < 1 || c.FFN[i] > most {
			return fmt.Errorf("layer %d has %d heads of %d and a feed-forward length of %d", i, c.Heads[i], c.HeadDim, c.FFN[i])
		}
	}
	if c.Rope != nil && (c.Rope.Dims < 2 || c.Rope.Dims > c.HeadDim || c.Rope.Dims%2 != 0) {
		return fmt.Errorf("%s.rope.dimension_count is %d, an even number up to %d is right", c.Arch, c.Rope.Dims, c.HeadDim)
	}
	if !(c.NormEps >= 0 && c.NormEps <= math.MaxFloat32) {
		return fmt.Errorf("%s: the epsilon of the norms is %g", c.Arch, c.NormEps)
	}
	for _, r := range []*attention.RoPE{c.Rope, c.LocalRope} {
		if r == nil {
			continue
		}
		if err := r.Check(); err != nil {
			return fmt.Errorf("%s: %w", c.Arch, err)
		}
	}
	return nil
}
