package script_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/script"
)

func TestArgv(t *testing.T) {
	const file = "/skill/scripts/x"
	args := []string{"-c", "", "--", "a b"}
	for _, test := range []struct {
		head string
		want []string
	}{
		{"#!/bin/bash -e\n", []string{"/i", "-e", file}},
		{"#!/bin/sh -euo pipefail\n", []string{"/i", "-euo", "pipefail", file}},
		{"#!/usr/bin/python3 -u\n", []string{"/i", "-s", "-B", "-u", file}},
		{"#!/usr/bin/env node\n", []string{"/i", file}},
		{"#!/usr/bin/env -S deno run --allow-read=/skill\n",
			[]string{"/i", "run", "--no-prompt", "--cached-only", "--no-config", "--no-lock", "--allow-read=/skill", file}},
		{"#!/usr/bin/env pwsh\n", []string{"/i", "-NoLogo", "-NoProfile", "-NonInteractive", "-File", file}},
		{"#!/usr/bin/env dotnet\n", []string{"/i", "run", "--file", file, "--"}},
	} {
		info := script.Inspect("scripts/x", []byte(test.head), false)
		flags := append([]string(nil), info.Flags...)
		got := script.Argv(info, "/i", file, args)
		if diff := cmp.Diff(append(test.want, args...), got); diff != "" {
			t.Errorf("Argv of %q (-want +got):\n%s", test.head, diff)
		}
		if !cmp.Equal(flags, info.Flags) {
			t.Errorf("Argv changed the flags to %q", info.Flags)
		}
	}
}

func TestCheckArgs(t *testing.T) {
	many := make([]string, script.MaxArgs+1)
	long := strings.Repeat("x", script.MaxArgBytes-1)
	for _, test := range []struct {
		name string
		args []string
		want string // part of the error, empty for none
	}{
		{"none", nil, ""},
		{"ordinary", []string{"", "-x", "ä", "a b"}, ""},
		{"the most", many[:script.MaxArgs], ""},
		{"too many", many, "1001 arguments"},
		{"the longest", []string{long}, ""},
		{"too long", []string{"a", long + "x"}, "argument 1 has 131072 bytes"},
		{"together too long", []string{long, long, long, long, long, long, long, long, long}, "together"},
		{"NUL", []string{"a\x00b"}, "NUL"},
		{"lone surrogate", []string{"a", "\xed\xa0\x80"}, "argument 1 is not UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := script.CheckArgs(test.args)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("CheckArgs = %v, want %q", err, test.want)
			}
		})
	}
}

// The rows of the reference that are answered differently here: what could name another file in
// another notation is refused instead of resolved, and a path names a file.
var stricter = map[string]string{
	"scripts/x/../a.ts":       "must stay within the skill directory",
	"scripts/../references/a": "must stay within the skill directory",
	`scripts\a.ts`:            `must not contain \, : or *`,
	`C:\scripts\a`:            `must not contain \, : or *`,
	"scripts/":                "must be under scripts/",
}

func TestCleanPathAgainstReference(t *testing.T) {
	data, err := os.ReadFile("testdata/paths.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Rows map[string]json.RawMessage `json:"normalizeScriptPath"`
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Rows) < 20 {
		t.Fatalf("%d rows", len(vectors.Rows))
	}
	for in, row := range vectors.Rows {
		var want string
		var refused struct{ Error string }
		switch {
		case stricter[in] != "":
			refused.Error = "script path " + stricter[in]
		case json.Unmarshal(row, &want) == nil:
		default:
			if err := json.Unmarshal(row, &refused); err != nil {
				t.Fatal(err)
			}
		}
		got, err := script.CleanPath(in)
		if text := errorText(err); got != want || text != refused.Error {
			t.Errorf("CleanPath(%q) = %q, %q, want %q, %q", in, got, text, want, refused.Error)
		}
	}
}

