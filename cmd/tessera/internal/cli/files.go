package cli

import (
	"os"
	"path/filepath"
)

// File is a file that a flag names.
type File struct {
	Flag, Path string
	Written    bool
}

// CheckFiles returns an error if a file that is written has another use too: what one makes of it would be lost. Flags without a path do not count.
func CheckFiles(files ...File) error {
	for i, a := range files {
		for _, b := range files[:i] {
			if a.Path != "" && b.Path != "" && (a.Written || b.Written) && sameFile(a.Path, b.Path) {
				return Usagef("%s and %s are both %s: two files are right", b.Flag, a.Flag, a.Path)
			}
		}
	}
	return nil
}

// sameFile reports whether two paths name one file, which need not be there yet.
func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	if err1 == nil && err2 == nil {
		return os.SameFile(x, y) && (x.Mode().IsRegular() || x.IsDir())
	}
	return err1 != nil && err2 != nil && resolved(a) == resolved(b)
}

// resolved is the path of a file that is not there, with the links of its folder followed.
func resolved(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path
}
