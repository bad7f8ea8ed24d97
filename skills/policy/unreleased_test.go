package policy

import (
	"errors"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

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

// A run whose output is not released says so, not that the user was not asked: no answer would let it run.
func TestUnreleasedIsTheObstacle(t *testing.T) {
	for name, do := range map[string]func(*Config, *Request){
		"a workspace": func(_ *Config, r *Request) { r.Workspace = true },
		"a secret": func(c *Config, _ *Request) {
			c.Allowlist.index[scriptKey{"pdf", script}][0].Secrets = []string{"TOKEN"}
		},
		"a script that is missing":   func(_ *Config, r *Request) { r.Workspace, r.FileDigest = true, "" },
		"no evidence either":         func(c *Config, r *Request) { c.Role, r.Workspace = "", true },
		"approved, but not released": func(_ *Config, r *Request) { r.Approved, r.Workspace = ApprovalOfCall, true },
		"asked always, not released": func(c *Config, r *Request) {
			r.Workspace, c.Allowlist.index[scriptKey{"pdf", script}][0].Ask = true, AskAlways
		},
		"strict, no evidence for it":  func(c *Config, r *Request) { c.Role, c.Mode, r.Workspace = "", EnforceStrict, true },
		"a slot that is of no orders": func(_ *Config, r *Request) { r.Slot, r.Workspace = &PromptSlot{Role: Context}, true },
	} {
		cfg, request := config(t), run()
		request.Tier = skills.TierThirdParty
		do(&cfg, &request)
		_, err := New(cfg).Decide(request)
		if err == nil || DenialOf(err).Code != CodeOutputNotReleased {
			t.Errorf("%s: Decide = %v", name, err)
		}
		if _, asks := errors.AsType[*ApprovalRequired](err); asks {
			t.Errorf("%s: the user is asked in vain", name)
		}
	}
}
