package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gofrs/flock"

	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// TestEditAllow changes the allowlist in every form it can have, and nothing else.
func TestEditAllow(t *testing.T) {
	const spec = "a:scripts/x.sh@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	const tree = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	const entry = "script: " + spec + "\n    tree: " + tree + "\n"
	allowed, err := policy.ParseEntry(spec)
	if err != nil {
		t.Fatal(err)
	}
	set := func(e *AllowEdit) error { return e.Set(allowed, tree) }
	loose := func(e *AllowEdit) error {
		loose := allowed
		loose.PinScript, loose.Execution = true, policy.ExecutionStdin
		return e.Set(loose, tree)
	}
	never := func(e *AllowEdit) error {
		never := allowed
		never.Ask = policy.AskNever
		return e.Set(never, tree)
	}
	offer := func(e *AllowEdit) error { return errors.Join(e.Offer(), set(e)) }
	const tools = "allow_tools: [run_skill_script]\n"
	remove := func(e *AllowEdit) error { return e.Remove("a", "scripts/x.sh") }
	for _, test := range []struct {
		name, text, want string
		change           func(*AllowEdit) error
		err              string
	}{
		{"nothing", "", "allow:\n  - " + entry, set, ""},
		{"comments only", "# mine\n", "# mine\n\nallow:\n  - " + entry, set, ""},
		{"no list", "log:\n  level: warn # quiet\n", "log:\n  level: warn # quiet\nallow:\n  - " + entry, set,
			""},
		{"flow", "allow: [b:scripts/y.sh]\n",
			"allow: ['b:scripts/y.sh', {script: '" + spec + "', tree: '" + tree + "'}]\n", set, ""},
		{"unpinned", "allow:\n  # first\n  - a:scripts/x.sh # daily\n  # next\n  - b:scripts/y.sh\n",
			"allow:\n  # first\n  - script: " + spec + " # daily\n    tree: " + tree +
				"\n  # next\n  - b:scripts/y.sh\n", set, ""},
		{"last comments", "allow:\n  - a:scripts/x.sh\n  # end\n\n# log\nlog:\n  level: warn\n",
			"allow:\n  - " + entry + "    # end\n# log\nlog:\n  level: warn\n", set, ""},
		{"other spelling", "allow:\n  - \" a:scripts/./x.sh\"\n",
			"allow:\n  - script: \"" + spec + "\"\n    tree: " + tree + "\n", set, ""},
		{"twice", "allow:\n  - a:scripts/x.sh\n  - b:scripts/y.sh\n  - a:scripts/x.sh\n",
			"allow:\n  - " + entry + "  - b:scripts/y.sh\n", set, ""},
		{"object", "allow:\n  - script: a:scripts/x.sh\n    env: [API_URL]\n",
			"allow:\n  - " + entry + "    env: [API_URL]\n", set, ""},
		{"other tree", "allow:\n  - tree: sha256:" + strings.Repeat("c", 64) + " # at once\n    script: " +
			spec + " # daily\n    env: [API_URL]\n",
			"allow:\n  - tree: " + tree + " # at once\n    script: " + spec +
				" # daily\n    env: [API_URL]\n", set, ""},
		{"object on one line", "allow:\n  - {env: [API_URL], script: a:scripts/x.sh, approve: always}\n",
			"allow:\n  - {env: [API_URL], script: '" + spec + "', tree: '" + tree + "', approve: always}\n",
			set, ""},
		{"never asked about", "allow:\n  - {script: a:scripts/x.sh, approve: always, env: [A]}\n",
			"allow:\n  - {script: '" + spec + "', tree: '" + tree + "', ask: never, env: [A]}\n", never, ""},
		{"never asked about, before the script", "allow:\n  - approve: always\n    script: a:scripts/x.sh\n",
			"allow:\n  - script: " + spec + "\n    tree: " + tree + "\n    ask: never\n", never, ""},
		{"options of a text", "allow:\n  - a:scripts/x.sh:execution=stdin:pin=script # daily\n",
			"allow:\n  - script: " + spec + " # daily\n    pin: script\n    execution: stdin\n", set, ""},
		{"pin script stays", "allow:\n  - script: a:scripts/x.sh\n    pin: script\n",
			"allow:\n  - script: " + spec + "\n    pin: script\n", set, ""},
		{"options given", "allow:\n  - " + entry,
			"allow:\n  - script: " + spec + "\n    pin: script\n    execution: stdin\n", loose, ""},
		{"options given, new", "", "allow:\n  - script: " + spec +
			"\n    pin: script\n    execution: stdin\n", loose, ""},
		{"offer", "", tools + "allow:\n  - " + entry, offer, ""},
		{"offer before the list", "# log\nlog:\n  level: warn\n# run\nallow:\n  - b:scripts/y.sh\n",
			"# log\nlog:\n  level: warn\n" + tools + "# run\nallow:\n  - b:scripts/y.sh\n  - " + entry, offer,
			""},
		{"offer in a list", "allow_tools: [] # none\n",
			"allow_tools: [run_skill_script] # none\nallow:\n  - " + entry, offer, ""},
		{"offer in no list", "allow_tools: a\n", "", offer, "allow_tools is not a list"},
		{"remove one", "allow:\n  - a:scripts/x.sh\n  # kept\n  - b:scripts/y.sh\n",
			"allow:\n  # kept\n  - b:scripts/y.sh\n", remove, ""},
		{"remove the last", "log:\n  level: warn\nallow:\n  - " + spec + "\n", "log:\n  level: warn\n",
			remove, ""},
		{"remove none", "allow:\n  - b:scripts/y.sh\n", "", remove, "does not allow it"},
		{"no mapping", "- a\n", "", set, "is not a mapping"},
		{"no YAML", "a: [\n", "", set, "yaml: "},
		{"crash of the parser", "{{},<<}\n", "", set, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _, err := editText([]byte(test.text), test.change)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error = %v, want %q", err, test.err)
				}
				return
			}
			if test.want == "" {
				return // it did not panic
			}
			if err != nil || string(got) != test.want {
				t.Errorf("edited = %q, %v, want %q", got, err, test.want)
			}
			if err := onlyAllow([]byte(test.text), got, pathOf("/", "/"),
				strings.HasPrefix(test.name, "offer")); err != nil {
				t.Errorf("onlyAllow: %v", err)
			}
		})
	}
	const log, tool = "log:\n  level: warn\n", "allow_tools: [run_skill_script]\n"
	for _, test := range []struct {
		after  string
		offers bool
	}{{"log:\n  level: info\n", false}, {"log:\n  level: info\n" + tool, true}, {log + tool, false},
		{log, true}} {
		if err := onlyAllow([]byte(log), []byte(test.after), pathOf("/", "/"), test.offers); err == nil {
			t.Errorf("an edit to %q that offers the tool (%v) is taken for one of the allowlist only",
				test.after, test.offers)
		}
	}
}

