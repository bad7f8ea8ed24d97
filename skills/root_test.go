package skills_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
)

func TestParseRoot(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]skills.Root{
		"/srv/skills":          {Dir: "/srv/skills", Tier: skills.TierUser},
		"skills":               {Dir: "skills", Tier: skills.TierUser},
		"org=/srv/skills":      {Dir: "/srv/skills", Tier: skills.TierOrg},
		"builtin=x":            {Dir: "x", Tier: skills.TierBuiltin},
		"third-party:acme/x=y": {Dir: "y", Prefix: "acme/x", Tier: skills.TierThirdParty},
		"user=a=b":             {Dir: "a=b", Tier: skills.TierUser},
		"/srv/a=b":             {Dir: "/srv/a=b", Tier: skills.TierUser},
		"./a=b":                {Dir: "./a=b", Tier: skills.TierUser},
	} {
		if got, err := skills.ParseRoot(spec); err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParseRoot(%q) = %+v, %v; want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"", "org=", "orgs=/x", "Org=/x", "org:=/x", "org:../x=/y", "org:/x=/y", "org:a//b=/y", "org:a/=/y", "=x"} {
		if got, err := skills.ParseRoot(spec); err == nil {
			t.Errorf("ParseRoot(%q) = %+v, want an error", spec, got)
		}
	}
}

func TestTier(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal([]skills.Tier{skills.TierBuiltin, skills.TierOrg, skills.TierUser, skills.TierThirdParty})
	if err != nil || string(raw) != `["builtin","org","user","third-party"]` {
		t.Errorf("Marshal = %s, %v", raw, err)
	}
	var tiers []skills.Tier
	if err := json.Unmarshal(raw, &tiers); err != nil || !cmp.Equal(tiers, []skills.Tier{0, 1, 2, 3}) {
		t.Errorf("Unmarshal = %v, %v", tiers, err)
	}
	for _, bad := range []string{"", "Org", "root"} {
		if tier, err := skills.ParseTier(bad); err == nil {
			t.Errorf("ParseTier(%q) = %v, want an error", bad, tier)
		}
	}
	if _, err := json.Marshal(skills.Tier(9)); err == nil || skills.Tier(9).String() != "tier(9)" {
		t.Errorf("an unknown tier marshals")
	}
}

func TestDiagnosticJSON(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal([]skills.Diagnostic{{Severity: skills.Warning, Code: skills.CodeShadowed, Detail: "d", Path: "p", Line: 2}, {Code: skills.CodeNotPublishable}})
	const want = `[{"severity":"warning","code":"shadowed","detail":"d","path":"p","line":2},{"severity":"info","code":"not-publishable","detail":""}]`
	if err != nil || string(raw) != want {
		t.Errorf("Marshal = %s, %v; want %s", raw, err, want)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, dir, content string
		want               skills.Form
		label              string
		codes              []string
	}{
		{"well-formed", "pdf", document("pdf", "d"), skills.Form{Strict: true, Publishable: true}, "pdf", []string{}},
		{"unknown field", "pdf", "---\nname: pdf\ndescription: d\nx: y\n---\n", skills.Form{Publishable: true}, "pdf", []string{}},
		{"other directory", "dir", document("pdf", "d"), skills.Form{}, "pdf", []string{"name-directory-mismatch SKILL.md", "not-publishable SKILL.md"}},
		{"no name", "pdf", "---\ndescription: d\n---\n", skills.Form{}, "pdf", []string{"missing-name SKILL.md", "not-publishable SKILL.md"}},
		{"no frontmatter", "pdf", "Text.\n", skills.Form{Repaired: true}, "pdf", []string{"frontmatter-repaired SKILL.md", "frontmatter-repaired SKILL.md", "missing-name SKILL.md", "not-publishable SKILL.md"}},
		{"upper case", "PDF", document("PDF", "d"), skills.Form{}, "PDF", []string{"invalid-name SKILL.md", "not-publishable SKILL.md"}},
		{"unicode", "навык", document("навык", "d"), skills.Form{Strict: true}, "навык", []string{"invalid-name SKILL.md", "not-publishable SKILL.md"}},
		{"repaired", "pdf", document("pdf", "for: x"), skills.Form{Repaired: true}, "pdf", []string{"frontmatter-repaired SKILL.md", "not-publishable SKILL.md"}},
		{"number", "123", document("123", "d"), skills.Form{Strict: true, Publishable: true}, "123", []string{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			writeTree(t, root, map[string]string{test.dir + "/SKILL.md": test.content})
			sk := scan(t, nil, skills.Root{Dir: root}).Skills[0]
			if sk.Form != test.want || sk.Name() != test.label {
				t.Errorf("form %+v, name %q; want %+v, %q", sk.Form, sk.Name(), test.want, test.label)
			}
			if diff := cmp.Diff(test.codes, codes(sk.Diagnostics)); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}
