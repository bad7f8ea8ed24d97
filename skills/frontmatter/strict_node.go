package frontmatter

import "fmt"

// maxStrictDepth is how deep strict frontmatter may nest below its top. The reference exhausts its
// stack there.
const maxStrictDepth = 246

// strictNode is a value of strict frontmatter, in which every scalar is text.
type strictNode struct {
	kind   valueKind // text, list or mapping
	line   int       // of the block, from 0
	column int
	text   string
	plain  bool
	keys   []strictNode // of a mapping, beside items
	items  []strictNode
}

// parseStrict reads the block of a file, whose first line it starts on.
func parseStrict(block string) (strictFields, *Violation) {
	root, failed := parseStrictNode(block)
	if failed != nil {
		return nil, failed
	}
	fields := make(strictFields, 0, len(root.keys))
	for i, key := range root.keys {
		item := &root.items[i]
		fields = append(fields, strictField{key: key.text, line: 1 + key.line, text: item.text, nest: !item.isText()})
	}
	return fields, nil
}

// asReference reads the frontmatter as the reference does, which ends it at the first --- wherever
// that stands. It is nil when the reference refuses it.
func asReference(data []byte, notes *notes) *value {
	block, failed := strictBlock(data)
	if failed != nil {
		return nil
	}
	root, failed := parseStrictNode(block)
	if failed != nil {
		return nil
	}
	notes.repaired(1, "the YAML is not clear; the frontmatter is what the reference validator takes it for")
	whole := root.value()
	return &whole
}

// parseStrictNode returns the mapping a block is.
func parseStrictNode(block string) (*strictNode, *Violation) {
	if at, r := unprintable(block); at >= 0 {
		return nil, &Violation{Rule: RuleEncoding, Line: 1 + lines(block[:at]),
			Message: fmt.Sprintf("The frontmatter holds a character that no text should have (U+%04X)", r), Fix: "remove it or write it as an escape in double quotes"}
	}
	tokens, failed := tokenize(block)
	var root *strictNode
	if failed == nil {
		root, failed = (&strictParser{tokens: tokens}).document()
	}
	if failed != nil {
		return nil, &Violation{Rule: "V6", Line: 1 + failed.line, Message: "Invalid YAML in frontmatter: " + failed.reason, Fix: failed.fix}
	}
	if root == nil || root.kind != mapping {
		line := 1
		if root != nil {
			line += root.line
		}
		return nil, &Violation{Rule: "V7", Line: line, Message: "SKILL.md frontmatter must be a YAML mapping", Fix: "write lines of the form key: value"}
	}
	return root, nil
}

// value returns the node as YAML 1.2 types it. Keys are the texts they were written as, which are
// known to differ.
func (n *strictNode) value() value {
	switch {
	case n.kind == text && n.plain:
		return resolve(n.text)
	case n.kind == text:
		return value{kind: text, source: n.text}
	}
	v := value{kind: n.kind}
	for i := range n.items {
		if n.kind == mapping {
			v.keys = append(v.keys, n.keys[i].text)
		}
		v.items = append(v.items, n.items[i].value())
	}
	return v
}

// isText reports a scalar. To the reference the words of a merge and of a default value are none.
func (n *strictNode) isText() bool {
	return n.kind == text && !(n.plain && (n.text == "<<" || n.text == "="))
}

// strictParser makes values of tokens.
type strictParser struct {
	tokens []token
	depth  int
}

// is reports whether the next token is one of some kinds. The last token is tokenStreamEnd, which no
// rule passes but document.
func (p *strictParser) is(kinds ...tokenKind) bool {
	for _, kind := range kinds {
		if p.tokens[0].kind == kind {
			return true
		}
	}
	return false
}

func (p *strictParser) take() token {
	next := p.tokens[0]
	p.tokens = p.tokens[1:]
	return next
}

func (p *strictParser) unexpected(wanted string) *strictError {
	next := p.tokens[0]
	return &strictError{line: next.line, reason: fmt.Sprintf("%s stands where %s belongs", tokenNames[next.kind], wanted),
		fix: "indent the keys of one mapping alike, or put the value in quotes"}
}

// document returns the only document of a block, nil when it has none.
func (p *strictParser) document() (*strictNode, *strictError) {
	if p.is(tokenStreamEnd) {
		return nil, nil
	}
	root, err := p.node(false)
	if err != nil {
		return nil, err
	}
	if p.is(tokenDocumentEnd) {
		p.take()
	}
	if !p.is(tokenStreamEnd) {
		return nil, p.unexpected("the end")
	}
	return &root, nil
}

