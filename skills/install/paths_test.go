package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
)

// takenAt is a Taken with one skill.
func takenAt(at string) func(string) string {
	return func(path string) string {
		if path == at {
			return "/srv/skills"
		}
		return ""
	}
}

// TestNestedTaken has a skill bring another, in a directory of its own, whose path is that of one that
// is served from elsewhere.
func TestNestedTaken(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"acme/SKILL.md": skillText("acme"),
		"acme/deploy/SKILL.md": skillText("deploy"), "b/SKILL.md": skillText("b")})
	m := newMachine(t)
	i := m.open()
	i.cfg.Taken = takenAt("acme/deploy")
	const want = "the path acme/deploy is used by the skill in /srv/skills"
	if err := apply(t.Context(), i, Request{Source: dir, Subdir: "acme"}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error = %v", err)
	}
	if err := apply(t.Context(), i, Request{Source: dir, All: true}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error of all = %v", err)
	}
	if len(i.Lock().Skills) > 0 {
		t.Errorf("installed %v", names(i.Lock()))
	}
	plan, err := i.Add(t.Context(), Request{Source: dir, All: true, KeepGoing: true,
		Tier: skills.TierThirdParty})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Refused) != 1 || plan.Refused[0].Path != "acme" || plan.New.Skill("acme") != nil {
		t.Errorf("refused %v", plan.Refused)
	}
	if err := plan.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b"}, names(i.Lock())); diff != "" {
		t.Error(diff)
	}
	verified(t, i)
	if err := apply(t.Context(), i, Request{Source: dir, Subdir: "acme", Name: "other"}); err != nil {
		t.Error(err)
	}
}

// TestNestedTakenByUpdate has an update bring such a skill, beside a file that is none yet: what
// matters is what was served. What was served before is kept.
func TestNestedTakenByUpdate(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"SKILL.md": skillText("acme"), "deploy/SKILL.md": "",
		"old/SKILL.md": skillText("old")})
	m := newMachine(t)
	m.install(Request{Source: dir, Name: "acme"})
	i := m.open()
	i.cfg.Taken = takenAt("acme/old")
	write(t, dir, map[string]string{"SKILL.md": skillText("acme") + "More.\n"})
	u, err := i.Update(t.Context(), nil, Moves{}, Access{})
	if err != nil || len(u.Refused) > 0 {
		t.Fatalf("an update that brings no path = %v, %v", u.Refused, err)
	}
	if err := u.Close(); err != nil {
		t.Fatal(err)
	}
	i.cfg.Taken = takenAt("acme/deploy")
	write(t, dir, map[string]string{"deploy/SKILL.md": skillText("deploy")})
	u, err = i.Update(t.Context(), nil, Moves{}, Access{})
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Refused; len(got) != 1 || !strings.Contains(got[0].Reason,
		"the path acme/deploy is used by") {
		t.Errorf("refused %v", got)
	}
	if err := u.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(m.state, servedDir(skills.TierThirdParty, "acme"),
		"deploy/SKILL.md")); string(data) != "" || err != nil {
		t.Errorf("installed %q, %v", data, err)
	}
	verified(t, i)
}

// TestNestedTakenBySync has a lock file of another machine bring such a skill, enabled or not.
func TestNestedTakenBySync(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"SKILL.md": skillText("acme"),
		"deploy/SKILL.md": skillText("deploy")})
	there := newMachine(t)
	there.install(Request{Source: dir, Name: "acme"})
	j := there.open()
	for _, enabled := range []bool{true, false} {
		if !enabled {
			if err := edited(t, j.Disable, "acme"); err != nil {
				t.Fatal(err)
			}
		}
		m := newMachine(t)
		i := m.open()
		i.cfg.Taken = takenAt("acme/deploy")
		_, err := synced(t.Context(), i, Sync{Lock: j.Lock()})
		if _, refused := errors.AsType[*SourceError](err); !refused ||
			!strings.Contains(err.Error(), "the path acme/deploy is used by") || len(i.Lock().Skills) > 0 {
			t.Errorf("enabled %t: %v", enabled, err)
		}
		i.cfg.Taken = nil
		if _, err := synced(t.Context(), i, Sync{Lock: j.Lock()}); err != nil {
			t.Errorf("enabled %t: %v", enabled, err)
		}
		verified(t, i)
		i.Close()
	}
}

// TestSyncKeepsReplaced replaces a skill by a lock file that has it from elsewhere: a rollback brings
// back what was here, and where that came from.
func TestSyncKeepsReplaced(t *testing.T) {
	first := write(t, t.TempDir(), map[string]string{"a/SKILL.md": skillText("a")})
	second := write(t, t.TempDir(), map[string]string{"a/SKILL.md": skillText("a") + "Foreign.\n"})
	m, there := newMachine(t), newMachine(t)
	m.install(Request{Source: first})
	there.install(Request{Source: second})
	j := there.open()
	write(t, second, map[string]string{"a/SKILL.md": skillText("a") + "Foreign, again.\n"})
	updateAll(t, j)

	i := m.open()
	was := *i.Lock().Find("a")
	if _, err := synced(t.Context(), i, Sync{Lock: j.Lock()}); err != nil {
		t.Fatal(err)
	}
	is := i.Lock().Find("a")
	if is.Tree != j.Lock().Find("a").Tree || is.Previous == nil || is.Previous.Tree != was.Tree {
		t.Fatalf("entry = %+v", is)
	}
	read, err := ReadLock(LockFile(m.state))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(i.Lock().Skills, read.Skills); diff != "" {
		t.Errorf("the lock file (-want +got):\n%s", diff)
	}
	for _, want := range []Origin{was.Origin, is.Origin, was.Origin} {
		if err := edited(t, i.Rollback, "a"); err != nil {
			t.Fatal(err)
		}
		if got := i.Lock().Find("a").Origin; got != want {
			t.Errorf("rolled back to what is from %+v, want %+v", got, want)
		}
		verified(t, i)
	}

	// Where only the origin differs that is taken, and the earlier version here is kept.
	lock, changed := i.Lock(), was
	changed.Origin.Source = write(t, t.TempDir(), map[string]string{"a/SKILL.md": skillText("a")})
	did, err := synced(t.Context(), i, Sync{Lock: lock.with(map[string]*Entry{"a": &changed})})
	if err != nil || len(did) != 1 {
		t.Fatalf("Sync = %v, %v", did, err)
	}
	if got := i.Lock().Find("a"); got.Origin != changed.Origin || got.Previous == nil ||
		got.Previous.Tree != is.Tree {
		t.Errorf("entry = %+v", got)
	}
	if err := edited(t, i.Rollback, "a"); err != nil || i.Lock().Find("a").Origin != is.Origin {
		t.Errorf("rolled back to %+v, %v", i.Lock().Find("a").Origin, err)
	}
}
