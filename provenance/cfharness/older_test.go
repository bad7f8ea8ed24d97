package cfharness_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

func TestOlderFiles(t *testing.T) {
	registry, err := cfharness.ParseSkillRegistry([]byte(`{"type":"cf-harness.skill-registry","version":1,"skillsRoot":"/workspace/skills",
		"generatedAt":"2026-05-01T00:00:00.000Z","skills":[{"name":"pdf","description":"d","skillPath":"/workspace/skills/pdf/SKILL.md","digest":"` + sum.String() + `","diagnostics":[]}],"diagnostics":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	sk := registry.Skills[0]
	if registry.SandboxSkillsRoot != "/workspace/skills" || sk.SkillDir != "/workspace/skills/pdf" || sk.SandboxPath != sk.SkillPath || sk.SandboxSkillDir != sk.SkillDir || sk.Digest != sum {
		t.Errorf("registry = %+v", registry)
	}
	when, rows, err := cfharness.ParseActivations([]byte(`{"type":"cf-harness.skill-activations","version":1,"activations":[{"name":"pdf","source":"cli-preload","runId":"r",
		"skillPath":"/workspace/skills/pdf/SKILL.md","digest":"` + sum.String() + `","activatedAt":"2026-05-01T00:00:00.000Z","cfcPromptRole":"context"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []cfharness.Activation{{Name: "pdf", Source: cfharness.SourcePreload, RunID: "r", SkillPath: "/workspace/skills/pdf/SKILL.md", SkillDir: "/workspace/skills/pdf",
		SandboxSkillPath: "/workspace/skills/pdf/SKILL.md", SandboxSkillDir: "/workspace/skills/pdf", Digest: sum, ActivatedAt: when, CFCPromptRole: "context"}}
	if diff := cmp.Diff(want, rows); diff != "" || provenance.FormatTime(when.Time) != "2026-05-01T00:00:00.000Z" {
		t.Errorf("activations at %v (-want +got):\n%s", when, diff)
	}
}

// A file of today's form is read as it is.
func TestParseWhatIsWritten(t *testing.T) {
	for _, r := range rowRecords() {
		want, ok := r.value.(cfharness.SkillRegistry)
		if !ok {
			continue
		}
		got, err := cfharness.ParseSkillRegistry(raw(t, want))
		if err != nil || cmp.Diff(string(raw(t, want)), string(raw(t, got))) != "" {
			t.Errorf("%s = %+v, %v", r.name, got, err)
		}
	}
	for _, text := range []string{``, `[]`, `{}`, `{"type":"cf-harness.skill-registry","version":2}`, `{"type":"cf-harness.skill-activations","version":"1"}`} {
		if _, err := cfharness.ParseSkillRegistry([]byte(text)); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("ParseSkillRegistry(%s) = %v", text, err)
		}
		if _, _, err := cfharness.ParseActivations([]byte(text)); !errors.Is(err, provenance.ErrInvalid) {
			t.Errorf("ParseActivations(%s) = %v", text, err)
		}
	}
}
