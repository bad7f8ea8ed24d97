package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/opencontainers/go-digest"
)

// lockVersion is the version of the form of the lock file.
const lockVersion = "1"

// lockHead opens every lock file.
const lockHead = "# Written by skillsd install. `skillsd verify` holds the installed skills to it.\n"

// encode writes the lock file: YAML, sorted, every string in quotes.
func (l *Lock) encode() []byte {
	var b bytes.Buffer
	b.WriteString(lockHead + "version: " + lockVersion + "\nskills:")
	if len(l.Skills) == 0 {
		b.WriteString(" []\n")
		return b.Bytes()
	}
	b.WriteByte('\n')
	for _, e := range l.Skills {
		fmt.Fprintf(&b, "  - name: %s\n    tier: %s\n    enabled: %t\n", quote(e.Name), quote(e.Tier.String()), e.Enabled)
		b.WriteString("    origin:\n")
		e.Origin.encode(&b, "      ")
		content := e.version()
		content.Commit = ""
		content.encode(&b, "    ")
		if e.Previous != nil {
			b.WriteString("    previous:\n")
			if e.Previous.Origin != nil {
				from := *e.Previous.Origin
				from.Commit = ""
				b.WriteString("      origin:\n")
				from.encode(&b, "        ")
			}
			e.Previous.encode(&b, "      ")
		}
	}
	return b.Bytes()
}

func (o Origin) encode(b *bytes.Buffer, indent string) {
	for _, row := range [][2]string{{"kind", string(o.Kind)}, {"source", o.Source}, {"ref", o.Ref}, {"commit", o.Commit}, {"subdir", o.Subdir}, {"path", o.Path}} {
		if row[1] != "" {
			fmt.Fprintf(b, "%s%s: %s\n", indent, row[0], quote(row[1]))
		}
	}
}

func (v *Version) encode(b *bytes.Buffer, indent string) {
	if v.Commit != "" {
		fmt.Fprintf(b, "%scommit: %s\n", indent, quote(v.Commit))
	}
	fmt.Fprintf(b, "%stree: %s\n%sinstalledAt: %s\n%sfiles:\n", indent, quote(v.Tree.String()), indent, quote(v.InstalledAt.UTC().Format(time.RFC3339)), indent)
	for _, f := range v.Files {
		fmt.Fprintf(b, "%s  %s: %s\n", indent, quote(f.Path), quote(f.Digest.String()))
	}
}

// parseLock reads what encode writes, and any YAML that says the same.
//
// Errors: *LockError without a file.
func parseLock(data []byte) (lock *Lock, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			lock, err = nil, &LockError{What: "cannot be read as YAML"}
		}
	}()
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, &LockError{What: "is empty, which no lock file is"}
	} else if err != nil {
		return nil, yamlError(err, data)
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		return nil, at(&second, errors.New("a second document; a lock file is one"))
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlError(err, data)
	}
	file, err := mapping(document.Content[0], "version", "skills")
	if err != nil {
		return nil, err
	}
	if version, err := text(file, "version", document.Content[0]); err != nil {
		return nil, err
	} else if version != lockVersion {
		return nil, at(file["version"], fmt.Errorf("version: %q is none that this skillsd reads; it reads %s", clip(version), lockVersion))
	}
	rows := file["skills"]
	if rows == nil {
		return nil, at(document.Content[0], errors.New("skills: is missing"))
	} else if rows.Kind != yaml.SequenceNode || rows.Anchor != "" {
		return nil, at(rows, errors.New("skills: is no list"))
	}
	lock = &Lock{}
	seen := map[string]bool{}
	for _, row := range rows.Content {
		entry, err := parseEntry(row)
		if err == nil {
			err = entry.check()
		}
		if err == nil && seen[strings.ToLower(entry.Name)] {
			err = fmt.Errorf("the name %s stands twice", entry.Name)
		}
		if err != nil {
			return nil, at(row, err)
		}
		seen[strings.ToLower(entry.Name)] = true
		lock.Skills = append(lock.Skills, entry)
	}
	return lock.with(nil), nil
}

