// Package discovery reads and writes the index of the skills that a web server publishes below
// /.well-known/agent-skills/ (Agent Skills Discovery, version 0.2.0).
//
// An index is foreign: it may be huge, name one skill twice, and link to any address. [Parse] bounds it, and
// records the problem of an entry in that entry, so that the others can be used. The caller fetches the
// artifacts and compares them with their digests.
package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/pattern"
)

const (
	// Schema is the schema of the indexes that Parse reads and Encode writes.
	Schema = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
	// Path is the path of an index on a server.
	Path = "/.well-known/agent-skills/index.json"
	// OldPath is the path of an index of version 0.1.0.
	OldPath = "/.well-known/skills/index.json"
	// MaxIndex is the longest index, in bytes.
	MaxIndex = 8 << 20
	// maxEntries is how many entries an index may have.
	maxEntries = 5_000
	maxText    = 1024
	maxFiles   = 500 // of one entry of version 0.1.0
)

// The types of entries.
const (
	TypeSkill   = "skill-md" // a SKILL.md alone
	TypeArchive = "archive"  // a tar or zip archive with SKILL.md at its root
	// TypeFiles is an entry of version 0.1.0: files next to the index, without digests.
	TypeFiles = "files"
)

// Entry is one skill of an index.
type Entry struct {
	Name        string        `json:"name"`
	Type        string        `json:"type"`
	Description string        `json:"description"`
	URL         string        `json:"url"`
	Digest      digest.Digest `json:"digest"` // of the bytes at URL

	// Files are the paths of the files of a skill of version 0.1.0, below the name of the skill.
	Files []string `json:"files,omitempty"`

	At      *url.URL `json:"-"` // URL, resolved; for TypeFiles, the directory with the files
	Problem string   `json:"-"` // why it cannot be used; empty if it can
}

// Index is the list of the skills of a server.
type Index struct {
	Schema string   `json:"$schema"`
	Skills []*Entry `json:"skills"` // with names that differ by more than case
}

var name = pattern.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ValidName reports whether an entry may have a name.
func ValidName(text string) bool { return len(text) <= 64 && name().MatchString(text) }

// Parse reads an index that was fetched from base. Entries that cannot be used have a Problem, also if their
// name is invalid or another entry has it.
func Parse(data []byte, base *url.URL) (*Index, error) {
	if len(data) > MaxIndex {
		return nil, fmt.Errorf("the index has more than %d bytes", MaxIndex)
	}
	var file struct {
		Schema *string           `json:"$schema"`
		Skills []json.RawMessage `json:"skills"`
	}
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &file); err != nil {
		return nil, fmt.Errorf("the index is not the JSON of one: %w", err)
	}
	switch {
	case file.Schema != nil && *file.Schema != Schema:
		return nil, fmt.Errorf("the index has the schema %.100q, which is not known; %s is",
			*file.Schema, Schema)
	case file.Skills == nil:
		return nil, errors.New("the index has no list of skills")
	case len(file.Skills) > maxEntries:
		return nil, fmt.Errorf("the index has %d skills, more than %d", len(file.Skills), maxEntries)
	}
	// Version 0.1.0 had no schema; its entries list files.
	index := &Index{Schema: Schema}
	known := map[string]*Entry{}
	for n, raw := range file.Skills {
		e := &Entry{}
		// Each entry is decoded on its own, so that one that is broken does not cost the others.
		if err := json.Unmarshal(raw, e); err != nil {
			e = &Entry{Problem: "is not an entry of an index"}
		}
		if !ValidName(e.Name) {
			e = &Entry{Name: fmt.Sprintf("entry-%d", n+1), Problem: fmt.Sprintf(
				"%.100q is not a name of a skill", e.Name)}
		}
		if other := known[e.Name]; other != nil {
			// The entries are equal claims on the name: none of them is used.
			other.Problem = "shares its name with other entries"
			continue
		}
		if e.Problem == "" {
			e.Problem = e.check(base, file.Schema == nil)
		}
		known[e.Name] = e
		index.Skills = append(index.Skills, e)
	}
	return index, nil
}

// check resolves the URL of an entry and returns the problem of the entry, or "". An entry of an index
// without a schema may list files.
func (e *Entry) check(base *url.URL, old bool) string {
	if old && e.Type == "" && e.URL == "" && len(e.Files) > 0 {
		return e.checkFiles(base)
	}
	// An entry of version 0.2.0 has a digest of all bytes; a list of files next to it would be a second
	// content.
	e.Files = nil
	at, err := base.Parse(e.URL)
	switch {
	case e.Type != TypeSkill && e.Type != TypeArchive:
		return fmt.Sprintf("has the unknown type %.40q", e.Type)
	case e.Digest.Validate() != nil || e.Digest.Algorithm() != digest.SHA256:
		return "has no SHA-256 digest"
	case e.URL == "" || err != nil || len(e.URL) > 2*maxText:
		return "has no URL that can be read"
	case at.Fragment != "":
		return "has a URL with a fragment"
	}
	e.At = at
	return ""
}

// checkFiles is check for an entry of version 0.1.0, whose files are at NAME/FILE next to the index.
func (e *Entry) checkFiles(base *url.URL) string {
	e.Type, e.Digest = TypeFiles, ""
	if len(e.Files) > maxFiles {
		return fmt.Sprintf("lists %d files, more than %d", len(e.Files), maxFiles)
	}
	for _, file := range e.Files {
		clean, err := skills.CleanPath(file)
		if err != nil || clean != file {
			return fmt.Sprintf("lists the file %.100q, which is no path in a skill", file)
		}
	}
	if !slices.Contains(e.Files, "SKILL.md") {
		return "lists no SKILL.md"
	}
	e.At = base.JoinPath("..", e.Name)
	return ""
}

// Find returns the entry with a name, or nil.
func (x *Index) Find(name string) *Entry {
	for _, e := range x.Skills {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Encode returns the index in the form that Parse reads.
func (x *Index) Encode() []byte {
	written := *x
	written.Schema = Schema
	if written.Skills == nil {
		written.Skills = []*Entry{}
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	if err := to.Encode(written); err != nil {
		panic("discovery: an index without JSON form: " + err.Error())
	}
	return b.Bytes()
}

// IsIndex reports whether a URL names an index, and returns the full URL: a user may leave out the file
// name.
func IsIndex(text string) (string, bool) {
	for _, file := range []string{Path, OldPath} {
		dir := strings.TrimSuffix(file, "/index.json")
		for _, end := range []string{file, dir + "/", dir} {
			if site, ok := strings.CutSuffix(text, end); ok {
				return site + file, true
			}
		}
	}
	return "", false
}
