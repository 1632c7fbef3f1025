package gguf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// ErrQuantized says that a tensor is in a block format already, where [QuantizeOptions].Requantize does not allow to quantize it again.
var ErrQuantized = errors.New("already; quantizing it again must be allowed")

// recipe is a way to quantize a whole file: a base type, the number that general.file_type has for it, and which tensors deserve more
// bits. The choices are llama.cpp's, so that a file of a given name is what its readers expect.
type recipe struct {
	base     tensor.DType
	fileType uint32
}

var recipes = map[string]recipe{
	"f32": {tensor.F32, 0}, "f16": {tensor.F16, 1}, "bf16": {tensor.BF16, 32},
	"q4_0": {tensor.Q4_0, 2}, "q4_1": {tensor.Q4_1, 3}, "q8_0": {tensor.Q8_0, 7}, "q5_0": {tensor.Q5_0, 8}, "q5_1": {tensor.Q5_1, 9},
	"q2_k": {tensor.Q2_K, 10}, "q3_k_s": {tensor.Q3_K, 11}, "q3_k_m": {tensor.Q3_K, 12}, "q3_k_l": {tensor.Q3_K, 13},
	"q4_k_s": {tensor.Q4_K, 14}, "q4_k_m": {tensor.Q4_K, 15}, "q5_k_s": {tensor.Q5_K, 16}, "q5_k_m": {tensor.Q5_K, 17},
	"q6_k": {tensor.Q6_K, 18}, "iq4_nl": {tensor.IQ4_NL, 25}, "mxfp4": {tensor.MXFP4, 38},
}