// TestEditAllowFile keeps the mode of a file, and makes one that is its owner's alone.
func TestEditAllowFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "new", "config.yaml")
	p := &Process{File: name, Env: func(string) (string, bool) { return "", false }}
	for _, mode := range []os.FileMode{0o600, 0o640} {
		_, err := p.EditAllow(t.Context(), func(e *AllowEdit) error { return e.Offer() })
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode = %v, %v, want %v", info.Mode(), err, mode)
		}
		if left, _ := os.ReadDir(filepath.Dir(name)); len(left) != 1 {
			t.Errorf("%d files are left", len(left))
		}
		if err := os.Chmod(name, 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLockEdit waits for another command no longer than its context, and for the same file under any name
// of its directory.
func TestLockEdit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unlock, err := LockEdit(t.Context(), filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := LockEdit(over, filepath.Join(dir, "config.yaml")); !errors.Is(err, context.Canceled) {
		t.Errorf("a held lock: %v", err)
	}
	unlock()
	unlock, err = LockEdit(t.Context(), filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	name := filepath.Join(dir, "gone.skillsd-lock")
	gone := flock.New(name)
	if _, err := gone.TryLock(); err != nil || !isNamed(gone, name) {
		t.Errorf("a lock that has its name: %v", err)
	}
	defer gone.Close()
	if runtime.GOOS == "windows" {
		t.Skip("missing capability: to rename a file that is open")
	}
	if err := os.Rename(name, name+".old"); err == nil && isNamed(gone, name) {
		t.Error("a lock has a name that was taken from it")
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil || isNamed(gone, name) {
		t.Errorf("a lock has the name of another file, %v", err)
	}
	victim := filepath.Join(dir, "victim")
	if err := os.Symlink(victim, filepath.Join(dir, "linked.skillsd-lock")); err != nil {
		t.Skipf("missing capability: links (%v)", err)
	}
	if fsys.NoFollow != 0 {
		if _, err := LockEdit(t.Context(), filepath.Join(dir, "linked")); err == nil || fileExists(victim) {
			t.Errorf("the lock is made where a link leads: %v", err)
		}
	}
}

// fileExists reports whether there is a file of that name.
func fileExists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
