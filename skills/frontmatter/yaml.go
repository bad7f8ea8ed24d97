package frontmatter

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/skills/pattern"
)

// Limits of the structure of frontmatter.
const (
	maxDepth = 250
	maxNodes = 10_000
)

// parseBlock parses a block; line is the number of its first line in the file. If the library rejects it as a
// whole, it is repaired entry by entry.
func parseBlock(block []byte, line int, notes *notes) (*value, error) {
	source := string(block)
	if whole, ok := parsePlain(source); ok {
		notes.plain = whole
		return whole, nil
	}
	if clean := printableText(source); clean != source {
		at, _ := unprintable(strings.ReplaceAll(source, "\r", ""))
		notes.repaired(line+lines(source[:max(at, 0)]), "control characters are left out")
		source = clean
	}
	if even, first := dedent(source); first >= 0 {
		notes.repaired(line+first, "the first key is indented and a later one is not; they are read alike")
		source = even
	}
	before := len(notes.repairs)
	whole, err := parseYAML(source, line, notes)
	if err == nil {
		return whole, nil
	}
	notes.repairs = notes.repairs[:before]
	p := &repairer{notes: notes}
	whole, ok := p.mapping(strings.Split(strings.TrimSuffix(source, "\n"), "\n"), line)
	if !ok {
		notes.repairs = notes.repairs[:before]
		// The fault of the entry names its key, which the error of the library does not.
		if p.fault != nil {
			return nil, p.fault
		}
		return nil, err
	}
	return whole, nil
}

// dedent handles a block whose first key is indented while a later one is not, where YAML would end the
// mapping at the later key. It returns the block with all lines above that key moved to the left, and the
// line of the first key, from 0, or -1 if the block is of another form.
func dedent(block string) (string, int) {
	all := strings.Split(block, "\n")
	first := slices.IndexFunc(all, func(line string) bool {
		text := strings.TrimSpace(line)
		return text != "" && text[0] != '#'
	})
	if first < 0 || all[first][0] != ' ' || !entryLine().MatchString(strings.TrimLeft(all[first], " ")) {
		return block, -1
	}
	from := indent(all[first])
	later := slices.IndexFunc(all[first:], entryLine().MatchString)
	if later < 0 {
		return block, -1
	}
	for i := first; i < first+later; i++ {
		all[i] = all[i][min(from, indent(all[i])):]
	}
	return strings.Join(all, "\n"), first
}

// parseYAML parses a block with the library, and notes what other parsers reject or read differently.
//
// Errors: *Error.
func parseYAML(block string, line int, notes *notes) (*value, error) {
	read, err := readNodes(block, joinSurrogates)
	if err != nil {
		err.Line += line - 1
		return nil, err
	}
	w := &walker{reading: read, offset: line - 1, notes: notes}
	w.checkLines()
	if read.rest > 0 {
		notes.repaired(w.offset+read.rest,
			"the line follows the end of the mapping; it is left out with all that comes after it")
	}
	whole, failed := w.root()
	if failed != nil {
		return nil, failed
	}
	if at := w.layout.strayTab(w.scalars, separates); at > 0 {
		notes.repaired(w.offset+at, "there is a tab where spaces belong")
	}
	return whole, nil
}

// printableText removes the characters that YAML does not allow.
func printableText(s string) string {
	return strings.Map(func(r rune) rune {
		// A carriage return at the end of a line is valid, and checkLines reports others.
		if r != '\r' {
			if at, _ := unprintable(string(r)); at >= 0 {
				return -1
			}
		}
		return r
	}, s)
}

// unprintable returns the position of the first character that YAML does not allow, or -1.
func unprintable(s string) (at int, r rune) {
	for at, r := range s {
		switch {
		case r >= ' ' && r < 0x7f, r == '\t', r == '\n':
		case r < 0xa0 && r != 0x85, r == 0xfffe, r == 0xffff:
			return at, r
		}
	}
	return -1, 0
}

func lines(s string) int { return strings.Count(s, "\n") }

// reading is a block as parsed by the library.
type reading struct {
	document *yaml.Node
	rest     int // line of the first text after the document, or 0
	layout   *layout
	marked   bool // some characters in values are replaced by marks
	escaped  bool // escapes were replaced throughout the block
}

