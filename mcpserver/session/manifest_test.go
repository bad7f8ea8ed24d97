package session

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/policy"
)

// A session keeps the manifest of the call that begins it, also where the server has another.
func TestManifestOfSession(t *testing.T) {
	for _, who := range []policy.Principal{local, alice} {
		t.Run(who.Name, func(t *testing.T) {
			who.Evidence = true
			b := described(newBench(t, benchOptions{}))
			own, err := cfharness.ParseRunManifest([]byte(
				`{"wishId":"w-2","dispatchClass":"own","cfc":{"enforcementMode":"enforce-strict"}}`))
			if err != nil {
				t.Fatal(err)
			}
			slot, err := policy.ParsePromptSlot([]byte(slotText))
			if err != nil {
				t.Fatal(err)
			}
			call := named(who, "with", "")
			call.Manifest, call.Mode, call.Slot = own, policy.EnforceStrict, slot
			with, _ := b.activate(call, "demo")
			run := call
			run.Method, run.Manifest, run.Records = "run_skill_script", nil, new(Recorder)
			if _, err := with.RunScript(t.Context(), RunRequest{Call: run, Skill: "demo",
				Path: "scripts/ok.sh"}); err != nil {
				t.Fatal(err)
			}
			if records, err := run.Records.Records(false); err != nil || records.Invocation == nil ||
				!strings.Contains(string(records.Invocation), `"dispatchClass":"own"`) {
				t.Errorf("the run is recorded with %+v, %v", records, err)
			}
			without, _ := b.activate(named(who, "without", ""), "demo")
			for ses, want := range map[*Session][2]string{with: {"w-2", "enforce-strict"},
				without: {"w-1", "observe"}} {
				kept, err := b.read(ses, provenance.RunManifestFile)
				if err != nil || !strings.Contains(string(kept), want[0]) {
					t.Errorf("%s keeps the manifest %s, %v", ses.clientID, kept, err)
				}
				policies, err := b.read(ses, provenance.PolicySnapshotFile)
				for _, part := range []string{`"wishId": "` + want[0] + `"`,
					`"cfcEnforcementMode": "` + want[1] + `"`,
					`"enforcementModeSource": "run-manifest"`} {
					if err != nil || !strings.Contains(string(policies), part) {
						t.Errorf("%s has the policy %s, %v, without %s", ses.clientID, policies, err, part)
					}
				}
			}
			b.validateSession(with)
		})
	}
}
