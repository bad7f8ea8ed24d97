package frontmatter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxStrictDepth is the maximum nesting of strict frontmatter. The reference exhausts its stack there.
const maxStrictDepth = 246

// fields returns the fields of a mapping, with every scalar read as text.
func (r *reading) fields(root *yaml.Node) strictFields {
	fields := make(strictFields, 0, len(root.Content)/2)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, item := root.Content[i], root.Content[i+1]
		// The reference drops a merge key with its value.
		if isMerge(key) {
			continue
		}
		// The reference does not read the words << and = as text.
		special := item.Style == 0 && (item.Value == "<<" || item.Value == "=")
		nest := item.Kind != yaml.ScalarNode || special
		field := strictField{key: r.source(key), line: key.Line, text: r.source(item), nest: nest}
		fields = append(fields, field)
	}
	return fields
}

// strictFile is strictRoot for the frontmatter of a file.
func strictFile(data []byte) (*yaml.Node, *reading, *Violation) {
	block, failed := strictBlock(data)
	if failed != nil {
		return nil, nil, failed
	}
	return strictRoot(block)
}

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" }

// strictRoot returns the mapping in a block, with the lines of the block. Like the reference it accepts only
// block style: no flow collections, anchors, tags or duplicate keys.
func strictRoot(block string) (*yaml.Node, *reading, *Violation) {
	if at, r := unprintable(block); at >= 0 {
		return nil, nil, &Violation{
			Rule:    RuleEncoding,
			Line:    1 + lines(block[:at]),
			Message: fmt.Sprintf("The frontmatter has a character that no text should have (U+%04X)", r),
			Fix:     "remove it or write it as an escape in double quotes",
		}
	}
	// To the reference each half of a surrogate pair is a character.
	halves := func(escape string) string { return strings.Repeat(`\ufffd`, len(escape)/6) }
	read, err := readNodes(block, halves)
	if err != nil {
		// Without the rest of the opening line, the library reports the line of the fault instead of the
		// start of the mapping.
		trimmed := strings.TrimLeft(block, "\n")
		if _, _, again := parseNodes(trimmed); again != nil {
			err = again
			// Each byte that was cut off is a line feed.
			err.Line += len(block) - len(trimmed)
		}
		return nil, nil, invalidYAML(err.Line, err.Reason)
	}
	l := read.layout
	if read.rest > 0 {
		return nil, nil, invalidYAML(read.rest, "a line follows the end of the mapping")
	}
	root := &yaml.Node{Line: 1}
	if content := read.document.Content; len(content) > 0 {
		root = content[0]
	}
	s := &strictWalker{layout: l}
	s.walk(root, 0)
	if s.failed != nil {
		return nil, nil, s.failed
	}
	if at := l.strayTab(s.scalars, func(string, int) bool { return true }); at > 0 {
		return nil, nil, invalidYAML(at, "there is a tab where spaces belong")
	}
	if root.Kind != yaml.MappingNode {
		return nil, nil, &Violation{Rule: "V7", Line: root.Line,
			Message: "SKILL.md frontmatter must be a YAML mapping",
			Fix:     "write lines of the form key: value"}
	}
	return root, &read, nil
}

// strictWalker checks that nodes are in the subset of YAML that the reference accepts.
type strictWalker struct {
	layout  *layout
	scalars []located
	failed  *Violation
}

func (s *strictWalker) refuse(node *yaml.Node, reason string) {
	if s.failed == nil {
		s.failed = invalidYAML(node.Line, reason)
	}
}

func (s *strictWalker) walk(node *yaml.Node, depth int) {
	if s.failed != nil {
		return
	}
	first := s.layout.first(node)
	switch {
	case depth > maxStrictDepth:
		s.refuse(node, "it is nested too deeply")
	case node.Style&yaml.FlowStyle != 0:
		s.refuse(node, fmt.Sprintf("flow style (%c) is not allowed", first))
	case node.Kind == yaml.AliasNode, node.Anchor != "", node.Style&yaml.TaggedStyle != 0, first == '!':
		s.refuse(node, fmt.Sprintf("anchors, aliases and tags (%c) are not allowed", first))
	case node.Kind == yaml.ScalarNode:
		s.scalars = append(s.scalars, located{node, s.layout.start(node)})
	case node.Kind == yaml.MappingNode:
		s.mapping(node, depth)
	default:
		for _, item := range node.Content {
			s.walk(item, depth+1)
		}
	}
}

