package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// inspection is the JSON document of inspect.
type inspection struct {
	File     string             `json:"file"`
	Model    string             `json:"model"`
	Inputs   []inspectedValue   `json:"inputs,omitempty"` // of ONNX models
	Outputs  []inspectedValue   `json:"outputs,omitempty"`
	Shapes   map[string][]int   `json:"shapes,omitempty"` // of the inputs of ONNX models, for which memory and nodes are
	open     []string           // inputs among them whose shape was not given, and is 1 where the model leaves it open
	Tensors  []inspectedTensor  `json:"tensors"`
	Memory   graph.Memory       `json:"memory"`
	Nodes    []graph.Placement  `json:"nodes"`
	At       []placedAt         `json:"at,omitempty"`
	Passes   []graph.PassResult `json:"passes,omitempty"`
	Metadata map[string]string  `json:"metadata,omitempty"`
}

// placedAt is where nodes run for other sizes than the largest.
type placedAt struct {
	Sizes map[string]int    `json:"sizes"`
	Nodes []graph.Placement `json:"nodes"` // those that run elsewhere, or for another reason
}

// inspectedValue is an input or output as the model declares it.
type inspectedValue struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []any  `json:"shape"` // numbers; of open dimensions the name, or "?"; null where the model says nothing
}

func inspectValues(list []onnx.ValueInfo) (values []inspectedValue) {
	for _, v := range list {
		value := inspectedValue{Name: v.Name, Type: v.Type.String()}
		if t := v.Type; t != nil && t.HasShape {
			value.Type, value.Shape = t.Elem.String(), []any{}
			for _, d := range t.Dims {
				switch {
				case d.Param != "":
					value.Shape = append(value.Shape, d.Param)
				case d.Size < 0:
					value.Shape = append(value.Shape, "?")
				default:
					value.Shape = append(value.Shape, d.Size)
				}
			}
		}
		values = append(values, value)
	}
	return values
}

// printValues prints inputs and outputs with their types, as the model declares them.
func (in *inspection) printValues(w io.Writer) error {
	if len(in.Inputs)+len(in.Outputs) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprint(tw, "\nvalue\ttype\tshape\n")
	for _, list := range []struct {
		what   string
		values []inspectedValue
	}{{"input", in.Inputs}, {"output", in.Outputs}} {
		for _, v := range list.values {
			shape := ""
			if v.Shape != nil {
				shape = fmt.Sprint(v.Shape)
			}
			fmt.Fprintf(tw, "%s %s\t%s\t%s\n", list.what, v.Name, v.Type, shape)
		}
	}
	return tw.Flush()
}

type inspectedTensor struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

func inspectCommand() *cobra.Command {
	var (
		f      llmFlags
		passes bool
		dot    string
		inputs []string
		sizes  map[string]int
	)
	cmd := &cobra.Command{
		Use:     "inspect [FILE]",
		Example: "  tessera inspect model.gguf\n  tessera inspect --backend xdna2 --at tokens=64,rows=1 model.gguf\n  tessera inspect --shape x=1x3x640x640 --passes model.onnx",
		Short:   "Show a model's tensors, the memory it needs, and where each node runs and why",
		Args:    cli.CountArgs(0, 1, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if f.Model != "" && f.Model != args[0] {
					return cli.Usagef("--model %s: the model is given as %s already", f.Model, args[0])
				}
				f.Model = args[0]
			}
			var in *inspection
			var exe *graph.Executable
			var done func()
			var err error
			if isONNX(f.Model) {
				for _, flag := range []string{"context", "cache-type", "cache"} {
					if cmd.Flags().Changed(flag) {
						return cli.Usagef("--%s: only language models have keys and values, or a cache of weights", flag)
					}
				}
				in, exe, done, err = inspectONNX(cmd.Context(), &f, inputs)
			} else if len(inputs) > 0 {
				return errNoShape
			} else {
				in, exe, done, err = inspectLLM(&f)
			}
			if err != nil {
				return err
			}
			defer done()
			if exe != nil {
				in.Memory, in.Nodes = exe.Memory(), exe.Placements()
				if err := in.placeAt(cmd.Context(), exe, sizes); err != nil {
					return err
				}
				if passes {
					in.Passes = exe.Passes()
				}
				if dot != "" {
					if err := writeDOT(dot, exe); err != nil {
						return err
					}
				}
			}
			if f.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), in)
			}
			return in.print(cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	cmd.Flags().Lookup("model").Usage = "GGUF or ONNX file or folder of safetensors; without it the embedded model"
	cmd.Flags().BoolVar(&passes, "passes", false, "show what each pass over the graph did")
	cmd.Flags().StringVar(&dot, "dot", "", "write the graph before and after the passes as `NAME`.before.dot and NAME.after.dot")
	cmd.Flags().StringArrayVar(&inputs, "shape", nil, "of an ONNX input whose shape is open, `NAME=AxBxC` (may be repeated)")
	cmd.Flags().StringToIntVar(&sizes, "at", nil, "also say which nodes run elsewhere for these symbolic sizes, `NAME=N[,...]`; without it for one token of a language model")
	cmd.Flags().Lookup("at").DefValue = "" // a map would print as []
	return cmd
}

