package mcpserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/picture"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills"
)

// descend reads a directory and all below it and returns the URIs of the files.
func (p *probe) descend(uri string) (files []string) {
	p.t.Helper()
	for _, child := range p.walk(methodReadDirectory, object{"uri": uri}) {
		if child.MIMEType == mimeDirectory {
			files = append(files, p.descend(child.URI)...)
			continue
		}
		files = append(files, child.URI)
	}
	return files
}

func TestReadDirectory(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	for uri, want := range map[string][]string{
		"skill://pdf":                            {"SKILL.md text/markdown", "references/", "skills/", "templates/"},
		"skill://pdf/":                           {"SKILL.md text/markdown", "references/", "skills/", "templates/"},
		"skill://pdf/templates":                  {"invoice.md text/markdown", "regional/"},
		"skill://pdf/templates/":                 {"invoice.md text/markdown", "regional/"},
		"skill://pdf/skills":                     {"merge/"},
		"skill://pdf/skills/merge":               {"SKILL.md text/markdown", "notes.md text/markdown"},
		"skill://acme":                           {"billing/", "support/"},
		"skill://acme/billing":                   {"refunds/"},
		"skill://acme/billing/refunds":           {"SKILL.md text/markdown", "templates/", "x.bin application/octet-stream"},
		"skill://Bad%20Name":                     {"SKILL.md text/markdown"},
		"skill://acme/billing/refunds/templates": {"a%20b text/plain"},
	} {
		var got []string
		for _, child := range p.walk(methodReadDirectory, object{"uri": uri}) {
			name, ok := strings.CutPrefix(child.URI, strings.TrimSuffix(uri, "/")+"/")
			switch {
			case !ok || strings.Contains(name, "/"):
				t.Errorf("%s has the child %s", uri, child.URI)
			case child.MIMEType == mimeDirectory:
				got = append(got, name+"/")
			default:
				got = append(got, name+" "+child.MIMEType)
			}
			if plain, err := url.PathUnescape(name); err != nil || name != "SKILL.md" && child.Name != plain {
				t.Errorf("%s is named %q", child.URI, child.Name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", uri, diff)
		}
	}
	for _, uri := range []string{
		"", "skill://", "skill://pdf/SKILL.md", "skill://pdf/templates/invoice.md", "skill://pdf/none", "skill://none", "skill://pdf/..", "skill://ac", "skill://pdf/templ",
		"skill://pdf//templates", "file:///etc", "skill://pdf?x", "skill://lower/SKILL.md/x", "skill://pdf/SKILL.md/",
		"skill://shy",
	} {
		_, failure := p.ask(legacy, methodReadDirectory, object{"uri": uri})
		if failure == nil || failure.Code != mcp.INVALID_PARAMS {
			t.Errorf("%q: %v, want %d", uri, failure, mcp.INVALID_PARAMS)
		} else if isFile := strings.HasSuffix(strings.TrimSuffix(uri, "/"), ".md"); isFile != strings.Contains(failure.Message, "is a file") {
			t.Errorf("%q: %s", uri, failure.Message)
		}
	}
}

// read_skill_resource of a directory lists it, for clients that have tools only; it is not recorded as a read.
func TestReadDirectoryTool(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	const eu = "- templates/regional/eu.md\n"
	for path, want := range map[string]string{
		"templates":             "- templates/invoice.md\n- templates/regional/ (1 file)\n",
		"./templates/regional/": eu, "/skill/templates/regional": eu, `templates\regional`: eu, "skill://pdf/templates/regional": eu,
		".": "- references/ (1 file)\n- skills/ (2 files)",
		"/": "- references/ (1 file)\n- skills/ (2 files)",
	} {
		if got := p.tool(legacy, ToolRead, object{"skill": "pdf", "path": path}); got.IsError || !strings.HasPrefix(got.text(), want) {
			t.Errorf("%s: %v %s, want %s", path, got.IsError, got.text(), want)
		}
	}
	if got := p.tool(legacy, ToolLoad, object{"name": "pdf", "file_path": "templates/regional"}); got.text() != eu {
		t.Errorf("load_skill of a directory = %s", got.text())
	}
	for _, path := range []string{"", "..", "templ", "templates/..", "references/forms.md/", "skills/merge/nosuch"} {
		got := p.tool(legacy, ToolRead, object{"skill": "pdf", "path": path})
		if isFile := path == "references/forms.md/"; got.IsError == isFile || strings.Contains(got.text(), "(directory") {
			t.Errorf("%q: %+v", path, got)
		}
	}
}

// A picture follows its text as a block of its own, in both eras; any other binary file is a link. The record
// has what was shown.
func TestPictures(t *testing.T) {
	var small, large bytes.Buffer
	for b, width := range map[*bytes.Buffer]int{&small: 30, &large: 3000} {
		if err := png.Encode(b, image.NewGray(image.Rect(0, 0, width, 20))); err != nil {
			t.Fatal(err)
		}
	}
	p := newProbe(t, map[string]string{
		"a/SKILL.md": skillMD("a"), "a/small.png": small.String(), "a/large.png": large.String(), "a/broken.png": small.String()[:40], "a/logo.svg": "<svg/>", "a/data.bin": "\x00\x01",
	}, probeOptions{})
	for _, era := range []string{legacy, modern} {
		for _, test := range []struct{ path, block, text string }{
			{"small.png", "image", "[small.png: picture of 30 x 20 pixels, image/png"}, {"large.png", "image", "[large.png: picture of 3000 x 20 pixels, shown smaller"},
			{"broken.png", "resource_link", "[broken.png: binary file, image/png, 40 bytes; skill://a/broken.png"}, {"logo.svg", "", "<svg/>"},
			{"data.bin", "resource_link", "[data.bin: binary file, application/octet-stream, 2 bytes; skill://a/data.bin]"},
		} {
			got := p.tool(era, ToolRead, object{"skill": "a", "path": test.path})
			if got.IsError || !strings.HasPrefix(got.text(), test.text) || len(got.Content) != 1+min(len(test.block), 1) {
				t.Errorf("%s: %+v, want %s", test.path, got, test.text)
				continue
			}
			switch block := got.Content[len(got.Content)-1]; test.block {
			case "resource_link":
				if block.Type != test.block || block.URI != "skill://a/"+test.path {
					t.Errorf("%s: %+v", test.path, block)
				}
			case "image":
				data, err := base64.StdEncoding.DecodeString(block.Data)
				config, decodeErr := png.DecodeConfig(bytes.NewReader(data))
				if block.Type != test.block || block.MIMEType != "image/png" || err != nil || decodeErr != nil || config.Width > picture.MaxSide {
					t.Errorf("%s: %s %s, %v %v", test.path, block.Type, block.MIMEType, err, decodeErr)
				}
				if kept, err := p.records.Artifact(t.Context(), p.server.cfg.Sessions.Current().ID(), provenance.ShownName(digest.FromBytes(data))); err != nil {
					t.Errorf("%s: what was shown is not kept: %v", test.path, err)
				} else {
					kept.Close()
				}
			}
		}
		if got := p.tool(era, ToolRead, object{"skill": "a", "path": "small.png", "maxBytes": 0}); len(got.Content) != 2 || got.Content[1].Type != "resource_link" {
			t.Errorf("a picture of which no bytes are asked for: %+v", got.Content)
		}
	}
}

// A load has the skill's own allowed-tools for hosts, if it declares them.
func TestAllowedToolsOfALoad(t *testing.T) {
	p := newProbe(t, map[string]string{
		"a/SKILL.md": skillMD("a", "allowed-tools: Bash(git:*) Read\n"), "b/SKILL.md": skillMD("b"), "c/SKILL.md": skillMD("c", "allowed-tools: []\n"),
	}, probeOptions{})
	for name, want := range map[string]string{"a": `["Bash(git:*)","Read"]`, "b": "", "c": "[]"} {
		if got := string(p.tool(modern, ToolLoad, object{"name": name}).Meta[metaAllowedTools]); got != want {
			t.Errorf("%s: _meta has %s, want %s", name, got, want)
		}
		var prompt struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		p.must(legacy, methodGetPrompt, object{"name": name}, &prompt)
		if string(prompt.Meta[metaAllowedTools]) != want {
			t.Errorf("the prompt %s: _meta has %s, want %s", name, prompt.Meta, want)
		}
	}
}

// The directories hold every file of every skill that is not hidden; a SKILL.md is described as in
// resources/list.
func TestDirectoriesAreComplete(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	listed, tops := map[string]mcp.Resource{}, map[string]bool{}
	for _, r := range p.walk(methodListResources, object{}) {
		listed[r.URI] = r
	}
	var want, found []string
	for name := range sampleFiles() {
		if top, _, _ := strings.Cut(name, "/"); top != "shy" {
			tops["skill://"+strings.ReplaceAll(top, " ", "%20")] = true
			want = append(want, "skill://"+strings.ReplaceAll(name, " ", "%20"))
		}
	}
	for top := range tops {
		found = append(found, p.descend(top)...)
	}
	slices.Sort(want)
	slices.Sort(found)
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("directories (-files +found):\n%s", diff)
	}
	if name := listed["skill://pdf/skills/merge/SKILL.md"].Name; name != "merge" {
		t.Errorf("the SKILL.md of a nested skill is called %q", name)
	}
	for _, r := range p.walk(methodReadDirectory, object{"uri": "skill://pdf"}) {
		if want, ok := listed[r.URI]; ok {
			if diff := cmp.Diff(want, r); diff != "" {
				t.Errorf("%s (-resources/list +directory):\n%s", r.URI, diff)
			}
		}
	}
}

// Directories are paged without loss, of files and of skills.
func TestDirectoryPages(t *testing.T) {
	files := map[string]string{"demo/SKILL.md": skillMD("demo")}
	for i := range 320 {
		files[fmt.Sprintf("demo/data/%03d.txt", i)] = "x"
		files[fmt.Sprintf("many/s-%03d/SKILL.md", i)] = skillMD(fmt.Sprintf("s-%03d", i))
	}
	p := newProbe(t, files, probeOptions{})
	for _, uri := range []string{"skill://demo/data", "skill://many"} {
		all := p.walk(methodReadDirectory, object{"uri": uri})
		sorted := slices.IsSortedFunc(all, func(a, b mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
		if len(all) != 320 || !sorted {
			t.Errorf("%s has %d children, in order %v", uri, len(all), sorted)
		}
	}
}

// resources/list has the SKILL.md of each skill, nested ones too, and is paged without loss.
func TestResourcePages(t *testing.T) {
	files := map[string]string{"demo/inner/SKILL.md": skillMD("inner"), "demo-2/SKILL.md": skillMD("demo-2")}
	for i := range 220 {
		files[fmt.Sprintf("s-%03d/SKILL.md", i)] = skillMD(fmt.Sprintf("s-%03d", i))
	}
	want := slices.Sorted(maps.Keys(files))
	files["demo-2/data.txt"], files["s-000/references/x.md"] = "x", "x"
	files["s-010/SKILL.md"] = skillMD("s-010", "disable-model-invocation: true\n")
	p := newProbe(t, files, probeOptions{})
	var got []string
	for _, r := range p.walk(methodListResources, object{}) {
		got = append(got, strings.TrimPrefix(r.URI, "skill://"))
	}
	want = slices.DeleteFunc(want, func(name string) bool { return name == "s-010/SKILL.md" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources/list (-want +got):\n%s", diff)
	}
}

// FuzzDirectory: no URI makes a directory of what is none, and what a directory names can be read.
func FuzzDirectory(f *testing.F) {
	for _, uri := range []string{"skill://pdf", "skill://acme/", "skill://pdf/templates", "skill://Bad%20Name", "skill://pdf/%2e%2e", "skill://acme/billing/refunds/templates/a%20b", "x"} {
		f.Add(uri)
	}
	p := newProbe(f, sampleFiles(), probeOptions{})
	snapshot := p.server.cfg.Registry.Snapshot()
	ses, err := p.server.cfg.Sessions.Open(f.Context(), session.Call{Principal: localPrincipal})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		children, err := p.server.directory(t.Context(), ses, snapshot, uri)
		if (err == nil) != (len(children) > 0) {
			t.Fatalf("directory(%q) = %v, %v", uri, children, err)
		}
		for _, child := range children {
			path, err := skills.ParseURI(child.URI)
			if err != nil {
				t.Fatalf("directory(%q) has %q: %v", uri, child.URI, err)
			}
			in, _ := skills.ParseURI(uri)
			if path[:strings.LastIndexByte(path, '/')] != in {
				t.Fatalf("directory(%q) has %q", uri, child.URI)
			}
			if child.MIMEType == mimeDirectory {
				if _, err := p.server.directory(t.Context(), ses, snapshot, child.URI); err != nil {
					t.Fatalf("directory(%q) has %q: %v", uri, child.URI, err)
				}
			}
		}
	})
}
