package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"
	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/skills/store"
)

// lockVersion is the version of the format of the lock file.
const lockVersion = 1

// lockHead begins every lock file.
const lockHead = "# Written by skillsd install. `skillsd verify` holds the installed skills to it.\n"

// lockKeys lists the keys of each mapping in a lock file, by the path of the mapping. A key that ends in "?"
// is optional.
var lockKeys = map[string][]string{
	"": {"version", "skills"},
	".skills": {"name", "tier", "enabled", "origin", "tree", "installedAt", "plugin?",
		"files", "taken?", "verdict?", "why?", "accepted?", "previous?"},

	".skills.origin": {"kind", "source", "ref?", "commit?", "digest?", "subdir?", "path", "signer?",
		"identity?"},
	".skills.plugin": {"name", "version?", "license?"},
	".skills.previous": {"origin?", "commit?", "digest?", "tree", "installedAt", "plugin?", "files",
		"taken?", "verdict?", "why?", "accepted?"},
	".skills.previous.plugin": {"name", "version?", "license?"},
	".skills.previous.origin": {"kind", "source", "ref?", "subdir?", "path", "signer?", "identity?"},
}

// Encode returns the lock file as YAML, sorted, with every string in quotes, so that no parser reads one as a
// number or a date.
func (l *Lock) Encode() []byte {
	const list = "skills:\n"
	if len(l.Skills) == 0 {
		return fmt.Appendf(nil, "%sversion: %d\nskills: []\n", lockHead, lockVersion)
	}
	// Thousands of skills take a while, so chunks of the list are encoded in parallel.
	chunks := slices.Collect(slices.Chunk(l.Skills, 128))
	parts := make([][]byte, len(chunks))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n, skills := range chunks {
		group.Go(func() error {
			parts[n] = bytes.TrimPrefix(encodeSkills(skills), []byte(list))
			return nil
		})
	}
	_ = group.Wait()
	head := fmt.Appendf(nil, "%sversion: %d\n%s", lockHead, lockVersion, list)
	return append(head, bytes.Join(parts, nil)...)
}

// encodeSkills returns a YAML mapping with the list of skills.
func encodeSkills(skills []*Entry) []byte {
	var file yaml.Node
	err := file.Encode(map[string][]*Entry{"skills": skills})
	quote(&file)
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(err, encoder.Encode(&file), encoder.Close()); err != nil {
		panic("install: a lock file without YAML form: " + err.Error())
	}
	return b.Bytes()
}

// quote puts the string and time values below a node into quotes.
func quote(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!timestamp" || n.Tag == "!!str") {
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	}
	for i, c := range n.Content {
		if n.Kind == yaml.SequenceNode || i%2 == 1 {
			quote(c)
		}
	}
}

// MarshalYAML writes the files as a mapping of paths to digests.
func (files LockFiles) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range files {
		n.Content = append(n.Content, quoted(f.Path), quoted(f.Digest.String()))
	}
	return n, nil
}

// MarshalYAML writes the files as a mapping of paths to paths.
func (taken TakenFiles) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, t := range taken {
		n.Content = append(n.Content, quoted(t.Path), quoted(t.From))
	}
	return n, nil
}

// UnmarshalYAML reads the output of MarshalYAML, in the order of the text, like LockFiles.
func (taken *TakenFiles) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		*taken = append(*taken, TakenFile{n.Content[i].Value, n.Content[i+1].Value})
	}
	return nil
}

func quoted(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text}
}

// UnmarshalYAML reads the output of MarshalYAML, in the order of the text. The decoder for maps is not used,
// since its check for duplicate keys takes hours for a million of them.
func (files *LockFiles) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		*files = append(*files, store.File{Path: n.Content[i].Value,
			Digest: digest.Digest(n.Content[i+1].Value)})
	}
	return nil
}

// ParseLock parses the output of Encode, or any YAML with the same meaning. The data may come from another
// machine.
//
// Errors: *LockError.
func ParseLock(data []byte) (lock *Lock, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			lock, err = nil, &LockError{What: "cannot be read as YAML"}
		}
	}()
	top, err := lockDocument(data)
	if err != nil {
		return nil, err
	}
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
			"version: %q is not supported; this skillsd reads version %d",
			clip(file.Version.Value), lockVersion))
	}
	entries, err := lockEntries(file.Skills.Content)
	if err != nil {
		return nil, err
	}
	return (&Lock{Skills: entries}).with(nil), nil
}

// lockDocument returns the node of the only document in a lock file. The text is parsed into nodes first,
// which keep their positions: the decoder into structs would accept aliases, and values of other types for
// strings.
func lockDocument(data []byte) (*yaml.Node, error) {
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, &LockError{What: "is empty"}
	}
	if err != nil {
		return nil, yamlError(err)
	}
	err = decoder.Decode(&second)
	if err == nil {
		return nil, at(&second, errors.New("a second document; a lock file has only one"))
	}
	if !errors.Is(err, io.EOF) {
		return nil, yamlError(err)
	}
	return document.Content[0], nil
}

