//go:build unix && !aix && !solaris

package cli

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stop gives the terminal back and stops the processes of this job, as the terminal does at Ctrl-Z outside of Read. The system ignores the signal where
// nobody could continue the job. SIGTSTP is not caught: the os/signal package never gives it its default action again.
func (l *LineReader) stop() {
	l.giveBack()
	_ = syscall.Kill(0, syscall.SIGTSTP)
	time.Sleep(100 * time.Millisecond) // another thread may take the signal, and stop this one a little later
	l.retake()
}

// obeyContinue takes the terminal again, with the line that was being typed, when the process goes on: the shell has used it meanwhile. The function that it
// returns ends that.
func (l *LineReader) obeyContinue() func() {
	signals, done, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGCONT)
	go func() {
		defer close(ended)
		for {
			select {
			case <-signals:
				if l.retake() {
					_, _ = l.term.Write(nil) // draws prompt and line
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

// retake lets every key through again, unless the process goes on in the background, where changing the terminal would stop it, or Read is being left.
func (l *LineReader) retake() bool {
	job, err := unix.IoctlGetInt(int(l.file.Fd()), unix.TIOCGPGRP)
	if err == nil && job != unix.Getpgrp() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.left && l.raw() == nil
}
