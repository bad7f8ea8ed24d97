package frontmatter

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Bounds of a frontmatter's shape.
const (
	maxYAMLDepth = 250
	maxYAMLNodes = 10_000
)

// parseBlock reads a block that starts at a line of its file. What readBlock refuses is repaired: by
// the reading of a laxer library where that has one, else entry by entry.
func parseBlock(block []byte, line int, notes *notes) (*value, error) {
	source := string(block)
	if whole, ok := parsePlain(source); ok {
		notes.plain = whole
		return whole, nil
	}
	whole, fault := readBlock(source)
	if fault == nil {
		return whole, nil
	}
	if clean := printableText(source); clean != source {
		at, _ := unprintable(strings.ReplaceAll(source, "\r", ""))
		notes.repaired(line+lines(source[:max(at, 0)]), "control characters are left out")
		source = clean
	}
	before := len(notes.repairs)
	whole, err := lax(source, line, notes)
	if err != nil {
		notes.repairs = notes.repairs[:before]
		p := &repairer{notes: notes}
		var ok bool
		if whole, ok = p.mapping(strings.Split(strings.TrimSuffix(source, "\n"), "\n"), line); !ok {
			notes.repairs = notes.repairs[:before]
			return nil, err
		}
	}
	if len(notes.repairs) == before {
		notes.repaired(line+fault.line, fault.reason)
	}
	return whole, nil
}

// lax reads a block with the library.
func lax(source string, line int, notes *notes) (*value, error) {
	root, err := parseYAML([]byte(source), line)
	if err != nil {
		return nil, err
	}
	return (&walker{offset: line - 1, notes: notes}).root(root)
}

// printableText leaves out the characters that YAML does not allow.
func printableText(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\r' {
			if at, _ := unprintable(string(r)); at >= 0 {
				return -1
			}
		}
		return r
	}, s)
}

var lineInError = regexp.MustCompile(`^yaml: line (\d+): `)

// parseYAML parses into nodes only: decoding foreign YAML into Go values panics on some inputs and
// takes a time quadratic in the number of keys.
func parseYAML(block []byte, line int) (root *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, &Error{Kind: Syntax, Line: line, Reason: "the YAML cannot be parsed"}
		}
	}()
	var document yaml.Node
	if err := yaml.Unmarshal(block, &document); err != nil {
		at, reason := line, strings.TrimPrefix(err.Error(), "yaml: ")
		if match := lineInError.FindStringSubmatch(err.Error()); match != nil {
			if n, err := strconv.Atoi(match[1]); err == nil {
				at = line + n - 1
			}
			reason = strings.TrimPrefix(err.Error(), match[0])
		}
		return nil, &Error{Kind: Syntax, Line: at, Reason: Clip(reason, 200)}
	}
	return &document, nil
}

// walker turns YAML nodes into values and refuses what parsers could read in different ways.
type walker struct {
	offset int // lines of the file before the block
	nodes  int
	notes  *notes
}

func (w *walker) refuse(node *yaml.Node, reason string) error {
	return &Error{Kind: Syntax, Line: w.offset + node.Line, Reason: reason}
}

// root returns the mapping at the top of a document.
func (w *walker) root(document *yaml.Node) (*value, error) {
	if len(document.Content) == 0 {
		return &value{kind: mapping}, nil
	}
	top := document.Content[0]
	whole, err := w.walk(top, 0)
	switch {
	case err != nil:
		return nil, err
	case whole.kind == null:
		return &value{kind: mapping}, nil
	case whole.kind != mapping:
		return nil, w.refuse(top, "the frontmatter is not a mapping of keys to values")
	}
	return &whole, nil
}

func (w *walker) walk(node *yaml.Node, depth int) (value, error) {
	w.nodes++
	switch {
	case depth > maxYAMLDepth:
		return value{}, w.refuse(node, "the frontmatter is nested too deep")
	case w.nodes > maxYAMLNodes:
		return value{}, w.refuse(node, "the frontmatter has too many values")
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return value{}, w.refuse(node, "anchors and aliases are not supported")
	case node.Style&yaml.TaggedStyle != 0 && !coreTags[node.Tag]:
		return value{}, w.refuse(node, "this YAML tag is not supported")
	}
	switch node.Kind {
	case yaml.ScalarNode:
		return scalarOf(node), nil
	case yaml.SequenceNode:
		v := value{kind: list, items: make([]value, 0, len(node.Content))}
		for _, item := range node.Content {
			child, err := w.walk(item, depth+1)
			if err != nil {
				return value{}, err
			}
			v.items = append(v.items, child)
		}
		return v, nil
	case yaml.MappingNode:
		return w.mapping(node, depth)
	}
	return value{}, w.refuse(node, "the frontmatter holds something that is no value")
}

// coreTags are the explicit tags that change no reading: a scalar with one is text.
var coreTags = map[string]bool{"!!str": true, "!!map": true, "!!seq": true}

func (w *walker) mapping(node *yaml.Node, depth int) (value, error) {
	v := value{kind: mapping, keys: make([]string, 0, len(node.Content)/2), items: make([]value, 0, len(node.Content)/2)}
	seen := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 {
			return value{}, w.refuse(key, "a key is not a plain word")
		}
		if key.Tag == "!!merge" {
			return value{}, w.refuse(key, "merge keys are not supported")
		}
		scalar := scalarOf(key)
		name := scalar.keyText()
		child, err := w.walk(node.Content[i+1], depth+1)
		if err != nil {
			return value{}, err
		}
		if first, twice := seen[name]; twice {
			w.notes.repaired(w.offset+key.Line, fmt.Sprintf("the key stands at line %d already, where it counts", w.offset+first))
			continue
		}
		seen[name] = key.Line
		v.keys, v.items = append(v.keys, name), append(v.items, child)
	}
	return v, nil
}

func scalarOf(node *yaml.Node) value {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	if node.Style&quoted != 0 {
		return value{kind: text, source: node.Value}
	}
	return resolve(node.Value)
}
