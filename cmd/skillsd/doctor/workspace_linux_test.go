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
	}{
		{"closed", 0o700, 0, ":ro", "cannot look into"},
		{"open to look", 0o755, 0, ":ro", ""},
		{"open to look, to be changed", 0o755, 0, ":staged", "can change nothing in"},
		{"open", 0o777, 0, ":staged", ""},
		{"theirs", 0o700, 65534, ":rw", ""},
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
		opts.Workspace = ws + tt.as
		plan := opts.Plan()
		found := checkWorkspace(plan)
		if err := plan.Close(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		switch {
		case tt.want == "" && len(found) > 0:
			t.Errorf("%s: %q", tt.name, found[0].Fact)
		case tt.want != "" && (len(found) != 1 || !strings.Contains(found[0].Fact, tt.want)):
			t.Errorf("%s: %+v, want %q", tt.name, found, tt.want)
		}
	}
}
