package script_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills/script"
)

type inspectCase struct {
	name, path, head string
	runtime          script.Runtime
	flags            []string
	problem          string // part of it
}

func checkInspect(t *testing.T, tests []inspectCase) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := script.Inspect(test.path, []byte(test.head), false)
			if got.Runtime != test.runtime || !cmp.Equal(got.Flags, test.flags) {
				t.Errorf("Inspect = %q %q, want %q %q (%s)", got.Runtime, got.Flags, test.runtime, test.flags, got.Problem)
			}
			if !strings.Contains(got.Problem, test.problem) || (got.Problem == "") != (test.problem == "") {
				t.Errorf("Problem = %q, want %q", got.Problem, test.problem)
			}
		})
	}
}

func TestInspectName(t *testing.T) {
	checkInspect(t, []inspectCase{
		{"sh by extension", "scripts/a.sh", "echo", script.Bash, nil, ""},
		{"bash by extension", "scripts/a.bash", "", script.Bash, nil, ""},
		{"extension in capitals", "scripts/A.PY", "", script.Python3, nil, ""},
		{"js", "a.js", "", script.Node, nil, ""},
		{"mjs", "a.mjs", "", script.Node, nil, ""},
		{"cjs", "a.cjs", "", script.Node, nil, ""},
		{"ts", "a.ts", "", script.Deno, nil, ""},
		{"tsx", "a.tsx", "", script.Deno, nil, ""},
		{"uv", "a", "#!/usr/bin/env -S uv run --script\n", script.Python3, nil, ""},
		{"uv, quiet", "a.py", "#!/usr/bin/env -S uv run -q --script --no-project\n", script.Python3, nil, ""},
		{"uv with packages", "a.py", "#!/usr/bin/env -S uv run --with requests\n", "", nil, `flag "--with" in the shebang is not supported`},
		{"uv without a subcommand", "a.py", "#!/usr/bin/uv\n", "", nil, "uv is only known with the subcommand run"},
		{"tsx as a program", "a.ts", "#!/usr/bin/env tsx\n", script.Node, []string{"--import", "tsx"}, ""},
		{"npx tsx", "a.ts", "#!/usr/bin/env -S npx -y tsx\n", script.Node, []string{"--import", "tsx"}, ""},
		{"npx of others", "a.ts", "#!/usr/bin/env -S npx ts-node\n", "", nil, "npx is only known with the program tsx"},
		{"tsx with flags", "a.ts", "#!/usr/bin/env -S tsx watch\n", "", nil, `flag "watch" in the shebang is not supported`},
		{"mts", "a.mts", "", script.Deno, nil, ""},
		{"zsh", "a.zsh", "", script.Zsh, nil, ""},
		{"zsh by shebang", "a.sh", "#!/bin/zsh -e\n", script.Zsh, []string{"-e"}, ""},
		{"zsh with a flag of its own", "a.zsh", "#!/bin/zsh -i\n", "", nil, `flag "-i" in the shebang is not supported`},
		{"pwsh", "a.ps1", "", script.Pwsh, nil, ""},
		{"pwsh in a shebang", "a", "#!/usr/bin/env -S pwsh -NoProfile -File\n", script.Pwsh, nil, ""},
		{"pwsh with a command", "a", "#!/usr/bin/pwsh -Command\n", "", nil, `flag "-Command" in the shebang is not supported`},
		{"C#", "a.cs", "", script.Dotnet, nil, ""},
		{"dotnet run", "a.cs", "#!/usr/bin/env -S dotnet run --file\n", script.Dotnet, nil, ""},
		{"dotnet", "a", "#!/usr/bin/env dotnet\n", script.Dotnet, nil, ""},
		{"dotnet test", "a.cs", "#!/usr/bin/env -S dotnet test\n", "", nil, `flag "test" in the shebang is not supported`},
		{"dotnet with a flag", "a.cs", "#!/usr/bin/env -S dotnet run --file --project\n", "", nil, `flag "--project" in the shebang is not supported`},
		{"bun", "a.ts", "#!/usr/bin/env bun\n", script.Bun, nil, ""},
		{"bun run", "a.ts", "#!/usr/bin/env -S bun run\n", script.Bun, nil, ""},
		{"bun with a flag", "a.ts", "#!/usr/bin/env -S bun --watch\n", "", nil, `flag "--watch" in the shebang is not supported`},
		{"nothing to go by", "scripts/a", "echo", "", nil, "no shebang"},
		{"unknown extension", "scripts/a.rb", "", "", nil, "no shebang"},
		{"extension of a directory", "scripts/a.sh/b", "", "", nil, "no shebang"},
		{"empty shebang", "a.py", "#!\nx", script.Python3, nil, ""},
	})
}

