package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of 64 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Skipf("missing capability: mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk takes the free space but for so many bytes.
func fillDisk(t *testing.T, file string, left int64) {
	t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(file), &fs); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(file, make([]byte, int64(fs.Bavail)*fs.Bsize-left), 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // the server wrote meanwhile, and the disk is as full as it can be
		t.Fatal(err)
	}
}

// A script starts only if there is room for its outcome, which is then recorded although the disk is full.
func TestOutcomeOnAFullDisk(t *testing.T) {
	disk, work := smallDisk(t), t.TempDir()
	if err := os.Chmod(work, 0o777); err != nil {
		t.Fatal(err)
	}
	files := demoSkill()
	files["demo/scripts/wait.sh"] = "#!/bin/bash\ntouch started\nuntil [ -e go ]; do sleep 0.02; done\n" +
		"head -c 500000 /dev/zero | tr '\\0' x\n"
	p := serve(t, append(allowRun(tree(t, files), "wait.sh"), "--artifact-root", disk, "--records", "free=1MiB",
		"--workspace", work+":rw", "--release", "opaque")...)
	p.loaded()
	filler, run := filepath.Join(disk, "filler"), map[string]any{"skill": "demo", "path": "scripts/wait.sh", "cwd": "/workspace"}
	fillDisk(t, filler, 8<<20)
	got := p.tool("run_skill_script", run)
	if strings.Contains(got.text(), "sandbox_unavailable") {
		t.Skip("missing capability: a sandbox")
	}
	if _, err := os.Stat(filepath.Join(work, "started")); !strings.Contains(got.text(), "provenance_unavailable") || err == nil {
		t.Fatalf("a run without room for its outcome: %s; the script started: %v", got.text(), err == nil)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	args, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	p.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"run_skill_script","arguments":` + string(args) + `}}`)
	eventually(t, "the script starts", func() bool {
		_, err := os.Stat(filepath.Join(work, "started"))
		return err == nil
	})
	fillDisk(t, filler, 0)
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if answer := p.receive(); !strings.Contains(answer, `"status":"executed"`) || !strings.Contains(answer, `"id":4`) {
		t.Errorf("the run on a disk that was filled meanwhile = %.500s", answer)
	}
	if got := p.tool("run_skill_script", run); !strings.Contains(got.text(), "provenance_unavailable") {
		t.Errorf("another run on the full disk: %s", got.text())
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.end()
	skillsd(t, 0, "session", "verify", "latest", "--artifact-root", disk)
	kept, err := filepath.Glob(filepath.Join(disk, "ses_*", "outputs", "*.stdout"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("outputs kept: %v %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Size() != 500_000 {
		t.Errorf("the output of the run: %v %v", info, err)
	}
}

// A principal with more sessions than its quota is refused alone, and again has room when the operator deletes
// old ones.
func TestRecordsOfAPrincipalAreFull(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := "principals: {bob: {record_sessions: 50}}\nsessions: {limits: {sessions: 2}}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveHTTP(t, "--skills-root", tree(t, demoSkill()), "--config", config,
		"--auth-token-file", tokenFile(t, "alice", "bob"))
	load := func(token string) toolResult {
		return s.open(token).tool("load_skill", map[string]any{"name": "demo"})
	}
	first := s.loaded("alice-token")
	load("alice-token")
	full := load("alice-token")
	if !full.IsError || !strings.Contains(full.text(), "records_full") || !strings.Contains(full.text(), "2 of 2 sessions") {
		t.Errorf("alice's third session: %s", full.text())
	}
	if strings.Contains(full.text(), s.state) {
		t.Errorf("the refusal has a host path: %s", full.text())
	}
	if got := first.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}); got.IsError {
		t.Errorf("alice's first session afterwards: %s", got.text())
	}
	for range 4 {
		if got := load("bob-token"); got.IsError {
			t.Errorf("bob: %s", got.text())
		}
	}
	response, err := first.do(t.Context(), "DELETE", "")
	if err != nil || response.StatusCode/100 != 2 {
		t.Fatalf("end of alice's first session: %v %v", response, err)
	}
	// The other sessions are open, which gc leaves alone. Within a second the server does not look again.
	eventually(t, "alice has room after gc", func() bool {
		skillsd(t, 0, "session", "gc", "--total", "1", "--state", s.state)
		return !load("alice-token").IsError
	})
}

// A server deletes by itself what is old, but nothing that is open.
func TestServerCollects(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	root := tree(t, demoSkill())
	serveIn := func(args ...string) *process {
		p := serve(t, append([]string{"--state", state, "--skills-root", root}, args...)...).loaded()
		return p
	}
	records := func() int {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(state, "sessions", "ses_*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	for range 2 {
		if err := serveIn().leave(); err != nil {
			t.Fatal(err)
		}
	}
	if err := serveIn("--records", "age=90d,total=1GiB").leave(); err != nil {
		t.Fatal(err)
	}
	if n := records(); n != 3 {
		t.Fatalf("%d records, want 3: none is old", n)
	}
	open := serveIn()
	second := serveIn("--records", "total=1")
	eventually(t, "only the two records that are open are left", func() bool { return records() <= 2 })
	for _, p := range []*process{open, second} {
		if got := p.tool("read_skill_resource", map[string]any{"skill": "demo", "path": "references/notes.md"}); got.IsError {
			t.Errorf("an open session: %s", got.text())
		}
		p.end()
	}
}
