package cfharness_test

import (
	"bytes"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

func TestSkillOrigin(t *testing.T) {
	t.Parallel()
	commit := "6ce3b31c6eb4aa0a8f4ffc6b5a6a0f7a86bb11cc"
	for _, tt := range []struct {
		origin cfharness.SkillOrigin
		want   string
		public bool
	}{
		{cfharness.SkillOrigin{Kind: "git", Source: "https://example.org/s", Path: "skills/pdf", Ref: "main", Commit: commit},
			"https://example.org/s skills/pdf at 6ce3b31c6eb4 (main)", true},
		{cfharness.SkillOrigin{Kind: "git", Source: "git://example.org/s", Ref: commit, Commit: commit}, "git://example.org/s at 6ce3b31c6eb4", true},
		{cfharness.SkillOrigin{Kind: "zip", Source: "/home/a/s.zip"}, "/home/a/s.zip", false},
		{cfharness.SkillOrigin{Kind: "directory", Source: "/home/a/s", Path: "pdf"}, "/home/a/s pdf", false},
		{cfharness.SkillOrigin{Kind: "archive", Source: "/srv/s.zip"}, "/srv/s.zip", false},
	} {
		if got := tt.origin.String(); got != tt.want || (tt.origin.Public() != nil) != tt.public {
			t.Errorf("%+v is %q, public: %v; want %q, %v", tt.origin, got, tt.origin.Public() != nil, tt.want, tt.public)
		}
		// A remote client reads no path of this machine in a row.
		for _, row := range []any{
			cfharness.Activation{Skillsd: &cfharness.ActivationExtension{Origin: &tt.origin}},
			cfharness.ScriptExecution{Skillsd: &cfharness.RunExtension{Origin: &tt.origin}},
		} {
			view := provenance.ActivationsFile
			if _, run := row.(cfharness.ScriptExecution); run {
				view = provenance.ScriptExecutionsFile
			}
			viewer := cfharness.Viewer{Remote: true, Released: func(string) bool { return true }}
			shown, err := viewer.Row(view, raw(t, row))
			if err != nil || shown == nil || bytes.Contains(shown, []byte(tt.origin.Source)) != tt.public {
				t.Errorf("a remote client sees of %+v: %s, %v", tt.origin, shown, err)
			}
		}
	}
}
