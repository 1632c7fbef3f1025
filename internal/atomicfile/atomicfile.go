// Package atomicfile replaces files in one step: at every time a path names the whole of the old file or the whole of the new one.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Check returns an error where Write would refuse to write: what is at path is no regular file (a folder, a device, a pipe), or
// the folder of path does not exist.
func Check(path string) error {
	_, err := target(path)
	return err
}

// CheckWritable is Check that also tries whether the folder takes a new file.
func CheckWritable(path string) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	tmp, err := create(path)
	if err != nil {
		return err
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// create makes the file that takes the name of path later. An error is about path: nobody knows the other name.
func create(path string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".tessera-*")
	var e *fs.PathError
	if errors.As(err, &e) {
		err = &fs.PathError{Op: "create", Path: path, Err: e.Err}
	}
	return f, err
}

// Write calls write with a new file in the folder of path, and gives that file the mode and the name when write has returned no
// error. On Linux nothing else stays where the process is killed meanwhile. Where path is a link, the file that it names is replaced or made, and the link stays. Only a regular file is replaced.
func Write(path string, mode fs.FileMode, write func(*os.File) error) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	name := "" // of what is written, where it has one
	tmp, err := unnamed(path)
	if err != nil {
		if tmp, err = create(path); err != nil {
			return err
		}
		name = tmp.Name()
	}
	defer func() { _ = os.Remove(name) }() // fails when it has been renamed
	if err = write(tmp); err == nil {
		err = tmp.Chmod(mode)
	}
	if err == nil && name == "" {
		if name, err = link(tmp, filepath.Dir(path)); err != nil {
			err = &fs.PathError{Op: "create", Path: path, Err: err}
		}
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(name, path)
}

// target returns the path of the file that a write to path replaces or makes.
func target(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return "", fmt.Errorf("%s exists and is not a regular file: it is not replaced", path)
	case err == nil:
		return filepath.EvalSymlinks(path)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if to, err := os.Readlink(path); err == nil { // of a file that is not there yet
		if !filepath.IsAbs(to) {
			to = filepath.Dir(path) + string(filepath.Separator) + to
		}
		return target(to)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return "", fmt.Errorf("%s: its folder: %w", path, err)
	}
	return path, nil
}
