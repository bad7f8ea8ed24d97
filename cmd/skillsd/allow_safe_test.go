package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// brokenWriter takes a number of bytes and refuses the rest.
type brokenWriter struct{ room int }

var errFull = errors.New("no room")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if len(p) > w.room {
		return 0, errFull
	}
	w.room -= len(p)
	return len(p), nil
}

// allowSkill makes a skill with scripts, and returns what runs commands on it.
func allowSkill(t *testing.T, scripts ...string) (file string, run func(out, errs io.Writer, args ...string) int) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "config", "skillsd", "config.yaml")
	root := filepath.Join(dir, "skills")
	files := map[string]string{"SKILL.md": "---\nname: a\ndescription: d\n---\n"}
	for _, name := range scripts {
		files[name] = "#!/bin/sh\n"
	}
	for name, text := range files {
		name := filepath.Join(root, "a", filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	vars := map[string]string{"XDG_CONFIG_HOME": filepath.Join(dir, "config"), "HOME": dir, "SKILLSD_STATE": filepath.Join(dir, "state")}
	return file, func(out, errs io.Writer, args ...string) int {
		a := &app{in: strings.NewReader(""), out: out, err: errs, Process: config.Process{Env: func(name string) (string, bool) {
			value, ok := vars[name]
			return value, ok
		}, Environ: func() []string { return nil }}}
		if args[0] == "allow" {
			args = append(args, "--yes", "--skills-root", root)
		}
		return a.main(t.Context(), args)
	}
}

// TestEditAtOnce has many commands edit one configuration: each that succeeds has its effect.
func TestEditAtOnce(t *testing.T) {
	t.Parallel()
	const count = 12
	var names []string
	for n := range count {
		names = append(names, fmt.Sprintf("scripts/%d.sh", n))
	}
	config, run := allowSkill(t, names...)
	for _, gone := range names[:count/2] {
		if code := run(io.Discard, io.Discard, "allow", "a:"+gone); code != 0 {
			t.Fatalf("allow answers %d", code)
		}
	}
	var wait sync.WaitGroup
	for n, name := range names {
		wait.Go(func() {
			command := "allow"
			if n < count/2 {
				command = "disallow"
			}
			var errs strings.Builder
			if code := run(io.Discard, &errs, command, "a:"+name); code != 0 {
				t.Errorf("%s %s answers %d: %s", command, name, code, errs.String())
			}
		})
	}
	wait.Wait()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	for n, name := range names {
		if got, want := strings.Contains(string(text), "a:"+name+"@"), n >= count/2; got != want {
			t.Errorf("%s is allowed: %v, want %v", name, got, want)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(config)); err != nil || len(left) != 1 {
		t.Errorf("beside the configuration are %v, %v", left, err)
	}
}

// TestAllowUnseen allows nothing that could not be shown.
func TestAllowUnseen(t *testing.T) {
	t.Parallel()
	for _, format := range [][]string{nil, {"--json"}} {
		config, run := allowSkill(t, "scripts/x.sh")
		var errs strings.Builder
		if code := run(&brokenWriter{}, &errs, append([]string{"allow", "a:scripts/x.sh"}, format...)...); code != exit.Failure || !strings.Contains(errs.String(), errFull.Error()) {
			t.Errorf("allow %q without room answers %d: %s", format, code, errs.String())
		}
		if fsys.Exists(config) {
			t.Errorf("allow %q wrote an entry for what nobody saw", format)
		}
	}
}

// TestConfirmUnseen takes no answer to a question that could not be written.
func TestConfirmUnseen(t *testing.T) {
	t.Parallel()
	a := &app{in: strings.NewReader("y\n"), err: &brokenWriter{}}
	if yes, err := a.confirm(t.Context(), "Really?"); yes || !errors.Is(err, errFull) {
		t.Errorf("confirm = %v, %v", yes, err)
	}
	a = &app{in: strings.NewReader("y\n"), err: &brokenWriter{room: len("Run it once? [y/N] ")}}
	if got := a.answer(t.Context(), &session.Question{Form: approval.Form{Message: "a message that is longer than there is room"}}); got.Action != "cancel" {
		t.Errorf("a run whose question was not seen whole is answered %q", got.Action)
	}
}
