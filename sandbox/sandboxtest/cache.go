package sandboxtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/sandbox"
)

// testCache mounts a directory that is writable for all users on the host. Its files must be visible and
// unchangeable, and its parent directories must belong to the command.
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

// testTreeDir reads the tree by its skill's name. Both paths must be directories, not links, read-only, and
// without a path of the host.
func testTreeDir(t *testing.T, f *fixture) {
	cmd := f.script(t, "deep.py", `import os, pathlib, subprocess, sys
here = pathlib.Path(__file__)
print(here, here.parents[3], here.resolve().parents[3], os.path.islink("/skill"))
for d in ("/skill", "/mnt/skills/user/Demo_1.x"):
    print(len(os.listdir(d)) == len(os.listdir("/skill")), subprocess.run(["find", d, "-name", "deep.py"],
        capture_output=True, text=True).stdout.strip())
    for write in (lambda: open(d + "/new", "w"), lambda: os.remove(d + "/scripts/deep.py"),
                  lambda: os.mkdir("/mnt/skills/user/other"), lambda: os.mkdir("/mnt/skills/public")):
        try:
            write()
            print("BREACH write in", d)
        except OSError:
            pass
print(os.getcwd(), os.listdir("/mnt/skills/user"))
`)
	cmd.Name, cmd.Cwd = "Demo_1.x", "/mnt/skills/user/Demo_1.x/scripts"
	cmd.Argv[1] = cmd.TreeDir() + "/scripts/deep.py"
	res := f.runOK(t, cmd)
	const want = `/mnt/skills/user/Demo_1.x/scripts/deep.py /mnt/skills /mnt/skills False
True /skill/scripts/deep.py
True /mnt/skills/user/Demo_1.x/scripts/deep.py
/mnt/skills/user/Demo_1.x/scripts ['Demo_1.x']
`
	if got := string(res.Stdout.Head); got != want {
		t.Errorf("the tree by its skill's name: %s, %q\nwant %s", got, res.Stderr.Head, want)
	}
	for _, name := range []string{"", ".", "..", "a/b", "-x", "a b", ".hidden", strings.Repeat("x", 65)} {
		cmd.Name = name
		if cmd.TreeDir() != sandbox.SkillDir {
			t.Errorf("TreeDir() of a skill called %q = %q", name, cmd.TreeDir())
		}
	}
}
