//go:build !unix || aix || solaris

package cli

// There is no job control.
func (l *LineReader) stop() {}

func (l *LineReader) obeyContinue() func() { return func() {} }
