package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/opencontainers/go-digest"
)

// lockVersion is the version of the form of the lock file.
const lockVersion = 1

// lockHead begins every lock file.
const lockHead = "# Written by skillsd install. `skillsd verify` holds the installed skills to it.\n"

// lockKeys are the keys of the mappings of a lock file, by the place of the mapping. A key that ends in
// "?" may be missing.
var lockKeys = map[string][]string{
	"":        {"version", "skills"},
	".skills": {"name", "tier", "enabled", "origin", "tree", "installedAt", "files", "previous?"},

	".skills.origin":          {"kind", "source", "ref?", "commit?", "subdir?", "path"},
	".skills.previous":        {"origin?", "commit?", "tree", "installedAt", "files"},
	".skills.previous.origin": {"kind", "source", "ref?", "subdir?", "path"},
}

// encode writes the lock file: YAML, sorted, every string in quotes, so that no reader takes one for a
// number or a date.
func (l *Lock) encode() []byte {
	skills := &yaml.Node{Kind: yaml.SequenceNode}
	if len(l.Skills) == 0 {
		skills.Style = yaml.FlowStyle
	}
	var b bytes.Buffer
	b.WriteString(lockHead)
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := error(nil)
	for _, e := range l.Skills {
		row := &yaml.Node{}
		err = errors.Join(err, row.Encode(e))
		quote(row)
		skills.Content = append(skills.Content, row)
	}
	err = errors.Join(err, encoder.Encode(struct {
		Version int        `yaml:"version"`
		Skills  *yaml.Node `yaml:"skills"`
	}{lockVersion, skills}), encoder.Close())
	if err != nil {
		panic("install: a lock file without YAML form: " + err.Error())
	}
	return b.Bytes()
}

// quote puts the strings and times among the values below a node into quotes.
func quote(n *yaml.Node) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!timestamp", n.Kind == yaml.ScalarNode && n.Tag == "!!str":
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	case n.Kind == yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			quote(n.Content[i])
		}
	}
}

// MarshalYAML writes files as a mapping of paths to digests.
func (files LockFiles) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if len(files) == 0 {
		n.Style = yaml.FlowStyle
	}
	for _, f := range files {
		for _, text := range []string{f.Path, f.Digest.String()} {
			n.Content = append(n.Content, &yaml.Node{
				Kind:  yaml.ScalarNode,
				Tag:   "!!str",
				Style: yaml.DoubleQuotedStyle,
				Value: text,
			})
		}
	}
	return n, nil
}

// UnmarshalYAML reads what MarshalYAML writes, in the order of the text. The decoder of mappings is not
// used: it takes hours to find that no key of a million is a duplicate.
func (files *LockFiles) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		*files = append(*files, LockFileRow{n.Content[i].Value, digest.Digest(n.Content[i+1].Value)})
	}
	return nil
}

// parseLock reads what encode writes, and any YAML with the same meaning.
//
// Errors: *LockError without a file.
func parseLock(data []byte) (lock *Lock, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			lock, err = nil, &LockError{What: "cannot be read as YAML"}
		}
	}()
	// The text becomes nodes first, which keep their places and need no knowledge of what they hold: the
	// decoder into structs would accept aliases, and other types in the place of texts.
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, &LockError{What: "is empty, which no lock file is"}
	} else if err != nil {
		return nil, yamlError(err, data)
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, at(&second, errors.New("a second document; a lock file is one"))
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlError(err, data)
	}
	top := document.Content[0]
	if err := checkLockNode(top, ""); err != nil {
		return nil, err
	}
	var file struct {
		Version yaml.Node `yaml:"version"`
		Skills  yaml.Node `yaml:"skills"`
	}
	if err := top.Decode(&file); err != nil {
		return nil, at(top, err)
	}
	if file.Version.Value != strconv.Itoa(lockVersion) {
		return nil, at(&file.Version, fmt.Errorf(
			"version: %q is not one that this skillsd reads; it reads %d",
			clip(file.Version.Value), lockVersion))
	}
	lock = &Lock{}
	seen := map[string]bool{}
	for _, row := range file.Skills.Content {
		entry := &Entry{}
		err := row.Decode(entry)
		if err == nil {
			err = entry.check()
		}
		if err == nil && seen[strings.ToLower(entry.Name)] {
			err = fmt.Errorf("duplicate name %s", entry.Name)
		}
		if err != nil {
			return nil, at(row, err)
		}
		seen[strings.ToLower(entry.Name)] = true
		entry.InstalledAt = entry.InstalledAt.UTC()
		if entry.Previous != nil {
			entry.Previous.InstalledAt = entry.Previous.InstalledAt.UTC()
		}
		lock.Skills = append(lock.Skills, entry)
	}
	return lock.with(nil), nil
}

