package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// onTerminal runs a program whose input, output and errors are a terminal of some columns, on which
// something may have been typed already, and returns what the terminal received. The program's exit code
// does not count.
func onTerminal(cmd *exec.Cmd, columns int, typed string) ([]byte, error) {
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
	if _, err := io.WriteString(main, typed); err != nil {
		return nil, errors.Join(err, side.Close())
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(cmd.Start(), side.Close()); err != nil {
		return nil, err
	}
	var text bytes.Buffer
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
