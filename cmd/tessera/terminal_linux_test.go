package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tessera-go/tessera/internal/rerun"
)

// terminal is the side of a pseudo-terminal on which a person sits.
type terminal struct {
	*os.File
	mu   sync.Mutex
	seen bytes.Buffer
}

// newTerminal returns a terminal and the file that a program has as its standard input and output.
func newTerminal(t *testing.T) (*terminal, *os.File) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	screen := &terminal{File: os.NewFile(uintptr(fd), "ptmx")}
	t.Cleanup(func() { _ = screen.Close() })
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := screen.Read(buf)
			screen.mu.Lock()
			screen.seen.Write(buf[:n])
			screen.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return screen, tty
}

func (s *terminal) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// until waits for the words to stand on the screen so many times.
func (s *terminal) until(t *testing.T, words string, times int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(s.text(), words) >= times }, time.Minute, time.Millisecond, "%q %d times", words, times)
}

// On a terminal the program that main runs greets and prompts, Ctrl-C throws the line away that is being typed, and Ctrl-D leaves.
func TestChatOnATerminal(t *testing.T) {
	screen, tty := newTerminal(t)
	stdin, stdout, stderr := os.Stdin, os.Stdout, os.Stderr
	defer func() { os.Stdin, os.Stdout, os.Stderr = stdin, stdout, stderr }()
	os.Stdin, os.Stdout, os.Stderr = tty, tty, tty
	code := make(chan int, 1)
	go func() { code <- run(context.Background(), []string{"chat", "-n", "1", "--temp", "0"}) }()

	screen.until(t, "/help says more", 1)
	screen.until(t, "not trained to converse", 1)
	screen.until(t, ">>> ", 1)
	_, err := screen.WriteString("never asked\x03")
	require.NoError(t, err)
	screen.until(t, ">>> ", 2)
	_, err = screen.WriteString("Hello\r")
	require.NoError(t, err)
	screen.until(t, ">>> ", 3)
	_, err = screen.WriteString("/history\r")
	require.NoError(t, err)
	screen.until(t, "user: Hello", 1)
	screen.until(t, ">>> ", 4)
	_, err = screen.WriteString("\x04")
	require.NoError(t, err)
	select {
	case status := <-code:
		require.Zero(t, status, "%s", screen.text())
	case <-time.After(time.Minute):
		t.Fatalf("Ctrl-D leaves: %s", screen.text())
	}
	require.NotContains(t, screen.text(), "user: never asked")
}

// Whatever ends the program while it waits for a line gives the terminal back as it was; and a signal ends also what looks at no context, the second time.
func TestSignals(t *testing.T) {
	switch os.Getenv("SIGNALS_CHILD") {
	case "chat":
		os.Args = []string{"tessera", "chat"}
		main()
	case "deaf":
		ctx, _ := untilSignal(context.Background(), os.Interrupt)
		fmt.Println("listening")
		<-ctx.Done()
		fmt.Println("told")
		select {}
	case "nohup":
		untilSignal(context.Background(), os.Interrupt)
		fmt.Println(signal.Ignored(unix.SIGHUP))
		os.Exit(0)
	}
	// What this process ignores, as under nohup or in the background of a script, its children would ignore too; what it listens to they do not inherit.
	listened := make(chan os.Signal, 1)
	signal.Notify(listened, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(listened)
	for _, s := range []syscall.Signal{unix.SIGTERM, unix.SIGHUP} {
		screen, tty := newTerminal(t)
		before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		require.NoError(t, err)
		child := rerun.Self("-test.run", "^TestSignals$")
		child.Env = append(os.Environ(), "SIGNALS_CHILD=chat")
		child.Stdin, child.Stdout, child.Stderr = tty, tty, tty
		require.NoError(t, child.Start())
		screen.until(t, ">>> ", 1)
		during, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		require.NoError(t, err)
		require.NotEqual(t, before.Lflag, during.Lflag)
		require.NoError(t, child.Process.Signal(s))
		var exit *exec.ExitError
		require.ErrorAs(t, child.Wait(), &exit)
		require.Equal(t, 1, exit.ExitCode(), "%v: %s", s, screen.text())
		after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		require.NoError(t, err)
		require.Equal(t, before, after, "%v", s)
	}
	for _, s := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		child := rerun.Self("-test.run", "^TestSignals$")
		child.Env = append(os.Environ(), "SIGNALS_CHILD=deaf")
		out, err := child.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, child.Start())
		lines := bufio.NewScanner(out)
		for _, want := range []string{"listening", "told"} {
			require.True(t, lines.Scan())
			require.Equal(t, want, lines.Text())
			require.NoError(t, child.Process.Signal(s))
		}
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		var exit *exec.ExitError
		require.Eventually(t, func() bool {
			select {
			case err := <-ended:
				return errors.As(err, &exit)
			default:
				_ = child.Process.Signal(s) // the second may have come before the first was done
				return false
			}
		}, time.Minute, 10*time.Millisecond)
		require.Equal(t, s, exit.Sys().(syscall.WaitStatus).Signal())
	}
	child := rerun.Self("-test.run", "^TestSignals$")
	child.Env = append(os.Environ(), "SIGNALS_CHILD=nohup")
	signal.Ignore(unix.SIGHUP)
	defer signal.Reset(unix.SIGHUP)
	out, err := child.Output()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "true\n", string(out))
}

