package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills/store"
)

// TestPowerFailure looks at what a disk has when a command is at its steps, which is what a machine finds
// that lost its power then: an installation of before or of after, and no tree under a name that it is not.
func TestPowerFailure(t *testing.T) {
	const inside = "SKILLSD_TEST_DISK"
	if os.Getenv(inside) == "" {
		dir := t.TempDir()
		if os.Geteuid() != 0 {
			t.Skip("missing capability: to mount a file system")
		}
		if out, err := exec.Command("mkfs.ext4", "-q", filepath.Join(dir, "disk"), "64M").CombinedOutput(); err != nil {
			t.Skipf("missing capability: mkfs.ext4: %v\n%s", err, out)
		}
		try := exec.Command("unshare", "--mount", "mount", "-o", "loop", filepath.Join(dir, "disk"), dir)
		if out, err := try.CombinedOutput(); err != nil {
			t.Skipf("missing capability: a loop device: %v\n%s", err, out)
		}
		cmd := exec.Command("unshare", "--mount", os.Args[0], "-test.run=^TestPowerFailure$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir := os.Getenv(inside)
	for name, skills := range map[string]int{"synced one by one": 3, "synced together": 300} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for n := range skills {
				at := fmt.Sprintf("skill-%d", n)
				files[at+"/SKILL.md"], files[at+"/references/a.md"] = skillText(at), at
			}
			source, disk := write(t, t.TempDir(), files), t.TempDir()+"/disk"
			copyDisk(t, filepath.Join(dir, "disk"), disk)
			live := mount(t, disk)
			i, trees := openAt(t, live+"/state")
			var failed []string
			fail := func(string) error {
				one := fmt.Sprintf("%s.%d", disk, len(failed))
				failed = append(failed, one)
				copyDisk(t, disk, one)
				return nil
			}
			i.step = func(name string) error {
				if name == "journal" || name == "lock file" {
					return fail(name)
				}
				return nil
			}
			if err := apply(t.Context(), i, Request{Source: source, All: true}); err != nil {
				t.Fatal(err)
			}
			fail("end")
			i.Close()
			trees.Close()
			for n, one := range failed {
				i, trees := openAt(t, mount(t, one)+"/state")
				problems, _, err := i.Verify(t.Context())
				if err != nil || len(problems) > 0 {
					t.Errorf("disk %d: Verify = %v, %v", n, problems, err)
				}
				if got := len(i.Lock().Skills); got != 0 && n < 2 || got != skills && n == 2 {
					t.Errorf("disk %d has %d skills", n, got)
				}
				stored, err := os.ReadDir(trees.Dir())
				for _, entry := range stored {
					if _, err := trees.Tree(t.Context(), digest.NewDigestFromEncoded(digest.SHA256, entry.Name())); err != nil {
						t.Errorf("disk %d: %v", n, err)
					}
				}
				if err != nil || n > 0 && len(stored) != skills {
					t.Errorf("disk %d has %d trees, %v", n, len(stored), err)
				}
				i.Close()
				trees.Close()
			}
		})
	}
}

func copyDisk(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// mount mounts a disk until the test ends.
func mount(t *testing.T, disk string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", disk, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return dir
}

func openAt(t *testing.T, state string) (*Installer, *store.Store) {
	t.Helper()
	trees, err := store.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	i, err := Open(t.Context(), Config{State: state, Trees: trees})
	if err != nil {
		t.Fatal(err)
	}
	return i, trees
}
