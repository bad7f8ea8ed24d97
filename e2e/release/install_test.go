package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var installed = flag.String("clients", "", "the directory into which `make clients` installed clients")

// patience bounds what a package manager or a client may take.
const patience = 5 * time.Minute

// ready returns the release to install, and skips the test without one.
func ready(t *testing.T) *release {
	t.Helper()
	if *released == "" {
		t.Skip("no release to install: `make release-test` makes one")
	}
	r, err := open(t.Context(), *released)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// here is the platform of this machine.
var here = platform{runtime.GOOS, runtime.GOARCH}

// need returns the path of a program, and skips the test without it.
func need(t *testing.T, name string) string {
	t.Helper()
	found, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is missing", name)
	}
	return found
}

// command makes a command with a home directory of its own.
func command(t *testing.T, home string, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"),
		"XDG_STATE_HOME="+filepath.Join(home, ".local", "state"), "XDG_DATA_HOME="+filepath.Join(home, ".local",
			"share"), "SKILLSD_CONFIG="+os.DevNull)
	return cmd
}

// output runs a command, which must succeed.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, text)
	}
	return string(text)
}

// unpack writes an archive of the release into a directory.
func unpack(t *testing.T, r *release, name, dir string) {
	t.Helper()
	for member, f := range members(t, name, r.read(t, name)) {
		to := filepath.Join(dir, filepath.FromSlash(member))
		err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.data, f.mode.Perm()))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// starts holds an installed program to its version, and to what a client gets from it: it is started as an MCP
// server, lists its tools and loads a skill.
func starts(t *testing.T, r *release, home string, program ...string) {
	t.Helper()
	text := output(t, command(t, home, program[0], append(program[1:], "version")...))
	if !strings.HasPrefix(text, "skillsd v"+r.version) {
		t.Errorf("%s prints %q, want v%s", program, text, r.version)
	}
	serves(t, home, append(program, "serve", "--skills-root", aSkill(t))...)
}