// The library lacks parts of YAML 1.2: it treats three characters as line breaks, rejects a tab at the start
// of a block text, and does not know some escapes of JSON. Noncharacters replace the first four characters
// during parsing.
const (
	oddBreaks = "\u0085\u2028\u2029"
	markedTab = "\ufdd3"
	marks     = "\ufdd0\ufdd1\ufdd2" + markedTab

	faultTab       = "found a tab character where an indentation space is expected"
	faultSurrogate = "found invalid Unicode character escape code"
	faultEscape    = "found unknown escape character"
)

var (
	markBreaks = strings.NewReplacer("\u0085", "\ufdd0", "\u2028", "\ufdd1", "\u2029", "\ufdd2")
	unmark     = strings.NewReplacer(
		"\ufdd0", "\u0085", "\ufdd1", "\u2028", "\ufdd2", "\u2029", markedTab, "\t")
	textTab = pattern.New(`(?m)^( *)\t`)

	// jsonEscapes matches the escapes of surrogates in JSON, in pairs or alone, an escaped slash, and an
	// escaped backslash, which cannot begin another escape.
	jsonEscapes = pattern.New(`\\\\|\\/|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}` +
		`|\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)
)

// readNodes parses a block, and works around the gaps of the library. surrogates returns the replacement for
// the escapes of one or two surrogates.
func readNodes(block string, surrogates func(string) string) (r reading, err *Error) {
	// A block with noncharacters of its own would get other characters back.
	mayMark := !strings.ContainsAny(block, marks)
	if mayMark && strings.ContainsAny(block, oddBreaks) {
		block, r.marked = markBreaks.Replace(block), true
	}
	// Few blocks need a second or third try, one per gap.
	for {
		r.document, r.rest, err = parseNodes(block)
		if err == nil {
			r.layout = newLayout(block)
			return r, nil
		}
		switch {
		case err.Reason == faultTab && mayMark && textTab().MatchString(block):
			block, r.marked = textTab().ReplaceAllString(block, "$1"+markedTab), true
		case !r.escaped && (err.Reason == faultSurrogate || err.Reason == faultEscape):
			block, r.escaped = jsonEscapes().ReplaceAllStringFunc(block, func(escape string) string {
				switch escape {
				case `\\`:
					return escape
				case `\/`:
					return `\x2f`
				}
				return surrogates(escape)
			}), true
		default:
			return r, err
		}
	}
}

// joinSurrogates returns the YAML escape for a surrogate pair. A single surrogate is returned unchanged, and
// is then rejected.
func joinSurrogates(pair string) string {
	if len(pair) < 12 {
		return pair
	}
	high, _ := strconv.ParseUint(pair[2:6], 16, 32)
	low, _ := strconv.ParseUint(pair[8:12], 16, 32)
	return fmt.Sprintf(`\U%08x`, 0x10000+(high-0xd800)<<10+(low-0xdc00))
}

// source returns the text of a scalar, without marks.
func (r *reading) source(node *yaml.Node) string {
	if r.marked {
		return unmark.Replace(node.Value)
	}
	return node.Value
}

// parseNodes parses a block into nodes only: decoding untrusted YAML into Go values panics for some inputs
// and takes time quadratic in the number of keys. rest is the line of the first text after the document, or
// 0. Lines are numbered from 1 in the block.
func parseNodes(block string) (document *yaml.Node, rest int, failed *Error) {
	defer func() {
		if r := recover(); r != nil {
			document, failed = nil, &Error{Kind: Syntax, Line: 1, Reason: "the YAML cannot be parsed"}
		}
	}()
	decoder := yaml.NewDecoder(strings.NewReader(block))
	document = &yaml.Node{}
	if err := decoder.Decode(document); err != nil && !errors.Is(err, io.EOF) {
		failed := syntaxError(err)
		// The library reports an unclosed quote at the line after the last one.
		failed.Line = min(failed.Line, 1+lines(strings.TrimRight(block, "\n")))
		return nil, 0, failed
	}
	// Text after the mapping is a second document to the library, and lost to a caller that decodes only one.
	var next yaml.Node
	if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
		return document, 0, nil
	} else if err != nil {
		return document, syntaxError(err).Line, nil
	}
	return document, next.Line, nil
}

// yamlError matches errors of the library: a line, except for the first line, and the fault.
var yamlError = pattern.New(`^yaml: (?:line (\d+): )?(.*)`)

// ParserError splits an error of the library into its line and the fault. The parser of the library numbers
// lines from 0, and its scanner from 1.
func ParserError(err error) (line int, fault string) {
	match := yamlError().FindStringSubmatch(err.Error())
	if match == nil {
		return 1, err.Error()
	}
	line, _ = strconv.Atoi(match[1])
	if line == 0 || strings.HasPrefix(match[2], "did not find expected") {
		line++
	}
	return line, match[2]
}

func syntaxError(err error) *Error {
	line, fault := ParserError(err)
	return &Error{Kind: Syntax, Line: line, Reason: Clip(fault, maxShown)}
}

// walker converts nodes to values. It rejects what parsers may read in different ways, and notes what some
// parsers reject.
type walker struct {
	reading
	offset  int // lines of the file before the block
	nodes   int
	scalars []located // in the order of the text
	notes   *notes
}

func (w *walker) refuse(node *yaml.Node, reason string) error {
	return &Error{Kind: Syntax, Line: w.offset + node.Line, Reason: reason}
}

func (w *walker) repaired(node *yaml.Node, reason string) {
	w.notes.repaired(w.offset+node.Line, reason)
}

// root returns the mapping at the top of a document.
func (w *walker) root() (*value, error) {
	if len(w.document.Content) == 0 {
		return &value{kind: mapping}, nil
	}
	top := w.document.Content[0]
	whole, err := w.walk(top, -1, 0)
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

// inFlow is the indentation inside of a flow collection, where indentation has no meaning.
const inFlow = -2

// walk returns the value of a node. within is the indentation of the enclosing collection, or -1 at the top.
func (w *walker) walk(node *yaml.Node, within, depth int) (value, error) {
	w.nodes++
	switch {
	case depth > maxDepth:
		return value{}, w.refuse(node, "the frontmatter is nested too deeply")
	case w.nodes > maxNodes:
		return value{}, w.refuse(node, "the frontmatter has too many values")
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return value{}, w.refuse(node, "anchors and aliases are not supported")
	case node.Style&yaml.TaggedStyle != 0 && !coreTags[node.Tag]:
		return value{}, w.refuse(node, "this YAML tag is not supported")
	}
	w.check(node, within)
	indent := node.Column - 1
	if within == inFlow || node.Style&yaml.FlowStyle != 0 {
		indent = inFlow
	}
	switch node.Kind {
	case yaml.ScalarNode:
		w.scalars = append(w.scalars, located{node, w.layout.start(node)})
		return w.scalar(node), nil
	case yaml.SequenceNode:
		v := value{kind: list, items: make([]value, 0, len(node.Content))}
		for _, item := range node.Content {
			child, err := w.walk(item, indent, depth+1)
			if err != nil {
				return value{}, err
			}
			v.items = append(v.items, child)
		}
		return v, nil
	case yaml.MappingNode:
		return w.mapping(node, indent, depth)
	}
	return value{}, w.refuse(node, "the frontmatter has something that is not a value")
}

// coreTags are the explicit tags that do not change the value: a scalar with one is text.
var coreTags = map[string]bool{"!!str": true, "!!map": true, "!!seq": true}

func (w *walker) mapping(node *yaml.Node, indent, depth int) (value, error) {
	size := len(node.Content) / 2
	v := value{kind: mapping, keys: make([]string, 0, size), items: make([]value, 0, size)}
	seen := make(map[string]int, size)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 {
			return value{}, w.refuse(key, "a key is not a plain word")
		}
		if key.Tag == "!!merge" {
			return value{}, w.refuse(key, "merge keys are not supported")
		}
		// Keys are looked up before their values: layout.start must be called in the order of the text.
		w.scalars = append(w.scalars, located{key, w.layout.start(key)})
		w.check(key, inFlow)
		w.checkKey(key)
		scalar := w.scalar(key)
		name := scalar.keyText()
		child, err := w.walk(node.Content[i+1], indent, depth+1)
		if err != nil {
			return value{}, err
		}
		// Names are compared as JSON keys: 1 and 0x1 are the same key there.
		if first, twice := seen[name]; twice {
			w.repaired(key, fmt.Sprintf("duplicate key: the one at line %d is used", w.offset+first))
			continue
		}
		seen[name] = key.Line
		v.keys, v.items = append(v.keys, name), append(v.items, child)
	}
	return v, nil
}

// quotedStyles are the styles of scalars that are always text.
const quotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle |
	yaml.TaggedStyle

func (r *reading) scalar(node *yaml.Node) value {
	source := r.source(node)
	if node.Style&quotedStyles != 0 {
		return value{kind: text, source: source}
	}
	return resolve(source)
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func blank(line string) bool { return strings.TrimLeft(line, " ") == "" }

func isEntry(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }
