package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/skills"
)

var update = flag.Bool("update", false, "write the golden files")

// The objects a client is shown, one for each code that Decide answers, key for key.
func TestDenialObjects(t *testing.T) {
	var got bytes.Buffer
	got.WriteString("# The texts of one denial of Decide a line.\n")
	for _, do := range []func(*Config, *Request){
		func(c *Config, _ *Request) { c.Tools = nil },
		func(_ *Config, r *Request) { r.ActivationUnknown = true },
		func(_ *Config, r *Request) { r.Activated = false },
		func(_ *Config, r *Request) { r.Path = "scripts/other.py" },
		func(_ *Config, r *Request) {
			r.Path, r.FileDigest, r.Instead = "scripts/extrakt.py", "", `did you mean "scripts/extract.py"? use one of: scripts/extract.py`
		},
		func(_ *Config, r *Request) { r.TreeDigest = other },
		func(_ *Config, r *Request) { r.StartTree = "" },
		func(c *Config, _ *Request) { c.Allowlist = allowlist(t, "pdf:"+script+"@"+other.String()) },
		func(c *Config, _ *Request) {
			c.Allowlist = allowlist(t, "pdf:"+script+"@"+file.String())
			c.Allowlist.index[scriptKey{"pdf", script}][0].Tree = other
		},
		func(_ *Config, r *Request) { r.AllowedToolsDeclared = true },
		func(c *Config, _ *Request) { c.ClosedTiers = []skills.Tier{skills.TierUser} },
		func(_ *Config, r *Request) { r.Tier = skills.TierThirdParty },
		func(c *Config, _ *Request) {
			c.Allowlist.index[scriptKey{"pdf",
				script}][0].Ask = AskAlways
		},
		func(c *Config, _ *Request) { c.Role = Context },
		func(c *Config, _ *Request) { c.Role, c.Mode = "", EnforceStrict },
		func(c *Config, r *Request) {
			*r = Request{Tool: "read_skill_resource", Class: Read, Skill: "pdf"}
			c.Role, c.Mode = "", EnforceStrict
		},
		func(_ *Config, r *Request) { r.Mode = 99 },
		func(_ *Config, r *Request) { r.Workspace = true },
		func(_ *Config, r *Request) { r.Profiles = []string{"none such"} },
		func(_ *Config, r *Request) { r.Profiles = []string{"browser"} },
		func(c *Config, _ *Request) {
			c.Profiles, c.Profile = []Profile{{Name: "p", Scripts: []string{}}},
				"p"
		},
		func(c *Config, r *Request) {
			c.Profiles, r.Principal.Profile = []Profile{{Name: "p", Tools: []string{}}}, "p"
		},
		func(c *Config, r *Request) { *c, *r = onHost(t, "pdf"); c.HostTarget = false },
		func(c *Config, r *Request) {
			*c, *r = onHost(t, "pdf")
			c.Profiles, r.Profiles = []Profile{{Name: "p", Target: TargetSandbox}}, []string{"p"}
		},
		func(c *Config, r *Request) { *c, *r = onHost(t, browserSkill) },
		func(c *Config, r *Request) {
			*c, *r = onHost(t, browserSkill)
			r.Lease = &Lease{ID: "l", CDPURL: endpoint, ExpiresAt: now}
		},
		func(c *Config, r *Request) {
			*c, *r = onHost(t, browserSkill)
			r.Lease = &Lease{ID: "l", CDPURL: "http://example.com:9222", ExpiresAt: now.Add(1)}
		},
		func(c *Config, r *Request) {
			*c, *r = onHost(t, browserSkill)
			r.Lease, r.Args = &Lease{ID: "l", CDPURL: endpoint, ExpiresAt: now.Add(1)},
				[]string{"--cdp", "http://example.com:9222"}
		},
	} {
		cfg, request := config(t), run()
		do(&cfg, &request)
		_, err := New(cfg).Decide(request)
		if err == nil {
			t.Fatalf("Decide(%+v) = nil", request)
		}
		if denial := DenialOf(err); denial.Error() != denial.Detail || denial.Reason != denial.Code.Reason() {
			t.Errorf("denial %+v", denial)
		}
		got.Write(encode(t, texts(DenialOf(err))))
	}

	got.WriteString("# Those the server makes of facts that the policy does not know.\n")
	for _, code := range []Code{CodeApprovalDeclined, CodeResourceOutsideRoot, CodeScriptOutsideRoot,
		CodeOutputOpaque} {
		got.Write(encode(t, texts(NewDenial(code, "detail", "remedy"))))
	}
	for _, code := range declaredCodes(t) {
		if !strings.Contains(got.String(), `"code":"`+string(code)+`"`) {
			t.Errorf("no example of %s", code)
		}
	}

	const golden = "testdata/denials.golden"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("denials (-want +got):\n%s", diff)
	}
}

