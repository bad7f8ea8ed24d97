package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// check is one verdict of the conformance suite.
type check struct {
	Scenario string `json:"-"`
	ID       string `json:"id"`
	Status   string `json:"status"`
	Error    string `json:"errorMessage"`
}

// good reports whether nothing is wrong: INFO is a remark.
func (c check) good() bool { return c.Status == "SUCCESS" || c.Status == "INFO" }

// exception is a check that may be other than good, and must be: once it is good it has to go.
type exception struct {
	revision, scenario string
	check              string // "" for all of the scenario
	why                string
}

func (e exception) covers(c check) bool {
	return e.scenario == c.Scenario && (e.check == "" || e.check == c.ID)
}

// The suite's fixtures, skillsd's transport.
func TestSuiteConformanceRequirements(t *testing.T) {
	exceptions := []exception{
		{"2026-07-28", "tasks-status-notifications", "", "the suite skips it: notifications are optional, and it has no test of them yet"},
	}
	modules(t)
	fixture := serveFixture(t)
	for _, tt := range []struct {
		revision  string
		args      []string
		scenarios int
	}{
		// The suite has no list of what this one requires.
		{"2025-06-18", []string{"--suite", "all", "--spec-version", "2025-06-18"}, 27},
		{"2025-11-25", []string{"--requirements", "2025-11-25"}, 33},
		{"2026-07-28", []string{"--requirements", "2026-07-28"}, 50},
	} {
		t.Run(tt.revision, func(t *testing.T) {
			again(t, func() []string {
				checks, exit, out := conformance(t, fixture, tt.args...)
				problems := judge(tt.revision, checks, exceptions)
				// No revision requires tasks, so the suite's own verdict is good all the same.
				if exit != 0 {
					problems = append(problems, fmt.Sprintf("exit status %d:\n%s", exit, out))
				}
				if n := len(scenariosOf(checks)); n != tt.scenarios {
					problems = append(problems, fmt.Sprintf("%d scenarios were run, want %d:\n%s", n, tt.scenarios, out))
				}
				return problems
			})
		})
	}
}

// notApplied is why the real server is not asked for a scenario, by the beginning of its name; the first that fits counts.
var notApplied = []struct{ scenario, why string }{
	{"tasks-", "needs the suite's own tools; its fixture has the tasks of skillsd"},
	{"tools-call-with-logging", "skillsd writes no log to clients"},
	{"logging-", "skillsd writes no log to clients"},
	{"tools-call-sampling", "skillsd does not ask a client's model"},
	{"tools-call-", "compares contents that only the suite's own tool has"},
	{"prompts-get-", "compares contents that only the suite's own prompt has"},
	{"resources-read-", "compares contents that only the suite's own resource has"},
	{"resources-templates-read", "compares contents that only the suite's own resource has"},
	{"resources-subscribe", "skillsd offers no subscriptions to single resources"},
	{"resources-unsubscribe", "skillsd offers no subscriptions to single resources"},
	{"json-schema-2020-12", "compares the schema of the suite's own tool"},
	{"elicitation-sep", "compares fields that only the suite's own form has"},
	{"server-sse-polling", "a stream that ended is not taken up again, which is optional"},
	{"http-custom-header-server-validation", "skillsd has no argument that travels in a header"},
	{"input-required-result-basic-", "skillsd asks for nothing but the answer of a user"},
	{"input-required-result-multi", "skillsd asks one question, in one round"},
	{"input-required-result-non-tool-request", "skillsd asks about runs only"},
	{"input-required-result-capability-check", "skillsd refuses a call about which the client cannot ask"},
	{"input-required-result-ignore-extra-params", "an answer without the state of its question counts for nothing here"},
}

// What the revisions require that needs no fixtures, of the real server. What it is not asked for is logged by name.
func TestSuiteConformanceServer(t *testing.T) {
	const (
		fixture = "needs a tool that the suite tells servers to offer for it"
		change  = "needs a tool that changes a list; TestSuiteNpmClient shows that subscribers are told"
	)
	applies := map[string][]string{
		"2025-11-25": {
			"server-initialize", "server-session-lifecycle", "server-sse-multiple-streams", "ping", "tools-list",
			"resources-list", "prompts-list", "dns-rebinding-protection",
		},
		"2026-07-28": {
			"server-stateless", "server-sse-multiple-streams", "tools-list", "resources-list", "sep-2164-resource-not-found",
			"prompts-list", "dns-rebinding-protection", "caching", "http-header-validation", "input-required-result-unsupported-methods",
		},
	}
	exceptions := []exception{
		{"2026-07-28", "server-stateless", "sep-2575-server-rejects-undeclared-capability", fixture},
		{"2026-07-28", "server-stateless", "sep-2575-missing-capability-http-400", fixture},
		{"2026-07-28", "server-stateless", "sep-2575-http-server-no-independent-requests-on-stream", fixture},
		{"2026-07-28", "server-stateless", "sep-2575-server-no-log-without-loglevel", fixture},
		{"2026-07-28", "server-stateless", "sep-2575-server-sends-prompts-list-changed-on-subscription", change},
		{"2026-07-28", "server-stateless", "sep-2575-server-sends-tools-list-changed-on-subscription", change},
	}
	modules(t)
	s := serveHTTP(t, "--skills-root", exampleSkills(t))
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			var left []string
			defer func() { t.Log("\n" + strings.Join(left, "\n")) }()
			again(t, func() (problems []string) {
				checks, _, out := conformance(t, s, "--requirements", revision)
				ran := scenariosOf(checks)
				for _, scenario := range applies[revision] {
					if !slices.Contains(ran, scenario) {
						problems = append(problems, fmt.Sprintf("%s was not run:\n%s", scenario, out))
					}
				}
				left = left[:0]
				for _, scenario := range ran {
					i := slices.IndexFunc(notApplied, func(n struct{ scenario, why string }) bool { return strings.HasPrefix(scenario, n.scenario) })
					switch {
					case slices.Contains(applies[revision], scenario) || slices.Contains(stoodInFor(revision), scenario):
					case i < 0:
						problems = append(problems, fmt.Sprintf("%s is not applied, and nothing says why", scenario))
					default:
						left = append(left, fmt.Sprintf("not asked of the real server: %s: %s", scenario, notApplied[i].why))
					}
				}
				checks = slices.DeleteFunc(checks, func(c check) bool { return !slices.Contains(applies[revision], c.Scenario) })
				return append(problems, judge(revision, checks, exceptions)...)
			})
		})
	}
}

