package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// deployed returns a file of cmd/skillsd/deploy with the places of a service in a test's directory.
func deployed(t *testing.T, name string) (text, dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, content := range map[string]string{"etc/config.yaml": "{}\n", "etc/tokens": "alice: " + strings.Repeat("0", 64) + "\n", "skills/a/SKILL.md": "---\nname: a\ndescription: A.\n---\n"} {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join("..", "cmd", "skillsd", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("/usr/local/bin/skillsd", binary, "/etc/skillsd", dir+"/etc", "/srv/skills", dir+"/skills", "127.0.0.1:8080", "127.0.0.1:0",
		"0.0.0.0:8080", "127.0.0.1:0", "${CREDENTIALS_DIRECTORY}", dir+"/etc", "%S/skillsd", dir+"/state", "/var/lib/skillsd", dir+"/state").Replace(string(raw)), dir
}

// TestSystemdUnit holds the unit to systemd's own check, and its command line to the program.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	text, dir := deployed(t, "skillsd.service")
	var command []string
	for line := range strings.Lines(text) {
		if words, ok := strings.CutPrefix(line, "ExecStart="); ok {
			command = strings.Fields(words)
		}
	}
	if len(command) < 2 || command[0] != binary {
		t.Fatalf("ExecStart is %q", command)
	}
	// Each of these covers a part of /proc, and with it keeps the sandbox from mounting its own.
	for _, setting := range []string{"ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname", "InaccessiblePaths", "PrivateNetwork"} {
		if strings.Contains(text, "\n"+setting+"=") {
			t.Errorf("the unit sets %s, with which no script runs or nobody is served", setting)
		}
	}
	s := &site{process: start(t, exec.Command(command[0], command[1:]...))}
	s.addr()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is missing")
	}
	unit := filepath.Join(dir, "skillsd.service")
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--recursive-errors=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestContainerfile holds the command line of the container to the program, and the image to its user.
func TestContainerfile(t *testing.T) {
	text, _ := deployed(t, "Containerfile")
	var command []string
	user := ""
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "ENTRYPOINT", "CMD":
			var words []string
			if err := json.Unmarshal([]byte(rest), &words); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			command = append(command, words...)
		case "USER":
			user = rest
		}
	}
	if len(command) < 2 || command[0] != "skillsd" || user == "" || strings.HasPrefix(user, "0") || strings.HasPrefix(user, "root") {
		t.Fatalf("the container runs %q as %q", command, user)
	}
	s := &site{process: start(t, exec.Command(binary, command[1:]...))}
	s.addr()
}