// lockEntries returns the entries of a lock file, whose nodes were checked. Two skills with one name, and a
// skill with the name of a group of skills, are refused: both would be one directory.
func lockEntries(rows []*yaml.Node) (entries []*Entry, err error) {
	seen, groups := map[string]bool{}, map[string]*yaml.Node{}
	for _, row := range rows {
		entry := &Entry{}
		err := row.Decode(entry)
		if err != nil {
			return nil, at(row, err)
		}
		err = entry.check()
		if err != nil {
			return nil, at(row, err)
		}
		name := strings.ToLower(entry.Name)
		if seen[name] {
			return nil, at(row, fmt.Errorf("duplicate name %s", entry.Name))
		}
		seen[name] = true
		if group, _, grouped := strings.Cut(name, "/"); grouped {
			groups[group] = row
		}
		entries = append(entries, entry)
	}
	for group, row := range groups {
		if seen[group] {
			return nil, at(row, fmt.Errorf("%s is the name of a skill and of a group of skills", group))
		}
	}
	return entries, nil
}

// checkLockNode checks the node at a path of a lock file: it has known keys, each once, and values of the
// expected types. Anchors and aliases are rejected.
func checkLockNode(n *yaml.Node, path string) error {
	keys, isMapping := lockKeys[path]
	name := path[strings.LastIndexByte(path, '.')+1:]
	isFiles := name == "files" || name == "taken"
	what := ""
	if !isMapping && !isFiles {
		what = checkLockText(n, name)
	} else if !isPlain(n, yaml.MappingNode) {
		what = "is not a mapping"
	}
	switch {
	case what != "":
		return at(n, errors.New(strings.TrimPrefix(name+": "+what, ": ")))
	case isFiles:
		// The keys are paths, so each is checked like a value.
		for _, c := range n.Content {
			if err := checkLockNode(c, path+".path or value"); err != nil {
				return err
			}
		}
	case isMapping:
		return checkLockMapping(n, path, keys)
	}
	return nil
}

// isPlain reports whether a node is of a kind, and neither an alias nor the target of one.
func isPlain(n *yaml.Node, kind yaml.Kind) bool { return n.Kind == kind && n.Anchor == "" }

// checkLockText returns the fault of the node of the text with a name, or "".
func checkLockText(n *yaml.Node, name string) string {
	switch {
	// Encode omits empty values, so an empty one was not written by it.
	case !isPlain(n, yaml.ScalarNode) || n.Value == "":
		return "is not a text"
	case name == "enabled" && n.Value != "true" && n.Value != "false":
		return "is neither true nor false"
	case name == "installedAt":
		if _, err := time.Parse(time.RFC3339, n.Value); err != nil {
			return "is not a time"
		}
	}
	return ""
}

// checkLockMapping checks a mapping with some known keys at a path of a lock file, and the values in it.
func checkLockMapping(n *yaml.Node, path string, keys []string) error {
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch known := slices.Contains(keys, key.Value) || slices.Contains(keys, key.Value+"?"); {
		case !known || !isPlain(key, yaml.ScalarNode):
			all := strings.ReplaceAll(strings.Join(keys, ", "), "?", "")
			return at(key, fmt.Errorf("the key %q is not known; there are %s", clip(key.Value), all))
		case values[key.Value] != nil:
			return at(key, fmt.Errorf("duplicate key %q", key.Value))
		}
		values[key.Value] = n.Content[i+1]
	}
	for _, key := range keys {
		key, optional := strings.CutSuffix(key, "?")
		value := values[key]
		below := []*yaml.Node{value}
		switch {
		case value == nil && optional:
			continue
		case value == nil:
			return at(n, fmt.Errorf("%s: is missing", key))
		case key == "skills" && !isPlain(value, yaml.SequenceNode):
			return at(value, errors.New("skills: is not a list"))
		case key == "skills":
			below = value.Content
		}
		for _, n := range below {
			if err := checkLockNode(n, path+"."+key); err != nil {
				return err
			}
		}
	}
	return nil
}

// yamlError splits an error of the YAML parser into line and text. The parser names no line for errors in
// line 1.
func yamlError(err error) *LockError {
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	number, text, _ := strings.Cut(strings.TrimPrefix(what, "line "), ": ")
	line, absent := strconv.Atoi(number)
	if absent != nil {
		return &LockError{What: what}
	}
	if strings.HasPrefix(text, "did not find expected") {
		line++ // these errors of the parser number lines from zero
	}
	return &LockError{Position: fmt.Sprintf(":%d", line), What: text}
}

// at returns an error at the position of a node.
func at(n *yaml.Node, err error) error {
	return &LockError{Position: fmt.Sprintf(":%d:%d", n.Line, n.Column), What: err.Error()}
}

// MarshalJSON returns the list of skills, never null.
func (l *Lock) MarshalJSON() ([]byte, error) {
	return json.Marshal(append([]*Entry{}, l.Skills...))
}
