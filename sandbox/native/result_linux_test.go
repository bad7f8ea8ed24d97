package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The advice is about the setting that refuses namespaces, and about a container if none does.
func TestNamespaceRemedy(t *testing.T) {
	for _, tt := range []struct {
		settings map[string]string
		want     string
	}{
		{nil, "in a container"},
		{map[string]string{"kernel/unprivileged_userns_clone": "1", "user/max_user_namespaces": "95000",
			"kernel/apparmor_restrict_unprivileged_userns": "0"}, "in a container"},
		{map[string]string{"kernel/unprivileged_userns_clone": "0"}, "sysctl kernel.unprivileged_userns_clone=1"},
		{map[string]string{"user/max_user_namespaces": "0"}, "sysctl user.max_user_namespaces="},
		{map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"}, ".deb"},
	} {
		dir := t.TempDir()
		for name, value := range tt.settings {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := namespaceRemedy(dir); !strings.Contains(got, tt.want) {
			t.Errorf("%v: %q", tt.settings, got)
		}
	}
}
