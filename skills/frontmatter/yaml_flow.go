package frontmatter

import (
	"fmt"
	"strings"
)

// flow reads a collection in brackets or braces, up to behind its end. It is within a collection at
// an indentation, and so are its lines but for a closing one.
func (r *blockReader) flow(in int) value {
	if r.depth++; r.depth > maxYAMLDepth {
		return r.fail("the frontmatter is nested too deep")
	}
	defer func() { r.depth-- }()
	end := byte(']')
	v := value{kind: list}
	if r.lines[r.n][r.col] == '{' {
		end, v.kind = '}', mapping
	}
	seen := map[string]bool{}
	r.col++
	for c := r.flowNext(in); r.fault == nil; c = r.flowNext(in) {
		if c == end {
			r.col++
			return v
		}
		if v.kind == list {
			v.items = append(v.items, r.flowValue(in))
		} else {
			key := r.flowKey(in)
			if seen[key] {
				return r.fail("the key stands above already")
			}
			seen[key] = true
			v.keys = append(v.keys, key)
			v.items = append(v.items, r.flowMember(in))
		}
		switch c := r.flowNext(in); {
		case r.fault != nil:
		case c == ',':
			r.col++
		case c != end:
			return r.fail(fmt.Sprintf("a comma or %c is missing", end))
		}
	}
	return value{}
}

// flowNext passes space, comments and line ends, and returns the next character.
func (r *blockReader) flowNext(in int) byte {
	for r.fault == nil {
		line := r.lines[r.n]
		rest := strings.TrimLeft(line[r.col:], " ")
		start := len(line) - len(rest)
		if rest != "" && rest[0] == '\t' {
			r.fail("a tab stands where spaces belong")
			break
		}
		if !blank(rest) && (rest[0] != '#' || start > 0 && line[start-1] != ' ') {
			first := indent(line) == start
			if closer := rest[0] == ']' || rest[0] == '}'; first && start <= in && !(closer && start == in) {
				r.fail("the lines of a flow collection are not indented")
				break
			}
			r.col = start
			return rest[0]
		}
		if r.n+1 == len(r.lines) {
			r.fail("a bracket or brace is not closed")
			break
		}
		r.n++
		r.col = 0
	}
	return 0
}

// flowValue reads an entry of a list or the value of a key.
func (r *blockReader) flowValue(in int) value {
	if r.count++; r.count > maxYAMLNodes {
		return r.fail("the frontmatter has too many values")
	}
	switch r.lines[r.n][r.col] {
	case '[', '{':
		return r.flow(in)
	case '"', '\'':
		return value{kind: text, source: r.quoted(in)}
	}
	return resolve(r.flowPlain())
}

func (r *blockReader) flowKey(in int) string {
	start, startCol := r.n, r.col
	var key string
	switch r.lines[r.n][r.col] {
	case '[', '{':
		r.fail("a key is a list or a mapping")
	case '"', '\'':
		key = r.quoted(in)
	default:
		k := resolve(r.flowPlain())
		if key = k.keyText(); k.kind == number && key == "null" || k.source == "<<" {
			r.fail("a key is not a plain word")
		}
	}
	if r.n != start || r.col-startCol >= maxKeyLength {
		r.fail("a key is too long")
	}
	return key
}

// flowMember reads what stands behind a key: a colon and a value, or neither.
func (r *blockReader) flowMember(in int) value {
	c := r.flowNext(in)
	if c != ':' || r.fault != nil {
		r.count++
		return value{kind: null}
	}
	r.col++
	switch c = r.flowNext(in); {
	case r.fault != nil:
		return value{}
	case c == ',' || c == '}':
		r.count++
		return value{kind: null}
	}
	return r.flowValue(in)
}

// flowPlain reads a plain scalar, which ends with its line.
func (r *blockReader) flowPlain() string {
	line := r.lines[r.n]
	rest := line[r.col:]
	end := len(rest)
	for i := range len(rest) {
		colon := rest[i] == ':' && (i+1 == len(rest) || strings.IndexByte(" \t,[]{}", rest[i+1]) >= 0)
		if colon || strings.IndexByte(",[]{}", rest[i]) >= 0 || rest[i] == '#' && i > 0 && rest[i-1] == ' ' {
			end = i
			break
		}
	}
	plain := strings.TrimRight(rest[:end], " ")
	if !startsPlain(rest) || !cleanPlain(plain) || strings.IndexByte("-?:", plain[0]) >= 0 && len(plain) == 1 {
		r.fail("an entry is not a plain word; put it in quotes")
		return ""
	}
	r.col += len(plain)
	return plain
}
