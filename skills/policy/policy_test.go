package policy

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	sh "github.com/skillsd/skillsd/skills/script"
)

const (
	tree   = digest.Digest("sha256:1111111111111111111111111111111111111111111111111111111111111111")
	other  = digest.Digest("sha256:2222222222222222222222222222222222222222222222222222222222222222")
	file   = digest.Digest("sha256:3333333333333333333333333333333333333333333333333333333333333333")
	script = "scripts/extract.py"
)

func allowlist(t testing.TB, specs ...string) Allowlist {
	t.Helper()
	list, err := ParseAllowlist(specs)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// config offers everything and allows the sample script.
func config(t testing.TB) Config {
	return Config{Tools: []string{"load_skill", "read_skill_resource", runTool}, Allowlist: allowlist(t, "pdf:"+script), Role: DirectCommand}
}

// run is a request that config allows in every mode.
func run() Request {
	return Request{Tool: runTool, Class: SideEffect, Principal: Principal{Name: "local", Evidence: true}, Skill: "pdf", Tier: skills.TierUser,
		Activated: true, Path: script, FileDigest: file, TreeDigest: tree, StartTree: tree}
}

// matrixRow is what the reference decided and recorded.
type matrixRow struct {
	Case        string
	Mode        string
	Role        Role
	Tool        string
	Decision    []string
	ReasonCodes [][]string
	Reason      Reason
}

// The reference's decisions, row by row. Four things differ on purpose:
//   - run/no-mediation with a direct command under enforcement is released before it runs, where the
//     reference denies it not-observable after it ran: such a run reveals nothing here;
//   - observe writes no warning for missing mediation, so only the decision's own warning is left;
//   - run/mediated-* are decided alike, what the mediation says is applied to the output later;
//   - run/tool-not-allowed is a decision only: a client is answered that there is no such tool.
func TestMatrixOfReference(t *testing.T) {
	data, err := os.ReadFile("testdata/policy-matrix.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []matrixRow
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 45 {
		t.Errorf("%d rows, want 45", len(rows))
	}
	for _, row := range rows {
		t.Run(row.Case+"/"+row.Mode+"/"+string(row.Role), func(t *testing.T) {
			cfg := config(t)
			cfg.Role = row.Role
			cfg.Mode, err = ParseMode(row.Mode)
			if err != nil {
				t.Fatal(err)
			}
			if row.Case == "run/tool-not-allowed" {
				cfg.Tools = []string{"load_skill", "read_skill_resource"}
			}
			request := run()
			request.Tool = row.Tool
			if row.Tool != runTool {
				request.Class = Read
			}
			grant, err := New(cfg).Decide(request)
			decision, rule, reason := string(grant.Decision), grant.RuleID, Reason("")
			if err != nil {
				denial := DenialOf(err)
				decision, rule, reason = "denied", denial.RuleID, denial.Reason
			}
			if row.Case == "run/no-mediation" && row.Reason == NotObservable {
				row.Reason = ""
			}
			got := matrixRow{Case: row.Case, Mode: row.Mode, Role: row.Role, Tool: row.Tool,
				Decision: []string{decision}, ReasonCodes: [][]string{{rule}}, Reason: reason}
			if diff := cmp.Diff(row, got); diff != "" {
				t.Errorf("Decide (-want +got):\n%s", diff)
			}
			// Beside what the reference warns of, disabled notes the confirmation that tier user lacks.
			lacks := row.Mode == "disabled" && row.Role != DirectCommand && row.Tool == runTool
			if (grant.Warning != "") != (decision == string(Warned) || lacks) {
				t.Errorf("decision %s with warning %q", decision, grant.Warning)
			}
		})
	}
}

// Every rule of a run, in the order in which they are asked. Each case breaks one thing that its
// rule asks for and everything the later rules ask for.
func TestOrderOfRules(t *testing.T) {
	breaks := []struct {
		code Code
		do   func(*Config, *Request)
	}{
		{CodeToolNotAllowed, func(c *Config, _ *Request) { c.Tools = nil }},
		{CodeProfileExcludes, func(_ *Config, r *Request) { r.Profiles = []string{"none such"} }},
		{CodeActivationUnknown, func(_ *Config, r *Request) { r.ActivationUnknown = true }},
		{CodeSkillNotActivated, func(_ *Config, r *Request) { r.Activated = false }},
		{CodeScriptNotAllowlisted, func(c *Config, _ *Request) { c.Allowlist = Allowlist{} }},
		{CodeScriptSnapshotMismatch, func(_ *Config, r *Request) { r.TreeDigest = other }},
		{CodeAllowedToolsConflict, func(_ *Config, r *Request) { r.AllowedToolsDeclared = true }},
		{CodeTierDenied, func(c *Config, r *Request) { c.ClosedTiers = []skills.Tier{skills.TierThirdParty, skills.TierUser} }},
		{CodePermissionDenied, func(c *Config, _ *Request) { c.HostTarget = false }},
		{CodeLeaseInvalid, func(_ *Config, r *Request) { r.Lease = nil }},
		{CodeOutputNotReleased, func(c *Config, r *Request) {
			if c.Allowlist.index != nil {
				c.Allowlist.index[scriptKey{browserSkill, script}][0].Release = ReleaseNone
			}
		}},
		{CodeDirectCommandRequired, func(c *Config, _ *Request) { c.Role = Context }},
		{CodeApprovalRequired, func(_ *Config, r *Request) { r.Tier = skills.TierThirdParty }},
	}
	leased := func() (Config, Request) {
		cfg, request := onHost(t, browserSkill)
		request.Lease = &Lease{ID: "l", CDPURL: endpoint, ExpiresAt: now.Add(time.Hour)}
		return cfg, request
	}
	for i, first := range breaks {
		t.Run(string(first.code), func(t *testing.T) {
			cfg, request := leased()
			for _, broken := range breaks[i:] {
				broken.do(&cfg, &request)
			}
			_, err := New(cfg).Decide(request)
			if err == nil {
				t.Fatal("Decide = nil, want a denial")
			}
			if got := DenialOf(err); got.Code != first.code || got.Skill != browserSkill || got.Path != script || got.Remedy == "" || !strings.Contains(got.Detail, runTool) {
				t.Errorf("Decide = %+v, want %s", got, first.code)
			}
		})
	}
	cfg, request := leased()
	if _, err := New(cfg).Decide(request); err != nil {
		t.Errorf("nothing broken: %v", err)
	}
}

type runCase struct {
	name string
	do   func(*Config, *Request)
	want Code // empty: allowed
}

func checkRuns(t *testing.T, tests []runCase) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg, request := config(t), run()
			test.do(&cfg, &request)
			grant, err := New(cfg).Decide(request)
			if test.want == "" {
				if err != nil || grant.Entry.Path != script || grant.Release != ReleaseObserved {
					t.Errorf("Decide = %+v, %v, want a grant", grant, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("Decide = %+v, want %s", grant, test.want)
			}
			if got := DenialOf(err).Code; got != test.want {
				t.Errorf("Decide = %s, want %s", got, test.want)
			}
			if !cmp.Equal(grant, Grant{}) {
				t.Errorf("a denial comes with the grant %+v", grant)
			}
		})
	}
}

