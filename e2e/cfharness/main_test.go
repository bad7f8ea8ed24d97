package cfharness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// need skips a test that lacks a capability, or fails it where the variable asks for it.
func need(t *testing.T, variable, capability string) {
	t.Helper()
	if os.Getenv(variable) != "" {
		t.Fatalf("this machine lacks %s", capability)
	}
	t.Skipf("this machine lacks %s", capability)
}

const requireOracle, requireSandbox = "SKILLSD_REQUIRE_ORACLE", "SKILLSD_REQUIRE_SANDBOX"

// needSandbox wants a sandbox that can isolate a script here.
func needSandbox(t *testing.T, binary string) {
	t.Helper()
	workspace := t.TempDir()
	writeWorkspace(t, workspace)
	out, _ := exec.CommandContext(t.Context(), binary, "run", "text-tools", "scripts/count.sh", "--config", os.DevNull,
		"--state", t.TempDir(), "--no-default-roots", "--skills-root", filepath.Join(workspace, "skills"),
		"--allow-tool", "run_skill_script", "--allow-skill-script", "text-tools:scripts/count.sh",
		"--prompt-slot-role", "direct-command").CombinedOutput()
	if strings.Contains(string(out), "sandbox_unavailable") {
		need(t, requireSandbox, "a sandbox")
	}
}

func needDeno(t *testing.T) string {
	t.Helper()
	deno, err := exec.LookPath("deno")
	if err != nil {
		need(t, requireOracle, "deno")
	}
	return deno
}

// prepare returns deno, the server, and the directory of an adapter that setup wrote.
func prepare(t *testing.T) (deno, binary, adapter string) {
	t.Helper()
	deno, adapter = needDeno(t), t.TempDir()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	needSandbox(t, binary)
	run(t, "", binary, "setup", "cf-harness", "--write", adapter)
	fetch(t, deno, adapter)
	return deno, binary, adapter
}

// lock returns the flag with the digests of the packages that the adapter's client is made of.
func lock(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("testdata/deno.lock")
	if err != nil {
		t.Fatal(err)
	}
	return "--lock=" + file
}

// fetch lets deno fetch the official client from npm's registry, unless it has it.
func fetch(t *testing.T, deno, adapter string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), deno, "cache", "--quiet", "--frozen", lock(t), filepath.Join(adapter, "adapter.ts"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("%v\n%s", err, out)
		need(t, requireOracle, "the npm package of the official client")
	}
}

// built is the directory of the server, or empty if no test needs it.
var built string

// build builds the server once. Scripts are started through the binary by another user, who must reach it.
var build = sync.OnceValues(func() (binary string, err error) {
	built, err = os.MkdirTemp("", "skillsd-cfharness-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(built, 0o755); err != nil {
		return "", err
	}
	binary = filepath.Join(built, "skillsd")
	cmd := exec.Command("go", "build", "-tags=grpcnotrace", "-o", binary, "../../cmd/skillsd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as releases are
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build skillsd: %w\n%s", err, out)
	}
	return binary, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// run runs a program that must succeed, and returns what it printed.
func run(t *testing.T, stdin string, words ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	var said strings.Builder
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &said
	cmd.Env = append(os.Environ(), "SKILLSD_CONFIG="+os.DevNull, "NO_COLOR=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, said.String())
	}
	return string(out)
}

func write(t *testing.T, name string, text []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, mode); err != nil {
		t.Fatal(err)
	}
}

// writeWorkspace writes the workspace of the recorded runs.
func writeWorkspace(t *testing.T, dir string) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/workspace.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := append(archive.Files,
		txtar.File{Name: "skills/text-tools/assets/logo.bin", Data: []byte("\x89PNG\x00\x01\x02\x03")},
		txtar.File{Name: "skills/edge-cases/references/big.md", Data: []byte(strings.Repeat("0123456789abcdef", 2560))})
	for _, file := range files {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(file.Name, ".sh") {
			mode = 0o755
		}
		write(t, filepath.Join(dir, file.Name), file.Data, mode)
	}
}

// output collects what a server says.
type output struct {
	mu     sync.Mutex
	text   strings.Builder
	listen chan string // gets the address once it is said
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if found := listening.FindStringSubmatch(o.text.String()); found != nil && o.listen != nil {
		o.listen <- found[1]
		o.listen = nil
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var listening = regexp.MustCompile(`"msg":"listening","addr":"([^"]+)"`)

// listen starts a server and returns the address where it listens.
func listen(t *testing.T, binary string, args []string) string {
	t.Helper()
	listens := make(chan string, 1)
	cmd, said := exec.Command(binary, args...), &output{listen: listens}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("stderr of the server:\n%s", said)
		}
	})
	select {
	case addr := <-listens:
		return addr
	case <-time.After(patience):
		t.Fatalf("the server does not listen:\n%s", said)
		return ""
	}
}
