package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// onTerminal runs a program whose input, output and errors are a terminal of some columns, and returns
// what the terminal received. The program's exit code does not count.
func onTerminal(cmd *exec.Cmd, columns int, keys typing) ([]byte, error) {
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer main.Close()
	fd := int(main.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: uint16(columns)}); err != nil {
		return nil, err
	}
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(main, keys.Ahead); err != nil {
		return nil, errors.Join(err, side.Close())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(cmd.Start(), side.Close()); err != nil {
		return nil, err
	}
	text := answering{w: main, answer: keys.Answer}
	_, err = io.Copy(&text, main)
	// Reading fails so when the last program that had the other side has ended.
	if errors.Is(err, syscall.EIO) {
		err = nil
	}
	if failed, ok := errors.AsType[*exec.ExitError](cmd.Wait()); ok && failed.ExitCode() < 0 {
		err = errors.Join(err, failed)
	}
	// A terminal ends lines with a return.
	return bytes.ReplaceAll(text.Bytes(), []byte("\r\n"), []byte("\n")), err
}

// answering collects what a terminal receives, and types a line of the answer when a question stands there.
type answering struct {
	bytes.Buffer

	w      io.Writer
	answer string // empty when there is none, or none any more
}

func (a *answering) Write(p []byte) (int, error) {
	a.Buffer.Write(p)
	if a.answer != "" && bytes.HasSuffix(a.Bytes(), []byte("] ")) {
		line, rest, _ := strings.Cut(a.answer, "\n")
		end := "\n"
		if strings.HasSuffix(line, "^D") {
			line, end = strings.ReplaceAll(line, "^D", "\x04"), ""
		}
		if _, err := io.WriteString(a.w, line+end); err != nil {
			return 0, err
		}
		a.answer = rest
	}
	return len(p), nil
}

// ReadFrom is not that of the buffer, which would not look at what comes.
func (a *answering) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{a}, r)
}
