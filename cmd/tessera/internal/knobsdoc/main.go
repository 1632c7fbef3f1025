// Command knobsdoc writes docs/knobs.md: every threshold with its name, variable, default, bounds and reason, from the code that
// declares it. With -check it writes nothing and fails if the file is not current.
//
//	go run ./cmd/tessera/internal/knobsdoc -o docs/knobs.md
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	_ "github.com/tessera-go/tessera/backends/cpu" // and with it every package that declares thresholds
	"github.com/tessera-go/tessera/backends/cpu/tune"
	"github.com/tessera-go/tessera/internal/knob"
)

const header = `# Thresholds

Made by ` + "`go run ./cmd/tessera/internal/knobsdoc -o docs/knobs.md`" + ` from the code that declares them; do not edit.

A threshold decides between ways to compute the same result. Its value comes from the first of these that gives one:

1. the program: ` + "`gemm.Options.Knobs`, `qgemm.Run.Knobs`, `conv.NewPlanWith`" + ` take values by name;
2. the environment variable, read once;
3. the profile of this processor, which ` + "`tessera tune`" + ` measures and writes: ` + "`tessera/profile.json`" + ` in the user's configuration
   folder, or the file that ` + "`TESSERA_PROFILE`" + ` names (` + "`none`" + ` for no profile);
4. the default.

A variable without a legal value, or a named profile that cannot be read, is an error of every product; a broken profile in the
configuration folder is reported once and left out. ` + "`tessera tune --list`" + ` prints what holds in your environment and where it comes
from.

` + "`TESSERA_ISA`" + ` pins an instruction set (portable, avx2, avxvnni, avx512, amx, neon, sve) and fails where the processor, or for amx the
system, lacks it.

A variable that begins with ` + "`TESSERA_`" + ` and is none of these is read by nobody: the command ` + "`tessera`" + ` says so at its start, on standard
error, with the variable that may be meant; the library says nothing.
`

func document() string {
	var b strings.Builder
	b.WriteString(header)
	why := tune.Unmeasured()
	room := ""
	for _, d := range knob.All() {
		if d.Room != room {
			room = d.Room
			fmt.Fprintf(&b, "\n## %s\n\n| name | variable | default | least | most | what it decides, and why the default |\n|---|---|---|---|---|---|\n", room)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %d | %d | %s | %s |\n", d.Name, d.Env, d.Default, d.Low, most(d.High), d.Why)
	}
	b.WriteString("\n## Not measured\n\n`tessera tune` measures all but these:\n\n| name | why not |\n|---|---|\n")
	for _, d := range knob.All() {
		if reason, ok := why[d.Name]; ok {
			fmt.Fprintf(&b, "| `%s` | %s |\n", d.Name, reason)
		}
	}
	return b.String()
}

// most writes an upper bound; the largest int of a platform is no number worth reading.
func most(v int) string {
	if v == int(^uint(0)>>1) {
		return ""
	}
	return fmt.Sprint(v)
}

func main() {
	out := flag.String("o", "docs/knobs.md", "file to write or check")
	check := flag.Bool("check", false, "fail if the file is not current")
	flag.Parse()
	if err := run(*out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "knobsdoc:", err)
		os.Exit(1)
	}
}

func run(path string, check bool) error {
	text := document()
	if !check {
		return os.WriteFile(path, []byte(text), 0o644)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if string(old) != text {
		return fmt.Errorf("%s is not current: go run ./cmd/tessera/internal/knobsdoc -o %s", path, path)
	}
	return nil
}
