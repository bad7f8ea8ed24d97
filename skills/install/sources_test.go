package install_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/skillsd/skillsd/skills/install"
	"github.com/skillsd/skillsd/skills/source/sourcetest"
)

func open(t testing.TB, cfg install.Config, step func(string) error) *install.Installer {
	t.Helper()
	if git, err := exec.LookPath("git"); err == nil {
		cfg.Git = install.Git{Path: git, Env: []string{"PATH=" + os.Getenv("PATH")}}
	}
	i, err := install.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	i.SetStep(step)
	return i
}

// TestSources holds every kind of source to the contract of installed skills.
func TestSources(t *testing.T) {
	for name, start := range map[string]func(*testing.T) sourcetest.Publisher{
		"directory": sourcetest.Directory, "zip": sourcetest.ZipFile, "tar": sourcetest.TarFile, "git": sourcetest.Git,
		"web tar": sourcetest.Archive(".tar.gz"), "web zip": sourcetest.Archive(".zip"),
		"server": sourcetest.Served, "index": sourcetest.Index, "registry": sourcetest.Registry, "collection": sourcetest.Collection,
	} {
		t.Run(name, func(t *testing.T) { sourcetest.Run(t, open, install.NewSigner, start) })
	}
}