func (s *strictWalker) mapping(node *yaml.Node, depth int) {
	seen := map[string]int{}
	merged, column := false, 0
	for i := 0; i+1 < len(node.Content) && s.failed == nil; i += 2 {
		key, item := node.Content[i], node.Content[i+1]
		s.walk(key, depth+1)
		s.walk(item, depth+1)
		switch first, twice := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			s.refuse(key, "a key is a list or a mapping")
		case isMerge(key):
			if merged || !mergeable(item) {
				s.refuse(key, "the key << must have mappings, and be the only one")
			}
			merged = true
		case twice:
			s.refuse(key, fmt.Sprintf("duplicate key '%s': the first is at line %d", Shown(key.Value), first))
		case item.Kind == yaml.MappingNode:
			// The reference compares the indentation of all mappings nested in this one, even if not
			// adjacent.
			if column == 0 {
				column = item.Column
			}
			if item.Column != column {
				s.refuse(item, "mappings next to each other are indented differently")
			}
		}
		seen[key.Value] = key.Line
	}
}

// mergeable reports whether a merge key may have this value. The reference discards it.
func mergeable(item *yaml.Node) bool {
	if item.Kind == yaml.ScalarNode {
		return false
	}
	return item.Kind == yaml.MappingNode ||
		!slices.ContainsFunc(item.Content, func(n *yaml.Node) bool { return n.Kind != yaml.MappingNode })
}

// invalidYAML returns the violation for a block that is not YAML of the restricted kind. It replaces the
// message of the library by one for authors of simple keys and values.
func invalidYAML(line int, reason string) *Violation {
	fix := "put the value in quotes"
	for _, known := range yamlFaults {
		if strings.HasPrefix(reason, known.reason) {
			reason, fix = cmp.Or(known.text, reason), known.fix
			break
		}
	}
	return &Violation{Rule: "V6", Line: line, Message: "Invalid YAML in frontmatter: " + reason, Fix: fix}
}

// yamlFaults maps prefixes of faults to messages and fixes.
var yamlFaults = []struct{ reason, text, fix string }{
	{"mapping values are not allowed", "a value has a colon and a space in it", "put the value in quotes"},
	{"could not find expected ':'", "a key has no colon after it",
		"put a colon and a space between key and value, or indent the line below its key"},
	{"did not find expected key", "a line is neither a key nor part of the value above it",
		"indent the keys of one mapping alike, or put the value in quotes"},
	{"did not find expected '-' indicator", "a line is neither a list entry nor part of the one above it",
		"indent the entries of one list alike"},
	{"did not find expected comment or line break", "text follows | or >",
		"start the text on the next line, indented"},
	{"did not find expected <document start>", "there is text before or after the mapping",
		"write nothing but lines of the form key: value"},
	{"found unexpected end of stream", "a quote is not closed",
		"close the quote; inside single quotes write ' twice"},
	{"found unexpected document indicator", "a quote is not closed before the line ...", "close the quote"},
	{"found unknown escape character", "a backslash in double quotes starts no known escape",
		"write the backslash twice or use single quotes"},
	{"did not find expected hexdecimal number", "an escape in double quotes lacks hexadecimal digits",
		"write the backslash twice or use single quotes"},
	{"found character that cannot start any token",
		"a value starts with a character that has a meaning in YAML", "put the value in quotes"},
	{"block sequence entries are not allowed", "a list entry is not allowed here",
		"start the list on the line below its key"},
	{"flow style", "", "write it over several lines, one entry on each, or put the value in quotes"},
	{"duplicate key", "", "keep one of them"},
	{"a key is a list", "", "use plain words for keys"},
	{"the key <<", "", "remove it"},
	{"mappings next to each other", "", "indent their keys alike"},
	{"it is nested", "", "nest less"},
	{"there is a tab", "", "indent and separate with spaces"},
	{"a line follows", "",
		"indent the keys of one mapping alike, and write nothing after a line ..."},
}

// asReference parses the frontmatter like the reference, which ends it at the first ---, even inside of a
// value. It returns nil if the reference rejects it.
func asReference(data []byte, notes *notes) *value {
	root, read, failed := strictFile(data)
	if failed != nil {
		return nil
	}
	notes.repaired(1, "the YAML is not clear; it is read as the reference validator reads it")
	whole := read.valueOf(root)
	return &whole
}

// valueOf returns the value of a strict node. Keys are used as written; they are known to be distinct.
func (r *reading) valueOf(node *yaml.Node) value {
	switch node.Kind {
	case yaml.ScalarNode:
		return r.scalar(node)
	case yaml.SequenceNode:
		v := value{kind: list}
		for _, item := range node.Content {
			v.items = append(v.items, r.valueOf(item))
		}
		return v
	}
	v := value{kind: mapping}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if !isMerge(node.Content[i]) {
			v.keys = append(v.keys, r.source(node.Content[i]))
			v.items = append(v.items, r.valueOf(node.Content[i+1]))
		}
	}
	return v
}
