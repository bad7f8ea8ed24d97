package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// topics are n skills with descriptions of 150 characters.
func topics(n int) (files map[string]string, lines []string) {
	files = map[string]string{}
	for i := range n {
		name := fmt.Sprintf("topic-%04d", i)
		description := fmt.Sprintf("Handles subject %04d of the archive: reads the notes, checks each figure "+
			"and writes a summary; use it when the user asks about number %04d in any form.", i, i)
		files[name+"/SKILL.md"] = "---\nname: " + name + "\ndescription: \"" + description + "\"\n---\nBody.\n"
		lines = append(lines, name+": "+description)
	}
	return files, lines
}

// TestClientsCatalog counts which names and whole descriptions each client shows its model at the start, how
// often, and whether a cut is said. Codex shows them with the setting that setup codex writes.
func TestClientsCatalog(t *testing.T) {
	eachClient(t, func(t *testing.T, name string, overHTTP bool) {
		for _, test := range []struct{ skills, least int }{{100, 100}, {300, 120}} {
			if overHTTP && test.skills > 100 {
				continue // how much is shown does not depend on the transport
			}
			t.Run(fmt.Sprint(test.skills), func(t *testing.T) {
				files, lines := topics(test.skills)
				run := clientRun{serve: []string{"--skills-root", tree(t, files)}}
				if name == "codex" {
					run.more = "[features.code_mode]\ndirect_only_tool_namespaces = [\"mcp__skills\"]\n"
				}
				first := runRealClient(t, name, overHTTP, run).first()
				names, whole, twice := 0, 0, 0
				for _, line := range lines {
					topic, _, _ := strings.Cut(line, ":")
					if n := strings.Count(first, topic); n > 0 {
						names++
						twice += min(n-1, 1)
					}
					if strings.Contains(first, line) {
						whole++
					}
				}
				if names != test.skills || whole < test.least {
					t.Errorf("of %d skills the model sees %d names and %d whole descriptions", test.skills,
						names, whole)
				}
				if twice > 20 {
					t.Errorf("%d names are there twice", twice)
				}
				if says := strings.Contains(first, "search_skills finds them"); says != (whole < test.skills) {
					t.Errorf("search_skills is named where to find the others: %v", says)
				}
			})
		}
	})
}

// TestCatalogOrder loads a skill, and finds its description whole in the catalogue of the next server; not if
// the order is of names.
func TestCatalogOrder(t *testing.T) {
	t.Parallel()
	files, lines := topics(9)
	root, state := tree(t, files), t.TempDir()
	for _, test := range []struct {
		flags []string
		first string // the skill whose description is whole
	}{{nil, lines[0]}, {nil, lines[7]}, {[]string{"--catalog-order", "name"}, lines[0]}} {
		p := serve(t, append([]string{"--state", state, "--skills-root", root, "--catalog-budget", "400"}, test.flags...)...)
		p.initialize()
		description := p.loadDescription()
		if !strings.Contains(description, "\n"+test.first+"\n") {
			t.Errorf("with %q the description of %.10s is not whole: %s", test.flags, test.first, description)
		}
		for _, line := range lines {
			if name, _, _ := strings.Cut(line, ":"); strings.Count(description, name) != 1 {
				t.Errorf("%s is not named once", name)
			}
		}
		p.tool("load_skill", map[string]any{"name": "topic-0007"})
		p.end()
	}
}
