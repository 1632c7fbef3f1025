package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/cpu/tune"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/knob"
	"github.com/tessera-go/tessera/internal/rerun"
)

// faster says that chunks of 1,024 steps of k are best, and that nothing else matters.
type faster struct{}

func (faster) Time(_ context.Context, _ tune.Case, knobs map[string]int) (time.Duration, error) {
	d := time.Second
	if knobs["kc-max"] == 1024 {
		d = d * 9 / 10
	}
	return d, nil
}

func (faster) Close() error { return nil }

func withFakeClock(t *testing.T) {
	saved := newMeasurer
	t.Cleanup(func() { newMeasurer = saved })
	newMeasurer = func(int) (tune.Measurer, io.Closer) { return faster{}, faster{} }
}

func TestTune(t *testing.T) {
	withFakeClock(t)
	path := filepath.Join(t.TempDir(), "new", "p.json")
	out, _, err := call(t, "tune", "-o", path, "--json", "--threads", "2")
	require.NoError(t, err)
	var got struct {
		File  string
		Knobs map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, path, got.File)
	require.Equal(t, 1024, got.Knobs["kc-max"])
	for _, d := range knob.All() {
		if v, ok := got.Knobs[d.Name]; ok && d.Name != "kc-max" {
			require.Equal(t, d.Default, v, "%s makes no difference", d.Name)
		}
	}
	require.Len(t, got.Knobs, len(measured(2)))

	p, err := knob.ReadProfile(path)
	require.NoError(t, err)
	require.Equal(t, knob.Processor(), p.Processors[0].Processor)
	require.Equal(t, got.Knobs, p.Processors[0].Knobs)
	_, err = time.Parse(time.RFC3339, p.Processors[0].Measured)
	require.NoError(t, err)

	// Another process takes the value from the profile, and the environment overrides it.
	for env, want := range map[string]string{"TESSERA_X=1": `"value":1024,"source":"profile"`, "TESSERA_KC_MAX=256": `"value":256,"source":"environment"`} {
		cmd := rerun.Self("-test.run", "^TestTuneChild$", "-test.v")
		cmd.Env = append(os.Environ(), "TUNE_CHILD=1", "TESSERA_PROFILE="+path, env)
		list, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", list)
		require.Contains(t, string(list), `"name":"kc-max","env":"TESSERA_KC_MAX",`+want)
	}

	text, _, err := call(t, "tune", "-o", path, "--knob", "kc-max,low-rows")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^threshold +value +compared with before$`, text)
	require.Regexp(t, `(?m)^kc-max +1024 +instead of 512: saves 10.0 %$`, text)
	require.Regexp(t, `(?m)^low-rows +16 +as before$`, text)
	require.Contains(t, text, "written to "+path)
	p, err = knob.ReadProfile(path)
	require.NoError(t, err)
	require.Len(t, p.Processors, 1)
	require.Equal(t, map[string]int{"kc-max": 1024, "low-rows": 16}, p.Processors[0].Knobs)
}

func TestTuneChild(t *testing.T) {
	if os.Getenv("TUNE_CHILD") == "" {
		t.Skip("run by TestTune")
	}
	var out bytes.Buffer
	require.NoError(t, listKnobs(&out, true))
	_, err := out.WriteTo(os.Stdout)
	require.NoError(t, err)
}

func TestTuneWritesNothingUnasked(t *testing.T) {
	withFakeClock(t)
	path := filepath.Join(t.TempDir(), "p.json")
	out, _, err := call(t, "tune", "-o", path, "--dry-run", "--json", "--knob", "kc-max")
	require.NoError(t, err)
	require.Contains(t, out, `"file":"",`)
	_, err = os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte("my notes"), 0o600))
	_, _, err = call(t, "tune", "-o", path, "--knob", "kc-max")
	require.ErrorContains(t, err, "no profile")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "my notes", string(text))

	// In the user's own folder a broken profile is replaced.
	home := t.TempDir()
	for _, name := range []string{"XDG_CONFIG_HOME", "HOME", "AppData"} {
		t.Setenv(name, home)
	}
	t.Setenv("TESSERA_PROFILE", "")
	own, asked := knob.Path()
	require.False(t, asked)
	require.NoError(t, os.MkdirAll(filepath.Dir(own), 0o755))
	require.NoError(t, os.WriteFile(own, []byte("{broken"), 0o600))
	_, _, err = call(t, "tune", "--knob", "kc-max")
	require.NoError(t, err)
	p, err := knob.ReadProfile(own)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"kc-max": 1024}, p.Processors[0].Knobs)

	t.Setenv("TESSERA_PROFILE", "none")
	_, _, err = call(t, "tune", "--knob", "kc-max")
	require.Equal(t, 2, cli.ExitCode(err))
	for _, args := range [][]string{{"--runs", "0"}, {"--margin", "1"}, {"--margin", "NaN"}, {"--knob", "speed"}, {"--threads", "-1"}, {"extra"}} {
		_, _, err := call(t, append([]string{"tune"}, args...)...)
		require.Equal(t, 2, cli.ExitCode(err), "%v: %v", args, err)
	}
}

// TestTuneMeasures is one short real run.
func TestTuneMeasures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.json")
	out, _, err := call(t, "tune", "-o", path, "--knob", "q-few-rows", "--runs", "1", "--json")
	require.NoError(t, err)
	var got tuneResult
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	var tried []int
	for _, c := range got.Choices[0].Candidates {
		require.Positive(t, c.Ratio)
		tried = append(tried, c.Value)
	}
	require.Greater(t, len(tried), 1)
	require.Contains(t, tried, got.Knobs["q-few-rows"])
	require.Positive(t, got.Seconds)
}

// The file that TESSERA_PROFILE names is made where it is not there yet, though every other command refuses to run without it.
func TestTuneMakesTheProfileAskedFor(t *testing.T) {
	args := []string{"tune", "--knob", "q-few-rows", "--runs", "1"}
	if os.Getenv("TUNE_CHILD") == "profile" {
		_, _, err := call(t, "generate", "-n", "1", "-p", "x")
		require.ErrorIs(t, err, os.ErrNotExist)
		return
	} else if os.Getenv("TUNE_CHILD") == "tune" {
		_, _, err := call(t, args...)
		require.NoError(t, err)
		return
	}
	path := filepath.Join(t.TempDir(), "p.json")
	for _, what := range []string{"profile", "tune"} {
		child := rerun.Self("-test.run", "^TestTuneMakesTheProfileAskedFor$")
		child.Env = append(os.Environ(), "TUNE_CHILD="+what, "TESSERA_PROFILE="+path)
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	p, err := knob.ReadProfile(path)
	require.NoError(t, err)
	require.Contains(t, p.Processors[0].Knobs, "q-few-rows")
}

// A threshold that exists and is not measured is refused with the reason.
func TestTuneSaysWhyNot(t *testing.T) {
	withFakeClock(t)
	for name, reason := range tune.Unmeasured() {
		_, _, err := call(t, "tune", "--dry-run", "--knob", name)
		require.Equal(t, 2, cli.ExitCode(err), name)
		require.ErrorContains(t, err, "--knob "+name+" is not measured: "+reason)
	}
}

func TestTuneList(t *testing.T) {
	out, _, err := call(t, "tune", "--list")
	require.NoError(t, err)
	require.Contains(t, out, "spin-microseconds")
	out, _, err = call(t, "tune", "--list", "--json")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, len(knob.All()))
	for _, line := range lines {
		var k knobLine
		require.NoError(t, json.Unmarshal([]byte(line), &k))
		require.NotEmpty(t, k.Why)
		require.Equal(t, "TESSERA_"+strings.ToUpper(strings.ReplaceAll(k.Name, "-", "_")), k.Env)
	}
}
