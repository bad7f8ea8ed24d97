package doctor

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/serve"
)

// A server of root looks into a workspace with other eyes than its scripts.
func TestDoctorWorkspace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, whose scripts run as somebody else")
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		name     string
		mode     os.FileMode
		owner    int
		as, want string
		of, hint string // whom the operator names, and what is to be done
	}{
		{"closed", 0o700, 0, ":ro", "cannot look into", "", "let user 65534 in"},
		{"open to look", 0o755, 0, ":ro", "", "", ""},
		{"open to look, to be changed", 0o755, 0, ":staged", "can change nothing in", "", "let user"},
		{"open", 0o777, 0, ":staged", "", "", ""},
		{"theirs", 0o700, 65534, ":rw", "", "", ""},
		{"a user's", 0o700, 4321, ":rw", "cannot look into", "", "--workspace-owner 4321"},
		{"the user's", 0o700, 4321, ":rw", "", "4321", ""},
		{"another user's", 0o755, 4321, ":rw", "user 4322, who can change nothing", "4322", "--workspace-owner 4321"},
	} {
		ws := filepath.Join(dir, tt.name)
		if err := os.Mkdir(ws, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(ws, tt.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(ws, tt.owner, tt.owner); err != nil {
			t.Fatal(err)
		}
		process := &config.Process{Env: func(string) (string, bool) { return "", false }}
		opts := &serve.Options{Process: process}
		opts.Register(pflag.NewFlagSet("serve", pflag.ContinueOnError)) // which sets the defaults
		opts.Workspace, opts.Owner = ws+tt.as, tt.of
		plan := opts.Plan()
		found := checkWorkspace(plan)
		if err := plan.Close(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		switch {
		case tt.want == "" && len(found) > 0:
			t.Errorf("%s: %q", tt.name, found[0].Fact)
		case tt.want != "" && (len(found) != 1 || !strings.Contains(found[0].Fact, tt.want) ||
			!strings.Contains(found[0].Hint, tt.hint)):
			t.Errorf("%s: %+v, want %q", tt.name, found, tt.want)
		}
	}
}