func TestExactScript(t *testing.T) {
	checkRuns(t, []runCase{
		{"other path", func(_ *Config, r *Request) { r.Path = "scripts/other.py" }, CodeScriptNotAllowlisted},
		{"longer path", func(_ *Config, r *Request) { r.Path = script + "c" }, CodeScriptNotAllowlisted},
		{"other skill", func(_ *Config, r *Request) { r.Skill = "acme/pdf" }, CodeScriptNotAllowlisted},
		{"skill and path shifted", func(_ *Config, r *Request) { r.Skill, r.Path = "pdf:scripts", "extract.py" }, CodeScriptNotAllowlisted},
		{"not allowlisted, disabled", func(c *Config, r *Request) { c.Mode, r.Path = Disabled, "scripts/x" }, CodeScriptNotAllowlisted},
	})
}

func TestPin(t *testing.T) {
	pinned := "pdf:" + script + "@" + file.String()
	stale := "pdf:" + script + "@" + other.String()
	checkRuns(t, []runCase{
		{"drift since start", func(_ *Config, r *Request) { r.TreeDigest = other }, CodeScriptSnapshotMismatch},
		{"drift, no such file", func(_ *Config, r *Request) { r.TreeDigest, r.FileDigest = other, "" }, CodeScriptSnapshotMismatch},
		{"drift, disabled", func(c *Config, r *Request) { c.Mode, r.TreeDigest = Disabled, other }, CodeScriptSnapshotMismatch},
		{"absent at start", func(_ *Config, r *Request) { r.StartTree = "" }, CodeScriptSnapshotMismatch},
		{"absent at start and no tree", func(_ *Config, r *Request) { r.StartTree, r.TreeDigest = "", "" }, CodeScriptSnapshotMismatch},
		{"pin", func(c *Config, _ *Request) { c.Allowlist = allowlist(t, pinned) }, ""},
		{"pin, tree reloaded", func(c *Config, r *Request) { c.Allowlist, r.TreeDigest = allowlist(t, pinned), other }, ""},
		{"pin of other bytes", func(c *Config, _ *Request) { c.Allowlist = allowlist(t, stale) }, CodeScriptSnapshotMismatch},
		{"pin, no such file", func(c *Config, r *Request) { c.Allowlist, r.FileDigest = allowlist(t, pinned), "" }, CodeScriptSnapshotMismatch},
		{"pin, absent at start", func(c *Config, r *Request) { c.Allowlist, r.StartTree = allowlist(t, pinned), "" }, CodeScriptSnapshotMismatch},
		{"one of two pins", func(c *Config, _ *Request) { c.Allowlist = allowlist(t, stale, pinned) }, ""},
		{"pin is not loosened", func(c *Config, _ *Request) { c.Allowlist = allowlist(t, "pdf:"+script, stale) }, CodeScriptSnapshotMismatch},
	})
}

