package clients

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Codex defers the tools of a server until a search: its model sees one line about them, unless this list in
// its configuration has the server's namespace. Then the model sees whole descriptions, including the
// catalogue.
const (
	codexMode   = "features.code_mode"
	codexDirect = "direct_only_tool_namespaces"
)

// directSetting returns the line of a list with only the server's tools.
func (e *Entry) directSetting() string {
	return codexDirect + " = [" + strconv.Quote(e.namespace()) + "]"
}

// namespace returns Codex's namespace of the server's tools, without hyphens.
func (e *Entry) namespace() string { return "mcp__" + strings.ReplaceAll(e.Name, "-", "_") }

// directTable returns the table to append to a file without one.
func (e *Entry) directTable() string { return "[" + codexMode + "]\n" + e.directSetting() + "\n" }

// span is a part of a text.
type span struct{ start, end int }

// directSpots are the positions in a Codex file that matter for the list. Each may be missing.
type directSpots struct {
	header   *span // line of the table's header
	settings int   // number of settings in the table
	mode     *span // value of code_mode, if it is not a table with a header
	enabled  bool  // mode is true or false
	line     *span // the setting with the list
	elements []span
	names    []string // of the elements
}

func spotDirect(text []byte) (*directSpots, error) {
	var parser unstable.Parser
	parser.Reset(text)
	spots, table := &directSpots{}, ""
	// The stable interface of the parser gives no positions, and encoding the file again would lose comments.
	spanOf := func(r unstable.Range) span { return span{int(r.Offset), int(r.Offset + r.Length)} }
	var see func(node *unstable.Node, path string)
	see = func(node *unstable.Node, path string) {
		value, whole := node.Value(), spanOf(node.Raw)
		switch path {
		case codexMode:
			spots.mode = &span{spanOf(value.Raw).start, whole.end}
			spots.enabled = value.Kind == unstable.Bool
		case codexMode + "." + codexDirect:
			spots.line = &whole
			for it := value.Children(); it.Next(); {
				spots.elements = append(spots.elements, spanOf(it.Node().Raw))
				spots.names = append(spots.names, string(it.Node().Data))
			}
		}
		for it := value.Children(); value.Kind == unstable.InlineTable && it.Next(); {
			key, _ := pathOf(it.Node())
			see(it.Node(), path+"."+key)
		}
	}
	for parser.NextExpression() {
		node := parser.Expression()
		path, last := pathOf(node)
		if node.Kind != unstable.KeyValue {
			table = path
			if table == codexMode && node.Kind == unstable.Table {
				line := lineOf(text, spanOf(last))
				spots.header = &line
			}
			continue
		}
		if table == codexMode {
			spots.settings++
		}
		if table != "" {
			path = table + "." + path
		}
		see(node, path)
	}
	return spots, parser.Error()
}

// pathOf returns the dotted key of a table or a setting, and the position of its last part.
func pathOf(node *unstable.Node) (path string, last unstable.Range) {
	var keys []string
	for it := node.Key(); it.Next(); {
		keys = append(keys, string(it.Node().Data))
		last = it.Node().Raw
	}
	return strings.Join(keys, "."), last
}

// lineOf returns the whole line around a span, including the line end.
func lineOf(text []byte, part span) span {
	line := span{bytes.LastIndexByte(text[:part.start], '\n') + 1, len(text)}
	if i := bytes.IndexByte(text[part.end:], '\n'); i >= 0 {
		line.end = part.end + i + 1
	}
	return line
}

