package report

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// IsTerminal reports whether a stream, of either direction, is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// CopyOutput copies the output of a script: byte for byte, but to a terminal without control characters.
func CopyOutput(w io.Writer, r io.Reader, terminal bool) error {
	if !terminal {
		_, err := io.Copy(w, r)
		return err
	}
	in, out := bufio.NewReader(r), bufio.NewWriter(w)
	for {
		c, _, err := in.ReadRune()
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(out.Flush(), err)
		}
		if err != nil {
			return out.Flush()
		}
		if c != '\n' && c != '\t' {
			c = printable(c)
		}
		out.WriteRune(c)
	}
}

// Columns returns the width of w: $COLUMNS, else the width of the terminal, else 0, as for a file or a pipe.
func Columns(env func(name string) (string, bool), w io.Writer) int {
	if value, ok := env("COLUMNS"); ok {
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return n
		}
	}
	if file, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// Wrap breaks a line of a result that is wider than columns; the lines that follow are indented. With
// columns 0 the line is returned as it is. Do not wrap commands, so that they can be copied.
func Wrap(line string, columns int) string {
	const indent, narrowest = "  ", 20
	if columns == 0 || Cells(line) <= columns {
		return line
	}
	return strings.Join(Fold(line, max(columns-len(indent), narrowest)), "\n"+indent)
}