func TestAllowedTools(t *testing.T) {
	checkRuns(t, []runCase{
		{"allowed-tools names the tool", declare(runTool), ""},
		{"allowed-tools names the script", declare("Read", runTool+"("+script+")"), ""},
		{"allowed-tools Bash", declare("Bash"), ""},
		{"allowed-tools Bash with a pattern", declare("Bash(agent-browser:*)"), ""},
		{"allowed-tools empty", declare(), CodeAllowedToolsConflict},
		{"allowed-tools others", declare("Read", "Write"), CodeAllowedToolsConflict},
		{"allowed-tools other script", declare(runTool + "(scripts/other.py)"), CodeAllowedToolsConflict},
		{"allowed-tools has no patterns", declare(runTool + "(scripts/*)"), CodeAllowedToolsConflict},
		{"allowed-tools half a call", declare(runTool+"("+script, "Bash(", runTool+")"), CodeAllowedToolsConflict},
		{"allowed-tools the interpreter", func(c *Config, r *Request) { declare("python", "Read")(c, r); r.Runtime = sh.Python3 }, ""},
		{"allowed-tools Python", func(c *Config, r *Request) { declare("Python(x:*)")(c, r); r.Runtime = sh.Python3 }, ""},
		{"allowed-tools uv", func(c *Config, r *Request) { declare("uv")(c, r); r.Runtime = sh.Python3 }, ""},
		{"allowed-tools another interpreter", func(c *Config, r *Request) { declare("Node", "Read")(c, r); r.Runtime = sh.Python3 }, CodeAllowedToolsConflict},
		{"allowed-tools programs of a shell script", func(c *Config, r *Request) { declare("terraform", "gcloud")(c, r); r.Runtime = sh.Sh }, ""},
		{"allowed-tools programs, python", func(c *Config, r *Request) { declare("terraform", "gcloud")(c, r); r.Runtime = sh.Python3 }, CodeAllowedToolsConflict},
		{"allowed-tools tools in lower case", func(c *Config, r *Request) { declare("read", "grep", "node")(c, r); r.Runtime = sh.Bash }, CodeAllowedToolsConflict},
		{"allowed-tools pwsh", func(c *Config, r *Request) { declare("PowerShell")(c, r); r.Runtime = sh.Pwsh }, ""},
		{"allowed-tools similar names", declare("Bashful", "bash", "BashOutput(x)", runTool+"s"), CodeAllowedToolsConflict},
		{"allowed-tools, disabled", func(c *Config, r *Request) { declare("Read")(c, r); c.Mode = Disabled }, CodeAllowedToolsConflict},
		{"allowed-tools advisory", func(c *Config, r *Request) { declare("Read")(c, r); c.AllowedToolsAdvisory = true }, ""},
		{"allowed-tools listed, not declared", func(_ *Config, r *Request) { r.AllowedTools = []string{"Read"} }, ""},
	})
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	tools := []string{"Read", "Bash(git add:*)", "Bash(agent-browser:*)", "Bash", "Bash(*)", "Bash(../x:*)", "Bash(jq",
		"Other(make:*)", "Bash()"}
	if got, want := Programs(tools), []string{"git", "agent-browser"}; !slices.Equal(got, want) {
		t.Errorf("Programs(%q) = %q, want %q", tools, got, want)
	}
}