// yamlError is an error of the parser, which has a line in its text when that is not the first. Of what it
// expected and did not find it counts the lines from zero.
func yamlError(err error, data []byte) *LockError {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' && r != 0x85 {
			line := bytes.LastIndexByte(data[:i], '\n') + 1
			return &LockError{Line: 1 + bytes.Count(data[:i], []byte("\n")), Column: 1 + utf8.RuneCount(data[line:i]), What: "a control character, or a byte that is no UTF-8"}
		}
		i += size
	}
	problem := &LockError{Line: 1, What: strings.TrimPrefix(err.Error(), "yaml: ")}
	if rest, ok := strings.CutPrefix(problem.What, "line "); ok {
		number, what, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			problem.Line, problem.What = line, what
			if strings.HasPrefix(what, "did not find expected") {
				problem.Line++
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

func parseEntry(n *yaml.Node) (*Entry, error) {
	keys, err := mapping(n, "name", "tier", "enabled", "origin", "tree", "installedAt", "files", "previous")
	if err != nil {
		return nil, err
	}
	e := &Entry{}
	if keys["origin"] == nil {
		return nil, at(n, errors.New("origin: is missing"))
	}
	origin, err := mapping(keys["origin"], "kind", "source", "ref", "commit", "subdir", "path")
	if err != nil {
		return nil, err
	}
	r := reader{node: n}
	e.Name = r.text(keys, "name")
	if err := e.Tier.UnmarshalText([]byte(r.text(keys, "tier"))); err != nil {
		r.fail(err)
	}
	switch r.text(keys, "enabled") {
	case "true":
		e.Enabled = true
	case "false":
	default:
		r.fail(errors.New("enabled: is neither true nor false"))
	}
	e.Origin = r.origin(origin)
	content := r.version(keys)
	e.Tree, e.Files, e.InstalledAt = content.Tree, content.Files, content.InstalledAt
	if keys["previous"] != nil {
		previous, err := mapping(keys["previous"], "origin", "commit", "tree", "installedAt", "files")
		if err != nil {
			return nil, err
		}
		v := r.version(previous)
		v.Commit = r.optional(previous, "commit")
		if previous["origin"] != nil {
			from, err := mapping(previous["origin"], "kind", "source", "ref", "subdir", "path")
			if err != nil {
				return nil, err
			}
			at := r.origin(from)
			at.Commit = v.Commit
			v.Origin = &at
		}
		e.Previous = &v
	}
	return e, r.err
}

// reader reads the fields of a mapping and keeps the first error.
type reader struct {
	node *yaml.Node
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = at(r.node, err)
	}
}

func (r *reader) text(keys map[string]*yaml.Node, key string) string {
	value, err := text(keys, key, r.node)
	if err != nil {
		r.fail(err)
	}
	return value
}

func (r *reader) optional(keys map[string]*yaml.Node, key string) string {
	if keys[key] == nil {
		return ""
	}
	return r.text(keys, key)
}

func (r *reader) origin(keys map[string]*yaml.Node) Origin {
	return Origin{Kind: Kind(r.text(keys, "kind")), Source: r.text(keys, "source"), Ref: r.optional(keys, "ref"), Commit: r.optional(keys, "commit"), Subdir: r.optional(keys, "subdir"), Path: r.text(keys, "path")}
}

func (r *reader) version(keys map[string]*yaml.Node) Version {
	v := Version{Tree: digest.Digest(r.text(keys, "tree"))}
	var err error
	if v.InstalledAt, err = time.Parse(time.RFC3339, r.text(keys, "installedAt")); err != nil {
		r.fail(errors.New("installedAt: is no time"))
	}
	files := keys["files"]
	if files == nil || files.Kind != yaml.MappingNode || files.Anchor != "" {
		r.fail(errors.New("files: is no mapping"))
		return v
	}
	for i := 0; i+1 < len(files.Content); i += 2 {
		path, sum := files.Content[i], files.Content[i+1]
		if !plain(path) || !plain(sum) {
			r.fail(at(path, errors.New("files: is no mapping of paths to digests")))
			return v
		}
		v.Files = append(v.Files, LockFileRow{path.Value, digest.Digest(sum.Value)})
	}
	return v
}

// plain reports a scalar that is written out.
func plain(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Anchor == "" }

// mapping returns the values of a mapping that has only known keys, each once.
func mapping(n *yaml.Node, known ...string) (map[string]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		return nil, at(n, errors.New("is no mapping"))
	}
	found := make(map[string]*yaml.Node, len(known))
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		var name string
		for _, k := range known {
			if plain(key) && key.Value == k {
				name = k
			}
		}
		if name == "" {
			return nil, at(key, fmt.Errorf("the key %q is not known; there are %s", clip(key.Value), strings.Join(known, ", ")))
		}
		if found[name] != nil {
			return nil, at(key, fmt.Errorf("the key %q stands twice", name))
		}
		found[name] = n.Content[i+1]
	}
	return found, nil
}

// text returns a scalar of a mapping.
func text(keys map[string]*yaml.Node, key string, in *yaml.Node) (string, error) {
	n := keys[key]
	if n == nil {
		return "", at(in, fmt.Errorf("%s: is missing", key))
	}
	if !plain(n) || n.Value == "" {
		return "", at(n, fmt.Errorf("%s: is no text", key))
	}
	return n.Value, nil
}

// MarshalJSON writes the list of skills, never null.
func (l *Lock) MarshalJSON() ([]byte, error) {
	rows := l.Skills
	if rows == nil {
		rows = []*Entry{}
	}
	return json.Marshal(rows)
}