// node reads a value. Below a key a list may have the key's indentation.
func (p *strictParser) node(belowKey bool) (strictNode, *strictError) {
	if p.depth++; p.depth > maxStrictDepth+1 {
		return strictNode{}, &strictError{line: p.tokens[0].line, reason: "it is nested too deep", fix: "nest less"}
	}
	defer func() { p.depth-- }()
	next := p.tokens[0]
	n := strictNode{kind: text, line: next.line, column: next.column, text: next.text, plain: next.plain}
	switch {
	case next.kind == tokenScalar:
		p.take()
		return n, nil
	case next.kind == tokenList:
		p.take()
		n.kind = list
		err := p.list(&n)
		if err == nil && !p.is(tokenEnd) {
			err = p.unexpected("a list entry")
		}
		if err != nil {
			return n, err
		}
		p.take()
		return n, nil
	case next.kind == tokenEntry && belowKey:
		n.kind = list
		return n, p.list(&n, tokenKey, tokenValue)
	case next.kind == tokenMapping:
		p.take()
		n.kind = mapping
		return n, p.mapping(&n)
	}
	return n, p.unexpected("a value")
}

// list reads entries. Kinds say what besides an entry or an end may follow one that is empty.
func (p *strictParser) list(n *strictNode, kinds ...tokenKind) *strictError {
	kinds = append(kinds, tokenEntry, tokenEnd)
	for p.is(tokenEntry) {
		item, err := p.content(p.take(), false, kinds)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	return nil
}

// content reads what stands behind an indicator: nothing, when one of some kinds follows.
func (p *strictParser) content(indicator token, belowKey bool, kinds []tokenKind) (strictNode, *strictError) {
	if p.is(kinds...) {
		return strictNode{kind: text, line: indicator.line, plain: true}, nil
	}
	return p.node(belowKey)
}

// mapping reads keys and values up to the end of the mapping.
func (p *strictParser) mapping(n *strictNode) *strictError {
	ends := []tokenKind{tokenKey, tokenValue, tokenEnd}
	seen := map[string]int{}
	merged, column := false, -1
	for !p.is(tokenEnd) {
		if !p.is(tokenKey, tokenValue) {
			return p.unexpected("a key")
		}
		var err *strictError
		key := strictNode{kind: text, line: p.tokens[0].line, plain: true}
		if p.is(tokenKey) {
			if key, err = p.content(p.take(), true, ends); err != nil {
				return err
			}
		}
		item := strictNode{kind: text, line: key.line, plain: true}
		if p.is(tokenValue) {
			if item, err = p.content(p.take(), true, ends); err != nil {
				return err
			}
		}
		if key.kind == text && key.plain && key.text == "<<" {
			if err := mergeable(&item, merged); err != nil {
				return err
			}
			merged = true
			continue
		}
		if err := n.add(key, item, seen, &column); err != nil {
			return err
		}
	}
	p.take()
	return nil
}

// add adds a member to a mapping. Members that are mappings have the same column.
func (n *strictNode) add(key, item strictNode, seen map[string]int, column *int) *strictError {
	if key.kind != text {
		return &strictError{line: key.line, reason: "a key is a list or a mapping", fix: "use plain words for keys"}
	}
	if first, twice := seen[key.text]; twice {
		return &strictError{line: key.line, reason: fmt.Sprintf("the key '%s' stands at line %d already", Shown(key.text), first+1), fix: "keep one of them"}
	}
	seen[key.text] = key.line
	if item.kind == mapping {
		if *column < 0 {
			*column = item.column
		}
		if item.column != *column {
			return &strictError{line: item.line, reason: "mappings side by side are indented differently", fix: "indent their keys alike"}
		}
	}
	n.keys, n.items = append(n.keys, key), append(n.items, item)
	return nil
}

// mergeable refuses what a merge key cannot have: the value is mappings, and nothing of them is kept.
func mergeable(item *strictNode, merged bool) *strictError {
	valid := !merged && item.kind != text
	for i := range item.items {
		valid = valid && (item.kind == mapping || item.items[i].kind == mapping)
	}
	if !valid {
		return &strictError{line: item.line, reason: "the key << stands for mappings, once", fix: "remove it"}
	}
	return nil
}
