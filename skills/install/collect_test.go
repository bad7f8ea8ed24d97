package install

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store"
)

// TestCollect keeps what the lock file and others name, and removes the rest.
func TestCollect(t *testing.T) {
	m, dir := newMachine(t), collection(t)
	m.install(Request{Source: dir, All: true})
	i := m.open()
	var trees []digest.Digest
	for _, more := range []string{"", "One.\n", "Two.\n", "Three.\n"} {
		if more != "" {
			write(t, dir, map[string]string{"skills/a/SKILL.md": skillText("a") + more})
			updateAll(t, i)
		}
		trees = append(trees, i.Lock().Find("a").Tree)
	}
	none := func(map[digest.Digest]bool) error { return nil }
	other, err := store.Open(m.state)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := i.Collect(t.Context(), none); n != 0 || err != nil {
		t.Errorf("Collect while a server runs = %d, %v", n, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if n, err := i.Collect(t.Context(), func(map[digest.Digest]bool) error { return stop }); n != 0 ||
		!errors.Is(err, stop) {
		t.Errorf("Collect that cannot tell = %d, %v", n, err)
	}
	asked := 0
	n, err := i.Collect(t.Context(), func(left map[digest.Digest]bool) error {
		asked = len(left)
		delete(left, trees[0])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Skip("needs locks of files")
	}
	if n != 1 || asked != 2 {
		t.Errorf("Collect removed %d of %d trees that the lock file does not name, want 1 of 2", n, asked)
	}
	for at, want := range []bool{true, false, true, true} {
		if _, err := m.trees.Tree(t.Context(), trees[at]); (err == nil) != want {
			t.Errorf("tree %d: %v", at, err)
		}
	}
	verified(t, i)
	if err := edited(t, i.Rollback, "a"); err != nil {
		t.Errorf("Rollback: %v", err)
	}
}

// TestChangeAll changes all skills that are named, or none.
func TestChangeAll(t *testing.T) {
	m := newMachine(t)
	m.install(Request{Source: collection(t), All: true})
	i := m.open()
	before := tree(t, m.state)
	if _, missing := errors.AsType[*MissingError](edited(t, i.Remove, "a", "gone")); !missing {
		t.Error("a name that is not installed is no error")
	}
	if err := edited(t, i.Rollback, "a", "b"); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("Rollback = %v", err)
	}
	if after := tree(t, m.state); len(after) != len(before) {
		t.Errorf("a refused change left %d entries of %d", len(after), len(before))
	}
	if err := edited(t, i.Disable, "b", "a", "b"); err != nil {
		t.Fatal(err)
	}
	for _, e := range i.Lock().Skills {
		if e.Enabled {
			t.Errorf("%s is enabled", e.Name)
		}
	}
	verified(t, i)
	if err := errors.Join(edited(t, i.Enable, "a"), edited(t, i.Remove, "b")); err != nil {
		t.Fatal(err)
	}
	if got := names(i.Lock()); !slices.Equal(got, []string{"a"}) {
		t.Errorf("installed %v", got)
	}
	verified(t, i)
}

// TestInspect finds what Verify finds, changes nothing and waits for nobody.
func TestInspect(t *testing.T) {
	const patience = 1 << 40
	m := newMachine(t)
	cfg := Config{State: m.state, Trees: m.trees}
	if found, err := Inspect(t.Context(), Config{State: m.state + "/nowhere"}, patience); err != nil ||
		len(found.Lock.Skills) != 0 {
		t.Errorf("Inspect of nothing = %+v, %v", found, err)
	}
	m.install(Request{Source: collection(t), All: true})
	i := m.open()
	if found, err := Inspect(t.Context(), cfg, patience); err != nil || !found.Busy {
		t.Errorf("Inspect beside a command = %+v, %v", found, err)
	}
	e := i.Lock().Find("a")
	m.damage(e.Tree)
	i.Close()
	place := servedDir(e.Tier, "")
	write(t, m.state, map[string]string{journal: "b\n", place + "stray/SKILL.md": "x"})
	before := tree(t, m.state)
	found, err := Inspect(t.Context(), cfg, patience)
	if err != nil || found.Busy || !found.Interrupted || found.Verified != 2 || len(found.Problems) != 2 {
		t.Fatalf("Inspect = %+v, %v", found, err)
	}
	if p := found.Problems[0]; p.Name != "a" || p.Kind != ProblemContent {
		t.Errorf("the changed tree: %+v", p)
	}
	if p := found.Problems[1]; p.Name != "stray" || p.Kind != ProblemStray || p.Dir != place+"stray" {
		t.Errorf("the stray: %+v", p)
	}
	if after := tree(t, m.state); len(after) != len(before) {
		t.Errorf("Inspect made %d entries of %d", len(after), len(before))
	}
	found, err = Inspect(t.Context(), cfg, 0)
	if err != nil || found.Verified != 0 || len(found.Problems) != 1 {
		t.Errorf("Inspect without time = %+v, %v", found, err)
	}
	if err := os.WriteFile(LockFile(m.state), []byte("x: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(t.Context(), cfg, patience); err == nil {
		t.Error("a lock file that cannot be read is no error")
	}
}

// A name that is given twice is updated once, and the order of names is of no account.
func TestUpdateNamedTwice(t *testing.T) {
	m, dir := newMachine(t), collection(t)
	m.install(Request{Source: dir, All: true})
	write(t, dir, map[string]string{"skills/a/SKILL.md": skillText("a") + "more\n",
		"skills/b/SKILL.md": skillText("b") + "more\n"})
	i := m.open()
	u, err := i.Update(t.Context(), []string{"b", "a", "b"}, Moves{}, Access{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range u.Changes {
		got = append(got, c.Name)
		if !c.NewContent() {
			t.Errorf("%s has the same content", c.Name)
		}
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("updates of %q, want a and b; refused %v", got, u.Refused)
	}
	if err := u.Apply(t.Context()); err != nil {
		t.Error(err)
	}
	if problems, _, err := i.Verify(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("Verify = %v, %v", problems, err)
	}
}
