package config

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// parseYAML returns the root of the document, nil if the text is empty or null. It refuses a text with more
// than one document.
func parseYAML(text []byte) (*yaml.Node, *Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlProblem(err, text)
	}
	// The decoder stops after one document, so a second one would be ignored without this.
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, &Problem{At: Place{second.Line, second.Column},
			Text: "a second document; a configuration is one, so leave out the line ---"}
	case !errors.Is(err, io.EOF):
		return nil, yamlProblem(err, text)
	}
	if root := document.Content[0]; !isNull(root) || root.Anchor != "" {
		return root, nil
	}
	return nil, nil
}

// yamlAdvice has what to do about an error of the parser, by words of its text. zeroBased is set for errors
// whose lines the parser counts from zero.
var yamlAdvice = []struct {
	words, advice string
	zeroBased     bool
}{
	{"mapping values are not allowed", "put a value with a colon and a blank in quotes", false},
	{"cannot start any token", "put a value that begins with @, ` or % in quotes", false},
	{"unexpected end of stream", "close the quotes", false},
	{"could not find expected ':'", "a key needs a colon and a blank behind it", false},
	{"did not find expected key", "look how far the lines here are indented", true},
	{"did not find expected '-' indicator", "look how far the lines here are indented", true},
	{"did not find expected ',' or", "close the bracket, or put a comma between", true},
	{"did not find expected node content", "close the bracket, or give a value", true},
	{"did not find expected", "", true},
	{"incompatible YAML document", "leave out %YAML", true},
	{"found undefined tag handle", "leave out the tag", true},
	{"unknown anchor", "anchors and aliases are not read; write the value out", false},
}

// yamlProblem returns the problem for an error of the parser, which has only a text. The text has a line
// number unless the error is in the first line.
func yamlProblem(err error, source []byte) *Problem {
	if at, what := badCharacter(source); what != "" {
		return &Problem{At: at, Text: what}
	}
	problem := &Problem{Text: strings.TrimPrefix(err.Error(), "yaml: "), At: Place{Line: 1}}
	numbered := false
	if rest, ok := strings.CutPrefix(problem.Text, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				problem.At.Line, problem.Text, numbered = line, what, true
			}
		}
	}
	if name, ok := strings.CutPrefix(problem.Text, "unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "'")
		problem.At = PlaceOf(source, max(0, bytes.Index(source, []byte("*"+name))))
	}
	if at := tabNear(source, problem.At.Line); at.Line > 0 &&
		strings.Contains(problem.Text, "cannot start any token") {
		return &Problem{At: at, Text: "a tab; YAML is indented with spaces"}
	}
	for _, known := range yamlAdvice {
		if !strings.Contains(problem.Text, known.words) {
			continue
		}
		if known.zeroBased && numbered {
			problem.At.Line++
		}
		if known.advice != "" {
			problem.Text += "; " + known.advice
		}
		break
	}
	// The end of the file counts as a line of its own.
	problem.At.Line = min(problem.At.Line, 1+bytes.Count(bytes.TrimRight(source, "\r\n"), []byte("\n")))
	return problem
}

// badCharacter finds the first character that YAML does not allow.
func badCharacter(text []byte) (at Place, what string) {
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return at, "" // UTF-16, which the parser reads
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return PlaceOf(text, i), "a byte that is not UTF-8; save the file as UTF-8"
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r >= 0x7f && r < 0xa0 && r != 0x85, r == 0xfffe,
			r == 0xffff:
			return PlaceOf(text, i), "a control character; remove it"
		}
		i += size
	}
	return at, ""
}

// PlaceOf returns the place of a byte of a text.
func PlaceOf(text []byte, at int) Place {
	line := bytes.LastIndexByte(text[:at], '\n') + 1
	return Place{1 + bytes.Count(text[:at], []byte("\n")), 1 + utf8.RuneCount(text[line:at])}
}

// tabNear finds a tab in the indentation of a line or of a line next to it: the parser may report the line
// before or after the tab.
func tabNear(text []byte, line int) Place {
	number := 0
	for content := range bytes.Lines(text) {
		number++
		indent := content[:len(content)-len(bytes.TrimLeft(content, " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 && number >= line-1 && number <= line+1 {
			return Place{number, tab + 1}
		}
	}
	return Place{}
}
