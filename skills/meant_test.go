package skills_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

func TestMeant(t *testing.T) {
	s := &skills.Skill{Path: "group/k8s-triage"}
	files := []string{"SKILL.md", "references/output-schema.md", "references/deep/more.md", "references/two.md",
		"assets/two.md", "scripts/a.sh", "scripts/b.sh", "scripts/b.py", "scripts/Case.py", "scripts/case.py",
		"references/café.md", "skill/x.md"}
	for written, want := range map[string]string{
		"references/output-schema.md":                             "references/output-schema.md",
		"references/output-schema":                                "references/output-schema.md",
		`references\output-schema.md`:                             "references/output-schema.md",
		"/references/output-schema.md":                            "references/output-schema.md",
		"/skill/references/output-schema.md":                      "references/output-schema.md",
		"/mnt/skills/user/k8s-triage/references/output-schema.md": "references/output-schema.md",
		"~/.claude/skills/k8s-triage/references/output-schema.md": "references/output-schema.md",
		"k8s-triage/references/output-schema.md":                  "references/output-schema.md",
		"group/k8s-triage/references/output-schema.md":            "references/output-schema.md",
		"skill://group/k8s-triage/references/output%2Dschema.md":  "references/output-schema.md",
		"skill://k8s-triage/references/output-schema.md":          "references/output-schema.md",
		"References/Output_Schema.MD":                             "references/output-schema.md",
		" `references/output schema.md` ":                         "references/output-schema.md",
		"output-schema.md":                                        "references/output-schema.md",
		"output_schema":                                           "references/output-schema.md",
		"more":                                                    "references/deep/more.md",
		"deep/more.md":                                            "references/deep/more.md",
		"cafe\u0301.md":                                           "references/café.md",
		"a.sh":                                                    "scripts/a.sh",
		"scripts/a":                                               "scripts/a.sh",
		"skill.md":                                                "SKILL.md",
		"/skill/x.md":                                             "skill/x.md",
		"/skill/SKILL.md":                                         "SKILL.md",
		"k8s-triage":                                              "",
		"scripts/CASE.py":                                         "", // both differ in case alone
		"two.md":                                                  "", // there are two
		"scripts/b":                                               "",
		"scripts/a.py":                                            "",
		"schema.md":                                               "",
		"references":                                              "",
		"a.s":                                                     "",
		".sh":                                                     "",
		"other/references/output-schema.md":                       "",
		"skill://other/references/output-schema.md":               "",
		"https://k8s-triage/a.sh":                                 "",
		"file:///skill/scripts/a.sh":                              "",
		`C:\skill\scripts\a.sh`:                                   "",
		"../k8s-triage/scripts/a.sh":                              "",
		"scripts/../scripts/a.sh":                                 "",
		"k8s-triage/../scripts/a.sh":                              "",
		"..":                                                      "", "": "", "/": "", "scripts/a.sh\x00": "", "scr\nipts/a.sh": "", "scripts/a.sh\xff": "",
	} {
		if got := s.Meant(written, files); got != want {
			t.Errorf("Meant(%q) = %q, want %q", written, got, want)
		}
	}
}

// A path after a placeholder is one in the skill, or in its plugin; a path that leads up is one in the plugin.
func TestMeantInPlugin(t *testing.T) {
	s := &skills.Skill{Path: "acme/report"}
	files := []string{"SKILL.md", "scripts/a.sh", "refs/style.md", ".plugin-root/bin/tool.sh",
		".plugin-root/skills/report/scripts/a.sh", ".plugin-root/shared/style.md", ".plugin-root/x/one.md",
		".plugin-root/y/one.md"}
	for written, want := range map[string]string{
		"{baseDir}/scripts/a.sh":                           "scripts/a.sh",
		"${CLAUDE_SKILL_DIR}/scripts/a.sh":                 "scripts/a.sh",
		"<path-to-skill>/refs/style.md":                    "refs/style.md",
		"${CLAUDE_PLUGIN_ROOT}/bin/tool.sh":                ".plugin-root/bin/tool.sh",
		"$PLUGIN_ROOT/bin/tool":                            ".plugin-root/bin/tool.sh",
		"${CLAUDE_PLUGIN_ROOT}/skills/report/scripts/a.sh": "scripts/a.sh",
		"/skill/.plugin-root/bin/tool.sh":                  ".plugin-root/bin/tool.sh",
		"../../shared/style.md":                            ".plugin-root/shared/style.md",
		"../shared/style.md":                               ".plugin-root/shared/style.md",
		"../one.md":                                        "", // there are two
		"../../refs/style.md":                              "",
		"../scripts/a.sh":                                  ".plugin-root/skills/report/scripts/a.sh",
		"../../../../etc/passwd":                           "",
		"../../shared/../shared/style.md":                  "",
		"${CLAUDE_PLUGIN_ROOT}/../shared/style.md":         "",
	} {
		if got := s.Meant(written, files); got != want {
			t.Errorf("Meant(%q) = %q, want %q", written, got, want)
		}
	}
}

// Whatever is written, it means one of the files or nothing, and all that it can stand for is canonical.
func FuzzMeant(f *testing.F) {
	for _, seed := range []string{"/skill/a.md", `references\a`, "skill://x/a.md", "x/../a.md", "../x/b", "`a`"} {
		f.Add(seed, "x", "references/a.md")
	}
	f.Fuzz(func(t *testing.T, written, name, file string) {
		s := &skills.Skill{Path: name}
		if clean, err := skills.CleanPath(file); err != nil || clean != file {
			return
		}
		if got := s.Meant(written, []string{file}); got != "" && got != file {
			t.Errorf("Meant(%q) = %q, want %q or nothing", written, got, file)
		}
		for _, p := range s.Within(written) {
			clean, err := skills.CleanPath(p)
			if p != "" && (err != nil || clean != p || slices.Contains(strings.Split(p, "/"), "..")) {
				t.Errorf("Within(%q) = %q", written, p)
			}
		}
	})
}