// placeAt compares the placement for other sizes with that for the largest. Without sizes it is that of decoding, one token, if the
// model has tokens. Sizes that are not named, such as rows of a cache to write, go with the tokens.
func (in *inspection) placeAt(ctx context.Context, exe *graph.Executable, sizes map[string]int) error {
	most := exe.Symbols()
	if len(sizes) == 0 {
		if most["tokens"] == 0 {
			return nil
		}
		sizes = map[string]int{"tokens": 1}
	}
	if tokens, ok := sizes["tokens"]; ok && most["tokens"] > 0 {
		sizes = maps.Clone(sizes)
		for name, n := range most {
			if _, named := sizes[name]; !named {
				sizes[name] = max(min(tokens, 1), int(int64(n)*int64(tokens)/int64(most["tokens"])))
			}
		}
	}
	if len(most) == 0 {
		return cli.Usagef("--at: the model has no symbolic sizes; --shape gives an ONNX model other shapes")
	}
	placed, err := exe.PlacementsAt(ctx, sizes)
	if err != nil {
		return cli.Usagef("--at: %w", err)
	}
	at := placedAt{Sizes: sizes}
	for i, p := range placed {
		if p.Backend != in.Nodes[i].Backend || p.Reason != in.Nodes[i].Reason {
			at.Nodes = append(at.Nodes, p)
		}
	}
	in.At = append(in.At, at)
	return nil
}

func inspectLLM(f *llmFlags) (*inspection, *graph.Executable, func(), error) {
	m, err := f.open()
	if err != nil {
		return nil, nil, nil, err
	}
	exe, err := m.Executable()
	if err != nil {
		m.close()
		return nil, nil, nil, err
	}
	in := &inspection{File: m.name, Model: m.String()}
	var file *gguf.File
	if f.Model == "" {
		file, err = gguf.Parse(tolstoy.GGUF())
	} else {
		file, err = gguf.Open(f.Model)
	}
	if err == nil { // else it is a folder
		defer file.Close()
		in.addGGUF(file)
	}
	return in, exe, m.close, nil
}

func (in *inspection) addGGUF(file *gguf.File) {
	in.Metadata = map[string]string{}
	for _, kv := range file.Metadata {
		text := fmt.Sprint(kv.Value)
		if len(text) > 80 {
			text = text[:77] + "..."
		}
		in.Metadata[kv.Key] = text
	}
	for i := range file.Tensors {
		t := &file.Tensors[i]
		in.Tensors = append(in.Tensors, inspectedTensor{t.Name, t.Type.String(), t.Dims, int64(t.Bytes)})
	}
}