// Ctrl-Z stops the program, and the terminal is as it was before; however it was stopped, when it goes on it takes the terminal again and shows the line
// that was being typed.
func TestStopsAndGoesOn(t *testing.T) {
	if os.Getenv("STOPS_CHILD") != "" {
		os.Args = []string{"tessera", "chat"}
		main()
	}
	screen, tty := newTerminal(t)
	modes := func() unix.Termios {
		m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		require.NoError(t, err)
		return *m
	}
	before := modes()
	child := rerun.Self("-test.run", "^TestStopsAndGoesOn$")
	child.Env = append(os.Environ(), "STOPS_CHILD=1")
	child.Stdin, child.Stdout, child.Stderr = tty, tty, tty
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a job of its own, as a shell makes them
	require.NoError(t, child.Start())
	defer func() { _ = child.Process.Kill() }()
	screen.until(t, ">>> ", 1)
	during := modes()
	require.NotEqual(t, before, during)
	_, err := screen.WriteString("/hist")
	require.NoError(t, err)
	screen.until(t, "/hist", 1)
	for i, stop := range []func() error{
		func() error { _, err := screen.WriteString("\x1a"); return err },
		func() error { return child.Process.Signal(unix.SIGTSTP) },
		func() error { return child.Process.Signal(unix.SIGSTOP) },
	} {
		require.NoError(t, stop())
		var status unix.WaitStatus
		require.Eventually(t, func() bool {
			pid, err := unix.Wait4(child.Process.Pid, &status, unix.WUNTRACED|unix.WNOHANG, nil)
			return err == nil && pid != 0
		}, time.Minute, time.Millisecond)
		require.True(t, status.Stopped())
		if i == 0 {
			require.Equal(t, before, modes())
		} else { // a shell sets its own modes
			require.NoError(t, unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, &before))
		}
		shown := strings.Count(screen.text(), "/hist")
		require.NoError(t, child.Process.Signal(unix.SIGCONT))
		require.Eventually(t, func() bool { return modes() == during }, time.Minute, time.Millisecond)
		screen.until(t, "/hist", shown+1)
	}
	_, err = screen.WriteString("ory\r")
	require.NoError(t, err)
	screen.until(t, ">>> ", 2)
	_, err = screen.WriteString("/exit\r")
	require.NoError(t, err)
	require.NoError(t, child.Wait(), "%s", screen.text())
	require.Equal(t, before, modes())
	require.NotContains(t, screen.text(), "unknown command")
}
