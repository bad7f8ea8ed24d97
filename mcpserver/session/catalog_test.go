package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills"
)

// A skill that left the catalogue stays with the session that loaded it: what is asked of it is
// answered with what became of it, and nobody else finds it.
func TestRemovedSkillStaysWithItsSession(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	if err := os.RemoveAll(filepath.Join(b.root, "demo")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.cfg.Registry.Snapshot().Skill("demo") != nil {
		t.Fatal("the removed skill is still in the snapshot")
	}
	ses, call := b.call("read_skill_resource")
	if _, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10}); code(err) != "skill_not_found" || !strings.Contains(err.Error(), "was removed") {
		t.Errorf("read of a removed skill = %v", err)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "script_snapshot_mismatch" || !strings.Contains(err.Error(), "was removed") || b.runner.runs.Load() != 0 {
		t.Errorf("run of a removed skill = %v after %d runs", err, b.runner.runs.Load())
	}
	for _, name := range []string{"demo", "never"} {
		_, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: name})
		if removed := strings.Contains(err.Error(), "was removed"); code(err) != "skill_not_found" || removed != (name == "demo") {
			t.Errorf("load of %s = %v", name, err)
		}
	}
	if _, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "narrow"}); err != nil {
		t.Errorf("another skill = %v", err)
	}
}

// A session reads what it loaded while the catalogue moves on, and says that it did.
func TestReloadKeepsWhatASessionLoaded(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	if err := os.WriteFile(filepath.Join(b.root, "demo", "notes.md"), []byte("other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.RescanSkill(t.Context(), b.cfg.Registry.Snapshot().Skill("demo")); err != nil {
		t.Fatal(err)
	}
	ses, call := b.call("read_skill_resource")
	request := ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10}
	read, err := ses.ReadResource(t.Context(), request)
	if err != nil || !read.Changed || string(read.Data) != "other\n" {
		t.Fatalf("read after a change = %+v, %v", read, err)
	}
	b.cfg.RefuseDrift = true
	read, err = ses.ReadResource(t.Context(), request)
	if output := failedRead(err); code(err) != "resource_changed" || read != nil || output.OutputID == "" || output.Content != nil {
		t.Errorf("read with drift refused = %+v, %v, %+v", read, err, output)
	}
	b.load("demo")
	if read, err := ses.ReadResource(t.Context(), request); err != nil || read.Changed {
		t.Errorf("read after it was loaded again = %+v, %v", read, err)
	}
}

// The files of a skill that was edited since the scan, and of which none was read since, are listed and read
// like any other's.
func TestReadOfAnEditedSkill(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	ses, call := b.call("read_skill_resource")
	edited := 0
	edit := func() {
		t.Helper()
		edited++
		text := fmt.Sprintf("---\nname: demo\ndescription: A demo.\n---\nChange %d.\n", edited)
		if err := os.WriteFile(filepath.Join(b.root, "demo", "SKILL.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	scanAndEdit := func() {
		t.Helper()
		edit()
		if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
			t.Fatal(err)
		}
		edit()
	}
	scanAndEdit()
	if _, _, files := ses.Files(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "."}); len(files) == 0 {
		t.Error("no files are listed")
	}
	scanAndEdit()
	read, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: "notes.md", MaxBytes: 10})
	if err != nil || read.Changed || len(read.Data) == 0 {
		t.Fatalf("read = %+v, %v", read, err)
	}
	read, err = ses.ReadURI(t.Context(), ReadRequest{Call: call, URI: read.URI})
	if err != nil || len(read.Data) == 0 {
		t.Errorf("read again = %+v, %v", read, err)
	}
}

// What the host lacks is said; what the operator disabled is not spoken of.
func TestWithheldSkills(t *testing.T) {
	b := newBench(t, benchOptions{})
	path := filepath.Join(b.root, "needy", "SKILL.md")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("---\nname: needy\ndescription: d\nmetadata:\n  requires: gone\n---\nB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	registry := skills.NewRegistry([]skills.Root{{Dir: b.root}}, &skills.ScanOptions{
		Disabled: []string{"narrow"}, HasCommand: func(string) bool { return false }})
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.cfg.Registry = registry
	ses, call := b.call("load_skill")
	_, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "needy"})
	if code(err) != "skill_not_found" || !strings.Contains(err.Error(), `requires the command "gone"`) {
		t.Errorf("load of an unavailable skill = %v", err)
	}
	_, err = ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "narrow"})
	if code(err) != "skill_not_found" || strings.Contains(err.Error(), "served") || strings.Contains(err.Error(), "disabled") {
		t.Errorf("load of a disabled skill = %v", err)
	}
	_, err = ses.ReadURI(t.Context(), ReadRequest{Call: Call{Method: "resources/read", Principal: local}, URI: "skill://narrow/SKILL.md"})
	if code(err) != "resource_not_found" {
		t.Errorf("read of a disabled skill = %v", err)
	}
}

