package knob

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/rerun"
)

type example struct{ low, high, other int }

var table = NewTable("example", func(e *example) error {
	if e.low > e.high {
		return fmt.Errorf("example-low is %d, more than example-high, %d", e.low, e.high)
	}
	return nil
},
	Int(func(e *example) *int { return &e.low }, "TESSERA_EXAMPLE_LOW", 10, 1, 100, "a lower bound"),
	Int(func(e *example) *int { return &e.high }, "TESSERA_EXAMPLE_HIGH", 20, 1, 100, "an upper bound"),
	Int(func(e *example) *int { return &e.other }, "TESSERA_EXAMPLE_OTHER", 3, 0, 9, "something else"),
)

func TestDeclared(t *testing.T) {
	require.Equal(t, &example{10, 20, 3}, table.Defaults())
	var names []string
	for _, d := range All() {
		names = append(names, d.Name)
		require.Equal(t, "example", d.Room)
	}
	require.Equal(t, []string{"example-low", "example-high", "example-other"}, names)
	require.Panics(t, func() {
		NewTable("again", nil, Int(func(e *example) *int { return &e.low }, "TESSERA_EXAMPLE_LOW", 1, 1, 1, ""))
	})
	require.Panics(t, func() { Int(func(e *example) *int { return &e.low }, "EXAMPLE", 1, 1, 1, "") })
	require.Panics(t, func() { Int(func(e *example) *int { return &e.low }, "TESSERA_X", 2, 3, 4, "") })
}

func TestWith(t *testing.T) {
	base := table.Defaults()
	v, err := table.With(base, map[string]int{"example-low": 15, "example-other": 0})
	require.NoError(t, err)
	require.Equal(t, &example{15, 20, 0}, v)
	require.Equal(t, table.Defaults(), base, "the base stays")
	for _, bad := range []struct {
		values map[string]int
		text   string
	}{
		{map[string]int{"example-lov": 1}, `no threshold "example-lov"`},
		{map[string]int{"example-low": 0}, "threshold example-low is 0, want a number from 1 to 100"},
		{map[string]int{"example-low": 21}, "more than example-high"},
	} {
		_, err := table.With(base, bad.values)
		require.ErrorContains(t, err, bad.text)
	}
}

// TestSources runs this binary with environments and profiles and looks at what comes out.
func TestSources(t *testing.T) {
	if os.Getenv("KNOB_CHILD") != "" {
		v, err := table.Get()
		fmt.Printf("got %v %v\n", v, err)
		for _, d := range All() {
			s, _ := Resolve(d)
			fmt.Printf("%s=%d from %s\n", d.Name, s.Value, s.Source)
		}
		return
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	profile := func(knobs string) string {
		name, err := json.Marshal(Processor())
		require.NoError(t, err)
		return fmt.Sprintf(`{"tessera_profile":1,"processors":[{"processor":"another","knobs":{"example-low":99}},{"processor":%s,"knobs":%s}]}`, name, knobs)
	}
	good := write("good.json", profile(`{"example-low": 12, "example-high": 30, "of-another-package": 7}`))
	cases := []struct {
		name string
		env  []string
		want []string
	}{
		{"nothing", []string{"TESSERA_PROFILE=none"}, []string{"got &{10 20 3} <nil>", "example-low=10 from default"}},
		{"environment", []string{"TESSERA_PROFILE=none", "TESSERA_EXAMPLE_LOW=11"}, []string{"got &{11 20 3} <nil>", "example-low=11 from environment"}},
		{"profile", []string{"TESSERA_PROFILE=" + good}, []string{"got &{12 30 3} <nil>", "example-high=30 from profile"}},
		{"environment over profile", []string{"TESSERA_PROFILE=" + good, "TESSERA_EXAMPLE_LOW=11"}, []string{"got &{11 30 3} <nil>"}},
		{"no number", []string{"TESSERA_EXAMPLE_LOW=many"}, []string{`got <nil> TESSERA_EXAMPLE_LOW="many", want a number from 1 to 100`}},
		{"out of bounds", []string{"TESSERA_EXAMPLE_LOW=101"}, []string{"got <nil> TESSERA_EXAMPLE_LOW=101, want a number from 1 to 100"}},
		{"contradiction", []string{"TESSERA_PROFILE=none", "TESSERA_EXAMPLE_LOW=90"}, []string{"got <nil> example-low is 90, more than example-high, 20"}},
		{"profile absent", []string{"TESSERA_PROFILE=" + filepath.Join(dir, "absent")}, []string{"got <nil> TESSERA_PROFILE: open", "no such file"}},
		{"profile broken", []string{"TESSERA_PROFILE=" + write("broken.json", "{")}, []string{"got <nil> TESSERA_PROFILE:", "broken.json: no profile:"}},
		{"profile out of bounds", []string{"TESSERA_PROFILE=" + write("high.json", profile(`{"example-low": 500}`))},
			[]string{"got <nil>", "high.json: threshold example-low is 500, want a number from 1 to 100"}},
		{"profile contradicts", []string{"TESSERA_PROFILE=" + write("against.json", profile(`{"example-low": 50}`))}, []string{"got <nil> example-low is 50, more than"}},
		{"other version", []string{"TESSERA_PROFILE=" + write("v2.json", `{"tessera_profile":2,"news":true}`)}, []string{"v2.json: profile of version 2, this library reads 1"}},
	}
	// The folder of the user's configuration, on the systems where a variable moves it.
	home := filepath.Join(dir, "home")
	config := []string{"TESSERA_PROFILE=", "XDG_CONFIG_HOME=" + home, "HOME=" + home, "AppData=" + home}
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("HOME", home)
	t.Setenv("AppData", home)
	t.Setenv("TESSERA_PROFILE", "")
	path, asked := Path()
	require.False(t, asked)
	require.True(t, strings.HasPrefix(path, home), path)
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"home absent", "", []string{"got &{10 20 3} <nil>", "example-low=10 from default"}},
		{"home", profile(`{"example-other": 5}`), []string{"got &{10 20 5} <nil>"}},
		{"home broken", "[]", []string{"tessera: the profile is left out:", "profile.json: no profile:", "got &{10 20 3} <nil>"}},
		{"home out of bounds", profile(`{"example-low": -1, "example-other": 5}`), []string{"profile.json: threshold example-low is -1", "got &{10 20 5} <nil>"}},
		{"home contradicts", profile(`{"example-low": 50, "example-other": 5}`), []string{"profile.json: example-low is 50", "got &{10 20 3} <nil>"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.text != "" {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			}
			expect(t, config, c.want)
		})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { expect(t, c.env, c.want) })
	}
}

