package owners

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/skillsd/skillsd/skills"
)

// Who can change a root, by owners and modes of what is in it and of the directories on the way.
func TestRoot(t *testing.T) {
	const somebody, team, alone, unlisted = 54321, 54322, 54323, 54324
	lists := t.TempDir()
	for name, text := range map[string]string{
		"group":  "root:x:0:\nteam:x:54322:root,ann,bob\nalone:x:54323:root\nbroken\n",
		"passwd": "root:x:0:0:root:/root:/bin/sh\n\nann:x:1:1",
	} {
		if err := os.WriteFile(filepath.Join(lists, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	chmod := func(mode os.FileMode, name string) func(string) error {
		return func(dir string) error { return os.Chmod(filepath.Join(dir, name), mode) }
	}
	chown := func(uid, gid int, name string) func(string) error {
		return func(dir string) error { return os.Lchown(filepath.Join(dir, name), uid, gid) }
	}
	for name, tt := range map[string]struct {
		changes []func(string) error
		want    string // with whole
		brief   string // without; "=" is the same
	}{
		"own":                       {nil, "", "="},
		"everyone":                  {[]func(string) error{chmod(0o777, "skills")}, "everyone (the directory itself, or its path)", "="},
		"everyone, their own files": {[]func(string) error{chmod(0o777|os.ModeSticky, "skills")}, "everyone (the directory itself, or its path)", "="},
		"like /tmp on the way":      {[]func(string) error{chmod(0o777|os.ModeSticky, ".")}, "", "="},
		"everyone on the way":       {[]func(string) error{chmod(0o777, ".")}, "everyone (the directory itself, or its path)", "="},
		"nobody comes there":        {[]func(string) error{chmod(0o777, "skills"), chmod(0o700, ".")}, "", "="},
		"group":                     {[]func(string) error{chown(-1, team, "skills/a"), chmod(0o775, "skills/a")}, "group team (a)", "="},
		"group that only reads":     {[]func(string) error{chown(-1, team, "skills/a")}, "", "="},
		"group without others":      {[]func(string) error{chown(-1, alone, "skills/a"), chmod(0o775, "skills/a")}, "", "="},
		"group in no list":          {[]func(string) error{chown(-1, unlisted, "skills/a"), chmod(0o775, "skills/a")}, "group 54324 (a)", "="},
		"user, between":             {[]func(string) error{chown(somebody, -1, "skills/of")}, "user 54321 (of)", "="},
		"user, SKILL.md":            {[]func(string) error{chown(somebody, -1, "skills/of/b/SKILL.md")}, "user 54321 (of/b/SKILL.md)", "="},
		"user, another file":        {[]func(string) error{chown(somebody, -1, "skills/a/scripts/x.sh")}, "user 54321 (a/scripts/x.sh)", ""},
		"link":                      {[]func(string) error{chown(somebody, -1, "skills/a/link")}, "user 54321 (a/link)", ""},
		"several": {[]func(string) error{chown(somebody, -1, "skills/a"), chown(somebody, -1, "skills/a/SKILL.md"), chmod(0o666, "skills/a/SKILL.md")},
			"everyone (a/SKILL.md, and 1 more), user 54321 (a, and 2 more)", "everyone (a/SKILL.md), user 54321 (a, and 1 more)"},
	} {
		t.Run(name, func(t *testing.T) {
			// In a directory such as /tmp, which is on the way and does not count.
			base, err := os.MkdirTemp("", "owners")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			dir := filepath.Join(base, "skills")
			for _, file := range []string{"a/SKILL.md", "a/scripts/x.sh", "of/b/SKILL.md"} {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink("SKILL.md", filepath.Join(dir, "a/link")); err != nil {
				t.Fatal(err)
			}
			for _, change := range append([]func(string) error{chmod(0o755, "."), chmod(0o755, "skills"),
				chmod(0o755, "skills/a")}, tt.changes...) {
				if err := change(base); errors.Is(err, os.ErrPermission) {
					t.Skipf("missing capability: giving files away: %v", err)
				} else if err != nil {
					t.Fatal(err)
				}
			}
			look := &Lookup{groupFile: filepath.Join(lists, "group"), passwdFile: filepath.Join(lists, "passwd")}
			root := &skills.Root{Dir: dir}
			all := []*skills.Skill{{Root: root, Dir: "a", File: "SKILL.md"}, {Root: root, Dir: "of/b", File: "SKILL.md"}}
			if got := look.Root(root, all, true); got != tt.want {
				t.Errorf("Root = %q, want %q", got, tt.want)
			}
			if tt.brief == "=" {
				tt.brief = tt.want
			}
			if got := look.Root(root, all, false); got != tt.brief {
				t.Errorf("Root, not of all files = %q, want %q", got, tt.brief)
			}
		})
	}
}
