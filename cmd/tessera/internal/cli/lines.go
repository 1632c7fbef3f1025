package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// LineReader reads what a person types, line by line: on a terminal with a prompt, editing, and the earlier lines under the arrow keys; from
// a pipe or file as it is. On a terminal Ctrl-C discards the line, Ctrl-D ends the input, and Ctrl-Z stops the program, where the system can.
type LineReader struct {
	lines *bufio.Reader // of a pipe or file
	most  int           // bytes of a line of it

	file  *os.File // a terminal
	term  *term.Terminal
	mu    sync.Mutex
	state *term.State // of the terminal before Read; nil while nothing is read
	left  bool        // Restore has ended what Read does with it
}

// NewLineReader reads from in. The prompt is shown on out if both are terminals. A line of a pipe or file with more than most bytes is an error: it may have
// no end.
func NewLineReader(in io.Reader, out io.Writer, prompt string, most int) *LineReader {
	file, ok := in.(*os.File)
	screen, ok2 := out.(interface{ Fd() uintptr }) // a file, or what writes to one
	if !ok || !ok2 || !term.IsTerminal(int(file.Fd())) || !term.IsTerminal(int(screen.Fd())) {
		return &LineReader{lines: bufio.NewReader(in), most: most}
	}
	l := &LineReader{file: file}
	pair := struct {
		io.Reader
		io.Writer
	}{&controlKeys{r: file, stop: l.stop}, out}
	l.term = term.NewTerminal(pair, prompt)
	return l
}

// Interactive reports whether a person sits at a terminal.
func (l *LineReader) Interactive() bool { return l.term != nil }

// Read returns the next line without its end. The error is io.EOF behind the last one.
func (l *LineReader) Read() (string, error) {
	if l.term == nil {
		var line []byte
		for {
			part, err := l.lines.ReadSlice('\n')
			line = append(line, part...)
			if len(line) > l.most {
				return "", &LengthError{l.most}
			}
			if err == bufio.ErrBufferFull {
				continue
			}
			if err == io.EOF && len(line) > 0 {
				err = nil
			}
			return strings.TrimRight(string(line), "\r\n"), err
		}
	}
	l.mu.Lock()
	l.left = false
	err := l.raw()
	l.mu.Unlock()
	if err != nil {
		return "", err
	}
	defer l.Restore()
	defer l.obeyContinue()()
	if w, h, err := term.GetSize(int(l.file.Fd())); err == nil && w > 0 {
		_ = l.term.SetSize(w, h)
	}
	line, err := l.term.ReadLine()
	if err == term.ErrPasteIndicator { // a pasted line is a line
		err = nil
	}
	return line, err
}

// raw lets every key through as it is typed. The caller holds the lock.
func (l *LineReader) raw() error {
	state, err := term.MakeRaw(int(l.file.Fd()))
	if err == nil && l.state == nil {
		l.state = state
	}
	return err
}

// Restore gives the terminal back as it was before Read, which another goroutine may be in.
func (l *LineReader) Restore() {
	l.mu.Lock()
	l.left = true
	l.mu.Unlock()
	l.giveBack()
}

func (l *LineReader) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != nil {
		_ = term.Restore(int(l.file.Fd()), l.state)
		l.state = nil
	}
}

// LengthError says that a text from a pipe or file is longer than its use can be.
type LengthError struct{ Most int }

func (e *LengthError) Error() string {
	return fmt.Sprintf("standard input: a text of more than %d bytes, which is longer than the context", e.Most)
}

// ReadText reads the whole of in, of most bytes at most: more is a LengthError.
func ReadText(in io.Reader, most int) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, int64(most)+1))
	if err == nil && len(text) > most {
		err = &LengthError{most}
	}
	return string(text), err
}

// controlKeys turns Ctrl-C, which package term takes for the end of the input, into Ctrl-U and Enter: the line is thrown away. Ctrl-Z, which it does not
// know, calls stop.
type controlKeys struct {
	r     io.Reader
	stop  func()
	enter bool
}

func (k *controlKeys) Read(b []byte) (int, error) {
	const ctrlC, ctrlU, ctrlZ, enter = 3, 21, 26, '\r'
	if len(b) == 0 {
		return 0, nil
	}
	if k.enter {
		k.enter = false
		b[0] = enter
		return 1, nil
	}
	for {
		n, err := k.r.Read(b[:1]) // one key a call: nothing is typed ahead of the terminal's state
		if n == 1 && b[0] == ctrlZ {
			k.stop()
			if err == nil {
				continue
			}
			n = 0
		}
		if n == 1 && b[0] == ctrlC {
			b[0], k.enter = ctrlU, true
		}
		return n, err
	}
}
