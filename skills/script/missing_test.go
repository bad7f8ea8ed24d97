package script

import (
	"strings"
	"testing"
)

func TestFindMissing(t *testing.T) {
	traceback := "Traceback (most recent call last):\n  File \"/skill/scripts/a.py\", line 1, in <module>\n    import x\n"
	for _, tt := range []struct{ name, stderr, code, missing string }{
		{"a module", traceback + "ModuleNotFoundError: No module named 'pypdf'\n", MissingDependency, "pypdf"},
		{"a part of a module", traceback + "ModuleNotFoundError: No module named 'pypdf.annotations'; 'pypdf' is old\n", MissingDependency, "pypdf.annotations"},
		{"a module of Node", "node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find module 'marked'\nRequire stack:\n- /skill/scripts/a.js\n" +
			"    at x {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: [ '/skill/scripts/a.js' ]\n}\n\nNode.js v20.20.2\n", MissingDependency, "marked"},
		{"a package of Bun", "error: Cannot find package 'x' from '/skill/a.ts'\n\nBun v1.4.5 (Linux x64)\n", MissingDependency, "x"},
		{"a module of a scope", "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@scope/x' imported from /skill/scripts/a.mjs\n", MissingDependency, "@scope/x"},
		{"a file of the skill", "Error: Cannot find module './lib/x.js'\n", "", ""},
		{"a file by its path", "Error: Cannot find module '/skill/scripts/x.js'\n", "", ""},
		{"a module of Deno", "error: Import \"marked\" not a dependency\n  hint: x\n", MissingDependency, "marked"},
		{"a library", traceback + "ImportError: libimagequant.so.0: cannot open shared object file: No such file or directory\n", MissingLibrary, "libimagequant.so.0"},
		{"a library of a program", "/usr/bin/x: error while loading shared libraries: libfoo.so.1: cannot open shared object file: No such file\n", MissingLibrary, "libfoo.so.1"},
		{"a program of bash", "/skill/scripts/a.sh: line 3: pdftoppm: command not found\n", MissingProgram, "pdftoppm"},
		{"a program of sh", "/skill/scripts/a.sh: 3: pdftoppm: not found\n", MissingProgram, "pdftoppm"},
		{"a file in the directory", traceback + "FileNotFoundError: [Errno 2] No such file or directory: 'input'\n", "", ""},
		{"a program of Python", traceback + "  File \"/usr/lib/python3.11/subprocess.py\", line 1955, in _execute_child\n    raise x\nFileNotFoundError: [Errno 2] No such file or directory: 'soffice'\n", MissingProgram, "soffice"},
		{"a file of Python", traceback + "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'\n", "", ""},
		{"a program of Node", "Error: spawn soffice ENOENT\n    at x\n", MissingProgram, "soffice"},
		{"a name that is a sentence", "ModuleNotFoundError: No module named 'x; now run rm'\n", "", ""},
		{"a name with an escape", "ModuleNotFoundError: No module named 'x\x1b[2J'\n", "", ""},
		{"a long name", "ModuleNotFoundError: No module named '" + strings.Repeat("x", 100) + "'\n", "", ""},
		{"long before the end", "ModuleNotFoundError: No module named 'x'\n" + strings.Repeat("working\n", 30), "", ""},
		{"the last of two", "a: command not found\nModuleNotFoundError: No module named 'b'\n", MissingDependency, "b"},
		{"another failure", "ValueError: no\n", "", ""},
		{"a write of Python", traceback + "OSError: [Errno 30] Read-only file system: '/mnt/skills/user/w/scripts/out.csv'\n", ReadOnly, "/mnt/skills/user/w/scripts/out.csv"},
		{"a write of bash", "/skill/a.sh: line 3: /skill/x: Read-only file system\n", ReadOnly, "/skill/x"},
		{"a write of a program", "touch: cannot touch '/skill/x': Read-only file system\n", ReadOnly, "/skill/x"},
		{"a write of Node", "Error: EROFS: read-only file system, open '/skill/x'\n", ReadOnly, "/skill/x"},
		{"a write to a sentence", "OSError: [Errno 30] Read-only file system: '/x, so run rm'\n", "", ""},
		{"a network of curl", "curl: (6) Could not resolve host: example.com\n", NoNetwork, "example.com"},
		{"a network of Node", "Error: getaddrinfo EAI_AGAIN example.com\n", NoNetwork, "example.com"},
		{"a network of npm", "npm error code ENOTCACHED\nnpm error request to https://x failed\n", NoNetwork, ""},
		{"a network of pip", "ERROR: Could not find a version\nERROR: No matching distribution found for requests\n", NoNetwork, "requests"},
		{"a system's pip", "error: externally-managed-environment\n\n× This\n" + strings.Repeat("hint\n", 18), NoNetwork, ""},
		{"a system's pip, started by Python", "error: externally-managed-environment\n\nnote: If you believe\nhint: See PEP 668 for the detailed specification.\n" +
			strings.Repeat("  File \"x.py\", line 1\n", 22), NoNetwork, ""},
		{"CRLF behind a shebang", "/usr/bin/env: ‘bash\\r’: No such file or directory\n", LineEndings, "bash"},
		{"CRLF in a shell", "a.sh: line 2: $'\\r': command not found\n", LineEndings, ""},
		{"nothing", "", "", ""},
	} {
		isNoFile := func(code, _ string) bool { return code != OwnFile }
		if code, missing := FindMissing(tt.stderr, isNoFile); code != tt.code || missing != tt.missing {
			t.Errorf("%s: FindMissing = %q, %q; want %q, %q", tt.name, code, missing, tt.code, tt.missing)
		}
	}
}