func inspectONNX(ctx context.Context, f *llmFlags, shapes []string) (*inspection, *graph.Executable, func(), error) {
	given, err := parseShapes(shapes)
	if err != nil {
		return nil, nil, nil, err
	}
	s, done, err := openONNX(ctx, &f.Options, func(m *onnx.Model) error { return checkShapes(m.Inputs(), given) })
	if err != nil {
		return nil, nil, nil, err
	}
	in := &inspection{File: filepath.Base(f.Model), Model: s.Model().Producer, Inputs: inspectValues(s.Inputs()), Outputs: inspectValues(s.Outputs())}
	for _, t := range s.Model().Graph.Inits {
		in.Tensors = append(in.Tensors, inspectedTensor{t.Name, t.Elem.String(), t.Dims, int64(t.Data.Extent())})
	}
	var guessed []string
	in.Shapes = map[string][]int{}
	specs := map[string]tensor.Spec{}
	for _, v := range s.Inputs() {
		spec, err := inputSpec(v, given[v.Name])
		if err != nil {
			done()
			return nil, nil, nil, err
		}
		specs[v.Name], in.Shapes[v.Name] = spec, spec.Shape()
		if given[v.Name] == nil && isOpen(v.Type) {
			in.open = append(in.open, v.Name)
			guessed = append(guessed, fmt.Sprintf("input %q is %v: give --shape %s=AxBxC", v.Name, v.Type, v.Name))
		}
	}
	if err := s.Prepare(ctx, specs); err != nil {
		done()
		if len(guessed) > 0 {
			err = fmt.Errorf("%s (with 1 for each open size: %w)", strings.Join(guessed, "; "), err)
		}
		return nil, nil, nil, err
	}
	return in, s.Executable(), done, nil
}

// errNoShape is for --shape beside language models.
var errNoShape = cli.Usagef("--shape: only ONNX models have inputs of open shape")

// parseShapes reads NAME=AxBxC.
func parseShapes(texts []string) (map[string][]int, error) {
	given := map[string][]int{}
	for _, text := range texts {
		name, dims, _ := strings.Cut(text, "=")
		if _, twice := given[name]; twice {
			return nil, cli.Usagef("--shape %q is given twice", name)
		}
		var shape []int
		for _, d := range strings.Split(dims, "x") {
			n, err := strconv.Atoi(d)
			if err != nil || n < 0 {
				return nil, cli.Usagef("--shape %q: NAME=AxBxC is right", text)
			}
			shape = append(shape, n)
		}
		given[name] = shape
	}
	return given, nil
}

