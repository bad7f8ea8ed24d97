package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// yamlOf reads a file of the repository; a key that is there twice is an error.
func yamlOf(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return fields
}

// stepsOf returns the steps of all jobs of a workflow.
func stepsOf(workflow map[string]any) (steps []map[string]any) {
	jobs, _ := workflow["jobs"].(map[string]any)
	for _, job := range jobs {
		fields, _ := job.(map[string]any)
		list, _ := fields["steps"].([]any)
		for _, step := range list {
			s, _ := step.(map[string]any)
			steps = append(steps, s)
		}
	}
	return steps
}

var (
	pinnedAction = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	makeTarget   = regexp.MustCompile(`\bmake ([a-z][a-z -]*)`)
	fromEvents   = regexp.MustCompile(`\$\{\{[^}]*(github\.event\.|github\.head_ref|inputs\.|steps\.)[^}]*\}\}`)
)

// TestWorkflows reads the workflows: each action is pinned to a commit, each job has little permission and an end,
// each target of make exists, and no shell command has text in it that others write.
func TestWorkflows(t *testing.T) {
	names, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d workflows: %v", len(names), err)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range names {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		workflow := yamlOf(t, name)
		permissions, _ := workflow["permissions"].(map[string]any)
		if len(permissions) != 1 || permissions["contents"] != "read" {
			t.Errorf("%s: the permissions of all jobs are %v, want contents: read", name, permissions)
		}
		jobs, _ := workflow["jobs"].(map[string]any)
		for id, job := range jobs {
			fields, _ := job.(map[string]any)
			if fields["timeout-minutes"] == nil || fields["runs-on"] == nil {
				t.Errorf("%s: %s has no timeout-minutes or runs-on", name, id)
			}
		}
		steps := stepsOf(workflow)
		if len(steps) == 0 {
			t.Errorf("%s has no steps", name)
		}
		for _, step := range steps {
			uses, _ := step["uses"].(string)
			run, _ := step["run"].(string)
			local := strings.HasPrefix(uses, "./")
			switch {
			case uses == "" && run == "":
				t.Errorf("%s: a step does nothing: %v", name, step)
			case local:
				if _, err := os.Stat(filepath.Join("..", uses, "action.yml")); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			case uses != "" && !pinnedAction.MatchString(uses):
				t.Errorf("%s: %s is not pinned to a commit", name, uses)
			}
			if found := fromEvents.FindString(run); found != "" {
				t.Errorf("%s: %s in a shell command: pass it by env", name, found)
			}
			for _, match := range makeTarget.FindAllStringSubmatch(run, -1) {
				for target := range strings.FieldsSeq(match[1]) {
					if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(makefile) {
						t.Errorf("%s: make has no target %s", name, target)
					}
				}
			}
		}
	}
	ci, err := os.ReadFile("../.github/workflows/ci.yml")
	if err != nil || !strings.Contains(string(ci), "run: .ci/run\n") {
		t.Errorf("ci.yml does not call .ci/run: %v", err)
	}
}

// TestRepositoryFiles reads the other files that GitHub and GoReleaser read.
func TestRepositoryFiles(t *testing.T) {
	bug := yamlOf(t, ".github/ISSUE_TEMPLATE/bug.yml")
	body, _ := bug["body"].([]any)
	asksDoctor := func(field any) bool {
		fields, _ := field.(map[string]any)
		required, _ := fields["validations"].(map[string]any)
		return fields["id"] == "doctor" && required["required"] == true
	}
	if !slices.ContainsFunc(body, asksDoctor) {
		t.Error("the template for problems does not ask for the output of doctor")
	}
	yamlOf(t, ".github/ISSUE_TEMPLATE/idea.yml")
	yamlOf(t, ".github/ISSUE_TEMPLATE/config.yml")
	request, err := os.ReadFile("../.github/pull_request_template.md")
	if err != nil || !strings.Contains(string(request), "skillsd doctor") {
		t.Errorf("the template for pull requests does not ask for the output of doctor: %v", err)
	}
	updates, _ := yamlOf(t, ".github/dependabot.yml")["updates"].([]any)
	if len(updates) != 3 {
		t.Errorf("dependabot looks at %d ecosystems", len(updates))
	}
	// What is uploaded is what the workflow attested.
	goreleaser := yamlOf(t, ".goreleaser.yaml")
	builds, _ := goreleaser["builds"].([]any)
	build, _ := builds[0].(map[string]any)
	if len(builds) != 1 || build["skip"] != true {
		t.Errorf("GoReleaser builds %v", builds)
	}
	// The GoReleaser that publishes is the one that `make release-test` tried.
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tried := regexp.MustCompile(`goreleaser/v2@(v[\d.]+)\n`).FindSubmatch(makefile)
	publishes := 0
	for _, step := range stepsOf(yamlOf(t, ".github/workflows/release.yml")) {
		uses, _ := step["uses"].(string)
		if with, _ := step["with"].(map[string]any); strings.HasPrefix(uses, "goreleaser/") {
			publishes++
			if tried == nil || with["version"] != string(tried[1]) {
				t.Errorf("%s publishes, %s was tried", with["version"], tried)
			}
		}
	}
	if publishes != 1 {
		t.Errorf("%d steps publish", publishes)
	}
}
