package skills_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

func withFields(name string, fields ...string) string {
	return "---\nname: " + name + "\ndescription: about " + name + "\n" + strings.Join(fields, "\n") + "\n---\nBody.\n"
}

func TestStatus(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{
		"plain/SKILL.md":    document("plain", "plain"),
		"hidden/SKILL.md":   withFields("hidden", "disable-model-invocation: true"),
		"quiet/SKILL.md":    withFields("quiet", "user-invocable: false"),
		"needs/SKILL.md":    withFields("needs", "metadata:", "  requires: have lack"),
		"vendor/SKILL.md":   withFields("vendor", "metadata:", "  openclaw:", "    requires:", "      bins: [have]", "      env: [SET, UNSET]"),
		"granted/SKILL.md":  withFields("granted", "metadata:", "  openclaw:", "    requires:", "      env: [SET, UNSET]"),
		"top/SKILL.md":      withFields("top", "requires:", "  bins: [lack]"),
		"prose/SKILL.md":    withFields("prose", "requires:", "  bins: [have (any version)]", "  env:", "    - 'KEY (optional): a key'"),
		"words/SKILL.md":    withFields("words", "requires: some other skill"),
		"deep/off/SKILL.md": document("switched-off", "off"),
	})
	opts := &skills.ScanOptions{
		Disabled: []string{"switched-off", "nobody"}, Pinned: []string{"plain"}, NameOnly: []string{"quiet"},
		HasCommand: func(name string) bool { return name == "have" },
		HasEnv:     func(name string) bool { return name == "SET" },
		HasSecret:  func(path, name string) bool { return path == "granted" && name == "UNSET" },
	}
	snapshot := scan(t, opts, skills.Root{Dir: base, Tier: skills.TierUser})
	want := map[string]skills.Status{
		"plain":    {State: skills.StateEnabled, Pinned: true, Reasons: []string{"pinned in the configuration"}},
		"hidden":   {State: skills.StateHidden, Reasons: []string{"disable-model-invocation is set"}},
		"quiet":    {State: skills.StateEnabled, NameOnly: true, Reasons: []string{"no prompt, user-invocable is false", "name only, in the configuration"}},
		"needs":    {State: skills.StateUnavailable, Reasons: []string{`requires the command "lack", which is not on PATH`}},
		"vendor":   {State: skills.StateUnavailable, Reasons: []string{`requires the environment variable "UNSET", which is not set`}},
		"granted":  {State: skills.StateEnabled},
		"top":      {State: skills.StateUnavailable, Reasons: []string{`requires the command "lack", which is not on PATH`}},
		"prose":    {State: skills.StateEnabled},
		"words":    {State: skills.StateEnabled},
		"deep/off": {State: skills.StateDisabled, Reasons: []string{"disabled in the configuration"}},
	}
	got := map[string]skills.Status{}
	for _, sk := range slices.Concat(snapshot.Skills, snapshot.Withheld) {
		got[sk.Path] = snapshot.Status(sk)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"deep/off", "needs", "top", "vendor"}, paths(snapshot.Withheld)); diff != "" {
		t.Errorf("withheld (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"requires-missing needs", "requires-missing top", "requires-missing vendor", "unknown-skill nobody"}, codes(snapshot.Diagnostics)); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	for _, name := range []string{"deep/off", "off", "switched-off", "needs"} {
		var missing *skills.NotFoundError
		if _, err := snapshot.Lookup(name); !errors.As(err, &missing) {
			t.Errorf("Lookup(%q) = %v, want not found", name, err)
		}
	}
	if _, _, err := snapshot.Resolve("skill://needs/SKILL.md"); err == nil {
		t.Error("the URI of an unavailable skill resolves")
	}
	unchecked := scan(t, nil, skills.Root{Dir: base, Tier: skills.TierUser})
	if len(unchecked.Withheld) != 0 {
		t.Errorf("without options %v are withheld", paths(unchecked.Withheld))
	}
}

// What an operator switched off does not come back from a less trusted root.
func TestDisabledSkillHoldsItsPath(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, name := range []string{"one", "two"} {
		writeTree(t, base, map[string]string{name + "/pdf/SKILL.md": withFields("pdf", "metadata:", "  requires: lack-"+name)})
	}
	roots := []skills.Root{{Dir: filepath.Join(base, "one"), Tier: skills.TierOrg}, {Dir: filepath.Join(base, "two"), Tier: skills.TierThirdParty}}
	for name, opts := range map[string]*skills.ScanOptions{
		"disabled":    {Disabled: []string{"pdf"}},
		"unavailable": {HasCommand: func(name string) bool { return name == "lack-two" }},
	} {
		snapshot := scan(t, opts, roots...)
		if len(snapshot.Skills) != 0 || len(snapshot.Withheld) != 1 || snapshot.Withheld[0].Root.Tier != skills.TierOrg {
			t.Errorf("%s: served %v, withheld %v", name, paths(snapshot.Skills), paths(snapshot.Withheld))
		}
	}
}

// The files of a skill that the operator switched off are not those of the skill around it, and a hidden one
// stays hidden when it is withheld.
func TestWithheldSkillHidesItsFiles(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	const hide, lacks = "disable-model-invocation: true", "metadata:\n  requires: lack"
	writeTree(t, base, map[string]string{
		"out/SKILL.md": document("out", "out"), "out/off/SKILL.md": document("off", "off"), "out/on/SKILL.md": document("on", "on"),
		"out/shy/SKILL.md": withFields("shy", hide), "out/shy-off/SKILL.md": withFields("shy-off", hide),
		"out/needs/SKILL.md": withFields("needs", lacks), "out/shy-needs/SKILL.md": withFields("shy-needs", hide, lacks),
	})
	snapshot := scan(t, &skills.ScanOptions{
		Disabled: []string{"off", "shy-off"}, HasCommand: func(string) bool { return false },
	}, skills.Root{Dir: base, Tier: skills.TierUser})
	for dir, hides := range map[string]bool{"off": true, "on": false, "shy": true, "shy-off": true, "needs": false, "shy-needs": true} {
		for _, path := range []string{dir, dir + "/SKILL.md", dir + "/references/x.md"} {
			if by := snapshot.HiddenBy(snapshot.Skill("out"), path); len(by) > 0 != hides {
				t.Errorf("%s is hidden by %v", path, paths(by))
			}
		}
	}
}

