package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
)

func TestProfiles(t *testing.T) {
	profiles := []Profile{
		{Name: "all"},
		{Name: "pdf", Skills: []string{"pdf"}, Scripts: []string{"pdf:" + script}, Tools: []string{"load_skill", runTool}},
		{Name: "xls", Skills: []string{"xls"}},
		{Name: "prefix", Skills: []string{"pd", "pdf/x", "acme/pdf", "PDF", "*"}},
		{Name: "scripts", Scripts: []string{"pdf:scripts/other.py", "pd:f" + script, "pdf:" + script + "c", "df:" + script}},
		{Name: "nothing", Skills: []string{}},
		{Name: "no tools", Tools: []string{}},
		{Name: "readers", Tools: []string{"read_skill_resource"}},
		{Name: "finders", Tools: []string{"search_skills"}},
		{Name: "runner", Tools: []string{runTool}},
		{Name: "methods", Tools: []string{"resources/read"}},
		{Name: "twice"}, {Name: "twice"},
	}
	for _, test := range []struct {
		name    string
		process string
		caller  string
		chosen  []string
		runs    bool
		reads   string // of load_skill, read_skill_resource, resources/read, skills/list: those that are allowed
	}{
		{"none", "", "", []string{"", ""}, true, "load read resources list"},
		{"wide", "all", "all", []string{"all"}, true, "load read resources list"},
		{"fitting", "", "", []string{"pdf"}, true, "load list"},
		{"of the process", "pdf", "", nil, true, "load list"},
		{"of the principal", "", "pdf", nil, true, "load list"},
		{"other skill", "", "", []string{"xls"}, false, "list"},
		{"intersected", "pdf", "", []string{"xls"}, false, "list"},
		{"exact names of skills", "", "", []string{"prefix"}, false, "list"},
		{"exact names of scripts", "", "", []string{"scripts"}, false, "load read resources list"},
		{"empty list", "", "", []string{"nothing"}, false, "list"},
		{"no tools", "", "", []string{"no tools"}, false, ""},
		{"read only", "", "", []string{"readers"}, false, "read resources list"},
		{"search only", "", "", []string{"finders"}, false, "list"},
		{"run only", "", "", []string{"runner"}, true, ""},
		{"one method", "", "", []string{"methods"}, false, "resources"},
		{"unknown", "", "", []string{"none such"}, false, ""},
		{"unknown of the process", "none such", "", nil, false, ""},
		{"unknown of the principal", "", "none such", nil, false, ""},
		{"ambiguous", "", "", []string{"twice"}, false, ""},
		{"built in", "", "", []string{"browser"}, false, "list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, request := config(t), run()
			cfg.Profiles, cfg.Profile = profiles, test.process
			cfg.Tools = append(cfg.Tools, "resources/read", "skills/list")
			cfg.Mode = Disabled
			request.Principal.Profile, request.Profiles = test.caller, test.chosen
			p := New(cfg)
			_, err := p.Decide(request)
			if (err == nil) != test.runs {
				t.Errorf("run: Decide = %v, want allowed %v", err, test.runs)
			}
			if err != nil {
				if d := DenialOf(err); d.Code != CodeProfileExcludes || d.RuleID != "subagent_profile_not_allowed" || d.Reason != NotAuthorized {
					t.Errorf("run: Decide = %+v", d)
				}
			}
			var reads []string
			for _, read := range []struct{ word, tool, skill string }{
				{"load", "load_skill", "pdf"}, {"read", "read_skill_resource", "pdf"}, {"resources", "resources/read", "pdf"}, {"list", "skills/list", ""},
			} {
				_, err := p.Decide(Request{Tool: read.tool, Class: Read, Skill: read.skill, Principal: request.Principal, Profiles: test.chosen})
				if err == nil {
					reads = append(reads, read.word)
				}
				offered := p.OffersTo(read.tool, request.Principal, test.chosen)
				paths, all := p.Visible(request.Principal, test.chosen)
				sees := all || len(paths) > 0 && strings.Contains(" "+strings.Join(paths, " ")+" ", " pdf ") || read.skill == ""
				if (err == nil) != (offered && sees) {
					t.Errorf("%s: Decide = %v, but offered %v, visible %v", read.tool, err, offered, paths)
				}
			}
			if got := strings.Join(reads, " "); got != test.reads {
				t.Errorf("reads %q, want %q", got, test.reads)
			}
		})
	}
}

func TestVisible(t *testing.T) {
	p := New(Config{Profile: "a", Profiles: []Profile{
		{Name: "a", Skills: []string{"z", "x", "y", "x"}}, {Name: "b", Skills: []string{"y", "z", "q"}}, {Name: "wide"}, {Name: "none", Skills: []string{}},
	}})
	for _, test := range []struct {
		caller string
		chosen []string
		want   []string
	}{
		{"", nil, []string{"x", "y", "z"}},
		{"b", []string{"wide"}, []string{"y", "z"}},
		{"", []string{"b", "none"}, []string{}},
		{"", []string{"missing"}, nil},
		{"missing", nil, nil},
	} {
		if got, all := p.Visible(Principal{Profile: test.caller}, test.chosen); all || len(got) != len(test.want) || len(got) > 0 && !cmp.Equal(got, test.want) {
			t.Errorf("Visible(%q, %q) = %v, %v, want %v", test.caller, test.chosen, got, all, test.want)
		}
	}
	if got, all := New(Config{}).Visible(Principal{}, []string{""}); !all || got != nil {
		t.Errorf("Visible = %v, %v, want all", got, all)
	}
	for name, want := range map[string]bool{"a": true, "browser": true, "": false, "missing": false} {
		if p.HasProfile(name) != want {
			t.Errorf("HasProfile(%q) = %v", name, !want)
		}
	}
}

