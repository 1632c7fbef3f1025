package knob

import (
	"runtime"
	"slices"
	"strings"
)

// Stray is a variable of the environment that looks like one of Tessera's and that nothing reads.
type Stray struct {
	Name    string
	Nearest string // the variable that may be meant; empty where none is near
}

const prefix = "TESSERA_"

// others are the variables beside those of thresholds.
var others = []string{"TESSERA_ISA", "TESSERA_PROFILE"}

// ofTests are the variables that only the project's tests and measurements read, without TESSERA_, and the beginnings, to an underscore, of such.
var ofTests = []string{
	"DESIGN_CASES", "LONG", "NPM_MODELS", "ONNX_TESTDATA", "REQUIRE", "SHARED", "SLOW",
	"TEST_EXEC", "TEST_TILES", "TXN_CASES", "UPDATE", "USE",
}

// Strays returns the variables of an environment, as os.Environ gives it, that begin with TESSERA_ and are neither thresholds of the
// packages that this program links nor other variables of the project, in the order of the environment. An empty value counts as none.
func Strays(environ []string) []Stray {
	names := slices.Clone(others)
	for _, d := range declared {
		names = append(names, d.Env)
	}
	var strays []Stray
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		upper := strings.ToUpper(name)
		if value == "" || !strings.HasPrefix(upper, prefix) {
			continue
		}
		if runtime.GOOS == "windows" { // where names of variables have no case
			name = upper
		}
		if slices.Contains(names, name) || slices.ContainsFunc(ofTests, func(t string) bool { return name == prefix+t || strings.HasPrefix(name, prefix+t+"_") }) {
			continue
		}
		s := Stray{Name: name}
		least := len(upper[len(prefix):])/3 + 1 // more than a third wrong is another word
		for _, n := range names {
			if d := distance(upper, n); d < least {
				s.Nearest, least = n, d
			}
		}
		strays = append(strays, s)
	}
	return strays
}

// distance counts the letters to insert, delete or replace that make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
