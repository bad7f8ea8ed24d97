package staged

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// applied is what apply leaves of a layer's files in a workspace that has others.
func applied(t *testing.T, has, files []string) map[string]bool {
	t.Helper()
	ws := tree(t, has...)
	Apply(t.Context(), layerOf(tree(t, files...), ws))
	left := map[string]bool{}
	for p, info := range paths(t, ws) {
		if !info.IsDir() {
			left[p] = true
		}
	}
	return left
}

// A repository that is there stays as it is: it is not deleted either, so that nothing else can be put in
// the place of its parts.
func TestApplyDeletesNoRepository(t *testing.T) {
	repository := []string{"d/r/HEAD", "d/r/objects/x", "d/r/refs/x", "d/r/config", "d/other"}
	for _, replaced := range []string{"d", "d/r"} {
		ws := tree(t, repository...)
		upper := tree(t, replaced+"/objects/x", replaced+"/refs/x", replaced+"/config")
		if err := unix.Setxattr(filepath.Join(upper.Name(), replaced), "user.overlay.opaque", []byte("y"), 0); err != nil {
			t.Skipf("missing capability: user attributes: %v", err)
		}
		writes := Apply(t.Context(), layerOf(upper, ws))
		left := paths(t, ws)
		for _, p := range repository[:4] {
			if left[p] == nil {
				t.Errorf("%s replaced: %s is gone: %+v", replaced, p, writes)
			}
		}
		if b, err := os.ReadFile(filepath.Join(ws.Name(), "d/r/config")); err != nil || string(b) != "d/r/config" {
			t.Errorf("%s replaced: the configuration holds %q, %v", replaced, b, err)
		}
		a, to := applierOn(t, layerOf(upper, ws))
		if a.remove(to, "d", "d", nil) {
			t.Errorf("%s replaced: the directory was deleted", replaced)
		}
	}
}

func TestApplyMakesNoRepository(t *testing.T) {
	for _, tt := range []struct {
		name       string
		has, layer []string
		refused    string
	}{
		{"bare", nil, []string{"d/HEAD", "d/objects/x", "d/refs/x", "d/config"}, "d/config"},
		{"its parts elsewhere", nil, []string{"d/HEAD", "d/commondir", "d/img/config", "d/img/objects/x", "d/img/refs/x"}, "d/HEAD"},
		{"where another run wrote the rest", []string{"d/objects/x", "d/refs/x"}, []string{"d/HEAD"}, "d/HEAD"},
		{"where the workspace names the rest", []string{"d/commondir"}, []string{"d/HEAD"}, "d/HEAD"},
		{"the rest of one", []string{"d/HEAD"}, []string{"d/commondir"}, "d/commondir"},
		{"inside one", []string{"d/HEAD", "d/objects/x", "d/refs/x"}, []string{"d/hooks/post-checkout"}, "d/hooks/post-checkout"},
		{"in other letters", nil, []string{"d/head", "d/Objects/x", "d/REFS/x"}, "d/head"},
		{"a gitfile", nil, []string{"d/.git"}, "d/.git"},
		{"settings of a work tree", nil, []string{"d/config.worktree"}, "d/config.worktree"},
		{"not one", nil, []string{"d/HEAD", "d/objects/x"}, ""},
	} {
		left := applied(t, tt.has, tt.layer)
		if tt.refused != "" && left[tt.refused] {
			t.Errorf("%s: %s was applied", tt.name, tt.refused)
		}
		if tt.refused == "" && len(left) != len(tt.layer) {
			t.Errorf("%s: left is %v", tt.name, left)
		}
	}
}
