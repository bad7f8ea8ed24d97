package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

// samples is how many requests a property is tried on.
const samples = 6_000

// A sampler draws configurations and requests near the border of what is allowed.
type sampler struct{ *rand.Rand }

func newSampler(seed uint64) sampler { return sampler{rand.New(rand.NewPCG(seed, seed))} }

// once is true in one of n draws.
func (s sampler) once(n int) bool { return s.IntN(n) == 0 }

func draw[T any](s sampler, values ...T) T { return values[s.IntN(len(values))] }

func (s sampler) sample(t *testing.T) (Config, Request) {
	t.Helper()
	cfg, request := s.config(t), s.request()
	if s.once(3) {
		request.Skill, request.SkillName = browserSkill, browserSkill
		for i, entry := range cfg.Allowlist.entries {
			if entry.Skill == "pdf" {
				cfg.Allowlist.entries[i].Skill = browserSkill
			}
		}
		cfg.Allowlist = relisted(t, cfg.Allowlist)
	}
	return cfg, request
}

func (s sampler) config(t *testing.T) Config {
	cfg := config(t)
	specs := draw(s, []string{"pdf:" + script}, []string{"pdf:" + script}, []string{"pdf:" + script + "@" + file.String()},
		[]string{"pdf:" + script, "pdf:" + script + "@" + other.String()}, []string{"xls:" + script})
	cfg.Allowlist = allowlist(t, specs...)
	for i := range cfg.Allowlist.entries {
		e := &cfg.Allowlist.entries[i]
		e.Ask = draw(s, "", AskTier, AskAlways, AskSession, AskNever)
		if e.Ask == AskNever && e.Pin == "" {
			e.Pin = file
		}
		e.Target = draw(s, "", TargetSandbox, TargetHost, TargetHost)
		e.Release = draw(s, "", "", ReleaseNone, ReleaseObserved, ReleaseOpaque)
		e.Workspace = draw(s, "", "none", "rw")
		if e.Pin != "" {
			e.Tree = draw(s, "", "", tree, tree, other)
		}
		if s.once(5) {
			e.Network = []string{"example.com:443"}
		}
		if s.once(6) {
			e.Secrets = []string{"TOKEN"}
		}
	}
	cfg.Allowlist = relisted(t, cfg.Allowlist)
	cfg.Mode = Mode(s.IntN(5))
	cfg.Role = draw(s, "", DirectCommand, DirectCommand, Context, Quote)
	cfg.Release = draw(s, "", ReleaseNone, ReleaseObserved, ReleaseObserved, ReleaseOpaque)
	cfg.AllowedToolsAdvisory = s.once(3)
	if s.once(6) {
		cfg.ClosedTiers = []skills.Tier{skills.Tier(s.IntN(4))}
	}
	cfg.Profiles = []Profile{
		{Name: "wide"},
		{Name: "both", Skills: []string{"pdf", browserSkill}, Scripts: []string{"pdf:" + script, browserSkill + ":" + script}},
		{Name: "pdf", Skills: []string{"pdf"}},
		{Name: "other", Scripts: []string{"pdf:scripts/other.py"}},
		{Name: "reader", Tools: []string{"read_skill_resource"}},
		{Name: "boxed", Target: TargetSandbox},
		{Name: "machine", Target: TargetHost},
	}
	cfg.Profile = draw(s, "", "", "", "wide", "both", "machine", "boxed", "pdf")
	cfg.HostTarget = s.once(2)
	return cfg
}

