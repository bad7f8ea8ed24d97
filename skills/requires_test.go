package skills

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/frontmatter"
)

// The spellings are those of public skills.
func TestMissing(t *testing.T) {
	t.Parallel()
	host := requirementsHost{Platform: "linux",
		HasCommand: func(name string) bool { return name == "have" },
		HasEnv:     func(name string) bool { return name == "SET" },
	}
	const any = `requires one of the commands "lack none", none of which is on PATH`
	const env = `requires the environment variable "UNSET", which is not set`
	const mac = `requires the platform "macos or win32", which this is not`
	for block, want := range map[string]string{
		`metadata: {"openclaw":{"requires":{"bins":["have"],"anyBins":["lack","none"]}}}`: any,
		`metadata: {"clawdbot":{"requires":{"anyBins":["lack","have"]},"os":["linux"]}}`:  "",
		`metadata: {"clawdbot":{"os":["macos","win32"],"requires":{"env":["UNSET"]}}}`:    env + "; " + mac,
		"platforms: [macos, win32]":                                       mac,
		"platforms: [macos, linux, windows]":                              "",
		"platforms: any":                                                  "",
		"required_environment_variables: [SET, UNSET]":                    env,
		"required_environment_variables:\n  - name: UNSET\n    help: x":   env,
		"required_environment_variables:\n- name: UNSET\n  optional: yes": "",
		"prerequisites:\n  env_vars: [UNSET]\n  commands: [lack]":         env,
		"requires:\n  os: [macos, win32]\n  anyBins: lack none":           any + "; " + mac,
		"metadata:\n  hermes:\n    requires_toolsets: [terminal]":         "",
		"requires:\n  anyBins: [have (any version), lack]":                "",
	} {
		fields, _, err := parse(block)
		if err != nil {
			t.Fatalf("%s: %v", block, err)
		}
		if got := strings.Join(host.Missing(&fields.Requires), "; "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", block, got, want)
		}
		if got := (&requirementsHost{}).Missing(&fields.Requires); got != nil {
			t.Errorf("%s: a host that is not checked lacks %q", block, got)
		}
	}
}

func TestDeclared(t *testing.T) {
	t.Parallel()
	fields, _, err := parse("required-skills: \"a, b\"\nrequires:\n  skills: [c]\n  tools: [mcp_x]\n" +
		"metadata:\n  hermes:\n    requires_tools: [web_search]")
	got := strings.Join(append(fields.Requires.Skills, fields.Requires.Tools...), " ")
	if err != nil || got != "c a b mcp_x web_search" {
		t.Errorf("declared %q, %v", got, err)
	}
}

func parse(block string) (*frontmatter.Fields, string, error) {
	doc, err := frontmatter.Parse([]byte("---\nname: s\ndescription: S.\n" + block + "\n---\nBody.\n"))
	if err != nil {
		return nil, "", err
	}
	return &doc.Fields, "", nil
}
