package snapshot

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
)

// A record that has not room for all changes has what was refused, and the rest in order.
func TestListedWrites(t *testing.T) {
	var all []sandbox.Write
	var want []cfharness.WorkspaceWrite
	for i := range 2 * maxWrites {
		w := sandbox.Write{Path: fmt.Sprint(i), Op: "write"}
		if i%maxWrites == maxWrites-1 {
			w.Refused = "protected name"
		}
		all = append(all, w)
		want = append(want, cfharness.WorkspaceWrite{Path: w.Path, Op: w.Op, Refused: w.Refused})
	}
	want = append(want[:maxWrites:maxWrites], want[2*maxWrites-1])
	want = slices.Delete(want, maxWrites-2, maxWrites-1)
	if diff := cmp.Diff(want, Writes(all)); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if got := Writes(all[:maxWrites]); len(got) != maxWrites {
		t.Errorf("of %d changes %d are listed", maxWrites, len(got))
	}
}
