package skills

import (
	"path"
	"strings"

	"github.com/gabriel-vasile/mimetype"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// Kind is what a file of a skill is for, by the directory it is in.
type Kind string

// The kinds of files.
const (
	KindReference Kind = "reference" // references/**
	KindAsset     Kind = "asset"     // assets/**
	KindTemplate  Kind = "template"  // templates/**
	KindScript    Kind = "script"    // scripts/**
	KindOther     Kind = "other"
)

// Resource is a file of a skill beside its SKILL.md. It is immutable.
type Resource struct {
	Path        string // relative to the skill, as [CleanPath] returns it
	Kind        Kind
	Size        int64 // in bytes
	Digest      digest.Digest
	Text        bool   // valid UTF-8 without NUL, to the last byte
	MIMEType    string // by the name, or else by the first bytes
	Script      *script.Info
	Diagnostics []Diagnostic
}

// Index is what is known of all files of a skill. It is immutable.
type Index struct {
	Resources  []Resource // in byte order of Path, without SKILL.md
	TreeDigest digest.Digest
	Files      []store.File // in byte order of Path, with SKILL.md
	// Publishable: the skill may be shown by the skills extension, its SKILL.md and its files both.
	Publishable bool
	Diagnostics []Diagnostic // about files, those that were left out included, and what they say

	marks   []mark          // of Files
	signals int             // how many of Diagnostics, the last ones, are signals of single files
	whole   bool            // no limit has left out signals
	ignored map[string]bool // paths that were found and left out
}

// Resource returns the resource of that exact path, or nil.
func (x *Index) Resource(path string) *Resource {
	low, high := 0, len(x.Resources)
	for low < high {
		middle := (low + high) / 2
		switch at := &x.Resources[middle]; {
		case at.Path == path:
			return at
		case at.Path < path:
			low = middle + 1
		default:
			high = middle
		}
	}
	return nil
}

func kindOf(file string) Kind {
	first, _, below := strings.Cut(file, "/")
	if !below {
		return KindOther
	}
	switch first {
	case "references":
		return KindReference
	case "assets":
		return KindAsset
	case "templates":
		return KindTemplate
	case "scripts":
		return KindScript
	}
	return KindOther
}

// byExtension has the types that names tell better than bytes do.
var byExtension = map[string]string{
	".md": "text/markdown", ".markdown": "text/markdown", ".txt": "text/plain", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
	".html": "text/html", ".htm": "text/html", ".css": "text/css", ".xml": "application/xml", ".xsd": "application/xml", ".svg": "image/svg+xml",
	".json": "application/json", ".jsonl": "application/jsonl", ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
	".sh": "application/x-sh", ".bash": "application/x-sh", ".py": "text/x-python", ".js": "text/javascript", ".mjs": "text/javascript",
	".cjs": "text/javascript", ".ts": "text/typescript", ".tsx": "text/typescript", ".mts": "text/typescript", ".jsx": "text/javascript",
	".go": "text/x-go", ".rs": "text/x-rust", ".rb": "text/x-ruby", ".java": "text/x-java", ".c": "text/x-c", ".h": "text/x-c", ".sql": "application/sql",
	".pdf": "application/pdf", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".ttf": "font/ttf", ".otf": "font/otf", ".woff": "font/woff", ".woff2": "font/woff2", ".zip": "application/zip",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}

// mimeType returns a file's type without parameters. A name does not make bytes text, nor text
// bytes: where the two disagree the bytes decide.
func mimeType(file string, head []byte, isText bool) string {
	named := byExtension[strings.ToLower(path.Ext(file))]
	if named != "" && textual(named) == isText {
		return named
	}
	if isText {
		return "text/plain"
	}
	found, _, _ := strings.Cut(mimetype.Detect(head).String(), ";")
	if textual(found) {
		return "application/octet-stream"
	}
	return found
}

func textual(mime string) bool {
	if strings.HasPrefix(mime, "text/") {
		return true
	}
	switch mime {
	case "application/json", "application/jsonl", "application/yaml", "application/toml", "application/xml", "application/sql", "application/x-sh", "image/svg+xml":
		return true
	}
	return false
}
