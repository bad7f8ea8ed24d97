package config

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// parseYAML parses a document and returns its root, nil if the text is empty or null. It rejects a text of
// more than one document.
func parseYAML(text []byte) (*yaml.Node, *Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlProblem(err, text)
	}
	// The decoder stops after one document; without this check a second one would be ignored.
	switch err := decoder.Decode(&second); {
	case err == nil:
		return nil, &Problem{At: Position{second.Line, second.Column},
			Text: "a second document; a configuration has only one, so remove the line ---"}
	case !errors.Is(err, io.EOF):
		return nil, yamlProblem(err, text)
	}
	if root := document.Content[0]; !isNull(root) || root.Anchor != "" {
		return root, nil
	}
	return nil, nil
}

// yamlAdvice maps words of a parser error to the advice for it.
var yamlAdvice = [][2]string{
	{"mapping values are not allowed", "put a value with a colon and a space in quotes"},
	{"cannot start any token", "put a value that begins with @, ` or % in quotes"},
	{"unexpected end of stream", "close the quotes"},
	{"could not find expected ':'", "a key needs a colon and a space after it"},
	{"did not find expected key", "check the indentation of these lines"},
	{"did not find expected '-' indicator", "check the indentation of these lines"},
	{"did not find expected ',' or", "close the bracket, or add a comma"},
	{"did not find expected node content", "close the bracket, or give a value"},
	{"incompatible YAML document", "remove the line %YAML"},
	{"found undefined tag handle", "remove the tag"},
	{"unknown anchor", "anchors and aliases are not supported; write the value out"},
}

// yamlProblem converts an error of the parser, which has only a text.
func yamlProblem(err error, source []byte) *Problem {
	// The parser reports such a byte without a line.
	bad := bytes.IndexFunc(source, func(r rune) bool {
		return r == utf8.RuneError || r == 0xfffe || r == 0xffff ||
			unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r)
	})
	if bad >= 0 {
		what := "a control character; remove it"
		if r, _ := utf8.DecodeRune(source[bad:]); r == utf8.RuneError {
			what = "a byte that is not UTF-8; save the file as UTF-8"
		}
		return &Problem{At: PositionOf(source, bad), Text: what}
	}
	line, fault := frontmatter.ParserError(err)
	// A reported line after the last one becomes the line after the text.
	at := Position{Line: min(line, 1+bytes.Count(bytes.TrimRight(source, "\r\n"), []byte("\n")))}
	if name, ok := strings.CutPrefix(fault, "unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "'")
		// This error of the parser has no line.
		at = PositionOf(source, max(0, bytes.Index(source, []byte("*"+name))))
	}
	if tab := tabNear(source, line); tab.Line > 0 && strings.Contains(fault, "cannot start any token") {
		return &Problem{At: tab, Text: "a tab; YAML is indented with spaces"}
	}
	for _, known := range yamlAdvice {
		if strings.Contains(fault, known[0]) {
			return &Problem{At: at, Text: fault + "; " + known[1]}
		}
	}
	return &Problem{At: at, Text: fault}
}

// PositionOf returns the position of a byte offset in a text.
func PositionOf(text []byte, at int) Position {
	line := bytes.LastIndexByte(text[:at], '\n') + 1
	return Position{1 + bytes.Count(text[:at], []byte("\n")), 1 + utf8.RuneCount(text[line:at])}
}

// tabNear finds a tab in the indentation of a line or its neighbours: the parser may report the line before
// or after the tab.
func tabNear(text []byte, line int) Position {
	number := 0
	for content := range bytes.Lines(text) {
		number++
		indent := content[:len(content)-len(bytes.TrimLeft(content, " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 && number >= line-1 && number <= line+1 {
			return Position{number, tab + 1}
		}
	}
	return Position{}
}
