package sandboxtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
)

// testCache mounts a directory that everyone may write on the host: its files are visible and do not
// change, and the directories around it belong to the command.
func testCache(t *testing.T, f *fixture) {
	dir := t.TempDir()
	file := filepath.Join(dir, "made")
	if err := errors.Join(os.WriteFile(file, []byte("before\n"), 0o666), os.Chmod(file, 0o666),
		os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	const at = sandbox.TmpDir + "/.cache/it/made"
	cmd := f.script(t, "cache.sh", `cd `+at+` || exit 1
cat made
for harm in "echo x >made" "echo x >>made" "rm made" "mv made other" \
	"touch more" "chmod 600 made" "ln made other" "mkdir sub"; do
	if (eval "$harm") 2>/dev/null; then echo "BREACH $harm"; fi
done
cat made
touch /tmp/.cache/own /tmp/.cache/it/own && rm -r /tmp/.cache/it/own ||
	echo "the way to it is not the command's own"`)
	cmd.Cache = sandbox.Cache{Dir: openDir(t, dir), At: at}
	res := f.runOK(t, cmd)
	if got := string(res.Stdout.Head); got != "before\nbefore\n" {
		t.Errorf("the cache inside: %q, %q", got, res.Stderr.Head)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "before\n" {
		t.Errorf("the cache afterwards: %q, %v", data, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("in the cache's directory afterwards: %v, %v", entries, err)
	}
	for _, at := range []string{"", sandbox.TmpDir, sandbox.TmpDir + "/", sandbox.TmpDir + "/../skill/x",
		sandbox.SkillDir + "/x", "tmp/x", "/tmpx/y", sandbox.TmpDir + "/a//b"} {
		cmd.Cache.At = at
		var u *sandbox.UnavailableError
		if res, err := f.runner.Run(t.Context(), cmd); !errors.As(err, &u) {
			t.Errorf("Run with a cache at %q = %+v, %v, want an UnavailableError", at, res, err)
		}
	}
}