func TestInspectShebang(t *testing.T) {
	checkInspect(t, []inspectCase{
		{"shebang before extension", "a.sh", "#!/usr/bin/env python3\n", script.Python3, nil, ""},
		{"deno in a .js file", "a.js", "#!/usr/bin/env -S deno run\n", script.Deno, nil, ""},
		{"carriage return", "a", "#!/usr/bin/env python3\r\nx", script.Python3, nil, ""},
		{"carriage return in a shell", "a", "#!/bin/bash\r\nx", "", nil, "CRLF line endings"},
		{"carriage returns without a shebang", "a.sh", "set -e\r\necho hi\r\n", "", nil, "CRLF line endings"},
		{"carriage returns in most lines", "a.sh", "#!/bin/sh\nset -e\r\necho hi\r\n", "", nil, "CRLF line endings"},
		{"a line with a carriage return", "a.sh", "#!/bin/sh\nprintf 'a\r\n'\necho hi\n", script.Sh, nil, ""},
		{"no newline", "a", "#!/bin/sh", script.Sh, nil, ""},
		{"space after the mark", "a", "#! /bin/sh -e \n", script.Sh, []string{"-e"}, ""},
		{"byte-order mark", "a", "\xef\xbb\xbf#!/usr/bin/env node\n", script.Node, nil, ""},
		{"byte-order mark in a shell", "a", "\xef\xbb\xbf#!/bin/bash\n", "", nil, "byte order mark"},
		{"byte-order mark without a shebang", "a.sh", "\xef\xbb\xbfset -e\n", "", nil, "byte order mark"},
		{"dash", "a", "#!/bin/dash\n", script.Sh, nil, ""},
		{"env", "a", "#!/usr/bin/env bash\n", script.Bash, nil, ""},
		{"env without -S", "a", "#!/usr/bin/env bash -eu\n", script.Bash, []string{"-eu"}, ""},
		{"env -S", "a", "#!/usr/bin/env -S bash -e\n", script.Bash, []string{"-e"}, ""},
		{"env -S joined", "a", "#!/usr/bin/env -Sbash -e\n", script.Bash, []string{"-e"}, ""},
		{"env --split-string", "a", "#!/usr/bin/env --split-string bash\n", script.Bash, nil, ""},
		{"env alone", "a.sh", "#!/usr/bin/env\n", "", nil, "names no interpreter"},
		{"env -S alone", "a.sh", "#!/usr/bin/env -S\n", "", nil, "names no interpreter"},
		{"env -i", "a.sh", "#!/usr/bin/env -i bash\n", "", nil, `env flag "-i"`},
		{"env -S -i", "a.sh", "#!/usr/bin/env -S -i bash\n", "", nil, "not supported"},
		{"env sets a variable", "a.sh", "#!/usr/bin/env -S BASH_ENV=x bash\n", "", nil, "environment variable"},
		{"env twice", "a.sh", "#!/usr/bin/env -S env bash\n", "", nil, `"env" is not supported`},
		{"quotes", "a.sh", "#!/usr/bin/env -S bash '-e'\n", "", nil, "quotes"},
		{"variables", "a.sh", "#!/usr/bin/env -S ${HOME}/bash\n", "", nil, "variables"},
	})
}

