package policy

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const endpoint = "http://127.0.0.1:9222"

// onHost is a request that config with this policy allows on the host.
func onHost(t testing.TB, skill string) (Config, Request) {
	cfg, request := config(t), run()
	request.Skill, request.Now = skill, now
	list, err := NewAllowlist([]Entry{{Skill: skill, Path: script, Target: TargetHost, Release: ReleaseObserved}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Allowlist, cfg.HostTarget = list, true
	return cfg, request
}

func TestHostTarget(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(*Config, *Request)
		want Code // empty: on the host
	}{
		{"enabled", func(*Config, *Request) {}, ""},
		{"not enabled", func(c *Config, _ *Request) { c.HostTarget = false }, CodePermissionDenied},
		{"not enabled, disabled", func(c *Config, _ *Request) { c.HostTarget, c.Mode = false, Disabled }, CodePermissionDenied},
		{"profile of the process", func(c *Config, _ *Request) { c.HostTarget, c.Profile = false, "machine" }, ""},
		{"profile of the principal", func(c *Config, r *Request) { c.HostTarget, r.Principal.Profile = false, "machine" }, ""},
		{"profile of the request", func(c *Config, r *Request) { c.HostTarget, r.Profiles = false, []string{"machine"} }, CodePermissionDenied},
		{"profile of the request, another of the process", func(c *Config, r *Request) {
			c.HostTarget, c.Profile, r.Profiles = false, "wide", []string{"machine"}
		}, CodePermissionDenied},
		{"profile keeps in the sandbox", func(_ *Config, r *Request) { r.Profiles = []string{"boxed"} }, CodePermissionDenied},
		{"profile of the principal keeps in the sandbox", func(c *Config, r *Request) { c.Profile, r.Principal.Profile = "machine", "boxed" }, CodePermissionDenied},
		{"output not released", func(c *Config, _ *Request) { c.Allowlist.index[scriptKey{"pdf", script}][0].Release = "" }, CodeOutputNotReleased},
		{"unknown target", func(c *Config, _ *Request) { c.Allowlist.index[scriptKey{"pdf", script}][0].Target = "moon" }, CodePermissionDenied},
		{"tier closed first", func(c *Config, r *Request) { c.HostTarget, c.ClosedTiers = false, append(c.ClosedTiers, r.Tier) }, CodeTierDenied},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, request := onHost(t, "pdf")
			cfg.Profiles = []Profile{{Name: "machine", Target: TargetHost}, {Name: "wide"}, {Name: "boxed", Target: TargetSandbox}}
			request.Args = []string{"--cdp", "anything"}
			test.do(&cfg, &request)
			grant, err := New(cfg).Decide(request)
			if test.want == "" {
				if err != nil || grant.Target != TargetHost || grant.CDP != "" || !cmp.Equal(grant.Args, request.Args) {
					t.Errorf("Decide = %+v, %v, want the host", grant, err)
				}
				return
			}
			if err == nil || DenialOf(err).Code != test.want || !cmp.Equal(grant, Grant{}) {
				t.Errorf("Decide = %+v, %v, want %s", grant, err, test.want)
			}
			if _, asks := errors.AsType[*ApprovalRequired](err); asks {
				t.Error("a user is asked in vain")
			}
		})
	}
}

// An entry that does not say host runs in the sandbox, whatever the server allows, and needs no lease.
func TestSandboxNeedsNoLease(t *testing.T) {
	cfg, request := onHost(t, browserSkill)
	cfg.Allowlist, cfg.Profile = allowlist(t, browserSkill+":"+script), ""
	request.Args = []string{"--cdp", "http://example.com"}
	grant, err := New(cfg).Decide(request)
	if err != nil || grant.Target != TargetSandbox || grant.CDP != "" || len(grant.Args) != 2 {
		t.Errorf("Decide = %+v, %v, want the sandbox", grant, err)
	}
}