func (s sampler) request() Request {
	r := run()
	if s.once(5) {
		r.Tool, r.Class = draw(s, "read_skill_resource", "load_skill"), Read
	}
	r.Mode = Mode(s.IntN(6) - 1)
	r.Tier = draw(s, skills.TierBuiltin, skills.TierOrg, skills.TierUser, skills.TierUser, skills.TierThirdParty, skills.Tier(7))
	r.Principal.Evidence = s.once(2)
	r.Principal.Profile = draw(s, "", "", "", "wide", "machine", "both", "other")
	r.Profiles = draw(s, nil, nil, nil, []string{""}, []string{"wide", "both"}, []string{"machine"}, []string{"reader"}, []string{"browser"})
	if s.once(2) {
		r.Slot = &PromptSlot{Role: draw(s, DirectCommand, Context, Quote)}
	}
	r.Activated, r.ActivationUnknown = !s.once(10), s.once(12)
	r.AllowedToolsDeclared = s.once(3)
	if s.once(2) {
		r.AllowedTools = []string{"Read", "Bash"}[s.IntN(2):]
	}
	r.TreeDigest = draw(s, tree, tree, tree, tree, other)
	r.StartTree = draw(s, tree, tree, tree, tree, digest.Digest(""))
	r.FileDigest = draw(s, file, file, digest.Digest(""))
	r.Workspace = s.once(2)
	r.Approved = draw(s, ApprovalNone, ApprovalNone, ApprovalRemembered, ApprovalOfCall, Approval(9))
	r.Now = now
	r.Args = draw(s, nil, []string{"x"}, []string{"--cdp", endpoint}, []string{"--cdp=" + endpoint, "x"}, []string{"--cdp=http://127.0.0.1:1"})
	if !s.once(4) {
		r.Lease = &Lease{ID: "l", CDPURL: draw(s, endpoint, endpoint, endpoint, "http://example.com:80"), ExpiresAt: draw(s, now.Add(time.Minute), now)}
	}
	return r
}