func TestInspectShell(t *testing.T) {
	checkInspect(t, []inspectCase{
		{"all shell flags", "a", "#!/bin/bash -e -u -x -f\n", script.Bash, []string{"-e", "-u", "-x", "-f"}, ""},
		{"joined shell flags", "a", "#!/bin/bash -euxf\n", script.Bash, []string{"-euxf"}, ""},
		{"pipefail", "a", "#!/bin/bash -o pipefail\n", script.Bash, []string{"-o", "pipefail"}, ""},
		{"joined pipefail", "a", "#!/bin/bash -euo pipefail -x\n", script.Bash, []string{"-euo", "pipefail", "-x"}, ""},
		{"other option", "a.sh", "#!/bin/bash -o posix\n", "", nil, `"-o"`},
		{"option without value", "a.sh", "#!/bin/bash -eo\n", "", nil, `"-eo"`},
		{"o not last", "a.sh", "#!/bin/bash -oe pipefail\n", "", nil, `"-oe"`},
		{"login shell", "a.sh", "#!/bin/bash -l\n", "", nil, `flag "-l"`},
		{"flag inside a group", "a.sh", "#!/bin/bash -exc\n", "", nil, `flag "-exc"`},
		{"command", "a.sh", "#!/bin/bash -c id\n", "", nil, `flag "-c"`},
		{"long flag", "a.sh", "#!/bin/bash --rcfile /etc/x\n", "", nil, `flag "--rcfile"`},
		{"operand", "a.sh", "#!/bin/bash /tmp/other.sh\n", "", nil, `flag "/tmp/other.sh"`},
		{"bare dash", "a.sh", "#!/bin/bash -\n", "", nil, `flag "-"`},
	})
}

func TestInspectPythonAndNode(t *testing.T) {
	checkInspect(t, []inspectCase{
		{"python", "a", "#!/usr/bin/python\n", script.Python3, nil, ""},
		{"python 3.12", "a", "#!/usr/bin/env python3.12\n", script.Python3, nil, ""},
		{"python -u", "a", "#!/usr/bin/python3 -u\n", script.Python3, []string{"-u"}, ""},
		{"python 2", "a.py", "#!/usr/bin/python2\n", "", nil, `"python2" is not supported`},
		{"python 3.x", "a.py", "#!/usr/bin/python3.x\n", "", nil, "not supported"},
		{"python -m", "a.py", "#!/usr/bin/python3 -m\n", "", nil, `flag "-m"`},
		{"python -uc", "a.py", "#!/usr/bin/python3 -uc\n", "", nil, `flag "-uc"`},
		{"node", "a", "#!/usr/bin/env node\n", script.Node, nil, ""},
		{"nodejs", "a", "#!/usr/bin/nodejs\n", script.Node, nil, ""},
		{"node -r", "a.js", "#!/usr/bin/env -S node -r ./x\n", "", nil, `flag "-r"`},

		{"deno-runner is not deno", "a.ts", "#!/usr/bin/env deno-runner\n", "", nil, "not supported"},
	})
}

