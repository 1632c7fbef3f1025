package knob

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tessera-go/tessera/internal/atomicfile"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/regular"
)

// A profile file is JSON of this form, version 1:
//
//	{"tessera_profile": 1, "processors": [{"processor": "...", "knobs": {"kc-max": 512}}]}
//
// It holds the thresholds of several processors, because a home folder may serve several machines. A processor is named by
// Processor. Names of thresholds that a program does not know belong to packages that it does not link.
const profileVersion = 1

// maxProfile bounds the bytes of a profile file.
const maxProfile = 1 << 20

// Profile is what a profile file holds.
type Profile struct {
	Version    int     `json:"tessera_profile"`
	Processors []Tuned `json:"processors"`
}

// Tuned is the thresholds of one processor.
type Tuned struct {
	Processor string         `json:"processor"`
	Measured  string         `json:"measured,omitempty"` // when, as RFC 3339
	Knobs     map[string]int `json:"knobs"`
}

// Processor returns the name under which this processor stands in a profile: everything that the thresholds depend on.
func Processor() string {
	in := cpuinfo.Get()
	return fmt.Sprintf("%s %s [%s] L1 %d KiB, L2 %d KiB, L3 %d KiB", in.Arch, in.Name, strings.Join(in.Names(), " "), in.L1D>>10, in.L2>>10, in.L3>>10)
}

// ParseProfile reads a profile file.
func ParseProfile(data []byte) (*Profile, error) {
	if len(data) > maxProfile {
		return nil, fmt.Errorf("a profile of %d bytes, at most %d are read", len(data), maxProfile)
	}
	var head struct {
		Version *int `json:"tessera_profile"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("no profile: %w", err)
	}
	if head.Version == nil {
		return nil, errors.New(`no profile: "tessera_profile" is missing`)
	}
	if *head.Version != profileVersion {
		return nil, fmt.Errorf("profile of version %d, this library reads %d", *head.Version, profileVersion)
	}
	p := &Profile{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(p); err != nil {
		return nil, fmt.Errorf("no profile: %w", err)
	}
	for i, t := range p.Processors {
		if t.Processor == "" {
			return nil, fmt.Errorf("processor %d of the profile has no name", i)
		}
		if slices.ContainsFunc(p.Processors[:i], func(o Tuned) bool { return o.Processor == t.Processor }) {
			return nil, fmt.Errorf("the profile has processor %q twice", t.Processor)
		}
		for name := range t.Knobs {
			if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
				return nil, fmt.Errorf("the profile has a threshold named %q", name)
			}
		}
	}
	return p, nil
}

// Bytes returns the profile as a file.
func (p *Profile) Bytes() ([]byte, error) {
	p.Version = profileVersion
	data, err := json.MarshalIndent(p, "", "  ")
	return append(data, '\n'), err
}

// Set puts the thresholds of a processor into the profile, in place of those it had.
func (p *Profile) Set(t Tuned) {
	p.Processors = slices.DeleteFunc(p.Processors, func(o Tuned) bool { return o.Processor == t.Processor })
	p.Processors = append(p.Processors, t)
}

// Path returns where the profile of this user lies, and whether TESSERA_PROFILE names it. The path is empty where
// TESSERA_PROFILE=none, or where the system names no folder for a user's configuration.
func Path() (path string, asked bool) {
	switch env := os.Getenv("TESSERA_PROFILE"); env {
	case "":
	case "none":
		return "", true
	default:
		return env, true
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", false
	}
	return filepath.Join(dir, "tessera", "profile.json"), false
}

// ReadProfile reads a profile file. A file that does not exist is an error that wraps fs.ErrNotExist.
func ReadProfile(path string) (*Profile, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxProfile+1))
	if err != nil {
		return nil, err
	}
	p, err := ParseProfile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// WriteProfile puts the thresholds of this processor into the file at path; what the file says of other processors stays. The
// file is replaced in one step, so that no program reads half of it. A file that is no profile is an error and left alone, unless
// whatever says that it may be replaced.
func WriteProfile(path string, t Tuned, whatever bool) error {
	p, err := ReadProfile(path)
	if errors.Is(err, fs.ErrNotExist) || err != nil && whatever {
		p, err = &Profile{}, nil
	}
	if err != nil {
		return err
	}
	p.Set(t)
	data, err := p.Bytes()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, 0o644, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// processProfile is what this process takes from its profile.
type processProfile struct {
	path  string
	asked bool // by TESSERA_PROFILE
	knobs map[string]int
}

var loaded = sync.OnceValues(func() (*processProfile, error) {
	path, asked := Path()
	p := &processProfile{path: path, asked: asked}
	if path == "" {
		return p, nil
	}
	file, err := ReadProfile(path)
	switch {
	case err == nil:
		for _, t := range file.Processors {
			if t.Processor == Processor() {
				p.knobs = maps.Clone(t.Knobs)
			}
		}
	case asked:
		return nil, fmt.Errorf("TESSERA_PROFILE: %w", err)
	case !errors.Is(err, fs.ErrNotExist):
		warn(err)
	}
	return p, nil
})

func warn(err error) {
	fmt.Fprintf(os.Stderr, "tessera: the profile is left out: %v; tessera tune makes a new one\n", err)
}