// aSkill is a directory with a skill.
func aSkill(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	to := filepath.Join(dir, "greeter", "SKILL.md")
	text := "---\nname: greeter\ndescription: Greets people. Use it to greet.\n---\nGreet by first name.\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	// A server of another user, as in a container, reads it too.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// serves talks to a server that a command starts, as a client does.
func serves(t *testing.T, home string, words ...string) {
	t.Helper()
	cmd := command(t, home, words[0], words[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "release-test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("%s: %v\n%s", words, err, &stderr)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || !slices.ContainsFunc(tools.Tools, func(tool *mcp.Tool) bool { return tool.Name == "load_skill" }) {
		t.Errorf("%s: no load_skill: %v", words, err)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "load_skill",
		Arguments: map[string]any{"name": "greeter"}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := json.Marshal(result)
	if err != nil || result.IsError || !bytes.Contains(answer, []byte("Greet by first name")) {
		t.Errorf("%s: %s %v", words, answer, err)
	}
	if err := session.Close(); err != nil {
		t.Errorf("%s: %v\n%s", words, err, &stderr)
	}
}

// TestInstallChecksums compares the checksums as a user does, and looks for every kind of download.
func TestInstallChecksums(t *testing.T) {
	r := ready(t)
	cmd := exec.Command(need(t, "sha256sum"), "--check", "--strict", checksums)
	cmd.Dir = r.out
	output(t, cmd)
	sums := string(r.read(t, checksums))
	for _, kind := range []string{`\.tar\.gz`, `\.deb`, `\.rpm`, `\.tgz`, `\.mcpb`, `_image\.tar`, `\.spdx\.json`,
		`manifests/server\.json`, `manifests/homebrew/skillsd\.rb`} {
		if !regexp.MustCompile(`(?m)  \S*` + kind + `$`).MatchString(sums) {
			t.Errorf("no file matches %s", kind)
		}
	}
}

// TestInstallArchive unpacks the archive with tar and starts what is in it.
func TestInstallArchive(t *testing.T) {
	r, home := ready(t), t.TempDir()
	output(t, exec.Command(need(t, "tar"), "-C", home, "-xf", filepath.Join(r.out, r.archiveName(here))))
	dir := filepath.Join(home, r.archiveDir(here))
	starts(t, r, home, filepath.Join(dir, project))
	notices, err := os.ReadFile(filepath.Join(dir, "THIRD_PARTY_NOTICES"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.modules {
		if !bytes.Contains(notices, []byte("\n"+m.path+" "+m.version+"\n")) {
			t.Errorf("the notices lack %s %s", m.path, m.version)
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man", "man1", "skillsd*.1"))
	if err != nil || len(pages) < 40 {
		t.Errorf("%d pages of the manual: %v", len(pages), err)
	}
	man, err := exec.LookPath("man")
	if err != nil {
		t.Log("man is missing: its pages are not shown")
		return
	}
	cmd := command(t, home, man, "--pager=cat", "--warnings", filepath.Join(dir, "man", "man1", "skillsd-serve.1"))
	if text := output(t, cmd); !strings.Contains(text, "--skills-root") || strings.Contains(text, "warning:") {
		t.Errorf("man shows %.2000s", text)
	}
}

// TestInstallDebian installs the package with dpkg into a directory of its own, starts what is in it, and removes
// it again.
func TestInstallDebian(t *testing.T) {
	r, root := ready(t), t.TempDir()
	dpkg := need(t, "dpkg")
	if os.Geteuid() != 0 {
		t.Skip("dpkg installs as root only")
	}
	// An AppArmor that knows user namespaces.
	for name, text := range map[string]string{"var/lib/dpkg/status": "", "var/lib/dpkg/available": "",
		"var/lib/dpkg/info/.keep": "", "var/lib/dpkg/updates/.keep": "", "etc/apparmor.d/abi/4.0": ""} {
		to := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	before := list(t, root)
	name := filepath.Join(r.out, fmt.Sprintf("skillsd_%s_%s.deb", r.version, here.arch))
	dpkgIn := func(args ...string) string {
		all := append([]string{"--root=" + root, "--force-script-chrootless", "--log=" + os.DevNull}, args...)
		return output(t, exec.Command(dpkg, all...))
	}
	dpkgIn("--install", name)
	starts(t, r, t.TempDir(), filepath.Join(root, "usr/bin/skillsd"))
	fields := output(t, exec.Command("dpkg-deb", "--field", name))
	version, pre, _ := strings.Cut(r.version, "-")
	if pre != "" {
		version += "~" + strings.ReplaceAll(pre, "-", ".")
	}
	if !strings.Contains(fields, "\nVersion: "+version+"-1\n") {
		t.Errorf("the fields are %s", fields)
	}
	// A version before the release is older than the release.
	if pre != "" {
		output(t, exec.Command(dpkg, "--compare-versions", version+"-1", "lt", strings.Split(version, "~")[0]+"-1"))
	}
	profile, err := os.ReadFile(filepath.Join(root, "etc/apparmor.d/skillsd"))
	if err != nil || !bytes.Contains(profile, []byte("\n  userns,\n")) {
		t.Errorf("the profile is %q: %v", profile, err)
	}
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/skillsd.service"))
	if err != nil || !bytes.Contains(unit, []byte("\nExecStart=/usr/bin/skillsd ")) {
		t.Errorf("the unit is %q: %v", unit, err)
	}
	for _, want := range []string{"usr/share/man/man1/skillsd.1.gz", "usr/bin/skillsd-sigstore",
		"usr/share/bash-completion/completions/skillsd", "usr/share/zsh/vendor-completions/_skillsd",
		"usr/share/doc/skillsd/copyright", "usr/share/doc/skillsd/THIRD_PARTY_NOTICES"} {
		if _, err := os.Stat(filepath.Join(root, want)); err != nil {
			t.Error(err)
		}
	}
	// README.md installs a skill of the package.
	output(t, command(t, t.TempDir(), filepath.Join(root, "usr/bin/skillsd"), "install",
		filepath.Join(root, "usr/share/skillsd/skills"), "--subdir", "csv-report"))
	dpkgIn("--purge", project)
	left := slices.DeleteFunc(list(t, root), func(name string) bool {
		return slices.Contains(before, name) || strings.HasPrefix(name, "var/lib/dpkg/")
	})
	if len(left) > 0 {
		t.Errorf("dpkg --purge leaves %q", left)
	}
	// An older AppArmor could not read the profile, and would report it at each start of the machine.
	if err := os.Remove(filepath.Join(root, "etc/apparmor.d/abi/4.0")); err != nil {
		t.Fatal(err)
	}
	dpkgIn("--install", name)
	if _, err := os.Stat(filepath.Join(root, "etc/apparmor.d/skillsd")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the rules of AppArmor 4 the profile is installed: %v", err)
	}
}

// list returns the files below a directory.
func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimPrefix(name, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestInstallRPM installs the package with rpm into a directory of its own, starts what is in it, and removes it.
func TestInstallRPM(t *testing.T) {
	r, root := ready(t), t.TempDir()
	rpm := need(t, "rpm")
	if os.Geteuid() != 0 {
		t.Skip("rpm installs as root only")
	}
	name := filepath.Join(r.out, fmt.Sprintf("skillsd-%s.%s.rpm", r.version, rpmArch[here.arch]))
	// Its scripts would be run in a root directory without a shell.
	in := func(args ...string) string {
		return output(t, exec.Command(rpm, append([]string{"--root", root, "--dbpath", "/var/lib/rpm"}, args...)...))
	}
	in("--initdb")
	in("--install", "--nodeps", "--noscripts", name)
	starts(t, r, t.TempDir(), filepath.Join(root, "usr/bin/skillsd"))
	in("--verify", "--nodeps", project)
	version, pre, _ := strings.Cut(r.version, "-")
	if pre != "" {
		version += "~" + strings.ReplaceAll(pre, "-", ".")
	}
	if got := in("--query", "--queryformat", "%{VERSION} %{LICENSE} %{BUILDHOST}", project); got != version+
		" MIT skillsd" {
		t.Errorf("rpm has %q, want version %s", got, version)
	}
	scripts := output(t, exec.Command(rpm, "--query", "--package", "--scripts", name))
	for _, want := range []string{"postinstall scriptlet", "postuninstall scriptlet", "apparmor_parser --replace"} {
		if !strings.Contains(scripts, want) {
			t.Errorf("the scripts lack %q: %s", want, scripts)
		}
	}
	files := list(t, root)
	for _, want := range []string{"usr/share/man/man1/skillsd.1.gz", "usr/lib/systemd/system/skillsd.service",
		"usr/share/zsh/site-functions/_skillsd", "usr/share/skillsd/apparmor",
		"usr/share/skillsd/skills/csv-report/SKILL.md"} {
		if !slices.Contains(files, want) {
			t.Errorf("the package lacks %s", want)
		}
	}
	in("--erase", "--noscripts", project)
	for _, left := range list(t, root) {
		if !strings.HasPrefix(left, "var/lib/rpm/") {
			t.Errorf("rpm --erase leaves %s", left)
		}
	}
}

// registryOf serves the packages of the release as the registry of npm does, and nothing else.
func registryOf(t *testing.T, r *release) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	names, err := filepath.Glob(filepath.Join(r.out, "*.tgz"))
	if err != nil || len(names) < 2 {
		t.Fatalf("%d packages: %v", len(names), err)
	}
	packages := map[string][]byte{}
	for _, name := range names {
		file := filepath.Base(name)
		data := r.read(t, file)
		var fields map[string]any
		if err := json.Unmarshal(members(t, file, data)["package/package.json"].data, &fields); err != nil {
			t.Fatal(err)
		}
		sum := sha512.Sum512(data)
		fields["dist"] = map[string]string{"tarball": server.URL + "/" + file,
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		id, _ := fields["name"].(string)
		packages["/"+id] = jsonText(map[string]any{"name": id, "dist-tags": map[string]string{"latest": r.version},
			"versions": map[string]any{r.version: fields}})
		mux.HandleFunc("/"+file, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		text, ok := packages[request.URL.Path]
		if !ok {
			http.NotFound(w, request)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(text)
	})
	return server
}

// TestInstallNPM installs from a registry on this machine: with npm install, and with npx.
func TestInstallNPM(t *testing.T) {
	r, home := ready(t), t.TempDir()
	npm, npx := need(t, "npm"), need(t, "npx")
	registry := "--registry=" + registryOf(t, r).URL
	quiet := []string{registry, "--no-audit", "--no-fund", "--loglevel=error", "--cache=" + filepath.Join(home, "cache")}
	output(t, command(t, home, npm, slices.Concat([]string{"install", "--global", "--prefix=" + home}, quiet,
		[]string{project})...))
	program := filepath.Join(home, "bin", project)
	starts(t, r, home, program)
	// Only the package for this platform is there.
	others, err := filepath.Glob(filepath.Join(home, "lib/node_modules/skillsd/node_modules/@skillsd/*"))
	if err != nil || len(others) != 1 || filepath.Base(others[0]) != here.node() {
		t.Errorf("installed are %q: %v", others, err)
	}
	text := output(t, command(t, home, npx, slices.Concat([]string{"--yes"}, quiet,
		[]string{project, "setup", "--print"})...))
	// A client starts it by npx too: the cache of npx does not last.
	if !strings.Contains(text, `"command": "npx"`) || !strings.Contains(text, `"skillsd@`+r.version+`"`) {
		t.Errorf("npx skillsd setup prints %s", text)
	}
	// The exit code of the program is kept, and a signal reaches it.
	cmd := command(t, home, program, "no-such-command")
	var exited *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exited) || exited.ExitCode() != 2 {
		t.Errorf("a wrong command ends with %v", err)
	}
	stopped(t, command(t, home, program, "serve", "--skills-root", aSkill(t), "--log-format", "json"))
	// Without the package of the platform it names what is missing.
	if err := os.RemoveAll(others[0]); err != nil {
		t.Fatal(err)
	}
	missing, err := command(t, home, program, "version").CombinedOutput()
	if err == nil || !strings.Contains(string(missing), "the package @skillsd/"+here.node()+" is missing") {
		t.Errorf("%v: %s", err, missing)
	}
}

// stopped starts a server, ends it with SIGTERM, and wants its orderly end.
func stopped(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log lines
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The answer to a request shows that the server is up.
	hello := `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	if _, err := in.Write([]byte(hello)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM ends it with %v: %s", err, &log)
	}
}

// lines collects what a process writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestInstallBundle starts the server of a bundle by its manifest, as a client does.
func TestInstallBundle(t *testing.T) {
	r, dir := ready(t), t.TempDir()
	unpack(t, r, r.bundleName(here), dir)
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	conforms(t, "mcpb.schema.json", text)
	var manifest struct {
		Server struct {
			Config struct {
				Command string
				Args    []string
			} `json:"mcp_config"`
		}
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	config := manifest.Server.Config
	program := strings.ReplaceAll(config.Command, "${__dirname}", dir)
	serves(t, t.TempDir(), slices.Concat([]string{program}, config.Args, []string{"--skills-root", aSkill(t)})...)
	mcpb := client(t, ".bin/mcpb")
	checked := output(t, command(t, t.TempDir(), mcpb, "validate", filepath.Join(dir, "manifest.json")))
	if !strings.Contains(checked, "validation passes") {
		t.Errorf("mcpb validate: %s", checked)
	}
	info := output(t, command(t, t.TempDir(), mcpb, "unpack", filepath.Join(r.out, r.bundleName(here)),
		filepath.Join(t.TempDir(), "unpacked")))
	t.Logf("%s", info)
}

// client returns a program below node_modules of the installed clients, and skips the test without it.
func client(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(*installed, "node_modules", filepath.FromSlash(pattern)))
	if *installed == "" || err != nil || len(found) == 0 {
		t.Skipf("%s is not installed: `make clients-installed` installs it", pattern)
	}
	return found[0]
}

// inPath unpacks the archive and returns a PATH with its program first.
func inPath(t *testing.T, r *release) string {
	t.Helper()
	dir := t.TempDir()
	unpack(t, r, r.archiveName(here), dir)
	return "PATH=" + filepath.Join(dir, r.archiveDir(here)) + string(os.PathListSeparator) + os.Getenv("PATH")
}

// TestInstallClaudePlugin has Claude Code install the plugin from the marketplace of this repository, and connect.
func TestInstallClaudePlugin(t *testing.T) {
	r, home := ready(t), t.TempDir()
	claude := client(t, "@anthropic-ai/claude-code-*/claude")
	run := func(args ...string) string {
		cmd := command(t, home, claude, args...)
		cmd.Env = append(cmd.Env, inPath(t, r), "CLAUDE_CONFIG_DIR="+filepath.Join(home, ".claude"),
			"ANTHROPIC_API_KEY=stub", "ANTHROPIC_BASE_URL=http://127.0.0.1:9", "DISABLE_AUTOUPDATER=1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1")
		return output(t, cmd)
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	run("plugin", "validate", repo)
	run("plugin", "validate", filepath.Join(repo, ".plugin"))
	run("plugin", "marketplace", "add", marketplace(t))
	run("plugin", "install", "skillsd@skillsd")
	if text := run("mcp", "list"); !regexp.MustCompile(`plugin:skillsd:skills: skillsd serve --client claude .*Connected`).MatchString(text) {
		t.Errorf("claude mcp list: %s", text)
	}
}

// marketplace returns a copy of the files that clients read of the repository.
func marketplace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{".claude-plugin", ".plugin"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("..", "..", name))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestInstallCodexPlugin has Codex install the plugin from the same marketplace.
func TestInstallCodexPlugin(t *testing.T) {
	r, home := ready(t), t.TempDir()
	codex := client(t, "@openai/codex/bin/codex.js")
	run := func(args ...string) string {
		cmd := command(t, home, need(t, "node"), append([]string{codex}, args...)...)
		cmd.Env = append(cmd.Env, inPath(t, r), "CODEX_HOME="+filepath.Join(home, ".codex"))
		return output(t, cmd)
	}
	if err := os.MkdirAll(filepath.Join(home, ".codex"), 0o755); err != nil {
		t.Fatal(err)
	}
	run("plugin", "marketplace", "add", marketplace(t))
	run("plugin", "add", "skillsd@skillsd")
	if text := run("mcp", "list"); !strings.Contains(text, "skillsd") || !strings.Contains(text, "serve --client codex") {
		t.Errorf("codex mcp list: %s", text)
	}
}

// TestInstallGeminiExtension has Gemini CLI install the extension for this platform, and connect.
func TestInstallGeminiExtension(t *testing.T) {
	r, home, dir := ready(t), t.TempDir(), t.TempDir()
	gemini := client(t, ".bin/gemini")
	unpack(t, r, r.geminiName(here), dir)
	run := func(args ...string) string {
		cmd := command(t, home, gemini, args...)
		cmd.Env = append(cmd.Env, "GEMINI_API_KEY=stub", "GEMINI_CLI_TRUST_WORKSPACE=true",
			"GEMINI_TELEMETRY_ENABLED=false")
		return output(t, cmd)
	}
	run("extensions", "validate", dir)
	run("extensions", "install", "--consent", dir)
	if text := run("mcp", "list"); !regexp.MustCompile(`skills .*skillsd serve --client gemini.*Connected`).MatchString(text) {
		t.Errorf("gemini mcp list: %s", text)
	}
}

// TestInstallImage loads the image with Podman and talks to the server in it.
func TestInstallImage(t *testing.T) {
	r, home := ready(t), t.TempDir()
	podman := need(t, "podman")
	store := t.TempDir()
	in := func(args ...string) []string {
		return slices.Concat([]string{podman, "--root", filepath.Join(store, "root"), "--runroot",
			filepath.Join(store, "run"), "--storage-driver", "vfs", "--events-backend", "file", "--cgroup-manager",
			"cgroupfs", "--runtime", cmp.Or(os.Getenv("PODMAN_RUNTIME"), "runc")}, args)
	}
	run := func(args ...string) string {
		words := in(args...)
		return output(t, command(t, home, words[0], words[1:]...))
	}
	archive := "oci-archive:" + filepath.Join(r.out, project+"_"+r.version+"_image.tar")
	loaded := strings.Fields(run("pull", "--quiet", archive))
	image := loaded[len(loaded)-1]
	t.Cleanup(func() { run("rmi", "--force", image) })
	words := in("run", "--interactive", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop",
		"all", "--security-opt", "no-new-privileges", "--ulimit", "nofile=1024:1024", "--ulimit",
		"nproc=1024:1024", "--volume", aSkill(t)+":/srv/skills:ro", image)
	serves(t, home, words...)
	version := run(append(words[len(in()):len(words):len(words)], "version")...)
	if !strings.HasPrefix(version, "skillsd v"+r.version) {
		t.Errorf("the image has %s", version)
	}
}

// TestInstallHomebrew runs the formula's installation on the archive, with the parts of Homebrew that it uses.
func TestInstallHomebrew(t *testing.T) {
	r, home := ready(t), t.TempDir()
	ruby := need(t, "ruby")
	formula := filepath.Join(r.out, "manifests/homebrew/skillsd.rb")
	output(t, exec.Command(ruby, "-wc", formula))
	unpack(t, r, r.archiveName(here), home)
	stub, err := filepath.Abs("testdata/homebrew.rb")
	if err != nil {
		t.Fatal(err)
	}
	prefix := t.TempDir()
	cmd := command(t, home, ruby, "-r", stub, formula, prefix, here.os, here.arch)
	cmd.Dir = filepath.Join(home, r.archiveDir(here))
	text := output(t, cmd)
	sum, err := r.digest(r.archiveName(here))
	if err != nil || !strings.Contains(text, r.url(r.archiveName(here))+" "+sum) {
		t.Errorf("the formula takes %s, want %s: %v", text, sum, err)
	}
	starts(t, r, home, filepath.Join(prefix, "bin/skillsd"))
	for _, want := range []string{"share/man/man1/skillsd.1", "etc/bash_completion.d/skillsd",
		"share/zsh/site-functions/_skillsd"} {
		if _, err := os.Stat(filepath.Join(prefix, want)); err != nil {
			t.Error(err)
		}
	}
}
