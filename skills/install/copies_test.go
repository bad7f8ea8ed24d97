package install

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// A skill is installed once, under the name that it has, whatever else the source has of it; and a note tells
// what is left out and for what.
func TestCopies(t *testing.T) {
	m := newMachine(t)
	dir := write(t, t.TempDir(), map[string]string{
		".claude-plugin/marketplace.json": `{"name":"m","plugins":[{"name":"far","source":{"source":"url","url":"https://h.example/z"}}]}`,
		"plugins/c/p/plugin.json":         `{"name":"p"}`, "plugins/c/p/skills/a/SKILL.md": skillText("a"),
		"plugins/c/p/skills/b/SKILL.md": skillText("b"), "skills/a/SKILL.md": skillText("a"),
		"skills/b/SKILL.md": skillText("b") + "x\n", "skills/c/SKILL.md": skillText("c"), ".kiro/skills/c/SKILL.md": skillText("c") + "x\n",
	})
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: dir, Skills: []string{"skills/a"}}); err != nil {
		t.Fatal(err)
	}
	plan, err := i.Add(t.Context(), Request{Source: dir, All: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	var got []string
	for _, c := range plan.Changes {
		got = append(got, c.Name)
	}
	if want := []string{"c", "p/b"}; !slices.Equal(got, want) {
		t.Errorf("installs %q, want %q", got, want)
	}
	notes := strings.Join(plan.Notes, "\n")
	for _, want := range []string{"1 of its skills are installed already",
		`an equal copy of these skills is left out: "skills/a"; "plugins/c/p/skills/a" is taken`,
		`2 other versions of these skills are left out, such as ".kiro/skills/c"; "skills/c" is taken`} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes lack %q:\n%s", want, notes)
		}
	}
}

// A skill outside of the plugins that has only the name of one in a plugin is another skill, and keeps its name.
func TestOtherThanInPlugins(t *testing.T) {
	text := func(about, body string) string {
		return "---\nname: deploy\ndescription: " + about + "\n---\n" + body
	}
	const helm = "Run helm upgrade, then wait for the pods of the release.\n"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"another skill":   {text("Publishes a site.", "Run netlify deploy, and open the page.\n"), []string{"deploy", "p/deploy", "q/deploy"}},
		"one description": {text("Deploys to Kubernetes.", "See the manual.\n"), []string{"p/deploy", "q/deploy"}},
		"most lines":      {text("Deploys charts.", helm+"See the manual.\n"), []string{"p/deploy", "q/deploy"}},
	} {
		dir := write(t, t.TempDir(), map[string]string{
			".claude-plugin/marketplace.json": `{"name":"m","plugins":[{"name":"p","source":"./p"},{"name":"q","source":"./q"}]}`,
			"p/skills/deploy/SKILL.md":        text("Deploys to Kubernetes.", helm+strings.Repeat("Ask first.\n", 30)),
			"q/skills/deploy/SKILL.md":        text("Flashes a device.", "Run esptool, and keep the cable in.\n"),
			"skills/deploy/SKILL.md":          test.text,
			"preview/deploy/SKILL.md":         text("Something new.", "Come.\n"),
			".codex/skills/deploy/SKILL.md":   text("Something old.", "Gone.\n")})
		m := newMachine(t)
		m.install(Request{Source: dir, All: true})
		if got := names(m.open().Lock()); !slices.Equal(got, test.want) {
			t.Errorf("%s: installs %q, want %q", name, got, test.want)
		}
	}
}

// A marketplace without skills of its own is no source without skills: its plugins are named.
func TestOnlyRemotePlugins(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{".claude-plugin/marketplace.json": `{"name":"m","plugins":[
		{"name":"one","source":{"source":"github","repo":"o/one"}},
		{"name":"two","source":{"source":"url","url":"https://h.example/two.git"}}]}`})
	i := newMachine(t).open()
	for _, req := range []Request{{}, {All: true}, {Skills: []string{"x"}}, {Skills: []string{"two"}}} {
		req.Source = dir
		_, err := i.Add(t.Context(), req)
		refused, ok := errors.AsType[*SourceError](err)
		want, hint := "it lists plugins of other sources", "give --plugin NAME; it has one, two"
		if slices.Contains(req.Skills, "two") {
			want, hint = "that is a plugin", "give --plugin two"
		}
		if !ok || !strings.HasSuffix(refused.Reason, want) || refused.Hint != hint {
			t.Errorf("%+v: %v, %+v", req, err, refused)
		}
	}
}

// A source that a marketplace elsewhere lists as a plugin is that plugin, also without a manifest of its own.
func TestPluginWithoutManifest(t *testing.T) {
	dir := write(t, t.TempDir(), map[string]string{"docs/a.md": "A.\n", "README.md": "x",
		"skills/solo/SKILL.md": skillText("solo") + "Read ${CLAUDE_PLUGIN_ROOT}/docs/a.md.\n"})
	i := newMachine(t).open()
	facts := &PluginFacts{Name: "far", Version: "1.0"}
	if err := apply(t.Context(), i, Request{Source: dir, All: true, of: facts}); err != nil {
		t.Fatal(err)
	}
	e := i.Lock().Find("far/solo")
	if e == nil || e.Plugin.String() != "far 1.0" || len(e.Taken) != 1 {
		t.Fatalf("installed %q, %+v", names(i.Lock()), e)
	}
	updateAll(t, i)
	if same := i.Lock().Find("far/solo"); same.Tree != e.Tree || !same.Plugin.equal(facts) {
		t.Errorf("after an update without a change: %+v", same)
	}
	second := newMachine(t).open()
	if _, err := synced(t.Context(), second, Sync{Lock: i.Lock()}); err != nil {
		t.Error(err)
	}
	write(t, dir, map[string]string{"docs/a.md": "B.\n"})
	updateAll(t, i)
	if now := i.Lock().Find("far/solo"); now.Tree == e.Tree || !now.Plugin.equal(facts) || len(now.Taken) != 1 {
		t.Errorf("after an update: %+v", now)
	}
}

