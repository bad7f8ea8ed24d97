package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// codexTable holds the servers in Codex's configuration.
const codexTable = "mcp_servers"

// codexDialect writes entries into Codex's configuration, a TOML file.
type codexDialect struct{}

// edit replaces a range of a text.
type edit struct {
	from, to int
	with     string
}

// apply makes edits that do not overlap.
func apply(text []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(b.from, a.from) })
	for _, e := range edits {
		text = splice(text, e.from, e.to, e.with)
	}
	return text
}

// codexEntry is what a file says of a server: the statements of its tables, and of its own table by
// key.
type codexEntry struct {
	tables [][]tomlStatement // each begins with its header
	own    map[string]tomlStatement
}

// find finds the entry; nil when there is none.
//
// Errors: those of scanTOML, errNotOurs, and an entry that is written without tables of its own.
func (d codexDialect) find(text []byte, e *serverEntry) (*codexEntry, error) {
	statements, err := scanTOML(text)
	if err != nil {
		return nil, err
	}
	prefix := []string{codexTable, e.Name}
	entry := &codexEntry{own: map[string]tomlStatement{}}
	for i, s := range statements {
		switch isHeader := s.key == nil; {
		case isHeader && hasPrefix(s.table, prefix) && !s.many:
			entry.tables = append(entry.tables, statements[i:i+1:i+1])
		case !isHeader && hasPrefix(s.table, prefix) && len(entry.tables) > 0:
			last := len(entry.tables) - 1
			entry.tables[last] = append(entry.tables[last], s)
			if len(s.table) == len(prefix) && len(s.key) == 1 {
				if _, twice := entry.own[s.key[0]]; twice {
					return nil, fmt.Errorf("line %d: %s stands twice", lineAt(text, s.start), s.key[0])
				}
				entry.own[s.key[0]] = s
			}
		case hasPrefix(s.path(), prefix), s.many && hasPrefix(prefix, s.table), !isHeader && hasPrefix(prefix, s.path()):
			return nil, fmt.Errorf("line %d: %s.%s is written without a table of its own, which setup does not edit", lineAt(text, s.start), codexTable, e.Name)
		}
	}
	if len(entry.tables) == 0 {
		return nil, nil
	}
	first := entry.tables[0][0]
	if len(first.table) != len(prefix) || slices.ContainsFunc(entry.tables[1:], func(t []tomlStatement) bool { return len(t[0].table) == len(prefix) }) {
		return nil, fmt.Errorf("line %d: %s.%s is not one table with those below it", lineAt(text, first.start), codexTable, e.Name)
	}
	if command, args, url := entry.says(text); !e.ours(command, args, url) {
		return nil, fmt.Errorf("line %d: %s.%s %w", lineAt(text, first.start), codexTable, e.Name, errNotOurs)
	}
	return entry, nil
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// says is what the entry starts, or where it leads. What cannot be read is empty.
func (c *codexEntry) says(text []byte) (command string, args []string, url string) {
	read := func(key string) []byte { s := c.own[key]; return text[s.value:s.to] }
	command, _ = tomlString(read("command"))
	args, _ = tomlStrings(read("args"))
	url, _ = tomlString(read("url"))
	return command, args, url
}

// pairs are the keys of the entry's own table with their values, in the order in which they are
// written.
func (d codexDialect) pairs(e *serverEntry) [][2]string {
	if e.URL != "" {
		pairs := [][2]string{{"url", quoteTOML(e.URL)}}
		if e.TokenEnv != "" {
			pairs = append(pairs, [2]string{"bearer_token_env_var", quoteTOML(e.TokenEnv)})
		}
		return pairs
	}
	return [][2]string{{"command", quoteTOML(e.Command)}, {"args", arrayTOML(e.Args)}}
}

// arrayTOML is an array of strings, a flag and its value on a line of their own.
func arrayTOML(items []string) string {
	var quoted []string
	for _, item := range items {
		quoted = append(quoted, quoteTOML(item))
	}
	if len(items) < 2 {
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	var b strings.Builder
	b.WriteString("[\n")
	for i, item := range quoted {
		begins := i == 0 || strings.HasPrefix(items[i], "--") || !strings.HasPrefix(items[i-1], "--")
		switch {
		case i > 0 && begins:
			b.WriteString(",\n  ")
		case i > 0:
			b.WriteString(", ")
		default:
			b.WriteString("  ")
		}
		b.WriteString(item)
	}
	return b.String() + ",\n]"
}

// approval is the table that lets Codex run scripts without asking.
func (d codexDialect) approval(e *serverEntry) string {
	return fmt.Sprintf("[%s.%s.tools.run_skill_script]\napproval_mode = \"approve\"\n", codexTable, e.Name)
}

// write puts the entry into a file, or changes the one that is there. What the entry or the file
// hold beside it stays. An empty text is a file that is not there.
func (d codexDialect) write(text []byte, e *serverEntry) ([]byte, error) {
	entry, err := d.find(text, e)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		block := fmt.Sprintf("[%s.%s]\n", codexTable, e.Name)
		for _, pair := range d.pairs(e) {
			block += pair[0] + " = " + pair[1] + "\n"
		}
		if e.Approve {
			block += "\n" + d.approval(e)
		}
		return appendBlock(text, block), nil
	}
	edits, err := d.changes(text, entry, e)
	if err != nil {
		return nil, err
	}
	return apply(text, edits), nil
}

// appendBlock puts lines at the end of a file, with an empty line before them.
func appendBlock(text []byte, block string) []byte {
	end := lineEnd(text)
	switch {
	case len(text) == 0:
	case text[len(text)-1] != '\n':
		block = "\n\n" + block
	default:
		block = "\n" + block
	}
	return splice(text, len(text), len(text), strings.ReplaceAll(block, "\n", end))
}

// changes makes the entry's tables say what they should.
func (d codexDialect) changes(text []byte, entry *codexEntry, e *serverEntry) ([]edit, error) {
	var edits []edit
	end, header := lineEnd(text), entry.tables[0][0]
	command, args, url := entry.says(text)
	variable, _ := tomlString(text[entry.own["bearer_token_env_var"].value:entry.own["bearer_token_env_var"].to])
	same := map[string]bool{"command": command == e.Command, "args": slices.Equal(args, e.Args), "url": url == e.URL, "bearer_token_env_var": variable == e.TokenEnv}
	wanted, added := map[string]bool{}, ""
	for _, pair := range d.pairs(e) {
		wanted[pair[0]] = true
		value := strings.ReplaceAll(pair[1], "\n", end)
		switch s, there := entry.own[pair[0]]; {
		case !there:
			added += end + pair[0] + " = " + value
		case !same[pair[0]]:
			edits = append(edits, edit{s.value, s.to, value})
		}
	}
	for key := range same {
		if s, there := entry.own[key]; there && !wanted[key] {
			edits = append(edits, edit{lineStart(text, s.start), afterLine(text, s.end), ""})
		}
	}
	if added != "" {
		edits = append(edits, edit{header.end, header.end, added})
	}
	if e.Approve {
		approval, err := d.approve(text, entry, e)
		if err != nil {
			return nil, err
		}
		edits = append(edits, approval...)
	}
	return edits, nil
}

// approve makes the tables of the entry let Codex run scripts without asking.
func (d codexDialect) approve(text []byte, entry *codexEntry, e *serverEntry) ([]edit, error) {
	tool := []string{"tools", "run_skill_script"}
	var header *tomlStatement
	for _, table := range entry.tables {
		for i, s := range table {
			switch path := s.path()[2:]; {
			case s.key != nil && slices.Equal(path, append(tool, "approval_mode")):
				if mode, _ := tomlString(text[s.value:s.to]); mode != "approve" {
					return []edit{{s.value, s.to, `"approve"`}}, nil
				}
				return nil, nil
			case s.key == nil && slices.Equal(path, tool):
				header = &table[i]
			case s.key != nil && len(s.table) < 4 && (hasPrefix(path, tool) || slices.Equal(path, tool[:1])):
				return nil, fmt.Errorf("line %d: the tool has settings without a table of their own; add approval_mode = \"approve\" to them", lineAt(text, s.start))
			}
		}
	}
	end := lineEnd(text)
	if header != nil {
		return []edit{{header.end, header.end, end + `approval_mode = "approve"`}}, nil
	}
	last := entry.tables[len(entry.tables)-1]
	at := last[len(last)-1].end
	return []edit{{at, at, end + end + strings.TrimSuffix(strings.ReplaceAll(d.approval(e), "\n", end), end)}}, nil
}

// lineStart is the offset at which the line of an offset begins.
func lineStart(text []byte, at int) int { return bytes.LastIndexByte(text[:at], '\n') + 1 }

// afterLine is the offset behind the line end that follows an offset.
func afterLine(text []byte, at int) int {
	for at < len(text) && text[at] != '\n' {
		at++
	}
	return min(at+1, len(text))
}

// remove takes the entry's tables out of a file, each with the empty line before it.
func (d codexDialect) remove(text []byte, e *serverEntry) ([]byte, error) {
	entry, err := d.find(text, e)
	if err != nil || entry == nil {
		return text, err
	}
	var edits []edit
	for _, table := range entry.tables {
		from, to := lineStart(text, table[0].start), afterLine(text, table[len(table)-1].end)
		for _, blank := range []string{"\r\n\r\n", "\n\n"} {
			if strings.HasSuffix(string(text[:from]), blank) {
				from -= len(blank) / 2
				break
			}
		}
		edits = append(edits, edit{from, to, ""})
	}
	return apply(text, edits), nil
}

// reinsert puts the entry of one file, as it stands there, at the end of another that holds none.
func (d codexDialect) reinsert(from, into []byte, e *serverEntry) ([]byte, error) {
	entry, err := d.find(from, e)
	if err != nil || entry == nil {
		return nil, err
	}
	if there, err := d.find(into, e); err != nil || there != nil {
		return nil, err
	}
	last := entry.tables[len(entry.tables)-1]
	block := string(from[entry.tables[0][0].start:afterLine(from, last[len(last)-1].end)])
	return appendBlock(into, strings.ReplaceAll(block, "\r\n", "\n")), nil
}

// empty reports whether a file says nothing.
func (d codexDialect) empty(text []byte) bool { return len(text) == 0 }
