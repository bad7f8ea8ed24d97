package session

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/skillsd/skillsd/provenance/cfharness"
)

// newMeantBench has a skill with one script that may run, one that may not, and a nested skill that is hidden.
func newMeantBench(t *testing.T) *bench {
	return newBench(t, benchOptions{policy: direct, allow: []string{"demo:scripts/ok.sh"}, files: map[string]string{
		"demo/references/out-put.md": "found", "demo/references/deep/more.md": "more",
		"demo/scripts/closed.py":    "print(1)\n",
		"demo/inner/SKILL.md":       "---\nname: inner\ndescription: x\ndisable-model-invocation: true\n---\n",
		"demo/inner/secret-plan.md": "hidden",
	}})
}

func (b *bench) readFile(path string) (*ReadResult, error) {
	ses, call := b.call("read_skill_resource")
	return ses.ReadResource(b.t.Context(), ReadRequest{Call: call, Skill: "demo", Path: path, MaxBytes: 100})
}

// A path that means one file only is read and recorded as that file; a hidden one is not found by any path.
func TestReadMeant(t *testing.T) {
	b := newMeantBench(t)
	for _, path := range []string{"/skill/references/out-put.md", "skill://demo/references/out-put.md", "out_put",
		`references\Out-Put.md`, "demo/references/out-put.md"} {
		read, err := b.readFile(path)
		if err != nil || read.Path != "references/out-put.md" || string(read.Data) != "found" ||
			read.Output.Path != read.Path || read.URI != "skill://demo/references/out-put.md" {
			t.Errorf("%s: %+v, %v", path, read, err)
		}
	}
	for _, path := range []string{"secret-plan.md", "/skill/inner/secret-plan.md", "inner/secret-plan", "SECRET-PLAN.md"} {
		_, err := b.readFile(path)
		if failure, ok := err.(*Error); !ok || !strings.HasPrefix(code(err), "resource_") || strings.Contains(failure.Remedy, "secret") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := b.readFile("../demo/notes.md"); code(err) != "resource_path_invalid" {
		t.Errorf("climbing: %v", err)
	}
}

// The policy decides about the script that is meant, under its own path, and the record has that.
func TestRunMeant(t *testing.T) {
	b := newMeantBench(t)
	if _, err := b.run("demo", "scripts/ok"); code(err) != "script_not_allowlisted" && code(err) != "skill_not_activated" {
		t.Errorf("before the load: %v", err)
	}
	b.load("demo")
	for _, path := range []string{"ok.sh", "/skill/scripts/ok.sh", "demo/scripts/ok.sh", `scripts\ok.sh`, "scripts/ok",
		"scripts/OK.sh", "bash scripts/ok.sh", "sh /skill/scripts/ok.sh", "skill://demo/scripts/ok.sh"} {
		result, err := b.run("demo", path)
		if err != nil || result.Output.Path != "scripts/ok.sh" {
			t.Errorf("%s: %+v, %v", path, result, err)
		}
	}
	var rows struct{ Executions []cfharness.ScriptExecution }
	if err := json.Unmarshal([]byte(b.artifact("skill-script-executions.json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows.Executions[len(rows.Executions)-9:] {
		if row.Path != "scripts/ok.sh" || row.Status != cfharness.StatusExecuted {
			t.Errorf("row %+v", row)
		}
	}
	ran := b.runner.runs.Load()
	for path, want := range map[string]string{
		"closed.py": "script_not_allowlisted", "scripts/closed": "script_not_allowlisted",
		"python3 scripts/closed.py": "script_not_allowlisted", "secret-plan.md": "script_path_invalid",
		"notes.md": "script_path_invalid", "bash -c x": "script_path_invalid", "bash scripts/ok.sh --x": "script_path_invalid",
		"scripts/../scripts/ok.sh": "script_path_invalid", "scripts/ok.sh;id": "script_not_allowlisted",
		"scripts/ok.sh --x": "script_not_allowlisted", "": "script_path_invalid",
	} {
		if _, err := b.run("demo", path); code(err) != want {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
	if b.runner.runs.Load() != ran {
		t.Error("something ran")
	}
}

// A file outside scripts/ runs if an entry names exactly it, and is one of the scripts that may run.
func TestOutsideScripts(t *testing.T) {
	b := newBench(t, benchOptions{policy: direct, allow: []string{"demo:bin/ok.sh", "demo:inner/x.sh", "demo:bin/none.sh"},
		files: map[string]string{"demo/bin/ok.sh": "#!/bin/sh\n", "demo/bin/no.sh": "#!/bin/sh\n", "demo/references/x.md": "#!/bin/sh\n",
			"demo/inner/SKILL.md": "---\nname: inner\ndescription: Inner.\n---\n", "demo/inner/x.sh": "#!/bin/sh\n"}})
	loaded := b.load("demo")
	for _, path := range []string{"bin/ok.sh", "./bin//ok.sh", "sh bin/ok.sh", "demo/bin/ok.sh"} {
		if result, err := b.run("demo", path); err != nil || result.Output.Path != "bin/ok.sh" {
			t.Errorf("%s: %+v, %v", path, result, err)
		}
	}
	ran := b.runner.runs.Load()
	for path, want := range map[string]string{
		"bin/no.sh": "script_path_invalid", "bin/../bin/ok.sh": "script_path_invalid", "SKILL.md": "script_path_invalid",
		"references/x.md": "script_path_invalid", "inner/x.sh": "script_path_invalid", "bin": "script_path_invalid",
		"bin/none.sh": "script_not_indexed",
	} {
		_, err := b.run("demo", path)
		if code(err) != want {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
	if b.runner.runs.Load() != ran {
		t.Error("something ran")
	}
	ses, call := b.call("run_skill_script")
	for path, runs := range map[string]bool{"bin/ok.sh": true, "bin/no.sh": false, "inner/x.sh": false, "references/x.md": false} {
		denial := ses.Runnable(t.Context(), loaded.Skill, RunRequest{Call: call, Skill: "demo", Path: path, Timeout: time.Minute})
		if (denial == nil) != runs {
			t.Errorf("Runnable(%s) = %v", path, denial)
		}
	}
}

// The refusal of a guess names what may run, or be read; later ones are not longer, and say so more strongly.
func TestGuesses(t *testing.T) {
	b := newMeantBench(t)
	b.load("demo")
	remedy := func(err error) string {
		switch err := err.(type) {
		case *Denied:
			return err.Object.Remedy
		case *Error:
			return err.Remedy
		}
		return ""
	}
	first := 0
	for i, name := range []string{"run.py", "main.py", "of.sh", "init.sh", "go.sh", "x.js"} {
		_, err := b.run("demo", "scripts/"+name)
		got := remedy(err)
		if first == 0 {
			first = len(got)
		}
		if code(err) != "script_not_allowlisted" || !strings.Contains(got, "scripts/ok.sh") ||
			strings.Contains(got, "closed") || len(got) > first || strings.Contains(got, "stop guessing") != (i >= mistakes) {
			t.Errorf("guess %d: %q", i, got)
		}
	}
	if _, err := b.run("demo", "closed"); !strings.HasSuffix(remedy(err), "; of its scripts these may run: scripts/ok.sh") {
		t.Errorf("closed: %q", remedy(err))
	}
	if _, err := b.readFile("references/a.md"); !strings.HasPrefix(remedy(err), "stop guessing: load_skill lists all, as ") {
		t.Errorf("read: %q", remedy(err))
	}
	b.load("narrow")
	if _, err := b.run("narrow", "scripts/none.sh"); remedy(err) != "none of its scripts may run: scripts/a.sh" {
		t.Errorf("narrow: %q", remedy(err))
	}
}