// putDirect adds the server to the list in Codex's file. All other bytes stay.
func putDirect(text []byte, e *Entry) ([]byte, error) {
	at, err := spotDirect(text)
	if err != nil || slices.Contains(at.names, e.namespace()) {
		return text, err
	}
	quoted := strconv.Quote(e.namespace())
	var changed []byte
	switch n := len(at.elements); {
	case n > 0:
		changed = slices.Insert(slices.Clone(text), at.elements[n-1].end, []byte(", "+quoted)...)
	case at.line != nil:
		// The list is empty, and the last byte of the setting is its bracket.
		changed = slices.Insert(slices.Clone(text), at.line.end-1, []byte(quoted)...)
	case at.enabled:
		changed = slices.Replace(slices.Clone(text), at.mode.start, at.mode.end,
			[]byte(e.modeTable(string(text[at.mode.start:at.mode.end])))...)
	case at.header != nil:
		line := e.directSetting() + "\n"
		// The header may be the last line of a file without a line end.
		if text[at.header.end-1] != '\n' {
			line = "\n" + line
		}
		changed = slices.Insert(slices.Clone(text), at.header.end, []byte(line)...)
	default:
		changed = appendTable(text, e.directTable())
	}
	// The edit is made on bytes, so a second parser checks that it changed nothing else.
	return changed, onlyDirect(text, changed, e, true)
}

// modeTable returns the table that replaces a code_mode of true or false.
func (e *Entry) modeTable(enabled string) string {
	return "{ enabled = " + enabled + ", " + e.directSetting() + " }"
}

// takeDirect removes the server from the list in Codex's file, with a table or a line that putDirect made for
// it.
func takeDirect(text []byte, e *Entry) ([]byte, error) {
	at, err := spotDirect(text)
	if err != nil {
		return nil, err
	}
	mode := ""
	if at.mode != nil {
		mode = string(text[at.mode.start:at.mode.end])
	}
	cut, put := span{}, ""
	switch i := slices.Index(at.names, e.namespace()); {
	// This is exactly what putDirect wrote in place of the value, so the user's value comes back.
	case mode == e.modeTable("true"):
		cut, put = *at.mode, "true"
	case mode == e.modeTable("false"):
		cut, put = *at.mode, "false"
	case i < 0:
		return text, nil
	case i > 0:
		cut = span{at.elements[i-1].end, at.elements[i].end}
	case len(at.elements) > 1:
		cut = span{at.elements[0].start, at.elements[1].start}
	default:
		cut = lineOf(text, *at.line)
		// Remove an otherwise empty table together with the blank line before it.
		if at.header != nil && at.settings == 1 && at.header.end == cut.start {
			cut.start = len(bytes.TrimSuffix(text[:at.header.start], []byte("\n")))
		}
	}
	changed := slices.Replace(slices.Clone(text), cut.start, cut.end, []byte(put)...)
	return changed, onlyDirect(text, changed, e, false)
}

// onlyDirect returns an error if two texts differ in more than the server in the list, or if listed does not
// describe the second.
func onlyDirect(before, after []byte, e *Entry, listed bool) error {
	plain := func(text []byte) (file map[string]any, found bool, err error) {
		if err = toml.Unmarshal(text, &file); err != nil {
			return nil, false, err
		}
		features, _ := file["features"].(map[string]any)
		mode, _ := features["code_mode"].(map[string]any)
		list, _ := mode[codexDirect].([]any)
		isOurs := func(name any) bool { return name == e.namespace() }
		found = slices.ContainsFunc(list, isOurs)
		if list != nil {
			mode[codexDirect] = slices.DeleteFunc(list, isOurs)
		}
		// A list, table or value that the edit created or emptied must compare equal to a missing one.
		if list != nil && len(mode[codexDirect].([]any)) == 0 {
			delete(mode, codexDirect)
		}
		if enabled, ok := mode["enabled"].(bool); ok && len(mode) == 1 {
			features["code_mode"] = enabled
		} else if mode != nil && len(mode) == 0 {
			delete(features, "code_mode")
		}
		if len(features) == 0 {
			delete(file, "features")
		}
		return file, found, nil
	}
	old, _, err := plain(before)
	if err != nil {
		return err
	}
	changed, found, err := plain(after)
	if err != nil || found != listed || !reflect.DeepEqual(old, changed) {
		return errors.Join(fmt.Errorf("%s is written in a way that is not changed here", codexMode), err)
	}
	return nil
}

// appendTable appends a table to a TOML file.
func appendTable(text []byte, table string) []byte {
	gap := "\n"
	switch {
	case len(text) == 0:
		gap = ""
	case !bytes.HasSuffix(text, []byte("\n")):
		gap = "\n\n"
	}
	return slices.Concat(text, []byte(gap+table))
}