func TestStrictSkills(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{
		"org/good/SKILL.md": document("good", "good"), "org/Bad/SKILL.md": document("Bad", "bad"), "other/Bad/SKILL.md": document("Bad", "of less trust"),
	})
	roots := []skills.Root{{Dir: filepath.Join(base, "org"), Tier: skills.TierOrg}, {Dir: filepath.Join(base, "other"), Tier: skills.TierThirdParty}}
	snapshot := scan(t, &skills.ScanOptions{StrictSkills: true}, roots...)
	if diff := cmp.Diff([]string{"good"}, paths(snapshot.Skills)); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"not-strict Bad/SKILL.md", "not-strict Bad/SKILL.md"}, codes(snapshot.Diagnostics)); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
}

// A name that two skills come to share falls back to the directories', also for the skill that an
// earlier snapshot already named.
func TestRenamedOnlyInTheLaterSnapshot(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{"a/SKILL.md": document("shared", "first"), "b/SKILL.md": document("b", "second")})
	registry := skills.NewRegistry([]skills.Root{{Dir: base, Tier: skills.TierUser}}, nil)
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := registry.Snapshot()
	first, second := before.Skill("a"), before.Skill("b")
	writeTree(t, base, map[string]string{"b/SKILL.md": document("shared", "second")})
	if _, err := registry.RescanSkill(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	after := registry.Snapshot()
	if name := first.Name(); name != "shared" {
		t.Errorf("the earlier snapshot's skill was renamed %q", name)
	}
	if names := []string{after.Skill("a").Name(), after.Skill("b").Name()}; !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("names are %v, want those of the directories", names)
	}
	if _, err := after.Lookup("shared"); err == nil {
		t.Error("the shared name still finds a skill")
	}
}

// A skill that is read again and then requires what is missing is not handed out.
func TestRescanSkillIsNotServedAnyMore(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{"a/SKILL.md": document("a", "first")})
	registry := skills.NewRegistry([]skills.Root{{Dir: base, Tier: skills.TierUser}}, &skills.ScanOptions{HasCommand: func(string) bool { return false }})
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	sk := registry.Snapshot().Skill("a")
	writeTree(t, base, map[string]string{"a/SKILL.md": withFields("a", "metadata:", "  requires: gone")})
	if fresh, err := registry.RescanSkill(t.Context(), sk); !errors.Is(err, skills.ErrNotFound) || fresh != nil {
		t.Errorf("RescanSkill = %v, %v; want not found", fresh, err)
	}
	if after := registry.Snapshot(); len(after.Skills) != 0 || len(after.Withheld) != 1 {
		t.Errorf("served %v, withheld %v", paths(after.Skills), paths(after.Withheld))
	}
}

// An index is of the version that the scan read, or it is none: where another version has taken the
// directory's place, the registry reads the skill anew.
func TestIndexIsOfOneVersion(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	writeTree(t, base, map[string]string{
		"root/a/SKILL.md": document("a", "first"), "root/a/file": "first",
		"next/SKILL.md": document("a", "second"), "next/file": "second",
	})
	registry := skills.NewRegistry([]skills.Root{{Dir: filepath.Join(base, "root"), Tier: skills.TierUser}}, nil)
	if _, err := registry.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	sk := registry.Snapshot().Skill("a")
	if err := errors.Join(os.Rename(filepath.Join(base, "root", "a"), filepath.Join(base, "away")), os.Rename(filepath.Join(base, "next"), filepath.Join(base, "root", "a"))); err != nil {
		t.Fatal(err)
	}
	var drift *skills.DriftError
	if index, err := sk.Index(t.Context()); !errors.As(err, &drift) || drift.Path != "SKILL.md" {
		t.Errorf("Index = %v, %v; want drift of SKILL.md", index, err)
	}
	fresh, index, err := registry.Index(t.Context(), sk)
	if err != nil || fresh.Description() != "second" || index.Files[0].Digest != fresh.Digest || index.Resource("file").Digest != digest.FromString("second") {
		t.Errorf("the registry's index = %v, %v, %v", fresh, index, err)
	}
	if registry.Snapshot().Skill("a") != fresh {
		t.Error("the skill that was read anew is not in the snapshot")
	}
}

// What is too large to be listed is known without reading it.
func TestOversized(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size int64 // of a sparse file
		want bool
	}{"small": {1 << 20, false}, "large": {17 << 20, true}, "left out": {skills.MaxFile + 1, false}} {
		base := t.TempDir()
		writeTree(t, base, map[string]string{"a/SKILL.md": document("a", "first"), "a/file": ""})
		if err := os.Truncate(filepath.Join(base, "a", "file"), test.size); err != nil {
			t.Fatal(err)
		}
		sk := scan(t, nil, skills.Root{Dir: base}).Skill("a")
		got, err := sk.Oversized(t.Context())
		index, indexErr := sk.Index(t.Context())
		if err != nil || indexErr != nil || got != test.want || index.Publishable == test.want {
			t.Errorf("%s: Oversized = %v, %v; the index is publishable: %v, %v", name, got, err, index.Publishable, indexErr)
		}
	}
}