// The suite's own scenarios of the Skills extension, of the real server.
func TestSuiteConformanceSkills(t *testing.T) {
	const hints = "the older revisions have no cache hints"
	exceptions := []exception{
		{"2025-11-25", "sep-2640-skills-enumeration", "sep-2640-skills-list-cache-attributes", hints},
		{"2025-11-25", "sep-2640-skills-enumeration", "sep-2640-skills-get-cache-attributes", hints},
	}
	modules(t)
	s := serveHTTP(t, "--skills-root", exampleSkills(t))
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			again(t, func() (problems []string) {
				var checks []check
				for _, scenario := range []string{"sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"} {
					// An extension belongs to no revision, so the suite has to be told to go ahead.
					found, exit, out := conformance(t, s, "--scenario", scenario, "--spec-version", revision, "--force")
					if exit != 0 || len(found) == 0 {
						problems = append(problems, fmt.Sprintf("%s: exit status %d:\n%s", scenario, exit, out))
					}
					checks = append(checks, found...)
				}
				return append(problems, judge(revision, checks, exceptions)...)
			})
		})
	}
}

// again has the suite try something three times: it waits with deadlines of its own, which a machine
// may miss once.
func again(t *testing.T, try func() []string) {
	t.Helper()
	var problems []string
	for range 3 {
		problems = try()
		if len(problems) == 0 {
			return
		}
	}
	t.Error(strings.Join(problems, "\n"))
}

// judge returns which checks are not good but for the exceptions, and which of these are not needed.
func judge(revision string, checks []check, exceptions []exception) (problems []string) {
	exceptions = slices.DeleteFunc(slices.Clone(exceptions), func(e exception) bool { return e.revision != revision })
	needed := make([]bool, len(exceptions))
	for _, c := range checks {
		if c.good() {
			continue
		}
		i := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(c) })
		if i < 0 {
			problems = append(problems, fmt.Sprintf("%s: %s: %s: %s", c.Scenario, c.ID, c.Status, c.Error))
			continue
		}
		needed[i] = true
	}
	for i, e := range exceptions {
		if !needed[i] {
			problems = append(problems, fmt.Sprintf("%s %s is good, although %s: drop the exception", e.scenario, e.check, e.why))
		}
	}
	return problems
}

// serveFixture starts the server with the suite's fixtures.
func serveFixture(t *testing.T) *site {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fixture")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./conformance").CombinedOutput(); err != nil {
		t.Fatalf("build the fixture server: %v\n%s", err, out)
	}
	s := &site{process: start(t, exec.Command(program))}
	s.url = "http://" + s.addr() + "/mcp"
	return s
}

// resultDir is the name of the directory of one scenario's results.
var resultDir = regexp.MustCompile(`^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$`)

// conformance runs the suite against a server and returns its checks, exit status and output.
func conformance(t *testing.T, s *site, args ...string) (checks []check, exit int, out []byte) {
	t.Helper()
	dir := t.TempDir()
	cmd := suite(t, "conformance", append([]string{"server", "--url", s.url, "--output-dir", dir}, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("conformance: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		scenario := resultDir.FindStringSubmatch(entry.Name())
		if scenario == nil {
			t.Fatalf("conformance wrote %s", entry.Name())
		}
		raw, err := os.ReadFile(filepath.Join(dir, entry.Name(), "checks.json"))
		if err != nil {
			t.Fatal(err)
		}
		var found []check
		if err := json.Unmarshal(raw, &found); err != nil {
			t.Fatalf("%s: %v", entry.Name(), err)
		}
		for _, c := range found {
			c.Scenario = scenario[1]
			checks = append(checks, c)
		}
	}
	return checks, cmd.ProcessState.ExitCode(), bytes.TrimSpace(out)
}

// scenariosOf lists the scenarios that checks come from.
func scenariosOf(checks []check) []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.Scenario)
	}
	slices.SortFunc(names, strings.Compare)
	return slices.Compact(names)
}
