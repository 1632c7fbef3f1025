package cli

import (
	"bufio"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// LineReader reads what a person types, line by line: on a terminal with a prompt, editing, and the earlier lines under the arrow keys; from
// a pipe or file as it is. On a terminal Ctrl-C discards the line and Ctrl-D ends the input.
type LineReader struct {
	lines *bufio.Reader // of a pipe or file

	file  *os.File // a terminal
	term  *term.Terminal
	mu    sync.Mutex
	state *term.State // of the terminal before Read; nil while nothing is read
}

// NewLineReader reads from in. The prompt is shown on out if both are terminals.
func NewLineReader(in io.Reader, out io.Writer, prompt string) *LineReader {
	file, ok := in.(*os.File)
	screen, ok2 := out.(interface{ Fd() uintptr }) // a file, or what writes to one
	if !ok || !ok2 || !term.IsTerminal(int(file.Fd())) || !term.IsTerminal(int(screen.Fd())) {
		return &LineReader{lines: bufio.NewReader(in)}
	}
	pair := struct {
		io.Reader
		io.Writer
	}{&interruptKeys{r: file}, out}
	return &LineReader{file: file, term: term.NewTerminal(pair, prompt)}
}

// Interactive reports whether a person sits at a terminal.
func (l *LineReader) Interactive() bool { return l.term != nil }

// Read returns the next line without its end. The error is io.EOF behind the last one.
func (l *LineReader) Read() (string, error) {
	if l.term == nil {
		line, err := l.lines.ReadString('\n')
		if err == io.EOF && line != "" {
			err = nil
		}
		return strings.TrimRight(line, "\r\n"), err
	}
	state, err := term.MakeRaw(int(l.file.Fd()))
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	l.state = state
	l.mu.Unlock()
	defer l.Restore()
	if w, h, err := term.GetSize(int(l.file.Fd())); err == nil && w > 0 {
		_ = l.term.SetSize(w, h)
	}
	line, err := l.term.ReadLine()
	if err == term.ErrPasteIndicator { // a pasted line is a line
		err = nil
	}
	return line, err
}

// Restore gives the terminal back as it was before Read, which another goroutine may be in.
func (l *LineReader) Restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != nil {
		_ = term.Restore(int(l.file.Fd()), l.state)
		l.state = nil
	}
}

// interruptKeys turns Ctrl-C, which package term takes for the end of the input, into Ctrl-U and Enter: the line is thrown away.
type interruptKeys struct {
	r     io.Reader
	enter bool
}

func (k *interruptKeys) Read(b []byte) (int, error) {
	const ctrlC, ctrlU, enter = 3, 21, '\r'
	if len(b) == 0 {
		return 0, nil
	}
	if k.enter {
		k.enter = false
		b[0] = enter
		return 1, nil
	}
	n, err := k.r.Read(b[:1]) // one key a call: nothing is typed ahead of the terminal's state
	if n == 1 && b[0] == ctrlC {
		b[0], k.enter = ctrlU, true
	}
	return n, err
}
