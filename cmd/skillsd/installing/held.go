package installing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// heldFile is the file of the state directory with the updates that wait for the user. It is not in the lock
// file, which lists the installed skills and is copied to other machines.
const heldFile = "held-updates.json"

// HeldUpdate is a version of an installed skill that is not served before the user has accepted it.
type HeldUpdate struct {
	Tree    digest.Digest  `json:"tree"`
	Verdict policy.Verdict `json:"verdict"`
	Why     string         `json:"why"`
	Follow  bool           `json:"follow,omitempty"` // it comes from another place of the source
}

// Text returns what waits, and why.
func (h *HeldUpdate) Text() string {
	return "an update waits for you: it " + report.Reasons(h.Verdict, h.Why)
}

// Hint returns the command that shows and serves the update of a skill.
func (h *HeldUpdate) Hint(name string) string {
	return "look at it: " + update(name, h.Follow)
}

// update returns the command that updates a skill.
func update(name string, follow bool) string {
	args := []string{"skillsd", "update", name}
	if follow {
		args = append(args, "--follow")
	}
	return report.ShellLine(args...)
}

// ReadHeld returns the updates that wait, by the names of the skills; none for a missing or damaged file.
func ReadHeld(state string, lock *install.Lock) map[string]*HeldUpdate {
	held := map[string]*HeldUpdate{}
	text, err := fsys.ReadFile(filepath.Join(state, heldFile), 1<<20, nil)
	// The next update writes a missing or damaged file again. The JSON value null makes a map nil.
	if err != nil || json.Unmarshal(text, &held) != nil || held == nil {
		return map[string]*HeldUpdate{}
	}
	for name, h := range held {
		// The skill may be removed, disabled or updated since the file was written.
		if e := lock.Find(name); e == nil || h == nil || !e.Served() || e.Tree == h.Tree {
			delete(held, name)
		}
	}
	return held
}

// NoteHeld keeps the updates that a plan did not make, and forgets the ones for skills that it changed or
// found unchanged.
//
// Errors: the error of writing.
func NoteHeld(state string, plan *install.Plan, lock *install.Lock) error {
	before := ReadHeld(state, lock)
	held := maps.Clone(before)
	for i := range plan.Changes {
		delete(held, plan.Changes[i].Name)
	}
	for _, c := range plan.Held {
		held[c.Name] = &HeldUpdate{c.After.Tree, c.After.Verdict, c.After.Why, c.Moves()}
	}
	file := filepath.Join(state, heldFile)
	if len(held) == 0 {
		err := os.Remove(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if maps.EqualFunc(before, held, func(a, b *HeldUpdate) bool { return *a == *b }) {
		return nil
	}
	text, err := json.MarshalIndent(held, "", "  ")
	if err != nil {
		return err
	}
	if err := fsys.WriteFile(file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep the updates that wait: %w", err)
	}
	return nil
}