// checkLockNode checks the form of what is at a place of a lock file: known keys, each once, and a plain
// text, mapping or list where one belongs. There are no anchors and aliases.
func checkLockNode(n *yaml.Node, place string) error {
	keys, isMapping := lockKeys[place]
	name := place[strings.LastIndexByte(place, '.')+1:]
	fail := func(n *yaml.Node, what string) error {
		if name != "" {
			what = name + ": " + what
		}
		return at(n, errors.New(what))
	}
	plain := func(n *yaml.Node, kind yaml.Kind) bool { return n.Kind == kind && n.Anchor == "" }
	switch {
	case name == "files":
		if !plain(n, yaml.MappingNode) {
			return fail(n, "is not a mapping")
		}
		for _, c := range n.Content {
			if !plain(c, yaml.ScalarNode) {
				return fail(c, "is not a mapping of paths to digests")
			}
		}
		return nil
	case !isMapping:
		_, badTime := time.Parse(time.RFC3339, n.Value)
		switch {
		case !plain(n, yaml.ScalarNode) || n.Value == "":
			return fail(n, "is not a text")
		case name == "enabled" && n.Value != "true" && n.Value != "false":
			return fail(n, "is neither true nor false")
		case name == "installedAt" && badTime != nil:
			return fail(n, "is not a time")
		}
		return nil
	case !plain(n, yaml.MappingNode):
		return fail(n, "is not a mapping")
	}
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case !plain(key, yaml.ScalarNode),
			!slices.Contains(keys, key.Value) && !slices.Contains(keys, key.Value+"?"):
			known := strings.ReplaceAll(strings.Join(keys, ", "), "?", "")
			return at(key, fmt.Errorf("the key %q is not known; there are %s", clip(key.Value), known))
		case values[key.Value] != nil:
			return at(key, fmt.Errorf("duplicate key %q", key.Value))
		}
		values[key.Value] = value
	}
	for _, key := range keys {
		key, optional := strings.CutSuffix(key, "?")
		value := values[key]
		switch {
		case value == nil && !optional:
			return at(n, fmt.Errorf("%s: is missing", key))
		case value == nil:
		case key == "skills":
			if !plain(value, yaml.SequenceNode) {
				return at(value, errors.New("skills: is not a list"))
			}
			for _, row := range value.Content {
				if err := checkLockNode(row, place+".skills"); err != nil {
					return err
				}
			}
		default:
			if err := checkLockNode(value, place+"."+key); err != nil {
				return err
			}
		}
	}
	return nil
}

// yamlError places an error of the parser, which has a line in its text unless that is the first.
func yamlError(err error, data []byte) *LockError {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		isControl := unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r)
		if isControl || r == utf8.RuneError && size == 1 {
			line := bytes.LastIndexByte(data[:i], '\n') + 1
			return &LockError{
				Line:   1 + bytes.Count(data[:i], []byte("\n")),
				Column: 1 + utf8.RuneCount(data[line:i]),
				What:   "a control character, or a byte that is not UTF-8",
			}
		}
		i += size
	}
	problem := &LockError{Line: 1, What: strings.TrimPrefix(err.Error(), "yaml: ")}
	if rest, ok := strings.CutPrefix(problem.What, "line "); ok {
		number, what, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			problem.Line, problem.What = line, what
			if strings.HasPrefix(what, "did not find expected") {
				problem.Line++ // of what it expected the parser counts lines from zero
			}
		}
	}
	problem.Line = min(problem.Line, 1+bytes.Count(bytes.TrimRight(data, "\r\n"), []byte("\n")))
	return problem
}

// at gives an error the place of a node.
func at(n *yaml.Node, err error) error {
	if known, ok := errors.AsType[*LockError](err); ok {
		return known
	}
	return &LockError{Line: n.Line, Column: n.Column, What: err.Error()}
}

// MarshalJSON writes the list of skills, never null.
func (l *Lock) MarshalJSON() ([]byte, error) {
	rows := l.Skills
	if rows == nil {
		rows = []*Entry{}
	}
	return json.Marshal(rows)
}
