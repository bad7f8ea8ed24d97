package installing

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
)

// TestNoteHeldDamaged notes an update in a state directory whose file of such updates is damaged.
func TestNoteHeldDamaged(t *testing.T) {
	for _, text := range []string{"", "null", "[]", `{"a": null}`, `{"a": 1}`} {
		state := t.TempDir()
		if err := os.WriteFile(filepath.Join(state, heldFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		served := &install.Entry{Name: "a", Enabled: true, Tree: "sha256:1"}
		lock := &install.Lock{Skills: []*install.Entry{served}}
		changed := &install.Entry{Name: "a", Enabled: true, Tree: "sha256:2",
			Assessment: install.Assessment{Verdict: policy.Look, Why: "it changed"}}
		held := install.Change{Name: "a", Before: served, After: changed}
		if err := NoteHeld(state, &install.Plan{Held: []install.Change{held}}, lock); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got := ReadHeld(state, lock)["a"]; got == nil || got.Tree != "sha256:2" {
			t.Errorf("%q: %+v waits", text, got)
		}
	}
}
