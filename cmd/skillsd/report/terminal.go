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
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		text, ended := strings.CutSuffix(line, "\n")
		words := strings.Split(text, "\t")
		for i := range words {
			words[i] = Printable(words[i])
		}
		if text = strings.Join(words, "\t"); ended {
			text += "\n"
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
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

// minFold is the narrowest text that is folded, in columns.
const minFold = 20

// Wrap breaks a line of a result that is wider than columns; the lines that follow are indented. With
// columns 0 the line is returned as it is. Do not wrap commands, so that they can be copied.
func Wrap(line string, columns int) string {
	const indent = "  "
	if columns == 0 || Cells(line) <= columns {
		return line
	}
	return strings.Join(Fold(line, max(columns-len(indent), minFold)), "\n"+indent)
}
