package llm

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/tessera-go/tessera/internal/atomicfile"
	"github.com/tessera-go/tessera/internal/packfile"
	"github.com/tessera-go/tessera/tensor"
)

// WeightCachePath returns where the packed weights of a model are kept by convention: beside its file, or in its folder.
func WeightCachePath(model string) string {
	const name = "packed.tessera"
	if info, err := os.Stat(model); err == nil && info.IsDir() {
		return filepath.Join(model, name)
	}
	return model + "." + name
}

// WeightCacheInfo says what became of the file of Options.WeightCache.
type WeightCacheInfo struct {
	Path   string
	Reused bool  // it served as it was
	Bytes  int64 // of the file
	// Err says why a file that was there could not be used, or why no new one could be written. The model works nevertheless.
	Err error
}

// WeightCache says what became of the file of Options.WeightCache.
func (m *Model) WeightCache() WeightCacheInfo {
	k := &m.w.keep
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.info
}

// keeper holds the file of packed weights that there was, collects what a new one would hold, and counts what has been read of the model's files.
type keeper struct {
	path     string
	progress func(done, total int64)

	mu          sync.Mutex
	id          packfile.Identity
	file        *packfile.File // nil: none that can be used
	blobs       []packfile.Blob
	fresh       bool // blobs differ from the file's
	info        WeightCacheInfo
	done, total int64
}

// stampOf returns a file's size and time of change.
func stampOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return path // it is gone: what is kept of it is no use either
	}
	return fmt.Sprintf("%s %d %d", filepath.Base(path), info.Size(), info.ModTime().UnixNano())
}

// identify returns what tells models apart: names, sizes and times of files, and names, sizes and samples of tensors. Models in memory
// are looked at whole. A file that is changed in place, between the samples, with its time set back, is taken for the old one: to
// read all of a model would cost what keeping its packed weights saves.
func identify(src source) (id packfile.Identity) {
	h := sha256.New()
	stamp := src.stamp()
	_, _ = io.WriteString(h, stamp)
	src.each(func(name string, data []byte) {
		sampleTensor(h, name, data, stamp == "")
	})
	h.Sum(id[:0])
	return id
}

// sampleTensor writes what tells a tensor from others: its name, its size, and its bytes, all of them or three samples.
func sampleTensor(h hash.Hash, name string, data []byte, whole bool) {
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(data)))
	_, _ = io.WriteString(h, "\n"+name+"\n")
	_, _ = h.Write(size[:])
	const sample = 64
	if whole || len(data) <= 3*sample {
		_, _ = h.Write(data)
		return
	}
	for _, at := range []int{0, len(data) / 2, len(data) - sample} {
		_, _ = h.Write(data[at : at+sample])
	}
}

// open looks for kept weights of the model.
func (k *keeper) open(src source) error {
	src.each(func(_ string, data []byte) { k.total += int64(len(data)) })
	if k.path == "" {
		return nil
	}
	k.info.Path = k.path
	if err := atomicfile.Check(k.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("packed weights: %w", err)
	}
	k.id = identify(src)
	f, err := packfile.Open(k.path, k.id)
	switch {
	case err == nil:
		k.file = f
	case errors.Is(err, packfile.ErrForeign):
		return fmt.Errorf("%w; it is not replaced", err)
	case !errors.Is(err, os.ErrNotExist):
		k.info.Err = err
	}
	return nil
}

// write writes a new file if the old one does not hold what the model needs. Forms that are not packed yet are packed for it, which reports what
// they consume, so nothing is locked meanwhile.
func (k *keeper) write() {
	k.mu.Lock()
	path, blobs, fresh, file := k.path, k.blobs, k.fresh, k.file
	k.mu.Unlock()
	var size int64
	var err error
	if path != "" && fresh {
		size, err = packfile.Write(path, k.id, blobs)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case path == "":
	case err != nil:
		k.info.Err = fmt.Errorf("packed weights are not kept: %w", err)
	case fresh:
		k.info.Bytes = size
	case file != nil:
		k.info.Reused, k.info.Bytes = true, int64(file.Size())
	}
	k.blobs = nil
	k.path, k.progress = "", nil // what is packed later, in runs or for another use of the model, is not kept
}

func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.file
	k.file, k.blobs = nil, nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// origin tells a keeper about one weight.
type origin struct {
	k    *keeper
	name string
	buf  *tensor.Buffer
}

// Kept returns what the file holds.
func (o *origin) Kept(key string, workers int) []byte {
	k := o.k
	k.mu.Lock()
	f := k.file
	k.mu.Unlock()
	if f == nil {
		return nil
	}
	data := f.Blob(o.name, key, workers)
	if data != nil {
		k.mu.Lock()
		k.blobs = append(k.blobs, packfile.Blob{Name: o.name, Key: key, Form: packfile.Bytes(data)})
		k.mu.Unlock()
	}
	return data
}

// Keep notes what a new file will hold.
func (o *origin) Keep(key string, form io.WriterTo) {
	k := o.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" {
		return
	}
	k.fresh = true
	b := packfile.Blob{Name: o.name, Key: key, Form: form}
	for i := range k.blobs {
		if k.blobs[i].Name == o.name && k.blobs[i].Key == key {
			k.blobs[i] = b
			return
		}
	}
	k.blobs = append(k.blobs, b)
}

// Consumed gives pages of a mapped file back and reports progress.
func (o *origin) Consumed(raw []byte) {
	o.buf.GiveBack(raw)
	k := o.k
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done += int64(len(raw))
	if k.progress != nil && k.done <= k.total {
		k.progress(k.done, k.total)
	}
}