func TestModeOfRequest(t *testing.T) {
	checkRuns(t, []runCase{
		{"client raises the mode", func(c *Config, r *Request) { c.Mode, c.Role, r.Mode = Observe, "", EnforceExplicit }, CodeDirectCommandRequired},
		{"client cannot lower the mode", func(c *Config, r *Request) { c.Mode, c.Role, r.Mode = EnforceExplicit, "", Disabled }, CodeDirectCommandRequired},
		{"unknown mode", func(_ *Config, r *Request) { r.Mode = 99 }, CodeDirectCommandRequired},
		{"class not said", func(c *Config, r *Request) { c.Allowlist, r.Class = Allowlist{}, 0 }, CodeScriptNotAllowlisted},
	})
}

func declare(tools ...string) func(*Config, *Request) {
	return func(_ *Config, r *Request) { r.AllowedTools, r.AllowedToolsDeclared = tools, true }
}

func TestRelease(t *testing.T) {
	entry := func(do func(*Entry)) func(*Config, *Request) {
		return func(c *Config, _ *Request) { do(&c.Allowlist.index[scriptKey{"pdf", script}][0]) }
	}
	for _, test := range []struct {
		name string
		do   func(*Config, *Request)
		set  Release // the policy's
		mode Mode
		want Release // empty: denied
	}{
		{"plain", nil, "", 0, ReleaseObserved},
		{"workspace", mount, "", EnforceExplicit, ""},
		{"workspace, strict", mount, "", EnforceStrict, ""},
		{"workspace, entry has none", func(c *Config, r *Request) {
			mount(c, r)
			c.Allowlist.index[scriptKey{"pdf", script}][0].Workspace = "none"
		}, "", EnforceExplicit, ReleaseObserved},
		{"workspace, observe", mount, "", Observe, ReleaseObserved},
		{"workspace, disabled", mount, "", Disabled, ReleaseObserved},
		{"workspace observed", mount, ReleaseObserved, EnforceStrict, ReleaseObserved},
		{"workspace opaque", mount, ReleaseOpaque, EnforceExplicit, ReleaseOpaque},
		{"network", entry(func(e *Entry) { e.Network = []string{"example.com:443"} }), "", 0, ""},
		{"environment", entry(func(e *Entry) { e.Env = []string{"LANG"} }), "", 0, ""},
		{"secrets", entry(func(e *Entry) { e.Secrets = []string{"TOKEN"} }), "", 0, ""},
		{"network observed by its entry", entry(func(e *Entry) { e.Network, e.Release = []string{"x:1"}, ReleaseObserved }), "", 0, ReleaseObserved},
		{"entry is stricter than the policy", entry(func(e *Entry) { e.Network, e.Release = []string{"x:1"}, ReleaseNone }), ReleaseObserved, 0, ""},
		{"entry says opaque", entry(func(e *Entry) { e.Release = ReleaseOpaque }), ReleaseObserved, 0, ReleaseOpaque},
		{"opaque, disabled", entry(func(e *Entry) { e.Release = ReleaseOpaque }), "", Disabled, ReleaseOpaque},
		{"unknown release", mount, "loud", 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, request := config(t), run()
			if test.do != nil {
				test.do(&cfg, &request)
			}
			cfg.Release, cfg.Mode = test.set, test.mode
			grant, err := New(cfg).Decide(request)
			if grant.Release != test.want || (err == nil) != (test.want != "") {
				t.Errorf("Decide = %q, %v, want %q", grant.Release, err, test.want)
			}
			if err != nil && DenialOf(err).Code != CodeOutputNotReleased {
				t.Errorf("Decide = %v, want %s", err, CodeOutputNotReleased)
			}
		})
	}
}

