package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// damage changes a byte of a stored tree.
func (m *machine) damage(tree digest.Digest) {
	m.t.Helper()
	stored := filepath.Join(m.trees.Dir(), tree.Encoded(), "SKILL.md")
	if err := errors.Join(os.Chmod(stored, 0o600), os.WriteFile(stored, []byte("x"), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

// updateAll updates everything that is installed.
func updateAll(t *testing.T, i *Installer) {
	t.Helper()
	u, err := i.Update(t.Context(), nil, Moves{}, Access{})
	if err == nil {
		err = u.Apply(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func verified(t *testing.T, i *Installer) {
	t.Helper()
	if problems, _, err := i.Verify(t.Context()); err != nil || len(problems) > 0 {
		t.Errorf("Verify = %v, %v", problems, err)
	}
}

// TestSyncEarlierGit fetches the version before the last update again, whether the store has lost it
// or never had it, so that a rollback works.
func TestSyncEarlierGit(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"a/SKILL.md": skillText("a")})
	m := newMachine(t).withGit(r)
	m.install(Request{Source: r.url})
	r.commit(map[string]string{"a/SKILL.md": skillText("a") + "More.\n"})
	i := m.open()
	updateAll(t, i)
	want := i.Lock().Find("a").Previous.Tree
	for name, lose := range map[string]func(){
		"damaged": func() { m.damage(want) },
		"missing": func() {
			if err := m.trees.Remove(want); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			lose()
			plan, err := i.Sync(t.Context(), Sync{})
			if err != nil || len(plan.Changes) != 1 || !plan.Changes[0].Earlier {
				t.Errorf("Sync = %+v, %v", plan, err)
			}
			did, err := synced(t.Context(), i, Sync{})
			if err != nil || len(did) != 1 || did[0].Lost != "" {
				t.Fatalf("Sync = %+v, %v", did, err)
			}
			verified(t, i)
		})
	}

	other := newMachine(t).withGit(r)
	lock, err := Import(LockFile(m.state))
	if err != nil {
		t.Fatal(err)
	}
	j := other.open()
	if _, err := synced(t.Context(), j, Sync{Lock: lock}); err != nil {
		t.Fatal(err)
	}
	verified(t, j)
	for _, here := range []*Installer{i, j} {
		if err := edited(t, here.Rollback, "a"); err != nil || here.Lock().Find("a").Tree != want {
			t.Errorf("Rollback = %v", err)
		}
	}
}

// TestSyncEarlierLost has an earlier version that no source has any more: the rest is mended, and it
// is forgotten only when that was asked for, or on a machine that never had it.
func TestSyncEarlierLost(t *testing.T) {
	m, dir := newMachine(t), collection(t)
	m.install(Request{Source: dir, All: true})
	write(t, dir, map[string]string{"skills/a/SKILL.md": skillText("a") + "More.\n"})
	i := m.open()
	updateAll(t, i)
	m.damage(i.Lock().Find("a").Previous.Tree)
	if err := os.RemoveAll(filepath.Join(m.state, servedDir(i.Lock().Find("b").Tier, "b"))); err != nil {
		t.Fatal(err)
	}
	did, err := synced(t.Context(), i, Sync{})
	if err != nil || len(did) != 2 || !did[0].Earlier || did[0].Dropped ||
		!strings.Contains(did[0].Lost, "does not match") || did[1].Name != "b" {
		t.Fatalf("Sync = %+v, %v", did, err)
	}
	if problems, _, err := i.Verify(t.Context()); err != nil || len(problems) != 1 ||
		!strings.Contains(problems[0].What, "the earlier version") {
		t.Errorf("Verify after Sync = %v, %v", problems, err)
	}
	did, err = synced(t.Context(), i, Sync{DropEarlier: true})
	if err != nil || len(did) != 1 ||
		!did[0].Dropped {
		t.Fatalf("Sync with DropEarlier = %+v, %v", did, err)
	}
	verified(t, i)
	if err := edited(t, i.Rollback, "a"); !errors.Is(err, ErrNoPrevious) {
		t.Errorf("Rollback to what was forgotten = %v", err)
	}

	write(t, dir, map[string]string{"skills/a/SKILL.md": skillText("a") + "Even more.\n"})
	updateAll(t, i)
	other := newMachine(t)
	j := other.open()
	did, err = synced(t.Context(), j, Sync{Lock: i.Lock()})
	if err != nil || len(did) != 2 ||
		!did[0].Dropped || did[0].Earlier {
		t.Fatalf("Sync on another machine = %+v, %v", did, err)
	}
	verified(t, j)
}

// TestSyncFromPlace mends a stored tree from the directory that is served, when its source is gone.
func TestSyncFromPlace(t *testing.T) {
	m, dir := newMachine(t), collection(t)
	m.install(Request{Source: dir, Subdir: "skills/a"})
	i := m.open()
	m.damage(i.Lock().Find("a").Tree)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if did, err := synced(t.Context(), i, Sync{}); err != nil || len(did) != 1 {
		t.Fatalf("Sync = %+v, %v", did, err)
	}
	verified(t, i)

	place := filepath.Join(m.state, servedDir(i.Lock().Find("a").Tier, "a"), "SKILL.md")
	m.damage(i.Lock().Find("a").Tree)
	if err := errors.Join(os.Chmod(place, 0o600),
		os.WriteFile(place, []byte(skillText("b")), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := synced(t.Context(), i, Sync{}); err == nil || !strings.Contains(err.Error(), "a: ") {
		t.Errorf("Sync of what nobody has any more = %v", err)
	}
}
