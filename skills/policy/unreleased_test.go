package policy

import "testing"

// No run of an entry that is unreleased is granted, and one whose release alone is missing is told so.
func TestUnreleasedIsNeverGranted(t *testing.T) {
	t.Parallel()
	s, granted, refused := newSampler(41), 0, 0
	for range samples {
		cfg, r := s.sample(t)
		if r.Class == Read {
			continue
		}
		p := New(cfg)
		grant, err := p.Decide(r)
		if err == nil {
			granted++
			if p.Unreleased(grant.Entry, r.Workspace) {
				t.Fatalf("granted %+v under %+v", r, cfg)
			}
			continue
		}
		if p.cfg.Mode < EnforceExplicit || DenialOf(err).Code != CodeOutputNotReleased {
			continue
		}
		refused++
		unreleased := false
		for _, entry := range cfg.Allowlist.Find(r.Skill, r.Path) {
			unreleased = unreleased || p.Unreleased(entry, r.Workspace)
		}
		if !unreleased {
			t.Fatalf("refused for its release, which is not said of its entries: %+v under %+v", r, cfg)
		}
	}
	if granted == 0 || refused == 0 {
		t.Errorf("%d granted, %d refused: the samples show nothing", granted, refused)
	}
}
