package mcpserver

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/skills/policy"
)

// Only what the extension allows is listed, each skill under its own URI, with every file.
func TestListSkills(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	all := p.listed(nil)
	want := []string{
		"skill://acme/billing/refunds/SKILL.md", "skill://acme/support/refunds/SKILL.md", "skill://pdf-forms/SKILL.md",
		"skill://pdf/SKILL.md", "skill://pdf/skills/merge/SKILL.md", "skill://quiet/SKILL.md",
	}
	if diff := cmp.Diff(want, uris(all)); diff != "" {
		t.Fatalf("skills/list (-want +got):\n%s", diff)
	}
	pdf := all[3]
	if diff := cmp.Diff(object{"name": "pdf", "description": "About pdf.", "license": "MIT", "metadata": object{"version": 1.0, "since": "2026-01-02"}}, pdf.Frontmatter); diff != "" {
		t.Errorf("frontmatter (-want +got):\n%s", diff)
	}
	var resources []skillResource
	for _, name := range []string{"SKILL.md", "references/forms.md", "skills/merge/SKILL.md", "skills/merge/notes.md", "templates/invoice.md", "templates/regional/eu.md"} {
		content := sampleFiles()["pdf/"+name]
		resources = append(resources, skillResource{"skill://pdf/" + name, digest.FromString(content), int64(len(content))})
	}
	if diff := cmp.Diff(resources, pdf.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// skills/get answers for every skill that is served, with the very entry of the list, and says of
// the others why they are in none.
func TestGetSkill(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	listed := map[string]shownSkill{}
	for _, sk := range p.listed(nil) {
		listed[sk.URI] = sk
	}
	reasons := map[string]string{
		"skill://shy/SKILL.md": "disable-model-invocation is set", "skill://Bad%20Name/SKILL.md": "the name is invalid",
		"skill://other/SKILL.md": "the name is not the last segment of the path", "skill://lower/skill.md": "its file is not named SKILL.md",
		"skill://plain/SKILL.md": "the frontmatter was repaired",
	}
	for _, sk := range p.server.cfg.Registry.Snapshot().Skills {
		uri := sk.URI(sk.File)
		if sk.Hidden() {
			p.must(legacy, methodGetPrompt, object{"name": sk.Name()}, &object{})
		}
		var got struct {
			Meta  map[string]string `json:"_meta"`
			Skill shownSkill
		}
		p.must(legacy, methodGetSkill, object{"uri": uri}, &got)
		if want, ok := listed[uri]; ok {
			if diff := cmp.Diff(want, got.Skill); diff != "" {
				t.Errorf("skills/get %s differs from the list:\n%s", uri, diff)
			}
		}
		if why := got.Meta[metaUnlisted]; !strings.Contains(why, reasons[uri]) || (why == "") != (reasons[uri] == "") {
			t.Errorf("skills/get %s says %q, want %q", uri, why, reasons[uri])
		}
		if got.Skill.URI != uri || len(got.Skill.Resources) == 0 {
			t.Errorf("skills/get %s = %+v", uri, got.Skill)
		}
	}
	for _, uri := range []string{
		"", "skill://", "skill://none/SKILL.md", "skill://pdf", "skill://pdf/", "skill://pdf/SKILL.md/", "skill://pdf/references/forms.md", "skill://acme/SKILL.md",
		"skill://pdf/../shy/SKILL.md", "skill://pdf%2FSKILL.md", "SKILL://pdf/SKILL.md", "skill://pdf/SKILL.md?x", "file:///etc/passwd", "skill://pdf/skill.md", "skill://\x00",
		"skill://pdf/skills/SKILL.md", strings.Repeat("x", 100_000),
	} {
		_, failure := p.ask(modern, methodGetSkill, object{"uri": uri})
		if failure == nil || failure.Code != mcp.INVALID_PARAMS || len(failure.Message) > 1000 {
			t.Errorf("skills/get %.50q: %v, want %d", uri, failure, mcp.INVALID_PARAMS)
		}
	}
	for _, params := range []any{object{}, object{"uri": 7}, object{"uri": nil}, []string{"x"}} {
		if _, failure := p.ask(legacy, methodGetSkill, params); failure == nil || failure.Code != mcp.INVALID_PARAMS {
			t.Errorf("skills/get %v: %v", params, failure)
		}
	}
}

// Every legal name of a file survives the way into a URI, through the manifest, and back.
func TestEveryFileName(t *testing.T) {
	files := map[string]string{"demo/SKILL.md": skillMD("demo")}
	for _, name := range []string{
		"a b", "ä", "日本語.md", "100%", "%41", "%2e%2e", "a+b", "a&b=c", "a?b", "a#b", "[x]", "{y}", "~tilde", "-dash", "comma,semi;colon:", "quote'\"`", "<tag>", "$(x)", "*", "|", "^",
		"e\u0301", "\u200b", "…", "🙂", "SKILL.md.txt", ".hidden", "dir with space/deep/file", "a@b!", "=", "CON", "name.", "\u202etxt",
	} {
		files["demo/"+name] = "content of " + name
	}
	p := newProbe(t, files, probeOptions{})
	all := p.listed(nil)
	if len(all) != 1 || len(all[0].Resources) != len(files) {
		t.Fatalf("skills/list = %+v, want one skill of %d files", all, len(files))
	}
	for _, r := range all[0].Resources {
		var read struct{ Contents []struct{ URI, Text string } }
		p.must(legacy, methodReadResource, object{"uri": r.URI}, &read)
		if got := read.Contents[0]; got.URI != r.URI || digest.FromString(got.Text) != r.Digest || int64(len(got.Text)) != r.Size {
			t.Errorf("resources/read %s = %q", r.URI, got.Text)
		}
	}
	if found := p.descend("skill://demo"); len(found) != len(files) {
		t.Errorf("the directories hold %d files, want %d", len(found), len(files))
	}
}

// What the revision 2026-07-28 adds to a result is on it there, on every method, and never before.
func TestEras(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	for _, test := range []struct {
		method string
		params object
		cached bool
	}{
		{methodListSkills, object{}, true},
		{methodGetSkill, object{"uri": "skill://pdf/SKILL.md"}, true},
		{methodGetSkill, object{"uri": "skill://plain/SKILL.md"}, true},
		{methodReadDirectory, object{"uri": "skill://pdf"}, true},
		{methodListResources, object{}, true},
		{methodListTemplates, object{}, true},
		{methodReadResource, object{"uri": "skill://pdf/SKILL.md"}, true},
		{methodListPrompts, object{}, true},
		{methodGetPrompt, object{"name": "pdf"}, false},
		{methodComplete, object{"ref": object{"type": "ref/resource", "uri": templateURI}, "argument": object{"name": "path", "value": "p"}}, false},
	} {
		var before, after object
		p.must(legacy, test.method, test.params, &before)
		p.must(modern, test.method, test.params, &after)
		meta, _ := after["_meta"].(object)
		if info, _ := meta["io.modelcontextprotocol/serverInfo"].(object); after["resultType"] != "complete" || info["name"] != serverName {
			t.Errorf("%s on 2026-07-28 = resultType %v, _meta %v", test.method, after["resultType"], meta)
		}
		if _, ok := after["ttlMs"].(float64); ok != test.cached || ok != (after["cacheScope"] == "private") {
			t.Errorf("%s on 2026-07-28 = ttlMs %v, cacheScope %v", test.method, after["ttlMs"], after["cacheScope"])
		}
		for _, key := range []string{"resultType", "ttlMs", "cacheScope"} {
			if _, ok := before[key]; ok {
				t.Errorf("%s on 2025-11-25 has %s", test.method, key)
			}
		}
		if meta, _ := before["_meta"].(object); meta["io.modelcontextprotocol/serverInfo"] != nil {
			t.Errorf("%s on 2025-11-25 names the server", test.method)
		}
	}
	_, old := p.ask(legacy, methodReadResource, object{"uri": "skill://none"})
	_, fresh := p.ask(modern, methodReadResource, object{"uri": "skill://none"})
	if old == nil || fresh == nil || old.Code != mcp.RESOURCE_NOT_FOUND || fresh.Code != mcp.INVALID_PARAMS {
		t.Errorf("resources/read of nothing: %v, %v", old, fresh)
	}
}

// A walk while skills come and go between its pages returns each skill that stays exactly once, in
// order.
func TestWalkDuringReload(t *testing.T) {
	files := map[string]string{}
	for i := range 350 {
		files[fmt.Sprintf("keep-%03d/SKILL.md", i)] = skillMD(fmt.Sprintf("keep-%03d", i))
	}
	p := newProbe(t, files, probeOptions{})
	round := 0
	all := uris(p.listed(func() {
		round++
		// Some before the cursor, some behind it, some that come and go.
		for _, name := range []string{"aaa", "keep-150x", "zzz"} {
			name = fmt.Sprintf("%s-%d", name, round)
			p.write(map[string]string{name + "/SKILL.md": skillMD(name)})
			if err := os.RemoveAll(filepath.Join(p.root, strings.TrimSuffix(name, fmt.Sprint(round))+fmt.Sprint(round-1))); err != nil {
				t.Fatal(err)
			}
		}
		p.write(map[string]string{"keep-200/SKILL.md": skillMD("keep-200", fmt.Sprintf("license: round-%d\n", round))})
		p.rescan()
	}))
	if round < 3 {
		t.Fatalf("%d reloads", round)
	}
	seen := map[string]int{}
	for _, uri := range all {
		seen[uri]++
	}
	for name := range files {
		if n := seen["skill://"+name]; n != 1 {
			t.Errorf("%s is listed %d times", name, n)
		}
	}
	if !slices.IsSorted(all) {
		t.Error("the walk is not in byte order")
	}
	if seen["skill://zzz-3/SKILL.md"] != 1 {
		t.Error("a skill that came behind the cursor is missing")
	}
}

// A page ends before it grows out of bounds, and no entry is lost by that or by skills that only
// their files make unlisted.
func TestPageBounds(t *testing.T) {
	files := map[string]string{}
	for i := range 40 {
		name := fmt.Sprintf("big-%02d", i)
		files[name+"/SKILL.md"] = skillMD(name, "metadata:\n  x: "+strings.Repeat("y", 60_000)+"\n")
	}
	for i := range 513 {
		files[fmt.Sprintf("big-20-files/%d", i)] = ""
	}
	files["big-20-files/SKILL.md"] = skillMD("big-20-files")
	p := newProbe(t, files, probeOptions{})
	raw, failure := p.ask(legacy, methodListSkills, object{})
	if failure != nil || len(raw) > maxPageBytes+100 || len(raw) < maxPageBytes/2 {
		t.Errorf("a page of %d bytes: %v", len(raw), failure)
	}
	if all := p.listed(nil); len(all) != 40 {
		t.Errorf("%d skills listed, want 40", len(all))
	}
	var got struct {
		Meta  map[string]string `json:"_meta"`
		Skill shownSkill
	}
	p.must(legacy, methodGetSkill, object{"uri": "skill://big-20-files/SKILL.md"}, &got)
	if len(got.Skill.Resources) != 514 || !strings.Contains(got.Meta[metaUnlisted], "514 files") {
		t.Errorf("skills/get of too many files = %d files, %v", len(got.Skill.Resources), got.Meta)
	}
}

// A skill whose files cannot be listed costs the others nothing.
func TestUnreadableSkill(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	if err := os.RemoveAll(filepath.Join(p.root, "pdf-forms")); err != nil {
		t.Fatal(err)
	}
	if all := uris(p.listed(nil)); len(all) != 5 || slices.Contains(all, "skill://pdf-forms/SKILL.md") {
		t.Errorf("skills/list = %v", all)
	}
	if all := p.walk(methodListResources, object{}); len(all) != 9 {
		t.Errorf("resources/list has %d resources, want 9", len(all))
	}
	for method, uri := range map[string]string{methodGetSkill: "skill://pdf-forms/SKILL.md", methodReadDirectory: "skill://pdf-forms"} {
		if _, failure := p.ask(legacy, method, object{"uri": uri}); failure == nil || failure.Code != mcp.INVALID_PARAMS || strings.Contains(failure.Error(), p.root) {
			t.Errorf("%s: %v", method, failure)
		}
	}
}

// A cursor that this server did not give is refused or only says where to start; it never ends a
// call otherwise.
func TestForeignCursors(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	for _, cursor := range []any{"%%%", "ä", 7, object{}} {
		for _, method := range []string{methodListSkills, methodListResources, methodListPrompts, methodReadDirectory, methodListTemplates} {
			if _, failure := p.ask(modern, method, object{"uri": "skill://pdf", "cursor": cursor}); failure == nil || failure.Code != mcp.INVALID_PARAMS {
				t.Errorf("%s with cursor %v: %v", method, cursor, failure)
			}
		}
	}
	if _, failure := p.ask(modern, methodListTemplates, object{"cursor": "AAAA"}); failure == nil || failure.Code != mcp.INVALID_PARAMS {
		t.Errorf("a second page of the one page of templates: %v", failure)
	}
	for _, after := range []string{"\x00", "\xff\xfe", "skill://zzz", strings.Repeat("z", 1<<16)} {
		cursor := base64.RawURLEncoding.EncodeToString([]byte(after))
		for _, method := range []string{methodListSkills, methodListResources, methodListPrompts, methodReadDirectory} {
			if _, failure := p.ask(modern, method, object{"uri": "skill://pdf", "cursor": cursor}); failure != nil {
				t.Errorf("%s with cursor %.20q: %v", method, after, failure)
			}
		}
	}
}

// Under enforce-strict without a direct command every read is refused with the whole denial, and
// the refusal is recorded.
func TestDeniedMethods(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{policy: policy.Config{Mode: policy.EnforceStrict}})
	asks := []struct {
		method string
		params object
	}{
		{methodListSkills, object{}},
		{methodGetSkill, object{"uri": "skill://pdf/SKILL.md"}},
		{methodGetSkill, object{"uri": "skill://none/SKILL.md"}},
		{methodReadDirectory, object{"uri": "skill://pdf/references"}},
		{methodReadDirectory, object{"uri": "skill://none"}},
		{methodReadResource, object{"uri": "skill://pdf/SKILL.md"}},
		{methodGetPrompt, object{"name": "pdf"}},
		{methodGetPrompt, object{"name": "none"}},
	}
	for _, era := range []string{legacy, modern} {
		for _, ask := range asks {
			_, failure := p.ask(era, ask.method, ask.params)
			if failure == nil || failure.Code != codeDenied {
				t.Errorf("%s %v: %v, want code %d", ask.method, ask.params, failure, codeDenied)
				continue
			}
			data, _ := failure.Data.(object)
			if data["type"] != "cf-harness.observation-denied" || data["code"] != "direct_command_required" || data["eventId"] == "" || data["detail"] != failure.Message {
				t.Errorf("%s %v: data %v", ask.method, ask.params, data)
			}
		}
	}
	if got := p.events("policy.denied"); got != 2*len(asks) {
		t.Errorf("%d denials recorded, want %d", got, 2*len(asks))
	}
	allowed := newProbe(t, sampleFiles(), probeOptions{policy: policy.Config{Mode: policy.EnforceStrict, Role: policy.DirectCommand}})
	for _, ask := range asks[:2] {
		allowed.must(legacy, ask.method, ask.params, new(object))
	}
	if allowed.server.cfg.Sessions.Current() == nil || allowed.events("") != 0 {
		t.Error("a list is recorded")
	}
}

// events counts the records of a kind, of all with none.
func (p *probe) events(kind provenance.Kind) (n int) {
	p.t.Helper()
	for e, err := range p.records.Events(p.t.Context(), provenance.Query{Session: p.server.cfg.Sessions.Current().ID()}) {
		if errors.Is(err, provenance.ErrNotFound) {
			return 0
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if e.Kind == kind || kind == "" {
			n++
		}
	}
	return n
}

// The extension is declared in both eras, and a client that declares nothing is served.
func TestExtensionDeclared(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	for era, method := range map[string]string{legacy: "initialize", modern: "server/discover"} {
		params := object{}
		if era == legacy {
			params = object{"protocolVersion": "2025-11-25", "capabilities": object{}, "clientInfo": object{"name": "x", "version": "1"}}
		}
		var result struct {
			Capabilities struct {
				Extensions                      map[string]object
				Resources, Prompts, Completions object
			}
		}
		p.must(era, method, params, &result)
		if diff := cmp.Diff(map[string]object{"io.modelcontextprotocol/skills": {"directoryRead": true}}, result.Capabilities.Extensions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", method, diff)
		}
		if c := result.Capabilities; c.Resources == nil || c.Prompts["listChanged"] != true || c.Completions == nil {
			t.Errorf("%s: capabilities %+v", method, c)
		}
	}
}

// Entries are made once for a snapshot.
func TestEntriesAreKept(t *testing.T) {
	p := newProbe(t, sampleFiles(), probeOptions{})
	p.listed(nil)
	first := p.server.visible(scope{principal: localPrincipal})
	made := first.at("skill://pdf/SKILL.md").made.Load()
	p.listed(nil)
	if p.server.visible(scope{principal: localPrincipal}) != first || first.at("skill://pdf/SKILL.md").made.Load() != made || made == nil {
		t.Error("an entry was made twice")
	}
	p.write(map[string]string{"pdf/SKILL.md": skillMD("pdf", "license: GPL\n")})
	p.rescan()
	var got struct{ Skill json.RawMessage }
	p.must(legacy, methodGetSkill, object{"uri": "skill://pdf/SKILL.md"}, &got)
	if !strings.Contains(string(got.Skill), "GPL") {
		t.Errorf("after a reload: %s", got.Skill)
	}
}
