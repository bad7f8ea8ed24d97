package script_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/script"
)

func TestStdinArgv(t *testing.T) {
	for _, test := range []struct {
		name, head string
		args, want []string
	}{
		{"a.sh", "echo\n", []string{"-c", "x y"}, []string{"/i", "-s", "--", "-c", "x y"}},
		{"a", "#!/bin/sh\n", nil, []string{"/i", "-s", "--"}},
		{"a.ts", "#!/usr/bin/env -S deno run --allow-read\n", []string{"--x"},
			[]string{"/i", "run", "--no-prompt", "--cached-only", "--no-config", "--no-lock", "--allow-read", "-", "--x"}},
	} {
		info := script.Inspect(test.name, []byte(test.head), false)
		if problem := script.StdinProblem(info, []byte(test.head)); problem != "" {
			t.Errorf("StdinProblem of %q = %q", test.head, problem)
		}
		if diff := cmp.Diff(test.want, script.StdinArgv(info, "/i", test.args)); diff != "" {
			t.Errorf("StdinArgv of %q (-want +got):\n%s", test.head, diff)
		}
	}
}

func TestStdinProblem(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a.sh", "#!/bin/bash\nset -e\necho source of all\n. /usr/lib/x\nsource \"$LIB/x\"\n", ""},
		{"a.sh", "#!/bin/bash -e\n", "-e"},
		{"a.sh", "echo\nsource lib.sh\n", "line 2"},
		{"a.sh", "  . ./lib.sh\n", "line 1"},
		{"a.sh", "[ -e x ] && . 'lib.sh'", "line 1"},
		{"a.sh", "if source lib; then\n:; fi", "line 1"},
		{"a.sh", "x=$(. ../x)", "line 1"},
		{"a.sh", "echo a.b . c", ""},
		{"a.sh", "\n\nbuiltin source -- x", "line 3"},
		{"a.ts", "import { a } from \"jsr:@std/x\";\nconsole.log('./x')", ""},
		{"a.ts", "import { a } from './b.ts';", "line 1"},
		{"a.ts", "import {\n a\n} from\n  '../b.ts';", "line 4"},
		{"a.ts", "export * from \"/b.ts\"", "line 1"},
		{"a.ts", "import './side.ts'", "line 1"},
		{"a.ts", "await import(\n  `./x.ts`)", "line 2"},
		{"a.py", "print()", "python3 scripts"},
		{"a.js", "", "node scripts"},
		{"a.rb", "", "no shebang"},
	} {
		info := script.Inspect(test.name, []byte(test.text), false)
		got := script.StdinProblem(info, []byte(test.text))
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("StdinProblem of %q = %q, want %q", test.text, got, test.want)
		}
	}
}

// FuzzArgv holds every way to run any script to what no interpreter can misunderstand.
func FuzzArgv(f *testing.F) {
	for _, head := range []string{"#!/bin/bash -e\n", "#!/usr/bin/env -S deno run -A\n", "#!/usr/bin/env python3 -u\n", "#!node\n", "x"} {
		f.Add("scripts/a.ts", head, "-c", "arg")
	}
	f.Fuzz(func(t *testing.T, name, head, first, second string) {
		info := script.Inspect(name, []byte(head), false)
		if (info.Runtime == "") == (info.Problem == "") {
			t.Fatalf("Inspect = %+v", info)
		}
		if info.Runtime == "" {
			return
		}
		const file = "/skill/scripts/x"
		args := []string{first, second}
		checkArgv(t, script.Argv(info, "/i", file, args), file, args)
		if script.StdinProblem(info, []byte(head)) == "" {
			mark := "--"
			if info.Runtime == script.Deno {
				mark = "-"
			}
			checkArgv(t, script.StdinArgv(info, "/i", args), mark, args)
		}
	})
}

// checkArgv wants the interpreter first, the arguments last and as they are, and before them what ends
// the interpreter's own flags; none of these is anything that a script could have written freely.
func checkArgv(t *testing.T, argv []string, last string, args []string) {
	t.Helper()
	own := argv[:len(argv)-len(args)]
	if argv[0] != "/i" || own[len(own)-1] != last || !cmp.Equal(argv[len(own):], args) {
		t.Fatalf("argv = %q", argv)
	}
	for _, flag := range own[1 : len(own)-1] {
		if strings.ContainsAny(flag, "\x00\n \"'`$\\") || !strings.HasPrefix(flag, "-") && flag != "run" && flag != "pipefail" {
			t.Fatalf("flag %q in %q", flag, argv)
		}
	}
}