// declaredCodes returns the constants of type Code: the closed list.
func declaredCodes(t *testing.T) (list []Code) {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), "denial.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if kind, typed := specType(spec, ok); typed && kind == "Code" {
			list = append(list, Code(strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`)))
		}
		return true
	})
	if len(list) != 17 {
		t.Fatalf("%d codes: %v", len(list), list)
	}
	return list
}

func specType(spec *ast.ValueSpec, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	name, typed := spec.Type.(*ast.Ident)
	if !typed {
		return "", false
	}
	return name.Name, true
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		t.Fatal(err)
	}
	return line.Bytes()
}

func TestReasonOfCode(t *testing.T) {
	for reason, codes := range map[Reason][]Code{
		NotAuthorized: {"tool_not_allowed", "direct_command_required", "skill_not_activated",
			"activation_unknown", "script_not_allowlisted",
			"allowed_tools_conflict", "tier_denied", "approval_required", "approval_declined",
			"profile_excludes", "permission_denied", "lease_invalid", "of_tomorrow"},
		NotObservable: {"resource_outside_root", "script_outside_root", "script_snapshot_mismatch",
			"output_not_released"},
		NeedsOpaquePassThrough: {"output_opaque"},
	} {
		for _, code := range codes {
			if got := NewDenial(code, "d", "r"); got.Reason != reason || got.RuleID != string(code) {
				t.Errorf("NewDenial(%s) = %s, %s, want %s", code, got.Reason, got.RuleID, reason)
			}
		}
	}
}

// Every code has a row in the table, and its short text fits into a line of a list of files.
func TestTableOfCodes(t *testing.T) {
	declared := declaredCodes(t)
	if len(codes) != len(declared) {
		t.Errorf("%d rows for %d codes", len(codes), len(declared))
	}
	for _, code := range declared {
		row := codes[code]
		if row.reason == "" || row.brief == "" || len(row.brief) > 60 ||
			strings.ContainsAny(row.brief, "\n,()") {
			t.Errorf("%s has the row %+v", code, row)
		}
		if code.Brief() != row.brief || code.Reason() != row.reason {
			t.Errorf("%s: %q, %s", code, code.Brief(), code.Reason())
		}
	}
	if got := Code("of_tomorrow").Brief(); got != "of_tomorrow" {
		t.Errorf("a code without a row is %q", got)
	}
}

// What a caller chose stands in a denial as it was, also when it looks like a name in the table.
func TestRefusalFillsNamesOnce(t *testing.T) {
	request := Request{Tool: "{skill}", Skill: "{tool}", Path: "{script}"}
	got := request.refuse(profileExcludes, "{profile}", "{what}", "{what}", "{tool}")
	if want := "{skill}: the profile {what} does not include {tool}"; got.Detail != want {
		t.Errorf("refuse = %q, want %q", got.Detail, want)
	}
}

func TestApprovalRequiredIsADenial(t *testing.T) {
	denial := NewDenial(CodeApprovalRequired, "detail", "remedy")
	var err error = &ApprovalRequired{Denial: denial}
	if got, ok := errors.AsType[*Denial](err); !ok || got != denial || err.Error() != "detail" ||
		DenialOf(err) != denial {
		t.Errorf("the denial of %v is %v", err, got)
	}
}

// texts are the parts of a denial that a client is shown.
func texts(d *Denial) any {
	return struct {
		Reason Reason `json:"reason"`
		Detail string `json:"detail"`
		Code   Code   `json:"code"`
		Skill  string `json:"skill,omitempty"`
		Path   string `json:"path,omitempty"`
		Remedy string `json:"remedy"`
		RuleID string `json:"ruleId"`

		Operator string `json:"operator"`
	}{d.Reason, d.Detail, d.Code, d.Skill, d.Path, d.Remedy, d.RuleID, d.Operator}
}

// Names in the words of the caller are not replaced, and what is no name stays.
func TestFill(t *testing.T) {
	words := []string{"{skill}", "{tier}", "{tier}", "{skill}{", "{shell script}", ""}
	for _, text := range []string{"", "{", "}", "plain", "{skill}", "{tier}{skill}", "a {skill} b {none} {tier", "{{skill}}", "{shell script}é{skill"} {
		if got, want := fill(text, words), strings.NewReplacer(words...).Replace(text); got != want {
			t.Errorf("fill(%q) = %q, want %q", text, got, want)
		}
	}
}

// A request that names no script has no empty name in its remedy.
func TestRemedyWithoutScript(t *testing.T) {
	denial := (&Request{Tool: "run_skill_script"}).refuse(toolNotOffered)
	if !strings.Contains(denial.Operator, "`skillsd allow SKILL:SCRIPT`") {
		t.Error(denial.Operator)
	}
	denial = (&Request{Tool: "run_skill_script", Skill: "a", Path: "scripts/b.sh"}).refuse(toolNotOffered)
	if !strings.Contains(denial.Operator, "`skillsd allow a:scripts/b.sh`") {
		t.Error(denial.Operator)
	}
}
