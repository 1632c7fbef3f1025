package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/atomicfile"
)

func text(s string) func(*os.File) error {
	return func(f *os.File) error { _, err := f.WriteString(s); return err }
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, want := range []string{"old and long", "new"} {
		require.NoError(t, atomicfile.Check(path))
		require.NoError(t, atomicfile.Write(path, 0o640, text(want)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), info.Mode())
	}
	broken := errors.New("broken")
	err := atomicfile.Write(path, 0o640, func(f *os.File) error { return errors.Join(text("half")(f), broken) })
	require.ErrorIs(t, err, broken)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(got), "a failed write changes nothing")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing stays beside the file")
}

func TestOnlyFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir: "not a regular file", os.DevNull: "not a regular file", filepath.Join(dir, "none", "a"): "folder",
	} {
		require.ErrorContains(t, atomicfile.Check(path), want, path)
		err := atomicfile.Write(path, 0o600, func(*os.File) error { t.Error("called"); return nil })
		require.ErrorContains(t, err, want, path)
	}
}

func TestLinksStay(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	if err := os.Symlink(file, link); err != nil {
		t.Skip("no links here: ", err)
	}
	require.NoError(t, atomicfile.Write(link, 0o600, text("new")))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "new", string(got))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
}

// A folder that takes no file is found before there is anything to write, and the error names the file that was asked for.
func TestFolderThatTakesNoFile(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, atomicfile.CheckWritable(filepath.Join(folder, "f")))
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
	switch {
	case os.Geteuid() > 0:
		require.NoError(t, os.Chmod(folder, 0o500))
	case runtime.GOOS == "linux":
		folder = "/proc/self" // where not even root makes files
	default:
		t.Skip("every folder takes files here")
	}
	path := filepath.Join(folder, "f")
	require.NoError(t, atomicfile.Check(path))
	for _, err := range []error{atomicfile.CheckWritable(path), atomicfile.Write(path, 0o600, func(*os.File) error { panic("called") })} {
		require.ErrorContains(t, err, path+": ")
	}
}

// A link to what is not there yet stays, and the file that it names is made.
func TestWriteThroughADanglingLink(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "real"), 0o700))
	link, chain := filepath.Join(folder, "link"), filepath.Join(folder, "chain")
	if err := os.Symlink(filepath.Join("real", "f"), link); err != nil {
		t.Skipf("no links here: %v", err)
	}
	require.NoError(t, os.Symlink(link, chain))
	for _, text := range []string{"new", "replaced"} {
		require.NoError(t, atomicfile.Write(chain, 0o600, func(f *os.File) error { _, err := f.WriteString(text); return err }))
		for _, path := range []string{link, chain} {
			info, err := os.Lstat(path)
			require.NoError(t, err)
			require.NotZero(t, info.Mode()&os.ModeSymlink)
		}
		got, err := os.ReadFile(filepath.Join(folder, "real", "f"))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	require.NoError(t, os.Symlink("loop", filepath.Join(folder, "loop")))
	require.Error(t, atomicfile.Check(filepath.Join(folder, "loop")))
}
