package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
	"github.com/skillsd/skillsd/skills/policy"
)

// What a script left in /out and was not taken is counted and named, with its name escaped; an answer
// without the output tells neither.
func TestOutSkipsAreTold(t *testing.T) {
	sandboxtest.Need(t, "linux", "userns", "bash")
	body := "#!/bin/bash\ncd /out; echo x >$'a\\nout: forged'; ln -s /etc/passwd link; echo kept >kept; for i in {1..20}; do mkfifo z$i; done\n"
	for _, release := range []policy.Release{policy.ReleaseObserved, policy.ReleaseOpaque} {
		b := granting(t, policy.Entry{Release: release}, body)
		result, err := b.run("demo", "scripts/ok.sh")
		if err != nil {
			t.Fatal(err)
		}
		x, want := result.Output.Skillsd, []string{`"a\nout: forged"`, `"link"`}
		if release == policy.ReleaseOpaque {
			if result.OutSkips+x.OutSkips+len(result.Skipped)+len(x.Skipped) != 0 {
				t.Errorf("the answer tells of %d, %q, %d, %q", result.OutSkips, result.Skipped, x.OutSkips, x.Skipped)
			}
		} else if result.OutSkips != 22 || x.OutSkips != 22 || len(result.Skipped) != 16 || !slices.Equal(result.Skipped[:2], want) || !slices.Equal(x.Skipped, result.Skipped) {
			t.Errorf("%d skipped, %q; in the record %d, %q", result.OutSkips, result.Skipped, x.OutSkips, x.Skipped)
		}
		if !strings.Contains(b.artifact(provenance.ScriptExecutionsFile), `"outSkips": 22`) {
			t.Errorf("release %s: the record has no count", release)
		}
	}
}