func TestCleanFile(t *testing.T) {
	for in, want := range map[string]string{
		"scripts/a": "scripts/a", "scripts/a.md": "scripts/a.md", " ./bin//./a.py ": "bin/a.py", "bin/a": "bin/a", "a.CS": "a.CS",
		"": "", ".": "", "scripts": "", "scripts/": "", "bin/": "", "../a.py": "", "bin/../a.py": "", "/a.py": "", `bin\a.py`: "", "a:b.py": "",
		"*.py": "", "a.py\n": "", "a.py/": "", "a.py ": "a.py", "bin/a.py /": "", "SKILL.md": "", "x/SKILL.MD": "", "a.md": "", "a.json": "", "a.rb": "",
		".a.sh": "", "._a.sh": "", "a=b.sh": "", "a\xff.sh": "",
	} {
		got, err := script.CleanFile(in)
		if _, ok := errors.AsType[*script.PathError](err); got != want || ok != (want == "") {
			t.Errorf("CleanFile(%q) = %q, %v, want %q", in, got, err, want)
		}
		if below, err := script.CleanPath(in); err == nil && below != got {
			t.Errorf("CleanPath(%q) = %q, CleanFile %q", in, below, got)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCleanPathRefuses(t *testing.T) {
	for _, in := range []string{
		"scripts/a:b", "scripts/*", "scripts/a/", "scripts/a /.", "scripts/a/..", "scripts/\x01", "scripts/a\n", "\tscripts/a", "scripts/\u0085a",
		"scripts/\x7f", "scripts/\xff", "..", ".", "/", "./", "scripts/..\\a", "//scripts/a", "scripts /a", "file:scripts/a",
	} {
		got, err := script.CleanPath(in)
		refused, ok := errors.AsType[*script.PathError](err)
		if !ok || got != "" {
			t.Errorf("CleanPath(%q) = %q, %v, want a *PathError", in, got, err)
		} else if strings.Contains(refused.Error(), "\n") {
			t.Errorf("CleanPath(%q) repeats the value: %v", in, err)
		}
	}
}

func FuzzCleanPath(f *testing.F) {
	for _, seed := range []string{"scripts/a.ts", " ./scripts//x/./a ", "scripts/../a", `scripts\a`, "scripts/a:b", "", "scripts/\x00", "/scripts/a"} {
		f.Add(seed)
	}
	f.Add("bin/a.py")
	f.Add("x/SKILL.md")
	f.Fuzz(func(t *testing.T, in string) {
		file, failure := script.CleanFile(in)
		if again, err := script.CleanFile(file); failure == nil && (err != nil || again != file) ||
			strings.HasSuffix(strings.ToLower(file), ".md") && script.Outside(file) || strings.Contains("/"+file+"/", "/../") {
			t.Errorf("CleanFile(%q) = %q, then %q, %v", in, file, again, err)
		}
		got, err := script.CleanPath(in)
		if err == nil && (failure != nil || file != got) {
			t.Errorf("CleanFile(%q) = %q, %v, CleanPath %q", in, file, failure, got)
		}
		if err != nil {
			return
		}
		if !strings.HasPrefix(got, "scripts/") || strings.ContainsAny(got, "\\:*\x00\n\r\t") || strings.HasSuffix(got, "/") {
			t.Errorf("CleanPath(%q) = %q", in, got)
		}
		for segment := range strings.SplitSeq(got, "/") {
			if segment == "" || segment == "." || segment == ".." {
				t.Errorf("CleanPath(%q) = %q", in, got)
			}
		}
		if again, err := script.CleanPath(got); err != nil || again != got {
			t.Errorf("CleanPath(%q) = %q, %v, not itself", got, again, err)
		}
	})
}

func TestStarted(t *testing.T) {
	for command, want := range map[string]string{
		"bash scripts/a.sh": "scripts/a.sh", " /usr/bin/python3.12  a.py ": "a.py", "node x.mjs": "x.mjs",
		"bash": "", "bash -x": "", "bash a.sh --all": "", "rm a.sh": "", "": "", "scripts/a.sh": "",
	} {
		if got := script.Started(command); got != want {
			t.Errorf("Started(%q) = %q, want %q", command, got, want)
		}
	}
}
