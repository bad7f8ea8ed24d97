package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/source/signed"
)

// What is read by its digests is installed as it was, or not at all: whoever returns it need not be trusted.
func TestSyncByDigests(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	for name, text := range map[string]string{
		"a/SKILL.md": "---\nname: a\ndescription: A.\n---\n", "a/scripts/run.sh": "#!/bin/bash\necho a\n",
		"a/references/deep/x.md": "X.\n", "a/empty.txt": "",
		"b/SKILL.md": "---\nname: b\ndescription: B.\n---\n",
	} {
		place := filepath.Join(source, name)
		made := os.MkdirAll(filepath.Dir(place), 0o700)
		if err := errors.Join(made, os.WriteFile(place, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	there := newMachine(t)
	there.install(Request{Source: source, All: true, Tier: skills.TierUser})
	files := map[digest.Digest]string{}
	published := there.open().Lock()
	for _, e := range published.Skills {
		stored, err := there.trees.Tree(t.Context(), e.Tree)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range e.Files {
			data, err := stored.ReadFile(f.Path)
			if err != nil {
				t.Fatal(err)
			}
			files[f.Digest] = string(data)
		}
	}
	lock, err := ParseLock(published.Filter((*Entry).Served).Encode())
	if err != nil || len(lock.Skills) != 2 {
		t.Fatalf("%+v, %v", lock, err)
	}
	if err := os.RemoveAll(source); err != nil { // it is on another machine
		t.Fatal(err)
	}
	script := digest.FromString("#!/bin/bash\necho a\n")
	for name, tt := range map[string]struct {
		file func(sum digest.Digest) (string, error)
		lock *Lock
		want string // in the error
	}{
		"missing": {func(sum digest.Digest) (string, error) {
			if sum == script {
				return "", errors.New("it is not there")
			}
			return files[sum], nil
		}, lock, "fetch scripts/run.sh of the published skills: it is not there"},
		"other bytes": {func(sum digest.Digest) (string, error) {
			return strings.ReplaceAll(files[sum], "echo a", "echo b"), nil
		}, lock, "does not match the lock file"},
		"no skill": {func(sum digest.Digest) (string, error) {
			return strings.ReplaceAll(files[sum], "name:", "name"), nil
		}, lock, "the source has no skill"},
		"signed": {func(sum digest.Digest) (string, error) { return files[sum], nil },
			&Lock{Skills: []*Entry{with(lock.Skills[0], func(e *Entry) {
				e.Origin.Signer = signed.Signer("release+12345678+AAAA")
			})}}, "on this machine"}, // nobody else can show the signature
	} {
		m := newMachine(t)
		i := m.open()
		before := tree(t, m.state)
		_, err = synced(t.Context(), i, Sync{Lock: tt.lock, Access: Access{
			Files: func(_ context.Context, sum digest.Digest) ([]byte, error) {
				text, err := tt.file(sum)
				return []byte(text), err
			}}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		i.Close()
		if diff := cmp.Diff(before, tree(t, m.state)); diff != "" {
			t.Errorf("%s changed something (-before +after):\n%s", name, diff)
		}
	}
	m, asked := newMachine(t), 0
	i := m.open()
	for n, want := range []int{2, 0} {
		changes, err := synced(t.Context(), i, Sync{Lock: lock, Exact: true, Access: Access{
			Files: func(_ context.Context, sum digest.Digest) ([]byte, error) {
				asked++
				return []byte(files[sum]), nil
			}}})
		if err != nil || len(changes) != want || asked != 5 {
			t.Errorf("sync %d: %d changes after %d files, %v", n+1, len(changes), asked, err)
		}
	}
	if problems, done, err := i.Verify(t.Context()); err != nil || len(problems) > 0 || done != 2 {
		t.Errorf("verified %d: %v, %v", done, problems, err)
	}
	if diff := cmp.Diff(lock, i.Lock()); diff != "" {
		t.Errorf("lock file (-published +here):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(m.state, "installed", "user", "a", "scripts", "run.sh"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the script: %v, %v", info, err)
	}
}

// with returns a changed entry.
func with(e *Entry, change func(e *Entry)) *Entry {
	changed := *e
	change(&changed)
	return &changed
}