// checkShapes returns an error for shapes of inputs that are not there, and for those that the declared types do not allow.
func checkShapes(inputs []onnx.ValueInfo, given map[string][]int) error {
	var names []string
	known := map[string]bool{}
	for _, v := range inputs {
		known[v.Name] = true
		names = append(names, strconv.Quote(v.Name))
		shape, ok := given[v.Name]
		if !ok || v.Type == nil {
			continue
		}
		if t := v.Type; t.HasShape {
			fits := len(shape) == len(t.Dims)
			for i := 0; fits && i < len(shape); i++ {
				fits = t.Dims[i].Size < 0 || t.Dims[i].Size == shape[i]
			}
			if !fits {
				return cli.Usagef("--shape %s: %v does not fit, the input is %v", v.Name, shape, t)
			}
		}
		if _, err := tensor.CheckDims(v.Type.Elem.DType(), shape); err != nil {
			return cli.Usagef("--shape %s: %w", v.Name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !known[name] {
			return cli.Usagef("--shape %q: there are the inputs %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// isOpen reports whether a model leaves the shape of a value open, in part or in whole.
func isOpen(t *onnx.TypeInfo) bool {
	return t == nil || !t.HasShape || slices.ContainsFunc(t.Dims, func(d onnx.Dim) bool { return d.Size < 0 })
}

// inputSpec returns the shape of an input: what was given, or the model's own with 1 for open dimensions.
func inputSpec(v onnx.ValueInfo, given []int) (tensor.Spec, error) {
	if v.Type == nil {
		return tensor.Spec{}, fmt.Errorf("input %q has no declared type", v.Name)
	}
	dims := given
	if dims == nil {
		for _, d := range v.Type.Dims {
			dims = append(dims, max(d.Size, 1))
		}
	}
	spec, err := tensor.CheckDims(v.Type.Elem.DType(), dims)
	if err != nil {
		return spec, fmt.Errorf("input %q: %w", v.Name, err)
	}
	return spec, nil
}

func writeDOT(name string, exe *graph.Executable) error {
	for suffix, write := range map[string]func(io.Writer) error{".before.dot": exe.SourceDOT, ".after.dot": exe.DOT} {
		if err := cli.WriteFile(name+suffix, write); err != nil {
			return err
		}
	}
	return nil
}

func (in *inspection) print(w io.Writer) error {
	fmt.Fprintln(w, strings.TrimSpace(in.File+": "+in.Model))
	if err := in.printValues(w); err != nil {
		return err
	}
	if len(in.Tensors) > 0 {
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprint(tw, "\ntensor\ttype\tshape\tsize\n")
		for _, t := range in.Tensors {
			fmt.Fprintf(tw, "%s\t%s\t%v\t%s\n", t.Name, t.Type, t.Shape, cli.FormatBytes(t.Bytes))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	if len(in.open) > 0 {
		fmt.Fprintln(w, assumed(in.open, in.Shapes))
	}
	in.printMemory(w)
	if len(in.Passes) > 0 {
		tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprint(tw, "\npass\tchanges\tnodes left\twhat it does\n")
		for _, p := range in.Passes {
			fmt.Fprintf(tw, "%s\t%d\t%d\t%s\n", p.Name, p.Changes, p.Nodes, p.What)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	if err := printNodes(w, in.Nodes); err != nil {
		return err
	}
	for _, at := range in.At {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(at.Sizes)) {
			words = append(words, fmt.Sprintf("%s = %d", name, at.Sizes[name]))
		}
		if len(at.Nodes) == 0 {
			fmt.Fprintf(w, "\nwith %s every node runs there for the same reason\n", strings.Join(words, ", "))
			continue
		}
		fmt.Fprintf(w, "\nwith %s, of %d nodes these run elsewhere or for another reason:\n", strings.Join(words, ", "), len(in.Nodes))
		if err := printNodes(w, at.Nodes); err != nil {
			return err
		}
	}
	return nil
}

// assumed says which shapes of inputs were not given.
func assumed(open []string, shapes map[string][]int) string {
	var list []string
	for _, name := range open {
		list = append(list, fmt.Sprintf("%s %v", name, shapes[name]))
	}
	return fmt.Sprintf("open dimensions are taken as 1 (%s); --shape %s=AxBxC gives others", strings.Join(list, ", "), open[0])
}

func (in *inspection) printMemory(w io.Writer) {
	m := in.Memory
	fmt.Fprintf(w, "memory: weights %s, prepared %s, ", cli.FormatBytes(m.Weights), cli.FormatBytes(m.Prepared))
	if m.State > 0 {
		fmt.Fprintf(w, "KV cache %s, ", cli.FormatBytes(m.State))
	}
	fmt.Fprintf(w, "activations %s (lower bound %s), workspace %s, total %s\n", cli.FormatBytes(m.Activations), cli.FormatBytes(m.LowerBound), cli.FormatBytes(m.Workspace),
		cli.FormatBytes(m.Total))
}

// printNodes prints where nodes run, what they have to do, and why they run there.
func printNodes(out io.Writer, nodes []graph.Placement) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprint(w, "\nnode\toperation\tbackend\twork, bytes moved\twhy there\n")
	for _, n := range nodes {
		work := cli.FormatBytes(n.Bytes)
		switch {
		case n.Backend == "view":
			work = ""
		case n.Flops >= 1e9:
			work = fmt.Sprintf("%.1f GFLOP, %s", n.Flops/1e9, work)
		case n.Flops >= 1e6:
			work = fmt.Sprintf("%.1f MFLOP, %s", n.Flops/1e6, work)
		case n.Flops >= 1e3:
			work = fmt.Sprintf("%.1f kFLOP, %s", n.Flops/1e3, work)
		case n.Flops > 0:
			work = fmt.Sprintf("%.0f FLOP, %s", n.Flops, work)
		}
		why := n.Reason
		if few := 3; len(n.Fused) > few {
			why += fmt.Sprintf("; also does %s and %d more", strings.Join(n.Fused[:few-1], ", "), len(n.Fused)-few+1)
		} else if len(n.Fused) > 0 {
			why += "; also does " + strings.Join(n.Fused, ", ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", n.Name, n.Op, n.Backend, work, why)
	}
	return w.Flush()
}
