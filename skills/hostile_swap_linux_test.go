package skills_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// secret is the mark of what lies outside of the root.
const secret = "SECRET"

// TestHostileSwap exchanges directories and files for links that lead out of the root, as fast as it
// can, while skills are scanned, indexed, read and staged. No byte of outside may come out.
func TestHostileSwap(t *testing.T) {
	base := t.TempDir()
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	files := map[string]string{"SKILL.md": "", "references/r.md": "", "scripts/s.sh": "", "x.bin": ""}
	forbidden := map[digest.Digest]bool{}
	for i := range 3 {
		for file := range files {
			inside := fmt.Sprintf("%s of %d\n", file, i)
			leaked := secret + " " + inside
			if file == "SKILL.md" {
				inside, leaked = document(fmt.Sprintf("s%d", i), "d"), document(fmt.Sprintf("s%d", i), secret)
			}
			writeFile(t, filepath.Join(root, fmt.Sprintf("s%d", i), file), inside)
			writeFile(t, filepath.Join(outside, fmt.Sprintf("s%d", i), file), leaked)
			forbidden[digest.FromString(leaked)] = true
		}
	}
	writeFile(t, filepath.Join(root, "good", "SKILL.md"), document("good", "d"))
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()

	swap := swapper(t, root, outside, map[string]string{
		"s0": "s0", "s1/references": "s1/references", "s1/SKILL.md": "s1/SKILL.md", "s1/scripts/s.sh": "s1/scripts/s.sh", "s2/x.bin": "s2/x.bin", "s2/scripts": "s2/scripts",
	})
	stop := make(chan struct{})
	var group sync.WaitGroup
	swaps := 0
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				swap()
				swaps++
			}
		}
	})
	for range 150 {
		snapshot := scan(t, nil, skills.Root{Dir: root})
		if snapshot.Skill("good") == nil {
			t.Errorf("the good skill is gone: %v", snapshot.Diagnostics)
		}
		for _, sk := range snapshot.Skills {
			checkInside(t.Context(), t, sk, forbidden, st)
		}
	}
	close(stop)
	group.Wait()
	if swaps < 100 {
		t.Errorf("only %d exchanges happened", swaps)
	}
}

// checkInside reads all of a skill in every way there is.
func checkInside(ctx context.Context, t *testing.T, sk *skills.Skill, forbidden map[digest.Digest]bool, st *store.Store) {
	t.Helper()
	if strings.Contains(sk.Description(), secret) || forbidden[sk.Digest] {
		t.Errorf("%s was loaded from outside", sk.Path)
	}
	for _, file := range []string{"SKILL.md", "references/r.md", "scripts/s.sh", "x.bin"} {
		if content, err := sk.Read(ctx, file, skills.MaxFile); err == nil && bytes.Contains(content.Data, []byte(secret)) {
			t.Errorf("Read(%s) of %s = %q", file, sk.Path, content.Data)
		} else if err != nil && strings.Contains(err.Error(), "outside/") {
			t.Errorf("Read(%s) of %s names a place: %v", file, sk.Path, err)
		}
	}
	if x, err := sk.Index(ctx); err == nil {
		for _, file := range x.Files {
			if forbidden[file.Digest] {
				t.Errorf("%s of %s was hashed outside", file.Path, sk.Path)
			}
		}
	}
	sk.Verify(ctx)
	tree, err := sk.Stage(ctx, st)
	if err != nil {
		return
	}
	for _, file := range tree.Files {
		if forbidden[file.Digest] {
			t.Errorf("%s of %s was staged from outside", file.Path, sk.Path)
		}
	}
}

// swapper returns a function that exchanges, with each call, one path of the root for a link to one
// outside of it, or back. The exchange is a single step: there is never nothing at the path.
func swapper(t *testing.T, root, outside string, targets map[string]string) (swap func()) {
	t.Helper()
	var names []string
	for name, target := range targets {
		link := filepath.Join(root, filepath.Dir(name), ".link-"+filepath.Base(name)+".swp")
		if err := os.Symlink(filepath.Join(outside, target), link); err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Join(root, name), link)
	}
	if err := unix.Renameat2(unix.AT_FDCWD, names[0], unix.AT_FDCWD, names[1], unix.RENAME_EXCHANGE); err != nil {
		t.Skipf("missing capability: a file system with RENAME_EXCHANGE: %v", err)
	}
	next := 0
	return func() {
		// What a link has taken the place of may be the parent of another path; that one then fails.
		unix.Renameat2(unix.AT_FDCWD, names[next], unix.AT_FDCWD, names[next+1], unix.RENAME_EXCHANGE)
		next = (next + 2) % len(names)
	}
}
