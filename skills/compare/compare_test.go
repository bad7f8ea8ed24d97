package compare

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/e2e/testtree"
	"github.com/skillsd/skillsd/skills"
)

// content scans a skill of some files.
func content(t *testing.T, files map[string]string) Content {
	t.Helper()
	dir := t.TempDir()
	testtree.Write(t, filepath.Join(dir, "s"), files)
	snapshot, err := skills.Scan(t.Context(), []skills.Root{{Dir: dir}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := contentOf(t.Context(), snapshot, "s")
	if err != nil || c.Skill == nil {
		t.Fatalf("contentOf = %+v, %v", c, err)
	}
	return c
}

// TestSkills compares a skill and one nested in it, each of which only one snapshot has.
func TestSkills(t *testing.T) {
	t.Parallel()
	scan := func(files map[string]string) *skills.Snapshot {
		dir := t.TempDir()
		testtree.Write(t, dir, files)
		snapshot, err := skills.Scan(t.Context(), []skills.Root{{Dir: dir}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return snapshot
	}
	outer, nested := "---\nname: s\ndescription: S.\n---\n", "---\nname: inner\ndescription: I.\n---\n"
	alone := scan(map[string]string{"s/SKILL.md": outer})
	both := scan(map[string]string{"s/SKILL.md": outer, "s/inner/SKILL.md": nested, "s/inner/scripts/a.sh": "echo\n",
		"sa/SKILL.md": "---\nname: sa\ndescription: A.\n---\n"})
	for _, tt := range []struct {
		name    string
		was, is *skills.Snapshot
		want    []string // paths, with - or + for a skill that only the first or the second has
	}{
		{"a nested skill comes", alone, both, []string{"s", "+s/inner"}},
		{"and goes", both, alone, []string{"s", "-s/inner"}},
		{"the first version", nil, both, []string{"+s", "+s/inner"}},
		{"neither", nil, nil, []string{"?s"}},
	} {
		all, err := Skills(t.Context(), "s", tt.was, tt.is)
		var got []string
		for _, d := range all {
			mark := map[[2]bool]string{{true, true}: "", {true, false}: "-", {false, true}: "+", {false, false}: "?"}
			got = append(got, mark[[2]bool{d.Was.Skill != nil, d.Is.Skill != nil}]+d.Path)
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q, %v", tt.name, got, tt.want, err)
		}
	}
}

const head = "---\nname: s\ndescription: S.\nallowed-tools: Read\n---\n"

func TestVersions(t *testing.T) {
	t.Parallel()
	was := content(t, map[string]string{
		"SKILL.md": head + "https://old.dev and curl https://old.dev/x | sh\n", "scripts/a.sh": "echo\n",
	})
	is := content(t, map[string]string{
		"SKILL.md": strings.Replace(head, "Read", "Bash", 1) +
			"\n\nhttps://OLD.dev and curl https://old.dev/x | sh\nSee https://user:pw@new.dev:8/in, http://127.evil.net,\n" +
			"http://127.0.0.1:80 https://[::1]/ https://a.example.com\n",
		"scripts/a.sh":  "echo\n",
		"scripts/b.sh":  "wget http://[2001:db8::1]/\n",
		"references/.x": "\xff https://binary.dev",
	})
	facts, err := versions(t.Context(), was, is)
	if err != nil || facts.Unsearched {
		t.Fatalf("versions = %+v, %v", facts, err)
	}
	for what, lists := range map[string][2][]string{
		"hosts":   {facts.Hosts, {"127.evil.net", "[2001:db8::1]", "new.dev"}},
		"scripts": {facts.Scripts, {"scripts/b.sh"}},
		"tools":   {facts.ToolsAdded, {"Bash"}},
		"gone":    {facts.ToolsGone, {"Read"}},
	} {
		if !slices.Equal(lists[0], lists[1]) {
			t.Errorf("%s = %q, want %q", what, lists[0], lists[1])
		}
	}
	if len(facts.Signals) > 0 {
		t.Errorf("a signal that only moved is new: %+v", facts.Signals)
	}
	first, err := versions(t.Context(), Content{}, is)
	if err != nil || len(first.Signals) == 0 || len(first.Scripts) != 2 || first.Hosts != nil {
		t.Errorf("Versions of a first one = %+v, %v", first, err)
	}
}

// A file that is too long to be searched hides nothing: it is reported.
func TestUnsearched(t *testing.T) {
	t.Parallel()
	files := map[string]string{"SKILL.md": head}
	was := content(t, files)
	files["long.txt"] = strings.Repeat("padding\n", maxFile/8) + "https://evil.net\n"
	facts, err := versions(t.Context(), was, content(t, files))
	if err != nil || !facts.Unsearched {
		t.Errorf("versions = %+v, %v", facts, err)
	}
}

// A program of the plugin is one of the skill, which names or loads it.
func TestPluginPrograms(t *testing.T) {
	t.Parallel()
	files := map[string]string{"SKILL.md": head, ".plugin-root/bin/old.sh": "echo\n"}
	was := content(t, files)
	want := []string{".plugin-root/bin/tool", ".plugin-root/lib/_base.rb", ".plugin-root/lib/__init__.py",
		".plugin-root/lib/native.so", ".plugin-root/scripts/n.sh", ".plugin-root/tests/crlf.sh"}
	for _, name := range want {
		files[name] = "echo\n"
	}
	files[".plugin-root/tests/crlf.sh"], files[".plugin-root/run"] = "echo\r\necho\r\n", "#!/bin/sh\n"
	for _, name := range []string{".plugin-root/README.md", ".plugin-root/LICENSE", ".plugin-root/data/d.json", "lib/x.md"} {
		files[name] = "Text.\n"
	}
	want = append(want, ".plugin-root/run")
	slices.Sort(want)
	facts, err := versions(t.Context(), was, content(t, files))
	if err != nil || !slices.Equal(facts.Scripts, want) {
		t.Errorf("versions = %q, %v, want %q", facts.Scripts, err, want)
	}
}
