package install

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// TestUpdateGit follows a branch, keeps what a tag names, and goes back.
func TestUpdateGit(t *testing.T) {
	r := newRepo(t)
	old := r.commit(map[string]string{"a/SKILL.md": skillText("a"), "b/SKILL.md": skillText("b")})
	r.run("tag", "v1")
	m := newMachine(t).withGit(r)
	m.install(Request{Source: r.url, Subdir: "a"})
	m.install(Request{Source: r.url, Subdir: "b", Ref: "v1"})
	head := r.commit(map[string]string{"a/SKILL.md": skillText("a") + "More.\n",
		"b/SKILL.md": skillText("b") + "More.\n"})

	i := m.open()
	was := i.Lock().Find("a")
	u, err := i.Update(t.Context(), nil, Moves{}, Access{})
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Changes) != 2 || !u.Changes[0].NewContent() || u.Changes[1].NewContent() || len(u.Refused) > 0 {
		t.Errorf("updates = %+v, refused %v", u.Changes, u.Refused)
	}
	if u.Old.Skill("a") == nil || u.New.Skill("a") == nil || u.New.Skill("b") != nil {
		t.Error("the snapshots do not have what changes")
	}
	if err := u.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	is := i.Lock().Find("a")
	if is.Origin.Commit != head || is.Previous == nil || is.Previous.Commit != old ||
		is.Previous.Tree != was.Tree {
		t.Errorf("entry = %+v", is)
	}
	if err := edited(t, i.Rollback, "a"); err != nil {
		t.Fatal(err)
	}
	if back := i.Lock().Find("a"); back.Tree != was.Tree || back.Origin.Commit != old ||
		back.Previous.Tree != is.Tree {
		t.Errorf("rolled back to %+v", back)
	}
	if problems, _, err := i.Verify(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("Verify = %v, %v", problems, err)
	}
	if err := edited(t, i.Rollback, "b"); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("rollback of what was never updated = %v", err)
	}
}

// TestSyncGit reproduces a lock file on another machine after the branch went on, and refuses a
// repository that gives another content for the commit.
func TestSyncGit(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a/SKILL.md": skillText("a"), "b/SKILL.md": skillText("b"),
		"b/run.sh": "#!/bin/sh\n"})
	m := newMachine(t).withGit(r)
	m.install(Request{Source: r.url, All: true})
	i := m.open()
	if err := edited(t, i.Disable, "b"); err != nil {
		t.Fatal(err)
	}
	i.Close()
	r.commit(map[string]string{"a/SKILL.md": skillText("a") + "More.\n"})

	other := newMachine(t).withGit(r)
	lock, err := Import(LockFile(m.state))
	if err != nil {
		t.Fatal(err)
	}
	j := other.open()
	did, err := synced(t.Context(), j, Sync{Lock: lock, Exact: true})
	if err != nil || len(did) != 2 {
		t.Fatalf("Sync = %v, %v", did, err)
	}
	if problems, _, err := j.Verify(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("Verify = %v, %v", problems, err)
	}
	if _, err := os.Stat(filepath.Join(RootDir(other.state, skills.TierThirdParty), "b")); err == nil {
		t.Error("a disabled skill was put in place")
	}
	if err := edited(t, j.Enable, "b"); err != nil {
		t.Error(err)
	}
	if got := string(j.Lock().with(nil).Encode()); got == string(lock.Encode()) {
		t.Error("enabling changed nothing")
	}

	third := newMachine(t).withGit(r)
	k := third.open()
	forged := *lock.Skills[0]
	forged.Origin.Path = "b"
	before := tree(t, third.state)
	if _, err := synced(t.Context(), k, Sync{Lock: &Lock{Skills: []*Entry{&forged}}}); err == nil ||
		!strings.Contains(err.Error(), "does not match the lock file") {
		t.Errorf("error for other content = %v", err)
	}
	if after := tree(t, third.state); len(after) != len(before) {
		t.Errorf("a refused sync left %d entries, there were %d", len(after), len(before))
	}
}

// TestVerifyFindsEveryByte changes what is installed in every way there is.
func TestVerifyFindsEveryByte(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, place string) error
		want   string
	}{
		{"a byte", func(t *testing.T, place string) error {
			name := filepath.Join(place, "scripts", "run.sh")
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			data[len(data)-2] ^= 1
			return errors.Join(os.Chmod(name, 0o700), os.WriteFile(name, data, 0o700))
		}, "changed"},
		{"gone", func(t *testing.T, place string) error {
			return os.Remove(
				filepath.Join(place, "SKILL.md"))
		}, "is missing"},
		{"more", func(t *testing.T, place string) error {
			return os.WriteFile(filepath.Join(place, ".DS_Store"), nil, 0o600)
		}, "was not installed"},
		{"a directory", func(t *testing.T, place string) error {
			return os.Mkdir(filepath.Join(place, ".git"),
				0o700)
		}, "was not installed"},
		{"a link", func(t *testing.T, place string) error {
			name := filepath.Join(place, "SKILL.md")
			return errors.Join(os.Rename(name, filepath.Join(place, "..", "..", "kept")),
				os.Symlink("../../kept", name))
		}, "is not a regular file"},
		{"all", func(t *testing.T, place string) error { return os.RemoveAll(place) }, "is missing from the served directory"},
		{"a file", func(t *testing.T, place string) error {
			return errors.Join(os.RemoveAll(place), os.WriteFile(place, nil, 0o600))
		}, "is not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t)
			m.install(Request{Source: collection(t), Subdir: "skills/a"})
			if err := test.change(t, filepath.Join(RootDir(m.state, skills.TierThirdParty),
				"a")); err != nil {
				t.Fatal(err)
			}
			i := m.open()
			problems, _, err := i.Verify(t.Context())
			if err != nil || len(problems) == 0 ||
				!slices.ContainsFunc(problems,
					func(p Problem) bool { return p.Name == "a" && strings.Contains(p.What, test.want) }) {
				t.Errorf("Verify = %v, %v, want %q", problems, err, test.want)
			}
			if _, err := synced(t.Context(), i, Sync{}); err != nil {
				t.Fatalf("Sync: %v", err)
			}
			if problems, _, err := i.Verify(t.Context()); err != nil || len(problems) > 0 {
				t.Errorf("Verify after Sync = %v, %v", problems, err)
			}
		})
	}
	m := newMachine(t)
	m.install(Request{Source: collection(t), Subdir: "skills/a"})
	i := m.open()
	stored := filepath.Join(m.trees.Dir(), i.Lock().Find("a").Tree.Encoded(), "SKILL.md")
	if err := errors.Join(os.Chmod(stored, 0o600), os.WriteFile(stored, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if problems, _, err := i.Verify(t.Context()); err != nil || len(problems) != 1 ||
		!strings.Contains(problems[0].What, "the stored tree changed") {
		t.Errorf("Verify of a changed tree = %v, %v", problems, err)
	}
	if _, err := synced(t.Context(), i, Sync{}); err != nil {
		t.Fatal(err)
	}
	if problems, _, err := i.Verify(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("Verify after Sync = %v, %v", problems, err)
	}
}