// aliases are the names that mean a mixture without saying which.
var aliases = map[string]string{"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}

// Recipes returns the names that Quantize knows, sorted.
func Recipes() []string {
	names := make([]string, 0, len(recipes)+len(aliases))
	for n := range recipes {
		names = append(names, n)
	}
	for n := range aliases {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// QuantizeOptions say how a file is quantized.
type QuantizeOptions struct {
	Type string // a name of Recipes, in any case
	Pure bool   // every tensor in the base type, without the mixture
	// Requantize allows tensors that are quantized already, whose error then adds up.
	Requantize bool
	// Progress is called after each piece of a tensor with the bytes read so far and in all.
	Progress func(tensor string, done, total int64)
}

// QuantizedTensor says what became of a tensor.
type QuantizedTensor struct {
	Name     string  `json:"name"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	BytesIn  int64   `json:"bytes_in"`
	BytesOut int64   `json:"bytes_out"`
	RMSE     float64 `json:"rmse"` // root of the mean squared error
}

// Quantize writes a file with the same metadata and tensors, of which those that are matrices are stored in fewer bits. Vectors, norms
// and tables of positions stay as they are, and so do matrices whose rows are no whole number of blocks where the recipe has no
// smaller type for them. The error names the tensor, row and block of a number that cannot be represented.
func Quantize(ctx context.Context, out io.Writer, f *File, o QuantizeOptions) (list []QuantizedTensor, err error) {
	defer mem.Caught(mem.Catch(), &err)
	name := strings.ToLower(o.Type)
	if full, ok := aliases[name]; ok {
		name = full
	}
	r, ok := recipes[name]
	if !ok {
		return nil, fmt.Errorf("type %q is unknown; known are %s", o.Type, strings.Join(Recipes(), ", "))
	}
	w := &Writer{Alignment: f.Alignment}
	for _, kv := range f.Metadata {
		w.Set(kv.Key, kv.Value)
	}
	w.Set("general.file_type", r.fileType)
	w.Set("general.quantization_version", uint32(2))
	mix := newMixture(f, name)
	report := make([]QuantizedTensor, len(f.Tensors))
	var total, done int64
	for i := range f.Tensors {
		total += int64(f.Tensors[i].Bytes)
	}
	for i := range f.Tensors {
		info := &f.Tensors[i]
		to := info.Type
		if quantizable(info) {
			d := r.base
			if !o.Pure {
				d = mix.choose(info, d)
			}
			if inner := info.Dims[len(info.Dims)-1]; inner%d.Block() == 0 {
				t, err := TypeOf(d)
				if err != nil {
					return nil, err
				}
				to = t
			}
		}
		if to != info.Type && info.Type.DType().IsBlock() && !o.Requantize {
			return nil, fmt.Errorf("tensor %q is %v %w", info.Name, info.Type, ErrQuantized)
		}
		q := &report[i]
		*q = QuantizedTensor{Name: info.Name, From: info.Type.String(), To: to.String(), BytesIn: int64(info.Bytes)}
		w.Add(info.Name, to, info.Dims, func(out io.Writer) error {
			step := func(n int) error {
				done += int64(n)
				if o.Progress != nil {
					o.Progress(info.Name, done, total)
				}
				return ctx.Err()
			}
			if to == info.Type {
				if err := validate(f, info); err != nil {
					return err
				}
				n, err := out.Write(f.Data(info))
				q.BytesOut = int64(n)
				if err != nil {
					return err
				}
				return step(info.Bytes)
			}
			return convert(out, f, info, to, q, step)
		})
	}
	if _, err := w.WriteTo(out); err != nil {
		return nil, err
	}
	return report, nil
}

// quantizable reports whether a tensor is a matrix of weights. Norms, positions and token types are looked up or multiplied element
// by element, where a short type costs accuracy and saves nothing.
func quantizable(info *TensorInfo) bool {
	switch {
	case len(info.Dims) < 2, !strings.HasSuffix(info.Name, "weight"), !quant.CanDecode(info.Type.DType()):
		return false
	case strings.Contains(info.Name, "_norm.weight"), strings.Contains(info.Name, "ffn_gate_inp.weight"):
		return false
	case info.Name == "position_embd.weight", info.Name == "token_types.weight":
		return false
	}
	return true
}

// validate refuses NaN and infinity in a tensor that is copied as it is, as [quant.EncodeRow] does in those that are converted.
func validate(f *File, info *TensorInfo) error {
	if info.Type.DType() == tensor.Invalid {
		return nil // it is only passed on
	}
	data, rows := f.Data(info), 1
	if n := len(info.Dims); n > 0 {
		rows = info.Elems() / info.Dims[n-1]
	}
	n := len(data) / rows
	for i := range rows {
		if err := quant.Validate(info.Type.DType(), data[i*n:(i+1)*n]); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

// convert streams a tensor piece by piece, so that memory holds one piece and not the tensor.
func convert(out io.Writer, f *File, info *TensorInfo, to Type, q *QuantizedTensor, step func(int) error) error {
	inner := info.Dims[len(info.Dims)-1]
	rows := info.Elems() / inner
	rowIn := info.Bytes / rows
	rowOut := inner / to.Block() * to.Size()
	piece := max(1, 1<<20/inner)
	data := f.Data(info)
	var sqErr float64
	encoded := make([]byte, min(piece, rows)*rowOut)
	values := make([]float32, min(piece, rows)*inner)
	errs := make([]error, min(piece, rows))
	sums := make([]float64, min(piece, rows))
	for at := 0; at < rows; at += piece {
		n := min(piece, rows-at)
		// A job is a row; long formats take milliseconds for it.
		par.Run(0, n, rowTask(func(i int) {
			x := values[i*inner : (i+1)*inner]
			src := data[(at+i)*rowIn : (at+i+1)*rowIn]
			dst := encoded[i*rowOut : (i+1)*rowOut]
			if errs[i] = quant.DecodeRow(info.Type.DType(), x, src); errs[i] != nil {
				return
			}
			if errs[i] = quant.EncodeRow(to.DType(), dst, x); errs[i] != nil {
				return
			}
			back := make([]float32, inner)
			if errs[i] = quant.DecodeRow(to.DType(), back, dst); errs[i] != nil {
				return
			}
			sums[i] = 0
			for j, v := range back {
				e := float64(v) - float64(x[j])
				sums[i] += e * e
			}
		}))
		for i, err := range errs[:n] {
			if err != nil {
				return fmt.Errorf("row %d: %w", at+i, err)
			}
			sqErr += sums[i]
		}
		if _, err := out.Write(encoded[:n*rowOut]); err != nil {
			return err
		}
		q.BytesOut += int64(n * rowOut)
		if err := step(n * rowIn); err != nil {
			return err
		}
	}
	q.RMSE = math.Sqrt(sqErr / float64(info.Elems()))
	return nil
}

type rowTask func(i int)

func (t rowTask) Do(_, job int) { t(job) }

// mixture chooses types as llama.cpp does: the head and some layers of the tensors that matter most get more bits.
type mixture struct {
	name         string
	values       int // how many tensors make values
	layers       int
	groups       int // query heads for each key head
	separateHead bool
	seventy      bool // Llama's 70B, whose few value heads matter more
}

func newMixture(f *File, name string) *mixture {
	m := &mixture{name: name, groups: 1}
	for i := range f.Tensors {
		n := f.Tensors[i].Name
		switch {
		case isValue(n):
			m.values++
		case n == "output.weight":
			m.separateHead = true
		}
	}
	arch, _ := f.Str("general.architecture")
	if layers, err := f.Int(arch + ".block_count"); err == nil {
		m.layers = layers
	}
	heads, err1 := f.Ints(arch + ".attention.head_count")
	kv, err2 := f.Ints(arch + ".attention.head_count_kv")
	if err1 == nil && err2 == nil && len(heads) > 0 && len(kv) > 0 && kv[0] > 0 {
		m.groups = heads[0] / kv[0]
	}
	m.seventy = arch == "llama" && m.layers == 80 && m.groups == 8
	return m
}

// isValue reports whether a tensor makes values, alone or with queries and keys in one (GPT-2, Phi-3): errors in them pass through attention as they are.
func isValue(name string) bool {
	return strings.Contains(name, "attn_v.weight") || strings.Contains(name, "attn_qkv.weight") || strings.Contains(name, "attn_kv_b.weight")
}

// moreBits picks the first and last eighth of the layers, and every third between.
func moreBits(i, n int) bool { return i < n/8 || i >= 7*n/8 || (i-n/8)%3 == 2 }

func (m *mixture) choose(info *TensorInfo, d tensor.DType) tensor.DType {
	if !d.IsBlock() {
		return d
	}
	inner := info.Dims[len(info.Dims)-1]
	name := info.Name
	var i, n int // layer and number of layers
	if _, err := fmt.Sscanf(name, "blk.%d.", &i); err == nil {
		n = m.layers
	}
	switch {
	case name == "output.weight" || !m.separateHead && name == "token_embd.weight":
		switch {
		case inner%d.Block() != 0 || m.name == "mxfp4":
			d = tensor.Q8_0
		case d != tensor.Q8_0:
			d = tensor.Q6_K
		}
	case isValue(name):
		switch {
		case m.name == "q2_k" && m.groups >= 4:
			d = tensor.Q4_K
		case m.name == "q2_k":
			d = tensor.Q3_K
		case m.name == "q3_k_m" && i < 2, m.name == "q3_k_l", m.name == "q4_k_s" && i < 4, m.name == "iq4_nl" && m.groups >= 4:
			d = tensor.Q5_K
		case m.name == "q3_k_m":
			d = tensor.Q4_K
		case (m.name == "q4_k_m" || m.name == "q5_k_m") && moreBits(i, m.values):
			d = tensor.Q6_K
		}
		if m.seventy && (d == tensor.Q3_K || d == tensor.Q4_K) {
			d = tensor.Q5_K
		}
	case strings.Contains(name, "ffn_down"):
		switch {
		case m.name == "q2_k":
			d = tensor.Q3_K
		case m.name == "q3_k_m" && i < n/16, m.name == "q3_k_l", m.name == "q4_k_s" && i < n/8, m.name == "iq4_nl" && i < n/8:
			d = tensor.Q5_K
		case m.name == "q3_k_m":
			d = tensor.Q4_K
		case (m.name == "q4_k_m" || m.name == "q5_k_m") && moreBits(i, n):
			d = tensor.Q6_K
		}
	case strings.Contains(name, "attn_output.weight"):
		switch m.name {
		case "q2_k":
			d = tensor.Q3_K
		case "q3_k_m":
			d = tensor.Q4_K
		case "q3_k_l":
			d = tensor.Q5_K
		}
	}
	if inner%d.Block() == 0 {
		return d
	}
	// Rows that are no whole super-blocks take a format of 32 with about as many bits, and those that are no whole blocks of 32
	// either take halves; in the plain formats such rows stay as they are.
	switch d {
	case tensor.Q2_K, tensor.Q3_K:
		d = tensor.Q4_0
	case tensor.Q4_K:
		d = tensor.Q5_0
	case tensor.Q5_K:
		d = tensor.Q5_1
	case tensor.Q6_K:
		d = tensor.Q8_0
	}
	if inner%d.Block() != 0 && strings.Contains(m.name, "_k") {
		return tensor.F16
	}
	return d
}