func TestLeaseRule(t *testing.T) {
	good := Lease{ID: "lease-1", CDPURL: endpoint, ExpiresAt: now.Add(time.Second)}
	with := func(do func(*Lease)) func(*Request) {
		return func(r *Request) {
			l := good
			do(&l)
			r.Lease = &l
		}
	}
	to := func(url string) func(*Request) { return with(func(l *Lease) { l.CDPURL = url }) }
	args := func(list ...string) func(*Request) { return func(r *Request) { r.Args = list } }
	for _, test := range []struct {
		name string
		do   func(*Request)
		cdp  string   // empty: lease_invalid
		args []string // what is left of the arguments
	}{
		{"plain", args("a"), endpoint, []string{"a"}},
		{"localhost", to("http://localhost:9222"), "http://localhost:9222", nil},
		{"IPv6", to("http://[::1]:9222"), "http://[::1]:9222", nil},
		{"container", to("http://host.docker.internal:65535/"), "http://host.docker.internal:65535/", nil},
		{"flag", args("a", "--cdp", endpoint, "b"), endpoint, []string{"a", "b"}},
		{"flag with equals sign", args("--cdp="+endpoint, "b"), endpoint, []string{"b"}},
		{"all flags", args("--cdp", endpoint, "--cdp="+endpoint, "--cdp", endpoint), endpoint, nil},
		{"similar flags", args("--cdpx", "--cdp-port=1", "-cdp"), endpoint, []string{"--cdpx", "--cdp-port=1", "-cdp"}},
		{"after a double dash", args("--", "--cdp", "http://127.0.0.1:1"), "", nil},
		{"other browser", args("--cdp", "http://127.0.0.1:9223"), "", nil},
		{"other browser, equals sign", args("--cdp=http://localhost:9222"), "", nil},
		{"port alone", args("--cdp", "9222"), "", nil},
		{"one of two is another", args("--cdp", endpoint, "--cdp=http://127.0.0.1:1"), "", nil},
		{"flag without value", args("a", "--cdp"), "", nil},
		{"flag with empty value", args("--cdp="), "", nil},
		{"no lease", func(r *Request) { r.Lease = nil }, "", nil},
		{"expired now", with(func(l *Lease) { l.ExpiresAt = now }), "", nil},
		{"no end", with(func(l *Lease) { l.ExpiresAt = time.Time{} }), "", nil},
		{"no clock", func(r *Request) { r.Now = time.Time{} }, "", nil},
		{"no id", with(func(l *Lease) { l.ID = "" }), "", nil},
		{"https", to("https://127.0.0.1:9222"), "", nil},
		{"ws", to("ws://127.0.0.1:9222"), "", nil},
		{"capitals", to("HTTP://127.0.0.1:9222"), "", nil},
		{"other host", to("http://127.0.0.2:9222"), "", nil},
		{"host with dot", to("http://localhost.:9222"), "", nil},
		{"host in capitals", to("http://LOCALHOST:9222"), "", nil},
		{"decimal host", to("http://2130706433:9222"), "", nil},
		{"mapped host", to("http://[::ffff:127.0.0.1]:9222"), "", nil},
		{"long IPv6", to("http://[0:0:0:0:0:0:0:1]:9222"), "", nil},
		{"IPv6 with zone", to("http://[::1%25lo]:9222"), "", nil},
		{"IPv6 without brackets", to("http://::1:9222"), "", nil},
		{"no port", to("http://127.0.0.1"), "", nil},
		{"empty port", to("http://127.0.0.1:"), "", nil},
		{"port 0", to("http://127.0.0.1:0"), "", nil},
		{"port 65536", to("http://127.0.0.1:65536"), "", nil},
		{"port with zero", to("http://127.0.0.1:09222"), "", nil},
		{"path", to(endpoint + "/json"), "", nil},
		{"two slashes", to(endpoint + "//"), "", nil},
		{"user", to("http://127.0.0.1:9222@example.com:80"), "", nil},
		{"user of this machine", to("http://a@127.0.0.1:9222"), "", nil},
		{"query", to(endpoint + "?"), "", nil},
		{"fragment", to(endpoint + "#"), "", nil},
		{"escaped", to("http://127.0.0.1:9222/%2f"), "", nil},
		{"space", to(" " + endpoint), "", nil},
		{"line break", to(endpoint + "\n"), "", nil},
		{"empty", to(""), "", nil},
		{"long", to(endpoint + strings.Repeat("/", 300)), "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg, request := onHost(t, browserSkill)
			request.Lease = &good
			test.do(&request)
			grant, err := New(cfg).Decide(request)
			if test.cdp == "" {
				if err == nil || DenialOf(err).Code != CodeLeaseInvalid {
					t.Fatalf("Decide = %+v, %v, want %s", grant, err, CodeLeaseInvalid)
				}
				if d := DenialOf(err); strings.Contains(d.Detail+d.Remedy, "9222") {
					t.Errorf("the denial repeats the endpoint: %+v", d)
				}
				return
			}
			if err != nil || grant.CDP != test.cdp || strings.Join(grant.Args, " ") != strings.Join(test.args, " ") {
				t.Errorf("Decide = %q, %q, %v, want %q, %q", grant.CDP, grant.Args, err, test.cdp, test.args)
			}
		})
	}
}

// The rule follows the skill's path and its name: neither gets around it.
func TestLeaseRuleFollowsNameAndPath(t *testing.T) {
	for skill, name := range map[string]string{browserSkill: "other", "pdf": browserSkill, "acme/" + browserSkill: ""} {
		cfg, request := onHost(t, skill)
		request.SkillName = name
		if _, err := New(cfg).Decide(request); err == nil || DenialOf(err).Code != CodeLeaseInvalid {
			t.Errorf("%s named %s: Decide = %v, want %s", skill, name, err, CodeLeaseInvalid)
		}
	}
}

