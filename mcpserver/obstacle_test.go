package mcpserver

import (
	"strings"
	"testing"

	"github.com/skillsd/skillsd/skills/policy"
)

// Every refusal has words, and they fit into a line of the index.
func TestObstacleText(t *testing.T) {
	if got := obstacleText(nil); got != "" {
		t.Errorf("no obstacle is %q", got)
	}
	for _, code := range []policy.Code{policy.CodeToolNotAllowed, policy.CodeDirectCommandRequired, policy.CodeScriptNotAllowlisted, policy.CodeAllowedToolsConflict,
		policy.CodeTierDenied, policy.CodeApprovalRequired, policy.CodeApprovalDeclined, policy.CodeProfileExcludes, policy.CodePermissionDenied,
		policy.CodeLeaseInvalid, policy.CodeScriptSnapshotMismatch, policy.CodeOutputNotReleased} {
		got := obstacleText(policy.NewDenial(code, "detail", "remedy"))
		if got == string(code) || len(got) > 60 || strings.ContainsAny(got, "\n,()") {
			t.Errorf("%s = %q", code, got)
		}
	}
}
