package plugin

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

func source(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

func TestRead(t *testing.T) {
	for what, test := range map[string]struct {
		files    map[string]string
		want     []*Plugin
		problems int
	}{
		"none": {files: map[string]string{"skills/a/SKILL.md": ""}},
		"agent plugin": {
			files: map[string]string{"plugin.json": `{"name":"acme","version":"1.2.0","license":"MIT"}`, "skills/a/SKILL.md": "",
				"mcp.json": `{"mcpServers":{"db":{}}}`, "agents/x.md": "", "agents/y.md": "", "hooks/hooks.json": "{}"},
			want: []*Plugin{{Name: "acme", Version: "1.2.0", License: "MIT", Dir: ".", Manifest: "plugin.json", Skills: []string{"skills"}, Kind: "plugin",
				Others: []string{"2 agents", "hooks", "1 MCP server"}}},
		},
		"skills of a manifest": {
			files: map[string]string{".claude-plugin/plugin.json": `{"name":"a","skills":["./one","./two/"]}`, "SKILL.md": ""},
			want: []*Plugin{{Name: "a", Dir: ".", Manifest: ".claude-plugin/plugin.json",
				Skills: []string{"one", "two", "skills", "."}, Kind: "plugin"}},
		},
		"a marketplace": {
			files: map[string]string{".claude-plugin/marketplace.json": `{"name":"m","metadata":{"pluginRoot":"./plugins"},"plugins":[
				{"name":"a","source":"a","version":"2"},{"name":"b","source":"./","strict":false,"skills":["./x/one"]},
				{"name":"c","source":{"source":"github","repo":"o/c","ref":"v1"}},{"name":"d","source":{"source":"git-subdir","url":"https://h/r","path":"./p"}},
				{"name":"e","source":{"source":"npm","package":"e"}},{"name":"f","source":"../../up"},{"name":"g","source":"./gone"},{"name":"a","source":"./again"}]}`,
				"plugins/a/plugin.json": `{"name":"other","version":"1","description":"An a.\u0007"}`},
			want: []*Plugin{
				{Name: "a", Version: "2", Description: "An a.", Dir: "plugins/a", Manifest: "plugin.json",
					Skills: []string{"plugins/a/skills"}, Kind: "plugin"},
				{Name: "b", Dir: ".", Skills: []string{"x/one"}, Kind: "plugin"},
				{Name: "c", Kind: "plugin", Remote: Remote{Source: "https://github.com/o/c", Ref: "v1"}},
				{Name: "d", Kind: "plugin", Remote: Remote{Source: "https://h/r", Dir: "p"}},
			},
			problems: 2,
		},
		"manifests beside a marketplace": {
			files: map[string]string{".claude-plugin/marketplace.json": `{"name":"m","plugins":[{"name":"a","source":"./a"},
				{"name":"r","source":{"source":"url","url":"o/r"}}]}`,
				"a/skills/x/SKILL.md": "", "a/inner/plugin.json": `{"name":"inner"}`, "plugin.json": `{"name":"root"}`,
				"plugins/cloud/b/plugin.json": `{"name":"b"}`, "templates/t/plugin.json": `{"name":"t"}`,
				"plugins/again/plugin.json": `{"name":"r"}`},
			want: []*Plugin{
				{Name: "a", Dir: "a", Skills: []string{"a/skills"}, Kind: "plugin"},
				{Name: "r", Kind: "plugin", Remote: Remote{Source: "https://github.com/o/r"}},
				{Name: "b", Dir: "plugins/cloud/b", Manifest: "plugin.json",
					Skills: []string{"plugins/cloud/b/skills"}, Kind: "plugin"},
			},
		},
		"skills at the root of the source": {
			files: map[string]string{"marketplace.json": `{"name":"m","plugins":[{"name":"a","source":"plugins/a"}]}`,
				"plugins/a/plugin.json": `{"name":"a","extensions":{"org.vendor":{"agents":["./agents/one.md"],"skills":["./skills/x/"]},
					"other":{"skills":"./own"},"odd":1}}`,
				"plugins/a/own/SKILL.md": "", "own/SKILL.md": "", "skills/x/SKILL.md": "",
				"mcp.json": `{"mcpServers":{"db":{}}}`},
			want: []*Plugin{{Name: "a", Dir: "plugins/a", Manifest: "plugin.json", Kind: "plugin",
				Skills: []string{"skills/x", "plugins/a/own", "plugins/a/skills"}, Others: []string{"1 agent"}}},
		},
		"a bad manifest": {files: map[string]string{"plugin.json": `{"name":`}, problems: 1,
			want: []*Plugin{}},
		"another plugin.json": {files: map[string]string{"web/plugin.json": `{"id":"grafana"}`}},
	} {
		t.Run(what, func(t *testing.T) {
			got := Read(source(test.files))
			if len(got.Problems) != test.problems {
				t.Errorf("problems = %q", got.Problems)
			}
			if len(got.Plugins) != len(test.want) {
				t.Fatalf("%d plugins", len(got.Plugins))
			}
			for n, p := range got.Plugins {
				if p.named = false; !reflect.DeepEqual(p, test.want[n]) {
					t.Errorf("plugin = %+v, want %+v", p, test.want[n])
				}
			}
		})
	}
}

func TestOf(t *testing.T) {
	s := &Source{Plugins: []*Plugin{{Name: "all", Skills: []string{"skills"}}, {Name: "docs", Skills: []string{"skills/pdf", "skills/docx"}}}}
	for dir, want := range map[string]string{"skills/a": "all", "skills/pdf": "docs", "skills/pdfs": "all", "other/pdf": ""} {
		got := ""
		if p := s.Of(dir); p != nil {
			got = p.Name
		}
		if got != want {
			t.Errorf("%s belongs to %q, want %q", dir, got, want)
		}
	}
}

// Whatever a manifest has, the paths of plugins stay in the source, and texts have no control characters.
func FuzzRead(f *testing.F) {
	f.Add(`{"name":"m","plugins":[{"name":"a","source":"./x","skills":"./s"},{"source":{"source":"url","url":"u"}}]}`, `{"name":"x"}`)
	f.Fuzz(func(t *testing.T, market, manifest string) {
		s := Read(source(map[string]string{".claude-plugin/marketplace.json": market, "x/plugin.json": manifest, "plugin.json": manifest}))
		for _, p := range s.Plugins {
			for _, at := range append(p.Skills, p.Dir) {
				if strings.HasPrefix(at, "/") || at == ".." || strings.HasPrefix(at, "../") {
					t.Errorf("path %q", at)
				}
			}
			if strings.ContainsAny(p.Name+p.Version+p.Description, "\x00\n\x1b") {
				t.Errorf("plugin %+v", p)
			}
		}
	})
}