// The built-in profile lets its two scripts run on the host, with a lease, and nothing else run.
func TestBrowserProfile(t *testing.T) {
	list, err := NewAllowlist([]Entry{
		{Skill: browserSkill, Path: "scripts/form-automation.sh", Target: TargetHost, Release: ReleaseObserved},
		{Skill: browserSkill, Path: "scripts/authenticated-session.sh", Target: TargetHost, Release: ReleaseObserved},
		{Skill: "pdf", Path: script},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t)
	cfg.Allowlist, cfg.Profile = list, "browser"
	request := run()
	request.Now, request.Lease = now, &Lease{ID: "l", CDPURL: endpoint, ExpiresAt: now.Add(time.Hour)}
	for _, test := range []struct {
		skill, path string
		want        Code
	}{
		{browserSkill, "scripts/form-automation.sh", ""},
		{browserSkill, "scripts/capture-workflow.sh", CodeScriptNotAllowlisted},
		{browserSkill, "scripts/authenticated-session.sh", CodeProfileExcludes},
		{"pdf", script, CodeProfileExcludes},
		{"acme/" + browserSkill, "scripts/form-automation.sh", CodeProfileExcludes},
	} {
		request.Skill, request.Path = test.skill, test.path
		grant, err := New(cfg).Decide(request)
		if test.want == "" && (err != nil || grant.CDP != endpoint || grant.Target != TargetHost) || test.want != "" && (err == nil || DenialOf(err).Code != test.want) {
			t.Errorf("%s:%s: Decide = %+v, %v, want %s", test.skill, test.path, grant, err, test.want)
		}
	}
	if paths, all := New(cfg).Visible(Principal{}, nil); all || !cmp.Equal(paths, []string{browserSkill}) {
		t.Errorf("Visible = %v, %v", paths, all)
	}
}

func TestParseLease(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for raw, want := range map[string]Lease{
		`{"leaseId":"l","cdpUrl":"http://127.0.0.1:9222","expiresAt":"2026-11-21T12:00:00Z","more":[1]}`: {ID: "l", CDPURL: endpoint, ExpiresAt: at},
		`{"leaseId":"l","expiresAt":"2026-11-21T13:00:00+01:00"}`:                                        {ID: "l", ExpiresAt: at},
		`{"LeaseId":"l","cdpURL":"x","expiresAt":1763726400}`:                                            {},
		`{"leaseId":["l"],"cdpUrl":null,"expiresAt":"tomorrow"}`:                                         {},
	} {
		if got, err := ParseLease(json.RawMessage(raw)); err != nil || got.ID != want.ID || got.CDPURL != want.CDPURL || !got.ExpiresAt.Equal(want.ExpiresAt) {
			t.Errorf("ParseLease(%s) = %+v, %v, want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{``, `null`, `[]`, `"x"`, `{"leaseId":"l"`, `{} {}`, `{"leaseId":"` + strings.Repeat("x", maxLease) + `"}`} {
		got, err := ParseLease(json.RawMessage(raw))
		if _, ok := errors.AsType[*LeaseError](err); !ok || got != nil {
			t.Errorf("ParseLease(%.40q) = %+v, %v, want *LeaseError", raw, got, err)
		}
	}
}

// Whatever a lease holds, what Decide grants is one of the few ways to write a browser on this machine.
func FuzzParseLease(f *testing.F) {
	for _, seed := range []string{
		`{"leaseId":"l","cdpUrl":"http://127.0.0.1:9222","expiresAt":"2027-01-01T00:00:00Z"}`, `{"leaseId":"l","cdpUrl":"http://[::1]:1/","expiresAt":"2027-01-01T00:00:00Z"}`,
		`{"leaseId":"l","cdpUrl":"http://a@localhost:80?#","expiresAt":"9999-12-31T23:59:59Z"}`, `null`, `{"leaseId":1}`,
	} {
		f.Add([]byte(seed))
	}
	cfg, request := onHost(f, browserSkill)
	p := New(cfg)
	f.Fuzz(func(t *testing.T, raw []byte) {
		lease, err := ParseLease(raw)
		if err != nil {
			if lease != nil || len(err.Error()) > 100 {
				t.Errorf("ParseLease(%q) = %+v, %v", raw, lease, err)
			}
			return
		}
		request := request
		request.Lease = lease
		grant, err := p.Decide(request)
		if err != nil {
			return
		}
		rest, ok := strings.CutPrefix(strings.TrimSuffix(grant.CDP, "/"), "http://")
		host, port, _ := strings.Cut(strings.ReplaceAll(rest, "[::1]", "v6"), ":")
		if !ok || !strings.Contains(" 127.0.0.1 v6 localhost host.docker.internal ", " "+host+" ") || strings.Trim(port, "0123456789") != "" || port == "" {
			t.Errorf("a lease of %q is granted", grant.CDP)
		}
	})
}
