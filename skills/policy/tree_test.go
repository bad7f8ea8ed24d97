package policy

import "testing"

// A tree that an entry names holds a run beside the digest of its script.
func TestTreePin(t *testing.T) {
	entries := func(list ...Entry) func(*Config, *Request) {
		return func(c *Config, _ *Request) {
			for i := range list {
				list[i].Skill, list[i].Path = "pdf", script
			}
			made, err := NewAllowlist(list)
			if err != nil {
				t.Fatal(err)
			}
			c.Allowlist = made
		}
	}
	with := func(entries, do func(*Config, *Request)) func(*Config, *Request) {
		return func(c *Config, r *Request) { entries(c, r); do(c, r) }
	}
	here := entries(Entry{Pin: file, Tree: tree})
	const mismatch = CodeScriptSnapshotMismatch
	checkRuns(t, []runCase{
		{"both fit", here, ""},
		{"both fit, another tree at start", with(here, func(_ *Config, r *Request) { r.StartTree = other }), ""},
		{"other tree", with(here, func(_ *Config, r *Request) { r.TreeDigest = other }), mismatch},
		{"other tree, which was there at start", with(here, func(_ *Config, r *Request) { r.TreeDigest, r.StartTree = other, other }), mismatch},
		{"other tree, disabled", with(here, func(c *Config, r *Request) { c.Mode, r.TreeDigest = Disabled, other }), mismatch},
		{"no tree", with(here, func(_ *Config, r *Request) { r.TreeDigest = "" }), mismatch},
		{"other script", with(here, func(_ *Config, r *Request) { r.FileDigest = other }), mismatch},
		{"no such file", with(here, func(_ *Config, r *Request) { r.FileDigest = "" }), mismatch},
		{"absent at start", with(here, func(_ *Config, r *Request) { r.StartTree = "" }), mismatch},
		{"tree and script of two entries", entries(Entry{Pin: file, Tree: other}, Entry{Pin: other, Tree: tree}), mismatch},
		{"script alone", entries(Entry{Pin: file, PinScript: true}), ""},
		{"script alone, other tree", with(entries(Entry{Pin: file, PinScript: true}), func(_ *Config, r *Request) { r.TreeDigest, r.StartTree = other, tree }), ""},
		{"script alone, other script", with(entries(Entry{Pin: file, PinScript: true}), func(_ *Config, r *Request) { r.FileDigest = other }), mismatch},
		{"script alone, absent at start", with(entries(Entry{Pin: file, PinScript: true}), func(_ *Config, r *Request) { r.StartTree = "" }), mismatch},
		{"script of the start", with(entries(Entry{PinScript: true}), func(_ *Config, r *Request) { r.StartFile, r.TreeDigest = file, other }), ""},
		{"script of the start changed", with(entries(Entry{PinScript: true}), func(_ *Config, r *Request) { r.StartFile = other }), mismatch},
		{"script that was not there", entries(Entry{PinScript: true}), mismatch},
		{"no script now, none at start", with(entries(Entry{PinScript: true}), func(_ *Config, r *Request) { r.FileDigest = "" }), mismatch},
		{"one of two", entries(Entry{Pin: other, Tree: other}, Entry{Pin: file, Tree: tree}), ""},
		{"is not loosened", entries(Entry{Pin: file, Tree: other}, Entry{}), mismatch},
		{"is not loosened, the other way", entries(Entry{}, Entry{Pin: file, Tree: other}), mismatch},
	})
}
