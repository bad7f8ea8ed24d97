package runsc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/native"
)

// A root server's gVisor stays root only for what takes root.
func TestIdentity(t *testing.T) {
	for _, tt := range []struct {
		name    string
		root    bool
		mode    sandbox.WorkspaceMode
		setting string
		value   string
		want    native.Identity
	}{
		{name: "root", root: true, want: native.Mapped},
		{name: "root, read-only", root: true, mode: sandbox.WorkspaceRO, want: native.Mapped},
		{name: "root, staged", root: true, mode: sandbox.WorkspaceStaged, want: native.Kept},
		{name: "root, writable", root: true, mode: sandbox.WorkspaceRW, want: native.Kept},
		{name: "root, Debian allows", root: true, setting: "unprivileged_userns_clone", value: "1\n", want: native.Mapped},
		{name: "root, Debian refuses", root: true, setting: "unprivileged_userns_clone", value: "0\n", want: native.Kept},
		{name: "root, AppArmor allows", root: true, setting: "apparmor_restrict_unprivileged_userns", value: "0\n", want: native.Mapped},
		{name: "root, AppArmor refuses", root: true, setting: "apparmor_restrict_unprivileged_userns", value: "1\n", want: native.Kept},
		{name: "user", mode: sandbox.WorkspaceRO, want: native.Mapped},
		{name: "user, refused", setting: "unprivileged_userns_clone", value: "0\n", want: native.Mapped},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "kernel"), 0o755); err != nil {
			t.Fatal(err)
		}
		if tt.setting != "" {
			if err := os.WriteFile(filepath.Join(dir, "kernel", tt.setting), []byte(tt.value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		p := &native.Plan{Root: tt.root, Cmd: &sandbox.Cmd{Workspace: sandbox.Workspace{Mode: tt.mode}}}
		if got := identity(p, dir); got != tt.want {
			t.Errorf("%s: identity %d, want %d", tt.name, got, tt.want)
		}
	}
}