// A file is shown to whom the profile leaves the read tool, by whichever tool, and what a profile activates it
// includes.
func TestProfileFilesAndActivations(t *testing.T) {
	p := New(Config{Mode: Disabled, Tools: []string{loadTool, readTool, "resources/read"}, Profiles: []Profile{
		{Name: "loads", Tools: []string{loadTool}}, {Name: "reads", Tools: []string{loadTool, readTool}},
		{Name: "starts", Skills: []string{"pdf"}, Activate: []string{"pdf", "xls"}, Scripts: []string{"pdf:" + script}},
	}})
	for profile, allowed := range map[string]bool{"loads": false, "reads": true} {
		for _, tool := range []string{loadTool, readTool, "resources/read"} {
			_, err := p.Decide(Request{Tool: tool, Class: Read, Skill: "pdf", File: true, Profiles: []string{profile}})
			if (err == nil) != allowed || err != nil && DenialOf(err).Code != CodeProfileExcludes {
				t.Errorf("%s, a file by %s: %v", profile, tool, err)
			}
		}
	}
	for profile, want := range map[string][]string{"starts": {"pdf"}, "browser": {"agent-browser"}, "loads": {}, "": {}, "none": {}} {
		if got := p.Activates(Principal{}, profile, false); len(got) != len(want) || len(got) > 0 && !cmp.Equal(got, want) {
			t.Errorf("Activates(%q) = %v, want %v", profile, got, want)
		}
	}
	for _, tt := range []struct {
		profile, skill, path string
		want                 bool
	}{
		{"starts", "pdf", "", true}, {"starts", "pdf", script, true}, {"starts", "pdf", "scripts/other.py", false},
		{"starts", "xls", "", false}, {"", "xls", script, true}, {"none", "pdf", "", false},
	} {
		if got := p.Includes(tt.skill, tt.path, Principal{}, []string{tt.profile}); got != tt.want {
			t.Errorf("Includes(%+v) = %v", tt, got)
		}
	}
}

// A caller that changes what it gave or was given changes no policy.
func TestProfilesAreCopied(t *testing.T) {
	cfg := Config{Profile: "a", Profiles: []Profile{{Name: "a", Skills: []string{"x", "y"}}}}
	p := New(cfg)
	cfg.Profiles[0].Skills[0] = "other"
	paths, _ := p.Visible(Principal{}, nil)
	paths[0] = "another"
	if got, _ := p.Visible(Principal{}, nil); !cmp.Equal(got, []string{"x", "y"}) {
		t.Errorf("Visible = %v", got)
	}
}

func TestConfigCheck(t *testing.T) {
	good := Config{Allowlist: allowlist(t, "pdf:"+script), Profile: "a", Mode: Observe, Role: Quote, Release: ReleaseOpaque, ClosedTiers: []skills.Tier{skills.TierOrg},
		Profiles: []Profile{{Name: "a", Skills: []string{"acme/pdf"}, Scripts: []string{"pdf:" + script}, Tools: []string{"load_skill"}, Target: TargetHost, Activate: []string{"acme/pdf"}}, {Name: "b"}}}
	for _, cfg := range []Config{{}, good, {Profile: "browser"}} {
		if err := cfg.Check(); err != nil {
			t.Errorf("Check(%+v) = %v", cfg, err)
		}
	}
	for name, do := range map[string]func(*Config){
		"unknown profile":      func(c *Config) { c.Profile = "c" },
		"name of a built-in":   func(c *Config) { c.Profiles[1].Name = "browser" },
		"twice":                func(c *Config) { c.Profiles[1].Name = "a" },
		"no name":              func(c *Config) { c.Profiles[1].Name = "" },
		"unknown target":       func(c *Config) { c.Profiles[1].Target = "moon" },
		"pattern of skills":    func(c *Config) { c.Profiles[1].Skills = []string{"acme/*"} },
		"empty skill":          func(c *Config) { c.Profiles[1].Skills = []string{""} },
		"pattern of scripts":   func(c *Config) { c.Profiles[1].Scripts = []string{"pdf:scripts/*"} },
		"pinned script":        func(c *Config) { c.Profiles[1].Scripts = []string{"pdf:" + script + "@" + file.String()} },
		"untidy script":        func(c *Config) { c.Profiles[1].Scripts = []string{"pdf:./" + script} },
		"activates another":    func(c *Config) { c.Profiles[0].Activate = []string{"xls"} },
		"activates a pattern":  func(c *Config) { c.Profiles[1].Activate = []string{"acme/*"} },
		"empty tool":           func(c *Config) { c.Profiles[1].Tools = []string{""} },
		"mode":                 func(c *Config) { c.Mode = 9 },
		"role":                 func(c *Config) { c.Role = "user" },
		"release":              func(c *Config) { c.Release = "all" },
		"tier":                 func(c *Config) { c.ClosedTiers = []skills.Tier{9} },
		"unknown entry target": func(c *Config) { c.Allowlist.entries[0].Target = "moon" },
	} {
		cfg := good
		cfg.Profiles, cfg.Allowlist.entries = cloneProfiles(good.Profiles), good.Allowlist.Entries()
		do(&cfg)
		if err := cfg.Check(); err == nil || len(err.Error()) > 400 {
			t.Errorf("%s: Check = %v, want an error", name, err)
		}
		New(cfg) // of what is refused there is a policy too
	}
}
