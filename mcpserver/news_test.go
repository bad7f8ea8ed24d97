package mcpserver

import (
	"fmt"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

// Each listener hears of what changed since its list, once, and of each skill what became of it.
func TestNews(t *testing.T) {
	now := snapshotOf()
	n := &news{current: func() *skills.Snapshot { return now }}
	heard := func(listener string) (all []string) {
		changes, cut := n.since(listener)
		if cut {
			all = append(all, "cut")
		}
		for _, c := range changes {
			all = append(all, fmt.Sprintf("%s %v %v", c.path, c.was != nil, c.is != nil))
		}
		return all
	}
	check := func(listener string, want ...string) {
		t.Helper()
		if got := heard(listener); !slices.Equal(got, want) {
			t.Errorf("%s hears of %q, want %q", listener, got, want)
		}
	}
	now = snapshotOf("a", "1", "b", "1")
	n.listed("lists once", true)
	n.listed("lists again", false)
	now = snapshotOf("a", "2", "c", "1")
	check("never listed")
	check("lists once", "a true true", "c false true", "b true false")
	check("lists once")
	n.listed("lists again", false)
	check("lists again")
	now = snapshotOf("a", "2", "c", "1", "d", "1")
	n.listed("lists once", true) // it keeps what it has
	n.listed("lists again", false)
	check("lists again")
	check("lists once", "d false true")
	now = snapshotOf("a", "2", "c", "1")
	check("never listed") // it came and went
	now = snapshotOf("a", "2", "c", "1", "d", "1")
	check("lists once") // it went and came back
	for i := range maxChanges {
		now = snapshotOf("e", fmt.Sprint(i))
		n.listed("another", false)
	}
	if got := heard("lists again"); !slices.Contains(got, "cut") {
		t.Errorf("after very many changes it hears of %q", got)
	}
	for i := range 2 * maxListeners {
		n.listed(fmt.Sprint(i), false)
	}
	if len(n.heard) > maxListeners || len(n.log) > maxChanges {
		t.Errorf("%d listeners and %d changes are remembered", len(n.heard), len(n.log))
	}
}

// snapshotOf returns a snapshot of skills with contents.
func snapshotOf(pairs ...string) *skills.Snapshot {
	var files []skills.Outline
	for i := 0; i < len(pairs); i += 2 {
		files = append(files, skills.Outline{Path: pairs[i], Digest: digest.FromString(pairs[i+1])})
	}
	return skills.Outlined([]skills.Root{{}}, files, nil)
}
