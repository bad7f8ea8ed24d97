package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/provenance/schema"
	"github.com/skillsd/skillsd/skills"

	"github.com/google/jsonschema-go/jsonschema"
)

// TestOutputSchemas wants a schema for every --json there is, and none for what has none.
func TestOutputSchemas(t *testing.T) {
	t.Parallel()
	root := newRootCmd(&app{Process: config.Process{Env: func(string) (string, bool) { return "", false }}})
	known := map[string]bool{}
	for _, o := range outputs() {
		if o.page != "" {
			continue // TestPageSchemas
		}
		known[strings.Split(o.command, " --")[0]] = true
		s, err := outputSchema(o.name())
		if err != nil || s == nil {
			t.Fatalf("outputSchema(%q) = %v, %v", o.name(), s, err)
		}
		if _, err := s.Resolve(&jsonschema.ResolveOptions{}); err != nil {
			t.Errorf("the schema %s: %v", o.name(), err)
		}
		if _, rest, err := root.Find(strings.Fields(strings.Split(o.command, " --")[0])); err != nil || len(rest) > 0 {
			t.Errorf("%s: there is no such command", o.command)
		}
	}
	var visit func(words []string)
	visit = func(words []string) {
		cmd, _, err := root.Find(words)
		if err != nil {
			t.Fatal(err)
		}
		for _, sub := range cmd.Commands() {
			path := append(append([]string{}, words...), sub.Name())
			name := strings.Join(path, " ")
			flag := sub.Flags().Lookup("json")
			if (flag != nil) != known[name] {
				t.Errorf("%s: --json %v, a schema %v", name, flag != nil, known[name])
			}
			if flag != nil && !strings.Contains(flag.Usage, strings.Join(path, "-")+"-json") {
				t.Errorf("%s: the help of --json is %q and does not name its schema", name, flag.Usage)
			}
			visit(path)
		}
	}
	visit(nil)
	if s, err := outputSchema("none"); s != nil || err != nil {
		t.Errorf("outputSchema(none) = %v, %v", s, err)
	}
}

// TestTiersOfRecords compares the tiers that the schema of records knows with the table of tiers,
// which provenance does not import.
func TestTiersOfRecords(t *testing.T) {
	t.Parallel()
	s, err := schema.Named("skill-registry")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(skills.TierNames())
	if err != nil {
		t.Fatal(err)
	}
	if got := regexp.MustCompile(`"tier":\{[^{}]*"enum":(\[[^\]]*\])`).FindAllSubmatch(raw, -1); len(got) == 0 {
		t.Errorf("the schema has no tiers")
	} else {
		for _, match := range got {
			if string(match[1]) != string(want) {
				t.Errorf("the schema has the tiers %s, want %s", match[1], want)
			}
		}
	}
}