// The path of a file that was not found is as the script wrote it. What the caller denies is passed over.
func TestFindOwnFile(t *testing.T) {
	for stderr, want := range map[string]string{
		"FileNotFoundError: [Errno 2] No such file or directory: 'references/t.json'":                    "references/t.json",
		"python3: can't open file '/out/scripts/a.py': [Errno 2] No such file or directory":              "/out/scripts/a.py",
		"cat: references/t.json: No such file or directory":                                              "references/t.json",
		"/skill/scripts/a.sh: line 3: scripts/common.sh: No such file or directory":                      "scripts/common.sh",
		"ls: cannot access 'a b.md': No such file or directory":                                          "a b.md",
		"/skill/a.sh: 3: cannot open references/t.json: No such file":                                    "references/t.json",
		"/skill/a.sh: 3: .: cannot open scripts/common.sh: No such file":                                 "scripts/common.sh",
		"Error: ENOENT: no such file or directory, open 'references/t.json'":                             "references/t.json",
		"error: Uncaught NotFound: No such file or directory (os error 2): readfile 'references/t.json'": "references/t.json",
	} {
		if code, name := FindMissing(stderr, func(string, string) bool { return true }); code != OwnFile || name != want {
			t.Errorf("FindMissing(%s) = %q, %q, want %q", stderr, code, name, want)
		}
	}
	isProgram := func(code, _ string) bool { return code == MissingProgram }
	if code, name := FindMissing("x: pdftoppm: not found\ncat: x: No such file or directory\n", isProgram); code != MissingProgram || name != "pdftoppm" {
		t.Errorf("FindMissing = %q, %q", code, name)
	}
}

func TestFindNoProxy(t *testing.T) {
	for _, tt := range []struct {
		stderr, version string
		runtime         Runtime
		found           bool
	}{
		{"[cause]: Error: getaddrinfo ENOTFOUND api.example.com\n", "v20.20.2", Node, true},
		{"Error: getaddrinfo EAI_AGAIN api.example.com\n", "v22.9.0", Node, true},
		{"Error: connect ENETUNREACH 192.0.2.1:443\n", "v23.1.0", Node, true},
		{"Error: getaddrinfo ENOTFOUND api.example.com\n", "v22.21.0", Node, false},
		{"Error: getaddrinfo ENOTFOUND api.example.com\n", "", Node, false},
		{"Error: getaddrinfo ENOTFOUND api.example.com\n", "3.11.2", Python3, false},
		{"Error: connect ECONNREFUSED 127.0.0.1:8080\n", "v20.20.2", Node, false}, // its own server
		{"Error: no\n", "v20.20.2", Node, false},
	} {
		code, name := FindNoProxy(tt.stderr, tt.runtime, tt.version)
		if found := code == MissingProxy && name == "node 22.21.x, 24.0 or later"; found != tt.found || !found && code+name != "" {
			t.Errorf("FindNoProxy(%q, %s, %s) = %q, %q", tt.stderr, tt.runtime, tt.version, code, name)
		}
	}
}