func mount(_ *Config, r *Request) { r.Workspace = true }

// A policy does not change when its configuration's slices do.
func TestPolicyIsImmutable(t *testing.T) {
	cfg := config(t)
	p := New(cfg)
	cfg.Tools[2] = "other"
	if !p.Offers(runTool) {
		t.Error("the policy changed with its configuration")
	}
	p.Entries()[0].Path = "x"
	if p.Entries()[0].Path != script {
		t.Error("the policy changed with its entries")
	}
}

func TestZeroConfigOffersNothing(t *testing.T) {
	p := New(Config{})
	for _, class := range []Class{0, Read, SideEffect} {
		request := run()
		request.Class = class
		if _, err := p.Decide(request); err == nil || DenialOf(err).Code != CodeToolNotAllowed {
			t.Errorf("class %v: Decide = %v, want %s", class, err, CodeToolNotAllowed)
		}
	}
	if got := p.Mode(0); got != EnforceExplicit {
		t.Errorf("Mode = %v, want %v", got, EnforceExplicit)
	}
}

// What a caller chooses is never repeated at length.
func TestDenialBoundsValues(t *testing.T) {
	long := strings.Repeat("ü", 20_000)
	request := run()
	request.Skill, request.Path = long, "scripts/"+long
	_, err := New(config(t)).Decide(request)
	text, marshalErr := json.Marshal(DenialOf(err))
	if marshalErr != nil || len(text) > 2_000 {
		t.Errorf("the denial has %d bytes, %v", len(text), marshalErr)
	}
}

// profiled is a request that has to pass the rules of profiles, evidence and approval.
func profiled(t testing.TB) (*Policy, Request) {
	cfg, request := config(t), run()
	cfg.Profiles = []Profile{{Name: "docs", Skills: []string{"xls", "pdf"}, Scripts: []string{"xls:" + script, "pdf:" + script}, Tools: []string{"load_skill", runTool}}}
	cfg.Profile, request.Profiles, request.Principal.Profile = "docs", []string{"docs", ""}, "docs"
	request.Tier, request.Approved, request.Slot = skills.TierThirdParty, ApprovalRemembered, &PromptSlot{Role: DirectCommand}
	request.AllowedTools, request.AllowedToolsDeclared = []string{"Read", runTool + "(" + script + ")"}, true
	return New(cfg), request
}

func BenchmarkDecide(b *testing.B) {
	for name, do := range map[string]func(testing.TB) (*Policy, Request){
		"plain":    func(t testing.TB) (*Policy, Request) { return New(config(t)), run() },
		"profiled": profiled,
	} {
		b.Run(name, func(b *testing.B) {
			p, request := do(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Decide(request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAllowingDoesNotAllocate(t *testing.T) {
	p, request := New(config(t)), run()
	narrowed, approved := profiled(t)
	read := Request{Tool: "load_skill", Class: Read, Skill: "pdf", Profiles: []string{"docs"}}
	for _, check := range []struct {
		p *Policy
		r Request
	}{{p, request}, {narrowed, approved}, {narrowed, read}} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := check.p.Decide(check.r); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("Decide allocates %v times for %+v", n, check.r)
		}
	}
}
