package policy

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
)

// samples is how many requests a property is tried on.
const samples = 5_000

// sample draws a configuration and a request near the border of what is allowed.
func sample(t *testing.T, random *rand.Rand) (Config, Request) {
	pick := func(n int) bool { return random.IntN(n) == 0 }
	cfg, request := config(t), run()
	specs := [][]string{{"pdf:" + script}, {"pdf:" + script + "@" + file.String()}, {"pdf:" + script, "pdf:" + script + "@" + other.String()}, {"xls:" + script}}
	cfg.Allowlist = allowlist(t, specs[random.IntN(len(specs))]...)
	cfg.Mode = Mode(random.IntN(5))
	cfg.Role = []Role{"", DirectCommand, DirectCommand, Context, Quote}[random.IntN(5)]
	cfg.Release = []Release{"", ReleaseNone, ReleaseObserved, ReleaseOpaque}[random.IntN(4)]
	cfg.AllowedToolsAdvisory = pick(3)
	if pick(4) {
		cfg.ClosedTiers = []skills.Tier{skills.Tier(random.IntN(4))}
	}
	if pick(4) {
		request.Tool, request.Class = "read_skill_resource", Read
	}
	request.Mode = Mode(random.IntN(6) - 1)
	request.Tier = skills.Tier(random.IntN(4))
	request.Principal.Evidence = pick(2)
	if pick(2) {
		request.Slot = &PromptSlot{Role: []Role{DirectCommand, Context, Quote}[random.IntN(3)]}
	}
	request.Activated, request.ActivationUnknown = !pick(6), pick(8)
	request.AllowedToolsDeclared = pick(2)
	if pick(2) {
		request.AllowedTools = []string{"Read", "Bash"}[random.IntN(2):]
	}
	request.TreeDigest = []digest.Digest{tree, tree, tree, other}[random.IntN(4)]
	request.StartTree = []digest.Digest{tree, tree, tree, ""}[random.IntN(4)]
	request.FileDigest = []digest.Digest{file, file, ""}[random.IntN(3)]
	request.Workspace = pick(2)
	return cfg, request
}

// restrictions each take something away, from the configuration or from the facts.
var restrictions = map[string]func(*Config, *Request){
	"withdraw the tools":      func(c *Config, _ *Request) { c.Tools = c.Tools[:1] },
	"withdraw the entries":    func(c *Config, _ *Request) { c.Allowlist = Allowlist{} },
	"close a tier":            func(c *Config, r *Request) { c.ClosedTiers = append(c.ClosedTiers, r.Tier) },
	"stricter mode":           func(c *Config, _ *Request) { c.Mode = min(max(c.Mode, EnforceExplicit)+1, EnforceStrict) },
	"client raises the mode":  func(_ *Config, r *Request) { r.Mode++ },
	"no binding":              func(c *Config, _ *Request) { c.Role = "" },
	"binding to context":      func(c *Config, _ *Request) { c.Role = Context },
	"no release":              func(c *Config, _ *Request) { c.Release = ReleaseNone },
	"hold to allowed-tools":   func(c *Config, _ *Request) { c.AllowedToolsAdvisory = false },
	"declare no allowed-tool": func(_ *Config, r *Request) { r.AllowedTools, r.AllowedToolsDeclared = nil, true },
	"less trusted tier":       func(_ *Config, r *Request) { r.Tier = skills.TierThirdParty },
	"not activated":           func(_ *Config, r *Request) { r.Activated = false },
	"unknown handle":          func(_ *Config, r *Request) { r.ActivationUnknown = true },
	"other tree":              func(_ *Config, r *Request) { r.TreeDigest, r.FileDigest = other, tree },
	"absent at start":         func(_ *Config, r *Request) { r.StartTree = "" },
	"a workspace to reveal":   func(_ *Config, r *Request) { r.Workspace = true },
	"a quoted slot": func(_ *Config, r *Request) {
		r.Slot, r.Principal.Evidence = &PromptSlot{Role: Quote}, true
	},
	"add a pin of other bytes": func(c *Config, _ *Request) {
		for _, entry := range c.Allowlist.Entries() {
			entry.Pin = other
			key := scriptKey{entry.Skill, entry.Path}
			c.Allowlist.index[key] = append(c.Allowlist.index[key], entry)
		}
	},
}

// Taking something away never turns a denial into a grant, nor an opaque release into a shown one.
// Taking back the release itself is no longer opaque: where nothing is enforced it shows all.
func TestRestrictionsOnlyRestrict(t *testing.T) {
	random := rand.New(rand.NewPCG(samples, samples))
	turned := map[string]int{}
	for range samples {
		cfg, request := sample(t, random)
		before, denied := New(cfg).Decide(request)
		for name, restrict := range restrictions {
			cfg, request := cfg, request
			cfg.Allowlist = allowlist(t, specsOf(cfg.Allowlist)...)
			restrict(&cfg, &request)
			after, err := New(cfg).Decide(request)
			if denied != nil && err == nil {
				t.Fatalf("%s: a denial (%v) became a grant\n%+v\n%+v", name, denied, cfg, request)
			}
			if denied == nil && err != nil {
				turned[name]++
			}
			if err == nil && before.Release == ReleaseOpaque && after.Release != ReleaseOpaque && name != "no release" {
				t.Fatalf("%s: withheld output became visible\n%+v\n%+v", name, cfg, request)
			}
		}
	}
	for name := range restrictions {
		if turned[name] == 0 && name != "hold to allowed-tools" && name != "client raises the mode" {
			t.Errorf("%s never denied anything: the samples prove nothing", name)
		}
	}
}

func specsOf(list Allowlist) (specs []string) {
	for _, entry := range list.Entries() {
		spec := entry.Skill + ":" + entry.Path
		if entry.Pin != "" {
			spec += "@" + entry.Pin.String()
		}
		specs = append(specs, spec)
	}
	return specs
}

// What a caller or a skill says about itself, short of authenticated evidence, never turns a denial
// into a grant: with a principal that is not believed no slot changes anything.
func TestOnlyEvidenceLifts(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range samples {
		cfg, request := sample(t, random)
		request.Principal = Principal{Name: "mallory"}
		request.Slot = nil
		want, wantErr := New(cfg).Decide(request)
		request.Slot = &PromptSlot{Role: DirectCommand, Raw: json.RawMessage(`{"role":"direct-command"}`)}
		request.Principal.Name = "local"
		got, err := New(cfg).Decide(request)
		if (err == nil) != (wantErr == nil) || got.RuleID != want.RuleID || got.Release != want.Release {
			t.Fatalf("a stranger's slot changed %v into %v\n%+v\n%+v", wantErr, err, cfg, request)
		}
	}
}