// A skill that several plugins list stays one of the plugin that it was installed from.
func TestSharedSkill(t *testing.T) {
	m := newMachine(t)
	files := shared()
	files["skills/a/SKILL.md"] += "Read ${PLUGIN_ROOT}.\n"
	dir := write(t, t.TempDir(), files)
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: dir, Plugin: "y"}); err != nil {
		t.Fatal(err)
	}
	e := i.Lock().Find("y/a")
	if e == nil || e.Plugin.String() != "y" || len(e.Taken) != 1 || e.Taken[0].From != "p/y/plugin.json" {
		t.Fatalf("entry = %+v", e)
	}
	updateAll(t, i)
	if after := i.Lock().Find("y/a"); after.Tree != e.Tree || after.Plugin.String() != "y" {
		t.Errorf("after an update without a change: %+v", after)
	}
	second := newMachine(t).open()
	if _, err := synced(t.Context(), second, Sync{Lock: i.Lock()}); err != nil {
		t.Error(err)
	}
	if err := apply(t.Context(), i, Request{Source: dir, All: true}); err != nil {
		t.Fatal(err)
	}
	if got := names(i.Lock()); !slices.Equal(got, []string{"x/b", "y/a"}) {
		t.Errorf("installed %q", got)
	}
}

// Skills of a plugin that mention or require each other find the ones that are installed.
func TestSiblings(t *testing.T) {
	m := newMachine(t)
	dir := write(t, t.TempDir(), map[string]string{"plugin.json": `{"name":"p"}`,
		"skills/asks/SKILL.md":  "---\nname: asks\ndescription: Asks.\nmetadata:\n  requires:\n    skills: [gives]\n---\nUse the `gives` skill.\n",
		"skills/gives/SKILL.md": skillText("gives")})
	i := m.open()
	if err := apply(t.Context(), i, Request{Source: dir, Skills: []string{"gives"}}); err != nil {
		t.Fatal(err)
	}
	plan, err := i.Add(t.Context(), Request{Source: dir, Skills: []string{"asks"}, WithRequirements: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plan.Close()
	if len(plan.Changes) != 1 || len(plan.Refused) > 0 || plan.Lacking > 0 || len(plan.Notes) > 0 {
		t.Errorf("changes %v, refused %v, notes %q", plan.Changes, plan.Refused, plan.Notes)
	}
}

// A skill whose directory has no name that can be installed gets one of its own, whatever else is installed.
func TestDerivedName(t *testing.T) {
	dir := write(t, filepath.Join(t.TempDir(), "repo"), map[string]string{
		"skills/数据分析/SKILL.md": skillText("数据分析"), "skills/写作/SKILL.md": skillText("写作"),
		"skills/über-uns/SKILL.md": skillText("über-uns"), "skills/uber-uns/SKILL.md": skillText("uber-uns"),
		"skills/名前/SKILL.md": skillText("fallback"), "skills/plain/SKILL.md": skillText("other"),
		"skills/文/SKILL.md": skillText("plain"), "skills/一/SKILL.md": skillText("twice"),
		"skills/二/SKILL.md": skillText("twice") + "x\n", "団/same/SKILL.md": skillText("same"),
		"隊/same/SKILL.md": skillText("same") + "x\n", "伍/same/SKILL.md": skillText("same") + "y\n"})
	want := []string{"fallback", "plain", "same", "uber-uns"}
	for _, name := range []string{"数据分析", "写作", "文", "一", "二"} {
		want = append(want, "skill-"+digest.FromString(name).Encoded()[:8])
	}
	for _, name := range []string{"団", "隊"} {
		want = append(want, "skill-"+digest.FromString(name).Encoded()[:8]+"/same")
	}
	want = append(want, "uber-uns-"+digest.FromString("über-uns").Encoded()[:8])
	slices.Sort(want)
	m := newMachine(t)
	m.install(Request{Source: dir, All: true})
	if got := names(m.open().Lock()); !slices.Equal(got, want) {
		t.Errorf("installs %q, want %q", got, want)
	}
	alone := "skill-" + digest.FromString("写作").Encoded()[:8]
	for _, name := range []string{"写作", alone} {
		m = newMachine(t)
		m.install(Request{Source: dir, Skills: []string{name}})
		if got := names(m.open().Lock()); !slices.Equal(got, []string{alone}) {
			t.Errorf("%s alone: installs %q", name, got)
		}
	}
}

// Only a skill that is all of the source gets the name of the source.
func TestNameOfSource(t *testing.T) {
	dir := write(t, filepath.Join(t.TempDir(), "repo"), map[string]string{"SKILL.md": skillText("写作")})
	m := newMachine(t)
	m.install(Request{Source: dir})
	if got := names(m.open().Lock()); !slices.Equal(got, []string{"repo"}) {
		t.Errorf("installs %q", got)
	}
}