func TestInspectDeno(t *testing.T) {
	checkInspect(t, []inspectCase{
		{"deno alone", "a", "#!/usr/bin/env deno\n", script.Deno, nil, ""},
		{"deno permissions", "a", "#!/usr/bin/env -S deno run --allow-read=. --allow-write=/tmp --allow-env --allow-run --allow-ffi --allow-sys=osRelease\n",
			script.Deno, []string{"--allow-read=.", "--allow-write=/tmp", "--allow-env", "--allow-run", "--allow-ffi", "--allow-sys=osRelease"}, ""},
		{"deno all", "a", "#!/usr/bin/env -S deno run -A\n", script.Deno, []string{"--allow-read", "--allow-write", "--allow-env"}, ""},
		{"deno --allow-all", "a", "#!/usr/bin/env -S deno run --allow-all\n", script.Deno, []string{"--allow-read", "--allow-write", "--allow-env"}, ""},
		{"deno net is not granted", "a", "#!/usr/bin/env -S deno run --allow-net=example.com --allow-read\n", script.Deno, []string{"--allow-read"}, ""},
		{"deno value in a word of its own", "a.ts", "#!/usr/bin/env -S deno run --allow-read /etc\n", "", nil, `flag "/etc"`},
		{"deno import map", "a.ts", "#!/usr/bin/env -S deno run --import-map=x.json\n", "", nil, `flag "--import-map=x.json"`},
		{"deno eval", "a.ts", "#!/usr/bin/env -S deno eval\n", "", nil, `"eval" is not run`},
		{"deno all with a value", "a.ts", "#!/usr/bin/env -S deno run -A=x\n", "", nil, `flag "-A=x"`},
	})
}

func TestInspectOddBytes(t *testing.T) {
	checkInspect(t, []inspectCase{
		{"NUL", "a.sh", "#!/bin/bash\x00 -e\n", "", nil, "not supported"},
		{"invalid UTF-8", "a.sh", "#!/bin/\xffbash\n", "", nil, "not supported"},
		{"longer than the head", "a.sh", "#!/bin/bash -e" + strings.Repeat(" ", script.MaxHead), "", nil, "4 KiB"},
		{"long but over", "a.sh", "#!/bin/bash -e" + strings.Repeat(" ", script.MaxHead-16) + "\n-c", script.Bash, []string{"-e"}, ""},
		{"long problem is cut", "a.sh", "#!/bin/" + strings.Repeat("x", 1000) + "\n", "", nil, "…"},
	})
}

