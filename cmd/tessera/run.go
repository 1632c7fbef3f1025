package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/npy"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// openONNX opens the ONNX file and the backends that the flags name. What check, if there is one, finds wrong with the model ends it
// before anything is prepared.
func openONNX(ctx context.Context, o *cli.Options, check func(*onnx.Model) error) (*onnx.Session, func(), error) {
	g, closeAll, err := o.Open()
	if err != nil {
		return nil, nil, err
	}
	m, err := onnx.Open(o.Model)
	if err != nil {
		closeAll()
		return nil, nil, notONNX(o.Model, err)
	}
	if check != nil {
		if err := check(m); err != nil {
			_ = m.Close()
			closeAll()
			return nil, nil, err
		}
	}
	s, err := onnx.NewSession(ctx, m, onnx.Options{Backends: g.Backends, Strict: g.Strict, MaxMemory: g.MaxMemory, Profile: g.Profile, DisablePasses: g.DisablePasses})
	if err != nil {
		_ = m.Close()
		closeAll()
		return nil, nil, fmt.Errorf("%s: %w", o.Model, err)
	}
	return s, func() {
		_ = s.Close()
		_ = m.Close()
		closeAll()
	}, nil
}

// isONNX tells ONNX models from language models.
func isONNX(path string) bool { return strings.EqualFold(filepath.Ext(path), ".onnx") }

// notONNX returns what is wrong with an ONNX file that cannot be read; where it is a language model, which sub-commands run that.
func notONNX(path string, err error) error {
	f, openErr := regular.Open(path)
	if openErr != nil {
		return err
	}
	defer f.Close()
	var magic [4]byte
	if _, readErr := io.ReadFull(f, magic[:]); readErr != nil || string(magic[:]) != "GGUF" {
		return err
	}
	return fmt.Errorf("%s is a GGUF file, no ONNX model; tessera generate, chat and embed run language models", path)
}

type runOutput struct {
	Shape []int  `json:"shape"`
	DType string `json:"dtype"`
	File  string `json:"file"`
}

func runCommand() *cobra.Command {
	var (
		o      cli.Options
		inputs []string
		folder string
	)
	cmd := &cobra.Command{
		Use:     "run --model F.onnx --input NAME=FILE.npy... --output DIR",
		Example: "  tessera run --model model.onnx --input x=x.npy --output out",
		Short:   "Run an ONNX model once, inputs and outputs as NumPy files",
		Args:    cli.NoArgs("a model's file follows --model"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Model == "" || folder == "" {
				return cli.Usagef("--model FILE and --output DIR are needed")
			}
			in := map[string]onnx.Value{}
			for _, text := range inputs {
				name, path, ok := strings.Cut(text, "=")
				if !ok {
					return cli.Usagef("--input %q: NAME=FILE.npy is right", text)
				}
				if _, twice := in[name]; twice {
					return cli.Usagef("--input %q is given twice", name)
				}
				t, err := readNPY(path)
				if err != nil {
					return err
				}
				in[name] = onnx.Of(t)
			}
			s, done, err := openONNX(cmd.Context(), &o, func(m *onnx.Model) error { return checkRun(m, in, folder) })
			if err != nil {
				return err
			}
			defer done()
			start := time.Now()
			out, err := s.Run(cmd.Context(), in)
			if err != nil {
				return err
			}
			seconds := time.Since(start).Seconds()
			written := map[string]runOutput{}
			for _, v := range s.Outputs() {
				file := filepath.Join(folder, fileName(v.Name)+".npy")
				t := out[v.Name].Tensor
				if t.DType == tensor.Invalid {
					return fmt.Errorf("output %q is no tensor of numbers, and cannot be a .npy file", v.Name)
				}
				if err := writeNPY(file, t); err != nil {
					return fmt.Errorf("output %q: %w", v.Name, err)
				}
				written[v.Name] = runOutput{t.Shape(), t.DType.String(), file}
			}
			report := s.Report()
			if exe := s.Executable(); exe != nil {
				if err := writeProfile(&o, exe, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			if o.JSON {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"outputs": written, "seconds": seconds, "report": report})
			}
			for _, v := range s.Outputs() {
				w := written[v.Name]
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s%v in %s\n", v.Name, w.DType, w.Shape, w.File)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%.1f ms\n", seconds*1e3)
			if line := offloaded(report, "--json"); line != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), line+"; the time above is this machine's")
			}
			return nil
		},
	}
	o.AddModel(cmd, "ONNX file")
	o.AddProfile(cmd)
	cmd.Flags().StringArrayVar(&inputs, "input", nil, "an input of the model, `NAME=FILE.npy` (may be repeated)")
	cmd.Flags().StringVarP(&folder, "output", "o", "", "write the outputs to `DIR`, NAME.npy each")
	return cmd
}