// What goes wrong with a skill that is being changed is said as such, and is no failure of the server.
func TestChangedSkillIsNoInternalError(t *testing.T) {
	b := newBench(t, benchOptions{})
	ses, call := b.call("load_skill")
	file := filepath.Join(b.root, "demo", "SKILL.md")
	for name, change := range map[string]func() error{
		"unparsable": func() error {
			return os.WriteFile(file, []byte("---\nname: demo\ndescription: d\nallowed-tools: [a\n---\n"), 0o644)
		},
		"a link out": func() error { return errors.Join(os.Remove(file), os.Symlink("/etc/passwd", file)) },
		"gone":       func() error { return os.Remove(file) },
	} {
		if err := os.WriteFile(file, []byte("---\nname: demo\ndescription: For tests.\n---\nDo it.\n"), 0o644); err != nil && name != "a link out" {
			t.Log(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		_, err := ses.Activate(t.Context(), ActivateRequest{Call: call, Skill: "demo"})
		if c := code(err); c == "" || c == "internal" || strings.Contains(err.Error(), "/etc") {
			t.Errorf("%s: load = %v", name, err)
		}
		os.Remove(file)
	}
	if _, err := ses.ReadURI(t.Context(), ReadRequest{Call: Call{Method: "resources/read", Principal: local}, URI: "skill://narrow"}); code(err) != "resource_not_found" {
		t.Errorf("read of a directory = %v", err)
	}
}

// An answer that nobody waits for has not sent the instructions.
func TestUndeliveredLoadIsNotShown(t *testing.T) {
	b := newBench(t, benchOptions{})
	ses, call := b.call("load_skill")
	ctx, leave := context.WithCancel(t.Context())
	b.records.onAppend = leave
	if _, err := ses.Activate(ctx, ActivateRequest{Call: call, Skill: "demo"}); err != nil {
		t.Logf("load = %v", err)
	}
	ses.background.Wait()
	b.records.onAppend = nil
	if loaded := b.load("demo"); loaded.Sent || len(loaded.Body) == 0 {
		t.Error("the instructions count as sent although the client had left")
	}
}

// The registry of a session has every skill, one whose files cannot be indexed too, and is bounded
// whatever skills say of themselves.
func TestRegistryIsBounded(t *testing.T) {
	b := newBench(t, benchOptions{})
	var keys strings.Builder
	for i := range 4_000 {
		fmt.Fprintf(&keys, "k%d: 0\n", i)
	}
	big := filepath.Join(b.root, "big")
	if err := errors.Join(os.MkdirAll(big, 0o755), os.WriteFile(filepath.Join(big, "SKILL.md"), []byte("---\nname: big\ndescription: d\n"+keys.String()+"---\nB\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.cfg.Registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Another version of a skill that has not been indexed yet.
	if err := os.WriteFile(filepath.Join(b.root, "narrow", "SKILL.md"), []byte("---\nname: narrow\ndescription: Other.\n---\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.load("demo")
	b.Current().background.Wait()
	text := b.artifact(provenance.RegistryFile)
	var registry cfharness.SkillRegistry
	if err := json.Unmarshal([]byte(text), &registry); err != nil {
		t.Fatal(err)
	}
	if whole, err := provenance.EncodePretty(registry); err != nil || string(whole) != text {
		t.Errorf("written skill by skill the registry is not what it is as a whole, %v:\n%s\n%s", err, text, whole)
	}
	for _, sk := range registry.Skills {
		if n := len(sk.Frontmatter) + len(sk.Skillsd.Frontmatter); n > 16<<10 {
			t.Errorf("%s: %d bytes of frontmatter", sk.Name, n)
		}
	}
	if len(registry.Skills) != 4 {
		t.Errorf("the registry has %d skills", len(registry.Skills))
	}
	var plain struct{ Name, Description string }
	if err := json.Unmarshal(registry.Skills[0].Frontmatter, &plain); err != nil || plain.Name != "big" || plain.Description != "d" {
		t.Errorf("frontmatter of the big skill = %.100s, %v", registry.Skills[0].Frontmatter, err)
	}
}

// failedRead is the output object of a read that failed.
func failedRead(err error) cfharness.ReadOutput {
	failure, _ := errors.AsType[*Error](err)
	output, _ := failure.Output.(cfharness.ReadOutput)
	return output
}

// A file that was added to a skill after it was loaded is read, as it is on disk.
func TestReadAdded(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct})
	b.load("demo")
	ses, call := b.call("read_skill_resource")
	read := func(path string) (string, error) {
		t.Helper()
		result, err := ses.ReadResource(t.Context(), ReadRequest{Call: call, Skill: "demo", Path: path, MaxBytes: 100})
		if err != nil {
			return "", err
		}
		return string(result.Data), nil
	}
	if _, err := read("references/late.md"); code(err) != "resource_not_indexed" {
		t.Errorf("before it is there: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(b.root, "demo/references"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.root, "demo/references/late.md"), []byte("late\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := read("references/late.md"); err != nil || text != "late\n" {
		t.Errorf("added = %q, %v", text, err)
	}
	byURI, err := ses.ReadURI(t.Context(), ReadRequest{Call: call, URI: "skill://demo/references/late.md"})
	if err != nil || string(byURI.Data) != "late\n" {
		t.Errorf("added, by its URI: %+v, %v", byURI, err)
	}
	if _, err := b.run("demo", "scripts/ok.sh"); code(err) != "script_snapshot_mismatch" {
		t.Errorf("a script beside a file that was added: %v", err)
	}
	// A nested skill may hide itself, which no scan has seen.
	testtree.Write(t, filepath.Join(b.root, "demo/sub"), map[string]string{"SKILL.md": "---\nname: sub\ndescription: Sub.\ndisable-model-invocation: true\n---\nHidden.\n", "secret.md": "hidden\n"})
	for _, path := range []string{"sub/SKILL.md", "sub/secret.md"} {
		if text, err := read(path); err == nil {
			t.Errorf("%s of a nested skill = %q", path, text)
		}
	}
}