func expect(t *testing.T, env, want []string) {
	t.Helper()
	cmd := rerun.Self("-test.run", "^TestSources$", "-test.v")
	cmd.Env = append(append(os.Environ(), "KNOB_CHILD=1"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, w := range want {
		require.Contains(t, string(out), w)
	}
}

func TestWriteProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "profile.json")
	require.NoError(t, WriteProfile(path, Tuned{Processor: "a", Knobs: map[string]int{"x": 1}}, false))
	require.NoError(t, WriteProfile(path, Tuned{Processor: "b", Measured: "2026-01-01T00:00:00Z", Knobs: map[string]int{"x": 2}}, false))
	require.NoError(t, WriteProfile(path, Tuned{Processor: "a", Knobs: map[string]int{"y": 3}}, false))
	p, err := ReadProfile(path)
	require.NoError(t, err)
	require.Equal(t, &Profile{Version: 1, Processors: []Tuned{{"b", "2026-01-01T00:00:00Z", map[string]int{"x": 2}}, {"a", "", map[string]int{"y": 3}}}}, p)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file stays")

	require.NoError(t, os.WriteFile(path, []byte("notes"), 0o600))
	require.ErrorContains(t, WriteProfile(path, Tuned{Processor: "a"}, false), "no profile")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "notes", string(text), "a file that is no profile stays")
	require.NoError(t, WriteProfile(path, Tuned{Processor: "a", Knobs: map[string]int{"x": 4}}, true))
	p, err = ReadProfile(path)
	require.NoError(t, err)
	require.Equal(t, []Tuned{{"a", "", map[string]int{"x": 4}}}, p.Processors)
}

func TestParseProfileRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "no profile",
		"7":                     "no profile",
		"{}":                    `"tessera_profile" is missing`,
		`{"tessera_profile":0}`: "version 0",
		`{"tessera_profile":1,"processors":[{"processor":"","knobs":{}}]}`:                          "no name",
		`{"tessera_profile":1,"processors":[{"processor":"a"},{"processor":"a"}]}`:                  "twice",
		`{"tessera_profile":1,"processors":[{"processor":"a","knobs":{"X Y":1}}]}`:                  `named "X Y"`,
		`{"tessera_profile":1,"processors":[{"processor":"a","knobs":{"x":1.5}}]}`:                  "no profile",
		`{"tessera_profile":1,"processors":[{"processor":"a","knobs":{"x":99999999999999999999}}]}`: "no profile",
		`{"tessera_profile":1,"speed":"fast"}`:                                                      "unknown field",
		`{"tessera_profile":1,"processors":[]}` + strings.Repeat(" ", maxProfile):                   "at most",
	} {
		_, err := ParseProfile([]byte(text))
		require.ErrorContains(t, err, want, "%.60s", text)
	}
}

// FuzzParseProfile: no input makes the parser fail in another way than by an error, and what it takes survives being written.
func FuzzParseProfile(f *testing.F) {
	f.Add([]byte(`{"tessera_profile":1,"processors":[{"processor":"a","measured":"now","knobs":{"kc-max":512,"a":-1}}]}`))
	f.Add([]byte(`{"tessera_profile":2}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProfile(data)
		if err != nil {
			return
		}
		again, err := p.Bytes()
		require.NoError(t, err)
		q, err := ParseProfile(again)
		require.NoError(t, err)
		require.Equal(t, len(p.Processors), len(q.Processors))
		for i := range p.Processors {
			require.Equal(t, len(p.Processors[i].Knobs), len(q.Processors[i].Knobs))
			for name, v := range p.Processors[i].Knobs {
				require.Equal(t, v, q.Processors[i].Knobs[name])
			}
		}
	})
}
