package installing

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/skills/install"
)

// A damaged file of the updates that wait does not stop the next update from noting one.
func TestNoteHeldOverDamaged(t *testing.T) {
	t.Parallel()
	const tree = "sha256:7f69d858ba00deed8a0cd41c1335da2e8a9bc5f6a9705aefdc4a803ea8e36535"
	served := &install.Entry{Name: "demo", Enabled: true}
	lock := &install.Lock{Skills: []*install.Entry{served}}
	plan := &install.Plan{Held: []install.Change{
		{Name: "demo", Before: served, After: &install.Entry{Name: "demo", Tree: tree}}}}
	for _, text := range []string{"null", "[]", "{", `{"demo":null}`, `{"demo":{}}`, ""} {
		state := t.TempDir()
		if err := os.WriteFile(filepath.Join(state, heldFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := NoteHeld(state, plan, lock); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if h := ReadHeld(state, lock)["demo"]; h == nil || h.Tree != tree {
			t.Errorf("%q: the update that waits is %+v", text, h)
		}
	}
}
