package llm

import (
	"fmt"

	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// builder turns a Config and its weights into a graph. The graph keeps the first error, so that building reads as the model does.
type builder struct {
	*graph.Graph
	c   *Config
	w   *weights
	err error

	rounded map[graph.Value]graph.Value // activations, and their bfloat16 form
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// weight returns a constant, or the absent value after an error.
func (b *builder) weight(name string, dims ...int) graph.Value {
	if b.err != nil {
		return graph.Value{}
	}
	c, err := b.w.get(name, dims...)
	if err != nil {
		b.fail(err)
		return graph.Value{}
	}
	return b.SharedConstant(name, c)
}

// optional returns a constant, or the absent value where the file has none of that name. Vectors of other types are widened.
func (b *builder) optional(name string, dims ...int) graph.Value {
	if b.err != nil || !b.w.src.Has(name) {
		return graph.Value{}
	}
	return b.vector(name, dims...)
}

// vector is a weight of a norm or a bias: f32 whatever the file has.
func (b *builder) vector(name string, dims ...int) graph.Value {
	v := b.weight(name, dims...)
	if v.Absent() || v.Spec().DType == tensor.F32 {
		return v
	}
	return b.Apply(name, elementwise.Cast{To: tensor.F32}, v)
}

// linear is x [T, k] times the weight [n, k], plus the bias where the file has one.
func (b *builder) linear(name string, x graph.Value, n, k int) graph.Value {
	w := b.weight(name+".weight", n, k)
	bias := b.optional(name+".bias", n)
	if b.err != nil {
		return graph.Value{}
	}
	x = b.match(name, x, w)
	if bias.Absent() {
		return b.Apply(name, matmul.Op{TransB: true, Out: tensor.F32}, x, w)
	}
	return b.Apply(name, matmul.Op{TransB: true, Epilogue: matmul.Epilogue{Bias: true}, Out: tensor.F32}, x, w, bias)
}

// match rounds activations that meet bfloat16 weights to bfloat16, as llama.cpp does: processors with a dot product of that type multiply
// twice as fast as in float32.
func (b *builder) match(name string, x, w graph.Value) graph.Value {
	if x.Absent() || w.Spec().DType != tensor.BF16 {
		return x
	}
	narrow, ok := b.rounded[x]
	if !ok {
		narrow = b.Apply(name+"_bf16", elementwise.Cast{To: tensor.BF16}, x)
		if b.rounded == nil {
			b.rounded = map[graph.Value]graph.Value{}
		}
		b.rounded[x] = narrow
	}
	return narrow
}

// norm normalizes rows of n with the model's kind of norm.
func (b *builder) norm(name string, x graph.Value, n int) graph.Value {
	w := b.vector(name+".weight", n)
	if b.err != nil {
		return graph.Value{}
	}
	if !b.c.LayerNorm {
		return b.mul(name, b.Apply(name+".rms", norm.RMS{Eps: b.c.NormEps}, x), w)
	}
	return b.Apply(name, norm.Layer{Eps: b.c.NormEps}, x, w, b.optional(name+".bias", n))
}

// The graph says what the architecture does in plain operations; its passes fuse them.

func (b *builder) mul(name string, x, y graph.Value) graph.Value {
	return b.Apply(name, elementwise.Binary{F: elementwise.Mul}, x, y)
}

func (b *builder) add(name string, x, y graph.Value) graph.Value {
	return b.Apply(name, elementwise.Binary{F: elementwise.Add}, x, y)
}

func (b *builder) reshape(name string, x graph.Value, dims ...ops.Size) graph.Value {
	return b.Apply(name, shape.Reshape{Dims: ops.MakeSizes(dims...)}, x)
}

// cut takes columns from (inclusive) to (exclusive).
func (b *builder) cut(name string, x graph.Value, from, to int) graph.Value {
	return b.Apply(name, shape.Slice{Axis: -1, From: ops.Const(from), To: ops.Const(to)}, x)
}

// swapHeads exchanges tokens and heads: [S, M, H, D] and [S, H, M, D].
func (b *builder) swapHeads(name string, x graph.Value) graph.Value {
	return b.Apply(name, shape.Permute{Order: ops.MakeInts(0, 2, 1, 3)}, x)
}

func (b *builder) finish() error {
	if b.err != nil {
		return b.err
	}
	return b.Err()
}

// infer is the size that Reshape computes itself.
var infer = ops.Const(-1)

// projections computes queries, keys and values of a layer as [S, M, heads, size], the queries of the chosen rows of x only, or of all.
func (b *builder) projections(p string, layer int, x graph.Value, seqs ops.Size, chosen func(name string, x graph.Value) graph.Value) (q, k, v graph.Value) {
	c := b.c
	h, g := c.Heads[layer], c.KVHeads[layer]
	nq, nk, nv := h*c.HeadDim, g*c.HeadDim, g*c.ValDim
	if b.w.src.Has(p + "attn_qkv.weight") {
		all := b.linear(p+"attn_qkv", x, nq+nk+nv, c.Dim)
		q, k, v = chosen(p+"q_wanted", b.cut(p+"q", all, 0, nq)), b.cut(p+"k", all, nq, nq+nk), b.cut(p+"v", all, nq+nk, nq+nk+nv)
	} else {
		q, k, v = b.linear(p+"attn_q", chosen(p+"attn_norm_wanted", x), nq, c.Dim), b.linear(p+"attn_k", x, nk, c.Dim), b.linear(p+"attn_v", x, nv, c.Dim)
	}
	q = b.reshape(p+"q_heads", q, seqs, infer, ops.Const(h), ops.Const(c.HeadDim))
	k = b.reshape(p+"k_heads", k, seqs, infer, ops.Const(g), ops.Const(c.HeadDim))
	v = b.reshape(p+"v_heads", v, seqs, infer, ops.Const(g), ops.Const(c.ValDim))
	if b.w.src.Has(p + "attn_q_norm.weight") {
		q = b.norm(p+"attn_q_norm", q, c.HeadDim)
		k = b.norm(p+"attn_k_norm", k, c.HeadDim)
	}
	return q, k, v
}

// everyRow chooses all rows.
func everyRow(_ string, x graph.Value) graph.Value { return x }

// rope turns queries or keys.
func (b *builder) rope(name string, layer int, x, positions, factors graph.Value) graph.Value {
	r := b.c.Rope
	if r == nil {
		return x
	}
	if b.c.Local[layer] && b.c.LocalRope != nil {
		return b.Apply(name, *b.c.LocalRope, x, positions)
	}
	if factors.Absent() {
		return b.Apply(name, *r, x, positions)
	}
	return b.Apply(name, *r, x, positions, factors)
}

// factors returns the frequency factors of the file, by which Llama 3 and Phi-3 stretch low frequencies.
func (b *builder) factors(context int) graph.Value {
	if b.c.Rope == nil {
		return graph.Value{}
	}
	n := b.c.Rope.Dims / 2
	if v := b.optional("rope_freqs.weight", n); !v.Absent() {
		return v
	}
	if context > b.c.longFactorsFrom {
		if v := b.optional("rope_factors_long.weight", n); !v.Absent() {
			return v
		}
	}
	return b.optional("rope_factors_short.weight", n)
}

// sdpa is the attention op of a layer.
func (c *Config) sdpa(layer int) attention.SDPA {
	op := attention.SDPA{Scale: c.AttnScale, Softcap: c.AttnSoftcap, Causal: c.Causal}
	if c.Local[layer] {
		op.Window = c.Window
	}
	return op
}

// feedForward is the layer's second half, without norm and residual.
func (b *builder) feedForward(p string, layer int, x graph.Value) graph.Value {
	c := b.c
	n := c.FFN[layer]
	act := ops.Act{Kind: c.Act}
	var h graph.Value
	switch {
	case c.Gated && b.w.src.Has(p+"ffn_gate.weight"):
		gate := b.linear(p+"ffn_gate", x, n, c.Dim)
		h = b.mul(p+"ffn_gated", b.Apply(p+"ffn_act", elementwise.Activate{Act: act}, gate), b.linear(p+"ffn_up", x, n, c.Dim))
	case c.Gated: // gate and up in one weight
		both := b.linear(p+"ffn_up", x, 2*n, c.Dim)
		h = b.mul(p+"ffn_gated", b.Apply(p+"ffn_act", elementwise.Activate{Act: act}, b.cut(p+"gate", both, 0, n)), b.cut(p+"up", both, n, 2*n))
	default:
		h = b.Apply(p+"ffn_act", elementwise.Activate{Act: act}, b.linear(p+"ffn_up", x, n, c.Dim))
	}
	return b.linear(p+"ffn_down", h, c.Dim, n)
}

// decoder is the graph of a causal model for batches of seqs sequences with equally many new tokens, and its ends. Caches hold, one
// behind the other, the rows of every sequence, head and position; new rows are written where writes says.
type decoder struct {
	g         *graph.Graph
	ids       graph.Value         // i32 [S, M]
	positions graph.Value         // i32 [S, M]
	outs      graph.Value         // i32 [R]: the rows, of S*M, whose logits are wanted
	writes    map[int]graph.Value // i32 [S*M*G] for each number G of key heads: rows of the cache, in the order of new keys
	keys      []graph.Value       // [S*G*context, D] for each layer
	values    []graph.Value
	logits    graph.Value // f32 [R, Vocab]
	hidden    graph.Value // f32 [R, Dim]: normalized, where embeddings are asked for instead of logits
}

// limits are the largest sizes for which a decoder is planned.
type limits struct {
	context int // positions of a sequence
	tokens  int // new tokens of a sequence in one run
	rows    int // of logits in one run
	seqs    int
	cache   tensor.DType
	hidden  bool // no head
}

func buildDecoder(c *Config, w *weights, lim limits) (*decoder, error) {
	b := &builder{Graph: graph.New(c.Arch), c: c, w: w}
	d := &decoder{g: b.Graph, writes: map[int]graph.Value{}}
	seqs := ops.Const(1)
	if lim.seqs > 1 {
		seqs = b.Symbol("sequences", lim.seqs)
	}
	tokens := b.Symbol("tokens", lim.tokens)
	d.ids = b.Input("ids", tensor.I32, seqs, tokens)
	d.positions = b.Input("positions", tensor.I32, seqs, tokens)
	d.outs = b.Input("outs", tensor.I32, b.Symbol("rows", lim.rows))

	embedding := b.weight("token_embd.weight", c.Vocab, c.Dim)
	x := b.Apply("token_embd", shape.GetRows{}, embedding, d.ids)
	if w.src.Has("position_embd.weight") {
		pos, err := w.src.Tensor("position_embd.weight")
		if err != nil {
			return nil, err
		}
		if pos.Rank == 2 && pos.Dims[0] < lim.context {
			return nil, fmt.Errorf("tensor \"position_embd.weight\" has %d positions, the context is %d", pos.Dims[0], lim.context)
		}
		table := b.weight("position_embd.weight", pos.Dims[0], c.Dim)
		x = b.add("embd", x, b.Apply("position_embd", shape.GetRows{}, table, d.positions))
	}
	if c.EmbedScale != 0 {
		x = b.Apply("embd_scale", elementwise.Scale{Mul: c.EmbedScale}, x)
	}
	x = b.reshape("tokens", x, infer, ops.Const(c.Dim))
	factors := b.factors(lim.context)

	for i := range c.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		h, g := c.Heads[i], c.KVHeads[i]
		if _, ok := d.writes[g]; !ok {
			most := g * lim.tokens * lim.seqs
			d.writes[g] = b.Input(fmt.Sprintf("writes_%d", g), tensor.I32, b.Symbol(fmt.Sprintf("writes_%d", g), most))
		}
		rows := ops.Const(g * lim.context)
		if lim.seqs > 1 {
			rows = b.Symbol(fmt.Sprintf("cache_%d", g), g*lim.context*lim.seqs)
		}
		keys := b.Input(p+"keys", lim.cache, rows, ops.Const(c.HeadDim))
		values := b.Input(p+"values", lim.cache, rows, ops.Const(c.ValDim))
		d.keys, d.values = append(d.keys, keys), append(d.values, values)

		// The last layer computes keys and values of all tokens, everything else of those whose logits are wanted. Where there are several sequences the attention
		// is computed for all tokens too: the wanted ones may be more of one sequence than of another.
		at, chosen := d.positions, everyRow
		if i == c.Layers-1 && lim.seqs == 1 {
			chosen = func(name string, x graph.Value) graph.Value { return b.Apply(name, shape.GetRows{}, x, d.outs) }
			at = b.reshape("wanted_positions", chosen("wanted_positions", b.reshape("all_positions", d.positions, infer, ops.Const(1))), seqs, infer)
		}
		a := b.norm(p+"attn_norm", x, c.Dim)
		q, k, v := b.projections(p, i, a, seqs, chosen)
		x = chosen("wanted", x)
		q = b.rope(p+"q_rope", i, q, at, factors)
		k = b.rope(p+"k_rope", i, k, d.positions, factors)
		keys = b.store(p+"keys", keys, k, d.writes[g], c.HeadDim, seqs, g)
		values = b.store(p+"values", values, v, d.writes[g], c.ValDim, seqs, g)
		a = b.Apply(p+"attn", c.sdpa(i), b.swapHeads(p+"q_by_head", q), keys, values, graph.Value{}, at)
		a = b.reshape(p+"attn_rows", b.swapHeads(p+"attn_by_token", a), infer, ops.Const(h*c.ValDim))
		a = b.linear(p+"attn_output", a, c.Dim, h*c.ValDim)
		if w.src.Has(p + "post_attention_norm.weight") {
			a = b.norm(p+"post_attention_norm", a, c.Dim)
		}
		x = b.add(p+"attn_residual", a, x)
		f := b.feedForward(p, i, b.norm(p+"ffn_norm", x, c.Dim))
		if w.src.Has(p + "post_ffw_norm.weight") {
			f = b.norm(p+"post_ffw_norm", f, c.Dim)
		}
		x = b.add(p+"ffn_residual", f, x)
	}
	if lim.seqs > 1 {
		x = b.Apply("wanted", shape.GetRows{}, x, d.outs)
	}
	x = b.norm("output_norm", x, c.Dim)
	if lim.hidden {
		d.hidden = x
		b.Output("hidden", x)
		return d, b.finish()
	}
	if w.src.Has("output.weight") {
		x = b.linear("output", x, c.Vocab, c.Dim)
	} else if b.err == nil {
		x = b.Apply("output", matmul.Op{TransB: true, Out: tensor.F32}, b.match("output", x, embedding), embedding)
	}
	if s := c.FinalSoftcap; s > 0 {
		x = b.Apply("softcap_in", elementwise.Scale{Mul: 1 / s}, x)
		x = b.Apply("softcap_tanh", elementwise.Activate{Act: ops.Act{Kind: ops.Tanh}}, x)
		x = b.Apply("softcap", elementwise.Scale{Mul: s}, x)
	}
	d.logits = x
	b.Output("logits", x)
	return d, b.finish()
}

// store writes new rows [S, M, G, D] into a cache and returns it as [S, G, context, D].
func (b *builder) store(name string, cache, x, writes graph.Value, size int, seqs ops.Size, g int) graph.Value {
	x = b.reshape(name+"_new", x, infer, ops.Const(size))
	cache = b.Apply(name+"_write", shape.SetRows{}, cache, x, writes)
	return b.reshape(name+"_cache", cache, seqs, ops.Const(g), infer, ops.Const(size))
}
