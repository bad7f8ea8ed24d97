package script_test

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/script"
)

// pyc is a compiled module as python3 begins it.
func pyc(flags byte) []byte {
	return []byte("\xa7\r\r\n" + string(flags) + "\x00\x00\x00" + "12345678" + strings.Repeat("code", 1024))
}

var emitted = strings.Repeat("console.log(1);\n", 1024) + "// denoCacheMetadata=528,18446744073709551615"

func TestCacheJob(t *testing.T) {
	for _, test := range []struct {
		name  string
		of    script.Runtime
		files []string
		stdin string
		none  bool
	}{
		{"one module", script.Python3, []string{"SKILL.md", "scripts/a.py", "scripts/.py"}, "", true},
		{"two modules", script.Python3, []string{"SKILL.md", "scripts/a.py", "scripts/b c.py", "x.pyc"}, "scripts/a.py\x00scripts/b c.py", false},
		{"typescript", script.Deno, []string{"scripts/a.ts"}, "", false},
		{"javascript", script.Deno, []string{"scripts/a.js"}, "", true},
		{"node", script.Node, []string{"scripts/a.ts", "b.ts"}, "", true},
		{"shell", script.Bash, []string{"a.py", "b.py"}, "", true},
		{"too many", script.Python3, slices.Repeat([]string{"a.py"}, 1001), "", true},
	} {
		job := script.NewCacheJob(script.Info{Runtime: test.of, Flags: []string{"--allow-all"}}, "/bin/it", "/skill", "/out", "scripts/a.ts", test.files)
		if (job == nil) != test.none {
			t.Errorf("%s: %+v", test.name, job)
		} else if job != nil && (string(job.Stdin) != test.stdin || job.Argv[0] != "/bin/it" || slices.Contains(job.Argv, "--allow-all") || slices.Contains(job.Argv, "run")) {
			t.Errorf("%s: %q on %q", test.name, job.Argv, job.Stdin)
		}
	}
}

func TestCacheFiles(t *testing.T) {
	python := []string{"scripts/a.py", "top.py", "scripts/lib/__init__.py"}
	deno := []string{"scripts/a.ts", "scripts/b c.ts", "c.jsx"}
	for _, test := range []struct {
		name string
		of   script.Runtime
		out  map[string][]byte
		want []string // nil is an error
	}{
		{"python", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "0.pyc": pyc(3), "1.pyc": pyc(3), "2.pyc": pyc(3)},
			[]string{"__pycache__/top.cpython-311.pyc", "scripts/__pycache__/a.cpython-311.pyc", "scripts/lib/__pycache__/__init__.cpython-311.pyc"}},
		{"nothing", script.Python3, map[string][]byte{"tag": []byte("cpython-311")}, []string{}},
		{"too little", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "0.pyc": pyc(3)[:4095]}, []string{}},
		{"no tag", script.Python3, map[string][]byte{"0.pyc": pyc(3)}, nil},
		{"tag is a path", script.Python3, map[string][]byte{"tag": []byte("../../x-1"), "0.pyc": pyc(3)}, nil},
		{"tag has a line", script.Python3, map[string][]byte{"tag": []byte("cpython-311\n"), "0.pyc": pyc(3)}, nil},
		{"unchecked", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "0.pyc": pyc(1)}, nil},
		{"by time", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "0.pyc": pyc(0)}, nil},
		{"short", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "0.pyc": pyc(3)[:16]}, nil},
		{"no magic", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "0.pyc": []byte(strings.Repeat("\x03\x00\x00\x00", 9))}, nil},
		{"no such module", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "3.pyc": pyc(3)}, nil},
		{"below none", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "-1.pyc": pyc(3)}, nil},
		{"written otherwise", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "00.pyc": pyc(3)}, nil},
		{"another file", script.Python3, map[string][]byte{"tag": []byte("cpython-311"), "scripts/a.py": pyc(3)}, nil},

		{"deno", script.Deno, map[string][]byte{"gen/file/skill/scripts/a.ts.js": []byte(emitted), "gen/file/skill/c.jsx.js": []byte(emitted), "dep_analysis_cache_v2": nil, "npm/x": nil},
			[]string{"file/skill/c.jsx.js", "file/skill/scripts/a.ts.js"}},
		{"databases", script.Deno, map[string][]byte{"dep_analysis_cache_v2": nil}, []string{}},
		{"too little", script.Deno, map[string][]byte{"gen/file/skill/scripts/a.ts.js": []byte(emitted[8192:])}, []string{}},
		{"another module", script.Deno, map[string][]byte{"gen/file/skill/scripts/z.ts.js": []byte(emitted)}, nil},
		{"remote", script.Deno, map[string][]byte{"gen/https/skill/scripts/a.ts.js": []byte(emitted)}, nil},
		{"elsewhere", script.Deno, map[string][]byte{"gen/file/tmp/scripts/a.ts.js": []byte(emitted)}, nil},
		{"name that deno writes otherwise", script.Deno, map[string][]byte{"gen/file/skill/scripts/b c.ts.js": []byte(emitted)}, nil},
		{"no hash", script.Deno, map[string][]byte{"gen/file/skill/scripts/a.ts.js": []byte("console.log(1);\n")}, nil},
		{"hash above", script.Deno, map[string][]byte{"gen/file/skill/scripts/a.ts.js": []byte(emitted + "\n")}, nil},
	} {
		files := python
		if test.of == script.Deno {
			files = deno
		}
		job := script.NewCacheJob(script.Info{Runtime: test.of}, "/bin/it", "/skill", "/out", "scripts/a.ts", files)
		kept, err := job.Files(test.out)
		if got := slices.Sorted(maps.Keys(kept)); (err != nil) != (test.want == nil) || !slices.Equal(got, test.want) {
			t.Errorf("%s: Files = %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}

// FuzzCacheFiles leaves files of any names and bytes: what is kept lies where the modules are.
func FuzzCacheFiles(f *testing.F) {
	f.Add("0.pyc", pyc(3), []byte("cpython-311"))
	f.Add("gen/file/skill/scripts/a.ts.js", []byte(emitted), []byte("pypy-73"))
	f.Add("../../0.pyc", pyc(3), []byte("../-1"))
	f.Fuzz(func(t *testing.T, name string, data, tag []byte) {
		for _, runtime := range []script.Runtime{script.Python3, script.Deno} {
			job := script.NewCacheJob(script.Info{Runtime: runtime}, "/bin/it", "/skill", "/out", "scripts/a.ts", []string{"scripts/a.py", "scripts/a.ts", "b.py"})
			kept, err := job.Files(map[string][]byte{name: data, "tag": tag})
			if err != nil && len(kept) > 0 {
				t.Errorf("kept %q with %v", slices.Collect(maps.Keys(kept)), err)
			}
			for at := range kept {
				dir := path.Dir(at)
				if dir != "scripts/__pycache__" && dir != "__pycache__" && at != "file/skill/scripts/a.ts.js" {
					t.Errorf("kept %q", at)
				}
			}
		}
	})
}
