package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tomlStatement is a table header or a pair of a TOML file, and where it stands.
type tomlStatement struct {
	table      []string // of a header its own path, of a pair that of the table it stands in
	key        []string // of a pair, below table
	many       bool     // a header of an array of tables
	start, end int      // end is behind what follows on its line, before the line end
	value, to  int      // of a pair: the range of its value
}

// path is the whole path of what the statement says.
func (s *tomlStatement) path() []string { return slices.Concat(s.table, s.key) }

// maxTOMLDepth is how deep values may be nested.
const maxTOMLDepth = 64

// tomlScanner finds the statements of a TOML file. It checks the structure that an edit depends on,
// strings, brackets and line ends, not every rule of values.
type tomlScanner struct {
	text []byte
	at   int
}

// scanTOML returns the statements of a file in their order.
func scanTOML(text []byte) ([]tomlStatement, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("is no TOML: not UTF-8")
	}
	s := &tomlScanner{text: text}
	var found []tomlStatement
	var table []string
	for {
		if err := s.blank(); err != nil {
			return nil, s.wrong(err)
		}
		if s.at == len(s.text) {
			return found, nil
		}
		statement, err := s.statement(table)
		if err != nil {
			return nil, s.wrong(err)
		}
		table = statement.table
		found = append(found, statement)
	}
}

func (s *tomlScanner) wrong(err error) error {
	return fmt.Errorf("line %d: is no TOML: %w", lineAt(s.text, s.at), err)
}

func (s *tomlScanner) statement(table []string) (tomlStatement, error) {
	found := tomlStatement{table: table, start: s.at}
	var err error
	if s.take("[") {
		found.many = s.take("[")
		if found.table, err = s.key(); err != nil {
			return found, err
		}
		if !s.take("]") || found.many && !s.take("]") {
			return found, errors.New("a table header does not end")
		}
	} else {
		if found.key, err = s.key(); err != nil {
			return found, err
		}
		if !s.take("=") {
			return found, errors.New("a key without =")
		}
		s.spaces()
		found.value = s.at
		if err := s.scanValue(0); err != nil {
			return found, err
		}
		found.to = s.at
	}
	s.spaces()
	if err := s.comment(); err != nil {
		return found, err
	}
	found.end = s.at
	if s.at < len(s.text) && !s.newline() {
		return found, errors.New("more on the line than one statement")
	}
	return found, nil
}

// take passes a text if it comes next.
func (s *tomlScanner) take(word string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		return false
	}
	s.at += len(word)
	return true
}

func (s *tomlScanner) newline() bool { return s.take("\n") || s.take("\r\n") }

func (s *tomlScanner) spaces() {
	for s.take(" ") || s.take("\t") {
	}
}

// comment passes a comment up to the end of its line, if one comes next.
func (s *tomlScanner) comment() error {
	if !s.take("#") {
		return nil
	}
	for s.at < len(s.text) && s.text[s.at] != '\n' && !bytes.HasPrefix(s.text[s.at:], []byte("\r\n")) {
		if isTOMLControl(s.text[s.at]) {
			return errors.New("a control character in a comment")
		}
		s.at++
	}
	return nil
}

// blank passes white space, line ends and comments.
func (s *tomlScanner) blank() error {
	for {
		s.spaces()
		if err := s.comment(); err != nil {
			return err
		}
		if !s.newline() {
			return nil
		}
	}
}

func isTOMLControl(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+`)

// key passes a dotted key.
func (s *tomlScanner) key() ([]string, error) {
	var parts []string
	for {
		s.spaces()
		if bare := bareKey.Find(s.text[s.at:]); bare != nil {
			parts = append(parts, string(bare))
			s.at += len(bare)
		} else {
			from := s.at
			if s.at == len(s.text) || s.text[s.at] != '"' && s.text[s.at] != '\'' {
				return nil, errors.New("no key")
			}
			if err := s.quoted(); err != nil {
				return nil, err
			}
			part, err := tomlString(s.text[from:s.at])
			if err != nil || bytes.IndexByte(s.text[from:s.at], '\n') >= 0 {
				return nil, errors.New("a key that cannot be read")
			}
			parts = append(parts, part)
		}
		s.spaces()
		if !s.take(".") {
			return parts, nil
		}
	}
}

// quoted passes a string of any of the four kinds.
func (s *tomlScanner) quoted() error {
	mark := string(s.text[s.at])
	long := s.take(mark+mark+mark) || !s.take(mark)
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == '\\' && mark == `"`:
			s.at += 2
		case long && s.take(mark+mark+mark):
			// Up to two marks more belong to the string.
			if s.take(mark) {
				s.take(mark)
			}
			return nil
		case !long && s.take(mark):
			return nil
		case long && s.newline():
		case isTOMLControl(c):
			return errors.New("a string does not end on its line, or holds a control character")
		default:
			s.at++
		}
	}
	s.at = len(s.text)
	return errors.New("a string does not end")
}

var bareValue = regexp.MustCompile(`^(true|false|[+-]?(inf|nan)|\d{4}-\d\d-\d\d[Tt ]?[0-9:.Zz+-]*|[+-]?[0-9][0-9A-Za-z_+.:-]*)`)

// scanValue passes a value.
func (s *tomlScanner) scanValue(depth int) error {
	if depth > maxTOMLDepth {
		return errors.New("nested too deep")
	}
	if s.at < len(s.text) && (s.text[s.at] == '"' || s.text[s.at] == '\'') {
		return s.quoted()
	}
	switch {
	case s.take("["):
		return s.list("]", func() error { return s.scanValue(depth + 1) })
	case s.take("{"):
		return s.list("}", func() error {
			if _, err := s.key(); err != nil {
				return err
			}
			if !s.take("=") {
				return errors.New("a key without =")
			}
			s.spaces()
			return s.scanValue(depth + 1)
		})
	}
	bare := bareValue.Find(s.text[s.at:])
	if bare == nil {
		return errors.New("no value")
	}
	s.at += len(bytes.TrimRight(bare, " "))
	return nil
}

// list passes items with commas between them and the closing mark.
func (s *tomlScanner) list(closing string, item func() error) error {
	for {
		if err := s.blank(); err != nil {
			return err
		}
		if s.take(closing) {
			return nil
		}
		if err := item(); err != nil {
			return err
		}
		if err := s.blank(); err != nil {
			return err
		}
		if !s.take(",") {
			if !s.take(closing) {
				return errors.New("a list does not end")
			}
			return nil
		}
	}
}

// tomlString is the text of a string of one line.
func tomlString(raw []byte) (string, error) {
	text := string(raw)
	switch {
	case strings.HasPrefix(text, `"""`) || strings.HasPrefix(text, "'''"):
		return "", errors.New("a string of several lines")
	case len(text) >= 2 && text[0] == '\'' && text[len(text)-1] == '\'':
		return text[1 : len(text)-1], nil
	case len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"':
		// Go's escapes hold those of TOML but \e, and a tab, which stands for itself.
		return strconv.Unquote(strings.ReplaceAll(text, "\t", `\t`))
	}
	return "", errors.New("no string")
}

// tomlStrings are the items of an array of strings.
func tomlStrings(raw []byte) ([]string, error) {
	s := &tomlScanner{text: raw}
	if !s.take("[") {
		return nil, errors.New("no array")
	}
	items := []string{}
	err := s.list("]", func() error {
		from := s.at
		if err := s.scanValue(0); err != nil {
			return err
		}
		item, err := tomlString(raw[from:s.at])
		items = append(items, item)
		return err
	})
	return items, err
}

// quoteTOML is a string as a file holds it.
func quoteTOML(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
