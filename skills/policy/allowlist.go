package policy

import (
	"errors"
	"reflect"
	"slices"
)

// Allowlist holds exact entries. The zero value allows nothing.
type Allowlist struct {
	entries []Entry
	index   map[scriptKey][]Entry
}

type scriptKey struct{ skill, path string }

// ParseAllowlist parses entries; equal ones collapse, and the order is kept. Two entries of one script with
// different pins allow either content. Next to a pinned entry, an entry without a pin allows nothing: an
// added line never loosens a pin.
//
// Errors: *EntryError for the first invalid entry.
func ParseAllowlist(specs []string) (Allowlist, error) {
	entries := make([]Entry, 0, len(specs))
	for _, spec := range specs {
		entry, err := ParseEntry(spec)
		if err != nil {
			return Allowlist{}, err
		}
		entries = append(entries, entry)
	}
	return NewAllowlist(entries)
}

// NewAllowlist returns an allowlist of entries with options. As in [ParseAllowlist], equal entries collapse
// and the order is kept. Entries with the same script and pin but another tree or other options are rejected,
// since their order would decide.
//
// Errors: *EntryError for the first invalid entry.
func NewAllowlist(entries []Entry) (Allowlist, error) {
	list := Allowlist{index: map[scriptKey][]Entry{}}
	for _, entry := range entries {
		if err := entry.check(); err != nil {
			if wrong, ok := errors.AsType[*EntryError](err); ok {
				return Allowlist{}, wrong
			}
			return Allowlist{}, &EntryError{Spec: entry.Spec(), Reason: err.Error()}
		}
		key := scriptKey{entry.Skill, entry.Path}
		same := slices.IndexFunc(list.index[key], func(other Entry) bool { return other.Pin == entry.Pin })
		if same < 0 {
			list.entries = append(list.entries, entry)
			list.index[key] = append(list.index[key], entry)
			continue
		}
		// The order would decide between them, and a line that is added must not change what another allows.
		if !reflect.DeepEqual(list.index[key][same], entry) {
			return Allowlist{}, &EntryError{Spec: entry.Spec(),
				Reason: "two entries of this script have different options"}
		}
	}
	return list, nil
}

// Len returns the number of entries.
func (a Allowlist) Len() int { return len(a.entries) }

// Entries returns the entries in the order given.
func (a Allowlist) Entries() []Entry { return slices.Clone(a.entries) }

// Find returns the entries for exactly this script. The caller must not change them.
func (a Allowlist) Find(skill, path string) []Entry {
	return a.index[scriptKey{skill, path}]
}
