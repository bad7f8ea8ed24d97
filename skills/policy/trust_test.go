package policy

import (
	"testing"

	"github.com/skillsd/skillsd/skills"
)

func TestTrust(t *testing.T) {
	signers := []TrustedSigner{
		{Name: "ann", Signer: "A", Tier: skills.TierOrg, Sources: []string{"https://h/skills/"}},
		{Name: "everywhere", Signer: "B", Tier: skills.TierUser},
	}
	one := Trust{Signers: signers, Required: []string{"https://h/skills"}}
	all := Trust{Signers: signers, Required: []string{allSources}}
	for _, test := range []struct {
		trust          Trust
		source, signer string
		tier           skills.Tier
		refused        bool
	}{
		{Trust{}, "https://h/skills", "", skills.TierThirdParty, false},
		{Trust{}, "https://h/skills", "A", skills.TierThirdParty, false},
		{one, "https://h/skills", "A", skills.TierOrg, false},
		{one, "https://h/skills/a.zip", "A", skills.TierOrg, false},
		{one, "https://h/skills/a.zip", "", skills.TierThirdParty, true},
		{one, "https://h/skills", "C", skills.TierThirdParty, true},
		{one, "https://h/skills-of-another/a.zip", "A", skills.TierThirdParty, false},
		{one, "https://h/skills-of-another/a.zip", "", skills.TierThirdParty, false},
		{one, "https://h/skills.git", "", skills.TierThirdParty, true},
		{one, "https://h/skills.github", "", skills.TierThirdParty, false},
		{Trust{Required: []string{"https://h/skills.git"}}, "https://h/skills", "", skills.TierThirdParty, true},
		{one, "https://h/skills/b", "B", skills.TierUser, false},
		{one, "https://h//skills/b", "", skills.TierThirdParty, true},
		{one, "https://h/./x/../skills/b", "", skills.TierThirdParty, true},
		{one, "https://h/%73kills/b", "", skills.TierThirdParty, true},
		{one, "https://H:443/Skills", "", skills.TierThirdParty, true},
		{one, "ssh://git@h/skills", "", skills.TierThirdParty, true},
		{one, "git@h:skills/b.git", "", skills.TierThirdParty, true},
		{one, "https://h:444/skills", "", skills.TierThirdParty, false},
		{one, "https://h/Skills/b", "A", skills.TierThirdParty, true},
		{one, "https://h//skills/b", "A", skills.TierOrg, false},
		{one, "mcp+stdio:h/skills", "", skills.TierThirdParty, false},
		{Trust{Required: []string{"https://h"}}, "https://h/a", "", skills.TierThirdParty, true},
		{Trust{Required: []string{"file:///srv"}}, "file:///srv//a", "", skills.TierThirdParty, true},
		{Trust{Required: []string{"/srv/a/"}}, "/srv/./a", "", skills.TierThirdParty, true},
		{Trust{Required: []string{"/srv/a"}}, "/srv/ab", "", skills.TierThirdParty, false},
		{Trust{Required: []string{"mcp+stdio:srv x"}}, "mcp+stdio:srv x", "", skills.TierThirdParty, true},
		{all, "/srv/skills", "", skills.TierThirdParty, true},
		{all, "/srv/skills", "A", skills.TierThirdParty, true},
		{all, "/srv/skills", "B", skills.TierUser, false},
		{Trust{Signers: []TrustedSigner{{Tier: skills.TierOrg}}, Required: []string{"", allSources}}, "", "", skills.TierThirdParty, true},
	} {
		signed := func(signer string) bool { return signer == test.signer }
		if test.signer == "" {
			signed = nil
		}
		tier, err := test.trust.Admit(test.source, signed)
		if tier != test.tier || (err != nil) != test.refused {
			t.Errorf("%+v, %s by %q: %s, %v", test.trust.Required, test.source, test.signer, tier, err)
		}
	}
}