// relisted is an allowlist of the entries as they are now, with the index to it.
func relisted(t *testing.T, list Allowlist) Allowlist {
	t.Helper()
	again, err := NewAllowlist(list.Entries())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func eachEntry(do func(*Entry)) func(*Config, *Request) {
	return func(c *Config, _ *Request) {
		for i := range c.Allowlist.entries {
			do(&c.Allowlist.entries[i])
		}
	}
}

// eachPinned holds the entries with the digest of their script to a tree that do not name one.
func eachPinned(tree digest.Digest) func(*Config, *Request) {
	return eachEntry(func(e *Entry) {
		if e.Pin != "" && e.Tree == "" {
			e.Tree = tree
		}
	})
}

// restrictions each take something away, from the configuration or from the facts.
var restrictions = map[string]func(*Config, *Request){
	"withdraw the tools":   func(c *Config, _ *Request) { c.Tools = c.Tools[:1] },
	"withdraw the entries": func(c *Config, _ *Request) { c.Allowlist = Allowlist{} },
	"close a tier":         func(c *Config, r *Request) { c.ClosedTiers = append(slices.Clone(c.ClosedTiers), r.Tier) },
	"stricter mode": func(c *Config, _ *Request) {
		if c.Mode == 0 {
			c.Mode = EnforceExplicit
		}
		c.Mode = min(c.Mode+1, EnforceStrict)
	},
	"client raises the mode":  func(_ *Config, r *Request) { r.Mode++ },
	"no binding":              func(c *Config, _ *Request) { c.Role = "" },
	"binding to context":      func(c *Config, _ *Request) { c.Role = Context },
	"no release":              func(c *Config, _ *Request) { c.Release = ReleaseNone },
	"no release of entries":   eachEntry(func(e *Entry) { e.Release = ReleaseNone }),
	"hold to allowed-tools":   func(c *Config, _ *Request) { c.AllowedToolsAdvisory = false },
	"declare no allowed-tool": func(_ *Config, r *Request) { r.AllowedTools, r.AllowedToolsDeclared = nil, true },
	"no host":                 func(c *Config, _ *Request) { c.HostTarget = false },
	"always ask":              eachEntry(func(e *Entry) { e.Ask = AskAlways }),
	"ask as the tier says": eachEntry(func(e *Entry) {
		if e.Ask == AskNever {
			e.Ask = AskTier
		}
	}),
	"less trusted tier": func(c *Config, r *Request) {
		if !slices.Contains(c.ClosedTiers, r.Tier) {
			r.Tier = skills.TierThirdParty
		}
	},
	"not approved": func(_ *Config, r *Request) { r.Approved = ApprovalNone },
	"approved before": func(_ *Config, r *Request) {
		if r.Approved == ApprovalOfCall {
			r.Approved = ApprovalRemembered
		}
	},
	"not activated":              func(_ *Config, r *Request) { r.Activated = false },
	"unknown handle":             func(_ *Config, r *Request) { r.ActivationUnknown = true },
	"other tree":                 func(_ *Config, r *Request) { r.TreeDigest, r.FileDigest = other, tree },
	"absent at start":            func(_ *Config, r *Request) { r.StartTree = "" },
	"a workspace to reveal":      func(_ *Config, r *Request) { r.Workspace = true },
	"no lease":                   func(_ *Config, r *Request) { r.Lease = nil },
	"later":                      func(_ *Config, r *Request) { r.Now = now.Add(time.Hour) },
	"named as the browser skill": func(_ *Config, r *Request) { r.SkillName = browserSkill },
	"name another browser":       func(_ *Config, r *Request) { r.Args = append(slices.Clone(r.Args), "--cdp", "http://127.0.0.1:2") },
	"narrow to a profile":        func(_ *Config, r *Request) { r.Profiles = append(slices.Clone(r.Profiles), "pdf") },
	"narrow to readers":          func(_ *Config, r *Request) { r.Profiles = append(slices.Clone(r.Profiles), "reader") },
	"narrow to the sandbox":      func(_ *Config, r *Request) { r.Profiles = append(slices.Clone(r.Profiles), "boxed") },
	"narrow to the host":         func(_ *Config, r *Request) { r.Profiles = append(slices.Clone(r.Profiles), "machine", "browser") },
	"narrow to nothing known":    func(_ *Config, r *Request) { r.Profiles = append(slices.Clone(r.Profiles), "none such") },
	"a profile of the operator's": func(c *Config, _ *Request) {
		if c.Profile == "" {
			c.Profile = "pdf"
		}
	},
	"smaller profiles": func(c *Config, _ *Request) {
		c.Profiles = cloneProfiles(c.Profiles)
		for i := range c.Profiles {
			c.Profiles[i].Skills = []string{}
		}
	},
	"a quoted slot": func(_ *Config, r *Request) {
		r.Slot, r.Principal.Evidence = &PromptSlot{Role: Quote}, true
	},
	"pin the tree":               eachPinned(tree),
	"pin another tree":           eachPinned(other),
	"files that no entry allows": func(_ *Config, r *Request) { r.TreeDigest = file },
	"add a pin of other bytes": func(c *Config, _ *Request) {
		for _, entry := range c.Allowlist.Entries() {
			if entry.Pin != other {
				entry.Pin = other
				c.Allowlist.entries = append(c.Allowlist.entries, entry)
			}
		}
		c.Allowlist.entries = slices.CompactFunc(c.Allowlist.entries, func(a, b Entry) bool { return a.Spec() == b.Spec() })
	},
}

// rarely deny because what they take away is mostly not there, or not needed.
var harmless = []string{"hold to allowed-tools", "named as the browser skill", "narrow to the host"}

// Taking something away never turns a denial into a grant, and what is granted is never more.
func TestRestrictionsOnlyRestrict(t *testing.T) {
	s := newSampler(samples)
	turned := map[string]int{}
	for range samples / 3 {
		cfg, request := s.sample(t)
		before, denied := New(cfg).Decide(request)
		for name, restrict := range restrictions {
			cfg, request := cfg, request
			cfg.Allowlist.entries = slices.Clone(cfg.Allowlist.entries)
			restrict(&cfg, &request)
			cfg.Allowlist = relisted(t, cfg.Allowlist)
			after, err := New(cfg).Decide(request)
			if denied != nil && err == nil {
				t.Fatalf("%s: a denial (%v) became a grant\n%+v\n%+v", name, denied, cfg, request)
			}
			if denied == nil && err != nil {
				turned[name]++
			}
			if denied == nil && err == nil {
				if more := widened(before, after); more != "" && !isShown(name, more) {
					t.Fatalf("%s: %s\nbefore %+v\nafter %+v\n%+v\n%+v", name, more, before, after, cfg, request)
				}
			}
		}
	}
	for name := range restrictions {
		if turned[name] == 0 && !slices.Contains(harmless, name) {
			t.Errorf("%s never denied anything: the samples prove nothing", name)
		}
	}
}

// isShown excuses the one way in which taking away shows more: without the word opaque nothing withholds
// output where nothing is enforced.
func isShown(name, more string) bool {
	return more == "output is shown" && (name == "no release" || name == "no release of entries")
}

// widened says what a grant gives beyond another one.
func widened(before, after Grant) string {
	more := func(was, is []string) bool {
		return slices.ContainsFunc(is, func(v string) bool { return !slices.Contains(was, v) })
	}
	switch {
	case before.Release == ReleaseOpaque && after.Release != ReleaseOpaque:
		return "output is shown"
	case before.Target != TargetHost && after.Target == TargetHost:
		return "it runs on the host"
	case before.CDP == "" && after.CDP != "" && before.Target != TargetHost:
		return "it drives a browser"
	case more(before.Entry.Network, after.Entry.Network), more(before.Entry.Env, after.Entry.Env), more(before.Entry.Secrets, after.Entry.Secrets):
		return "its entry is another one"
	case before.Decision == Warned && after.Decision == Allowed && before.WouldBe != "" && after.Warning == "":
		return "a warning is gone"
	}
	return ""
}

// What a caller or a skill says about itself, short of authenticated evidence, never turns a denial
// into a grant, and of an allowed request it widens nothing.
func TestOnlyEvidenceLifts(t *testing.T) {
	s := newSampler(7)
	said := map[string]func(*Request){
		"slot": func(r *Request) {
			r.Slot = &PromptSlot{Role: DirectCommand, Raw: json.RawMessage(`{"role":"direct-command"}`)}
		},
		"no slot":             func(r *Request) { r.Slot = nil },
		"name":                func(r *Request) { r.Principal.Name = "local" },
		"args":                func(r *Request) { r.Args = append(slices.Clone(r.Args), "--approved", "--role=direct-command") },
		"cdp":                 func(r *Request) { r.Args = append(slices.Clone(r.Args), "--cdp="+endpoint) },
		"profiles":            func(r *Request) { r.Profiles = append(slices.Clone(r.Profiles), "machine", "browser", "wide") },
		"profile of the host": func(r *Request) { r.Profiles = append(slices.Clone(r.Profiles), "machine") },
		"mode":                func(r *Request) { r.Mode = Disabled },
		"name of the skill": func(r *Request) {
			if r.SkillName != browserSkill {
				r.SkillName = "builtin"
			}
		},
		"allowed-tools": func(r *Request) {
			if !r.AllowedToolsDeclared {
				r.AllowedTools = []string{"Bash", "run_skill_script"}
			}
		},
		"no such approval": func(r *Request) {
			if r.Approved == ApprovalNone {
				r.Approved = 17
			}
		},
	}
	for range samples {
		cfg, request := s.sample(t)
		request.Principal.Name, request.Principal.Evidence = "mallory", false
		want, denied := New(cfg).Decide(request)
		for name, say := range said {
			if name == "mode" && request.Mode > Disabled {
				continue // the session keeps the stricter one
			}
			request := request
			say(&request)
			got, err := New(cfg).Decide(request)
			if denied != nil && err == nil {
				t.Fatalf("%s turned a denial (%v) into a grant\n%+v\n%+v", name, denied, cfg, request)
			}
			if denied == nil && err == nil {
				if more := widened(want, got); more != "" {
					t.Fatalf("%s: %s\n%+v\n%+v", name, more, cfg, request)
				}
			}
		}
	}
}

// A user is asked exactly when the answer decides, and told to be remembered exactly when that does.
func TestNobodyIsAskedInVain(t *testing.T) {
	s := newSampler(11)
	asked, denied := map[string]int{}, 0
	for range samples {
		cfg, request := s.sample(t)
		p := New(cfg)
		_, err := p.Decide(request)
		if err == nil {
			continue
		}
		approvals := map[Approval]bool{}
		for _, approval := range []Approval{ApprovalRemembered, ApprovalOfCall} {
			request := request
			request.Approved = approval
			_, err := p.Decide(request)
			approvals[approval] = err == nil
		}
		needs, ok := errors.AsType[*ApprovalRequired](err)
		if !ok {
			denied++
		}
		if ok != approvals[ApprovalOfCall] || ok && needs.Remember != approvals[ApprovalRemembered] {
			t.Fatalf("Decide = %v, asked %v; approvals lift it: %v\n%+v\n%+v", err, ok, approvals, cfg, request)
		}
		if ok {
			asked[fmt.Sprintf("%s, remember %v", needs.Denial.Code, needs.Remember)]++
			if needs.Denial.Remedy == "" || needs.Entry.Path != script || needs.Target == "" {
				t.Fatalf("ApprovalRequired = %+v", needs)
			}
		}
	}
	if len(asked) != 4 || denied == 0 {
		t.Errorf("asked %v, denied %d: the samples prove nothing", asked, denied)
	}
}

// Observe says exactly what enforcement answers: the code of its denial, or nothing when it allows.
func TestObserveForetellsEnforcement(t *testing.T) {
	s := newSampler(13)
	foretold := map[Code]int{}
	for range samples {
		cfg, request := s.sample(t)
		cfg.Mode, request.Mode = Observe, 0
		grant, err := New(cfg).Decide(request)
		cfg.Mode = EnforceExplicit
		enforced, denied := New(cfg).Decide(request)
		switch {
		case err != nil:
			if denied == nil || !cmp.Equal(DenialOf(err), DenialOf(denied)) {
				t.Fatalf("observe says %v, enforcement %v\n%+v\n%+v", err, denied, cfg, request)
			}
		case denied == nil:
			if grant.WouldBe != "" || grant.Warning != "" || grant.Decision != Allowed || grant.Evidence != enforced.Evidence {
				t.Fatalf("observe warns of %q, enforcement allows\n%+v\n%+v", grant.WouldBe, cfg, request)
			}
		case grant.WouldBe != DenialOf(denied).Code || grant.Warning == "":
			t.Fatalf("observe warns of %q, enforcement says %v\n%+v\n%+v", grant.WouldBe, DenialOf(denied).Code, cfg, request)
		default:
			foretold[grant.WouldBe]++
		}
	}
	if len(foretold) != 3 {
		t.Errorf("foretold %v, want three codes", foretold)
	}
}

// What a profile makes visible and offers is what Decide then allows to read.
func TestVisibleIsWhatCanBeRead(t *testing.T) {
	s := newSampler(17)
	for range samples {
		cfg, request := s.sample(t)
		cfg.Mode, request.Mode, request.Class, request.Tool = Disabled, 0, Read, "read_skill_resource"
		p := New(cfg)
		paths, all := p.Visible(request.Principal, request.Profiles)
		sees := (all || slices.Contains(paths, request.Skill)) && p.OffersTo(request.Tool, request.Principal, request.Profiles)
		if _, err := p.Decide(request); (err == nil) != sees {
			t.Fatalf("visible %v %v, Decide = %v\n%+v", paths, all, err, request)
		}
	}
}