func TestInfo(t *testing.T) {
	got := script.Inspect("scripts/x.sh", []byte("#! /usr/bin/env -S bash -e \necho"), true)
	want := script.Info{Executable: true, Shebang: "/usr/bin/env -S bash -e", Runtime: script.Bash, Flags: []string{"-e"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Inspect (-want +got):\n%s", diff)
	}
}

func TestReferenceRuntime(t *testing.T) {
	for head, want := range map[string]string{
		"#!/usr/bin/env -S deno run\n":  "deno",
		"#!/usr/bin/env deno-runner\n":  "shebang",
		"#!/bin/bash\n":                 "shebang",
		"echo no shebang, no extension": "unknown",
	} {
		if got := script.Inspect("scripts/x", []byte(head), false).ReferenceRuntime(); got != want {
			t.Errorf("ReferenceRuntime of %q = %q, want %q", head, got, want)
		}
	}
	if got := script.Inspect("scripts/check.ts", nil, false).ReferenceRuntime(); got != "deno" {
		t.Errorf("ReferenceRuntime of a .ts file = %q, want deno", got)
	}
}

func FuzzInspect(f *testing.F) {
	for _, head := range []string{"", "#!", "#!/bin/sh", "#!/usr/bin/env -S bash -euo pipefail\r\n", "#!/usr/bin/env -S deno run -A --allow-net=x\n",
		"\xef\xbb\xbf#!/usr/bin/python3 -u\n", "#!env\n", "#! \t\n", "#!/usr/bin/env -S\n", "#!/bin/bash\x00-c\n", "#!\u00a0env\u2003-S\n"} {
		f.Add("scripts/a.sh", []byte(head))
	}
	flags := []string{"-u", "pipefail", "--allow-read", "--allow-write", "--allow-env", "--allow-run", "--allow-ffi", "--allow-sys"}
	f.Fuzz(func(t *testing.T, name string, head []byte) {
		info := script.Inspect(name, head, false)
		if (info.Runtime == "") != (info.Problem != "") {
			t.Errorf("runtime %q with problem %q", info.Runtime, info.Problem)
		}
		if info.Runtime == "" && len(info.Flags) > 0 {
			t.Errorf("flags %q without a runtime", info.Flags)
		}
		if strings.ContainsAny(info.Shebang, "\n") || len(info.Problem) > 1024 {
			t.Errorf("shebang %q, problem %q", info.Shebang, info.Problem)
		}
		for _, flag := range info.Flags {
			known, _, _ := strings.Cut(flag, "=")
			isShell := info.Runtime == script.Bash || info.Runtime == script.Sh
			if !slices.Contains(flags, known) && !(isShell && strings.Trim(flag, "-euxfo") == "") {
				t.Errorf("flag %q was kept", flag)
			}
		}
		if info.Runtime == "" {
			return
		}
		argv := script.Argv(info, "/usr/bin/x", "/skill/scripts/x", []string{"-c", "y"})
		if at := slices.Index(argv, "/skill/scripts/x"); at < 0 || !path.IsAbs(argv[0]) || !slices.Equal(argv[len(argv)-2:], []string{"-c", "y"}) ||
			len(argv) != at+3 && !slices.Equal(argv[at+1:], []string{"--", "-c", "y"}) {
			t.Errorf("Argv = %q", argv)
		}
	})
}

// Every file that an entry may name is below scripts/, or is code by its extension or its shebang.
func TestInspectOutside(t *testing.T) {
	for _, test := range []struct {
		name, head string
		want       script.Runtime
		facts      bool
	}{
		{"run.py", "print()", script.Python3, true},
		{"bin/deep/x.SH", "echo", script.Bash, true},
		{"bin/tool", "#!/usr/bin/env node\n", script.Node, true},
		{"assets/a.ts", "", script.Deno, true},
		{"assets/a.ps1", "", script.Pwsh, true},
		{"a.cs", "", script.Dotnet, true},
		{"bin/tool", "#!/usr/bin/ruby\n", "", true},
		{"x.sh", "echo\r\n", "", true},
		{"bin/tool", "echo", "", false},
		{"SKILL.md", "#!/bin/sh\n", "", false},
		{"sub/skill.md", "#!/bin/sh\n", "", false},
		{"references/x.md", "#!/bin/sh\n", "", false},
		{"assets/x.json", "#!/usr/bin/env node\n", "", false},
		{"x.rb", "#!/bin/sh\n", "", false},
		{".envrc", "#!/bin/sh\n", "", false},
		{"._run.sh", "#!/bin/sh\n", "", false},
		{"a:b.py", "", "", false},
		{"x/../run.py", "", "", false},
		{"/run.py", "", "", false},
	} {
		info := script.InspectOutside(test.name, []byte(test.head), false)
		if (info != nil) != test.facts || info != nil && info.Runtime != test.want {
			t.Errorf("InspectOutside(%s, %q) = %+v, want %q, %v", test.name, test.head, info, test.want, test.facts)
		}
	}
}

func TestIsProgram(t *testing.T) {
	for name, want := range map[string][2]bool{ // as a plain file, as an executable one
		"run.py": {true, true}, "install.sh": {true, true}, "tool.rb": {true, true}, "index.ts": {true, true},
		"bin/agent": {true, true}, "tools/deep/x.py": {true, true}, "gradlew": {false, true},
		"lib/x.py": {false, true}, "lib/helper": {false, true}, "src/x.js": {false, true},
		"LICENSE": {}, "docs/Makefile": {}, "README.md": {}, "tools/notes.md": {}, "data.json": {},
		"__init__.py": {}, ".envrc": {}, "bin/.keep": {}, "references/x.md": {},
	} {
		if got := [2]bool{script.IsProgram(name, false), script.IsProgram(name, true)}; got != want {
			t.Errorf("IsProgram(%s) = %v, want %v", name, got, want)
		}
	}
}
