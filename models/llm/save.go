package llm

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/ops/attention"
)

// A saved session is, little-endian: the magic number, a version, the model's fingerprint, the number of tokens, the tokens, the rows of
// the cache (for each layer keys then values, for each head the rows of all tokens), and the CRC-32 of all that.
const (
	cacheMagic   = "TSKV"
	cacheVersion = 2
)

// SavedError says why a saved session cannot be used.
type SavedError struct{ Reason string }

func (e *SavedError) Error() string { return "saved session: " + e.Reason }

// fingerprint tells models apart whose caches must not be mixed: by shape, by how the layers compute, and by three samples of every weight.
func (m *Model) fingerprint() (sum uint32, err error) {
	defer mem.Caught(mem.Catch(), &err)
	h := crc32.NewIEEE()
	c := *m.Config
	for _, r := range []*attention.RoPE{c.Rope, c.LocalRope} {
		if r != nil {
			fmt.Fprintf(h, "%+v", *r)
		}
	}
	long := m.opts.Context > c.longFactorsFrom
	c.Name, c.Rope, c.LocalRope = "", nil, nil
	fmt.Fprintf(h, "%+v %v %v", c, m.opts.CacheType, long)
	if name := "rope_freqs.weight"; m.w.src.Has(name) { // which a folder may give without a tensor
		t, err := m.w.src.Tensor(name)
		if err != nil {
			return 0, err
		}
		sampleTensor(h, name, t.Raw(), true)
	}
	m.w.src.each(func(name string, data []byte) { sampleTensor(h, name, data, false) })
	return h.Sum32(), nil
}

// blocks calls f with the bytes of the first n rows of every head of every cache, in the order of the format.
func (s *Session) blocks(n int, f func(rows []byte) error) error {
	for i, t := range s.caches {
		raw := t.Raw()
		row := len(raw) / t.Dims[0]
		for h := range s.m.Config.KVHeads[i/2] {
			at := h * s.p.lim.context * row
			if err := f(raw[at : at+n*row]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Save writes the tokens that have been read with their keys and values, so that a later session, also of another process, can go on
// without reading them again.
func (s *Session) Save(w io.Writer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exe == nil {
		return ErrClosed
	}
	print, err := s.m.fingerprint()
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(w, 1<<20)
	sum := crc32.NewIEEE()
	out := io.MultiWriter(buffered, sum)
	head := append([]byte(cacheMagic), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	le := binary.LittleEndian
	le.PutUint32(head[4:], cacheVersion)
	le.PutUint32(head[8:], print)
	le.PutUint32(head[12:], uint32(len(s.tokens)))
	for _, id := range s.tokens {
		head = le.AppendUint32(head, uint32(id))
	}
	_, err = out.Write(head)
	if err == nil {
		err = s.blocks(len(s.tokens), func(rows []byte) error { _, err := out.Write(rows); return err })
	}
	if err == nil {
		_, err = buffered.Write(le.AppendUint32(nil, sum.Sum32()))
	}
	return errors.Join(err, buffered.Flush())
}

// Load replaces what the session has read by a saved session of the same model. It may read further than to the end of that. The last token is evaluated again, so that Logits are
// there. After an error the session is as it was; only if that evaluation fails it holds the saved tokens, and the next one makes up for it.
func (s *Session) Load(ctx context.Context, r io.Reader) error {
	tokens, err := s.load(r)
	if err != nil {
		return err
	}
	s.pending, s.logits = nil, s.logits[:0]
	if len(tokens) == 0 {
		s.tokens = nil
		return nil
	}
	n := len(tokens) - 1
	s.tokens, s.pending = tokens[:n:n], tokens[n:]
	return s.Eval(ctx)
}

func (s *Session) load(r io.Reader) ([]int32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exe == nil {
		return nil, ErrClosed
	}
	sum := crc32.NewIEEE()
	in := io.TeeReader(bufio.NewReaderSize(r, 1<<20), sum)
	le := binary.LittleEndian
	take := func(b []byte, what string) error {
		if _, err := io.ReadFull(in, b); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return &SavedError{"it ends in " + what}
			}
			return err
		}
		return nil
	}
	var head [16]byte
	if err := take(head[:], "its header"); err != nil {
		return nil, err
	}
	print, err := s.m.fingerprint()
	if err != nil {
		return nil, err
	}
	switch {
	case string(head[:4]) != cacheMagic:
		return nil, &SavedError{fmt.Sprintf("magic number %q, %q is right", head[:4], cacheMagic)}
	case le.Uint32(head[4:]) != cacheVersion:
		return nil, &SavedError{fmt.Sprintf("version %d, %d can be read", le.Uint32(head[4:]), cacheVersion)}
	case le.Uint32(head[8:]) != print:
		return nil, &SavedError{"it belongs to another model or cache type"}
	}
	n := le.Uint32(head[12:])
	if n > uint32(s.p.lim.context) {
		return nil, &SavedError{fmt.Sprintf("%d tokens do not fit the context of %d", n, s.p.lim.context)}
	}
	var tokens []int32 // which grow as they come: their number may be wrong, and the context huge
	raw := make([]byte, 4)
	for i := range n {
		if err := take(raw, "its tokens"); err != nil {
			return nil, err
		}
		id := le.Uint32(raw)
		if id >= uint32(s.m.Config.Vocab) {
			return nil, &SavedError{fmt.Sprintf("token %d is %d, the vocabulary has %d", i, id, s.m.Config.Vocab)}
		}
		tokens = append(tokens, int32(id))
	}
	// The rows wait until the checksum is right: a session that goes on must not lose what it has.
	var staged [][]byte
	err = s.blocks(int(n), func(rows []byte) error {
		b := make([]byte, len(rows))
		staged = append(staged, b)
		return take(b, "its keys and values")
	})
	if err != nil {
		return nil, err
	}
	want := sum.Sum32()
	var tail [4]byte
	if err := take(tail[:], "its checksum"); err != nil {
		return nil, err
	}
	if le.Uint32(tail[:]) != want {
		return nil, &SavedError{"its checksum is wrong"}
	}
	i := 0
	_ = s.blocks(int(n), func(rows []byte) error {
		copy(rows, staged[i])
		i++
		return nil
	})
	return tokens, nil
}

// Fork returns a session that has read the same tokens, without reading them again: conversations that share a beginning.
func (s *Session) Fork() (*Session, error) {
	f, err := s.m.newSession(s.p.lim)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exe == nil {
		return nil, errors.Join(ErrClosed, f.Close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.exe == nil { // the model has been closed meanwhile
		return nil, ErrClosed
	}
	n := len(s.tokens)
	var rows [][]byte
	_ = s.blocks(n, func(b []byte) error { rows = append(rows, b); return nil })
	i := 0
	_ = f.blocks(n, func(b []byte) error { copy(b, rows[i]); i++; return nil })
	f.tokens, f.pending, f.logits = slices.Clone(s.tokens), slices.Clone(s.pending), slices.Clone(s.logits)
	return f, nil
}