// checkRun finds what would make a run fail at its end: inputs that the model has not, or that do not fit; outputs that cannot be files.
func checkRun(m *onnx.Model, in map[string]onnx.Value, folder string) error {
	known := map[string]bool{}
	var names []string
	for _, v := range m.Graph.Inputs {
		known[v.Name] = true
		names = append(names, strconv.Quote(v.Name))
	}
	for name := range in {
		if !known[name] {
			return cli.Usagef("--input %q: the model has %s", name, strings.Join(names, ", "))
		}
	}
	for _, v := range m.Inputs() {
		if _, ok := in[v.Name]; !ok {
			return cli.Usagef("the model needs --input %s=FILE.npy, %v", v.Name, v.Type)
		}
	}
	if err := m.CheckInputs(in); err != nil {
		return err
	}
	files := map[string]string{}
	for _, v := range m.Graph.Outputs {
		if t := v.Type; t != nil && (t.Sequence != nil || t.Optional != nil || t.Map || t.Elem == onnx.String) {
			return fmt.Errorf("output %q is %v, and cannot be a .npy file", v.Name, t)
		}
		file := fileName(v.Name)
		if other, taken := files[file]; taken {
			return fmt.Errorf("outputs %q and %q would both be %s.npy", other, v.Name, file)
		}
		files[file] = v.Name
	}
	return os.MkdirAll(folder, 0o755)
}

// fileName turns the name of a value into one of a file: separators become underscores.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) || r < ' ' {
			return '_'
		}
		return r
	}, name)
}

// npyTypes are NumPy's names of element types.
var npyTypes = map[tensor.DType]string{
	tensor.F32: "f4", tensor.F64: "f8", tensor.F16: "f2", tensor.I8: "i1", tensor.U8: "u1", tensor.I16: "i2", tensor.U16: "u2",
	tensor.I32: "i4", tensor.U32: "u4", tensor.I64: "i8", tensor.U64: "u8", tensor.Bool: "b1",
}

func readNPY(path string) (tensor.Tensor, error) {
	f, err := regular.Open(path)
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return tensor.Tensor{}, err
	}
	a, err := npy.Read(f, int(min(info.Size(), math.MaxInt)))
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("%s: %w", path, err)
	}
	for d, name := range npyTypes {
		if name != a.Descr {
			continue
		}
		t, err := tensor.NewChecked(d, a.Shape...)
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		copy(t.Raw(), a.Data)
		return t, nil
	}
	return tensor.Tensor{}, fmt.Errorf("%s: elements of type %s are not supported", path, a.Descr)
}

func writeNPY(path string, t tensor.Tensor) error {
	if t.DType == tensor.BF16 { // NumPy has none
		wide := tensor.New(tensor.F32, t.Shape()...)
		if err := tensor.Copy(wide, t); err != nil {
			return err
		}
		t = wide
	}
	name, ok := npyTypes[t.DType]
	if !ok {
		return fmt.Errorf("NumPy has no type for %v", t.DType)
	}
	if !t.IsContiguous() {
		t = t.Clone()
	}
	return cli.WriteFile(path, func(w io.Writer) error {
		return npy.Write(w, &npy.Array{Descr: name, Shape: t.Shape(), Data: t.Raw()})
	})
}
