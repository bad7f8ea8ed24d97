package skills

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skillsd/skillsd/e2e/testtree"
)

// fill sets all that can be set of a value to something that is not its zero value.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%q%d", "\n", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(uint64('a' + *n%26))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	}
}

// filled returns a skill of which everything that a SKILL.md can say is set.
func filled() *Skill {
	sk, n := &Skill{Path: "x/a", File: "SKILL.md", Digest: "sha256:0", Lead: NewLead([]byte("lead"))}, 0
	fill(reflect.ValueOf(&sk.Frontmatter).Elem(), &n)
	fill(reflect.ValueOf(&sk.Form).Elem(), &n)
	fill(reflect.ValueOf(&sk.Diagnostics).Elem(), &n)
	return sk
}

// Every field of a skill comes back, those that are added later too.
func TestSkillRecord(t *testing.T) {
	want := filled()
	for _, flag := range []*bool{&want.Form.Strict, &want.Form.Repaired, &want.Frontmatter.UserInvocable, &want.Frontmatter.AllowedToolsDeclared} {
		*flag = !*flag
		got := &Skill{Path: "x/a", File: "SKILL.md"}
		if !got.unpack(string(want.pack()), mark{}) {
			t.Fatal("unpack")
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Skill{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	text := string(want.pack())
	for at := range text {
		got := &Skill{Path: "x/a", File: "SKILL.md"}
		if at >= len(got.subject()) && got.unpack(text[:at], mark{}) {
			t.Errorf("the first %d bytes are a skill", at)
		}
	}
}

// keptTree makes skills, nested and broken ones among them, links, and directories without skills.
func keptTree(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	testtree.Write(t, dir, map[string]string{
		"a/SKILL.md":        "---\nname: a\ndescription: first\nmetadata: {tags: [x, y], requires: {bins: [sh]}}\n---\nlead of a\n",
		"a/references/r.md": "r", "a/deep/er/inner/SKILL.md": "---\nname: inner\ndescription: nested\n---\n", "a/more/x/y/z": "",
		"group/b/skill.md": "---\nname: other\ndescription: [unquoted: yes\n---\n", "group/c/SKILL.md": "no frontmatter\x00", "group/c/file": "",
		"group/Skill.md": "", "none/of/these/file": "", "a/odd/one/SKILL.MD": "---\nname: one\ndescription: nested\n---\n",
	})
	for name, target := range map[string]string{"linked": "a/deep", "group/d": "../none", "none/SKILL.md": "../a/SKILL.md"} {
		if err := os.Symlink(filepath.FromSlash(target), filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Skip("missing capability: symbolic links")
		}
	}
	return dir, filepath.Join(t.TempDir(), "scans")
}

// scanKept scans with a cache of which a share is read all the same, and saves it.
func scanKept(t *testing.T, dir, file string, sample bool) *Snapshot {
	t.Helper()
	cache := NewCache(file)
	cache.sample = func() bool { return sample }
	s, err := Scan(t.Context(), []Root{{Dir: dir}}, &ScanOptions{Cache: cache, Now: func() time.Time { return time.Now().Add(time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Save(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// compareScans compares what two scans found.
func compareScans(t *testing.T, want, got *Snapshot) {
	t.Helper()
	type facts struct {
		Scanned     []*Skill
		Diagnostics []Diagnostic
		Dirs        []string
	}
	of := func(s *Snapshot) facts { return facts{s.scanned, s.Diagnostics, s.dirs} }
	if diff := cmp.Diff(of(want), of(got), cmp.AllowUnexported(Skill{}, mark{}),
		cmpopts.IgnoreFields(Skill{}, "Root", "location", "opts", "state")); diff != "" {
		t.Errorf("the scan finds something else (-want +got):\n%s", diff)
	}
}

// A scan with a cache finds what one without finds, whether nothing, something or everything has changed.
func TestScanKept(t *testing.T) {
	t.Parallel()
	dir, file := keptTree(t)
	write := func(name, content string) func() error {
		return func() error {
			return os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(content), 0o644)
		}
	}
	move := func(from, to string) func() error {
		return func() error { return os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)) }
	}
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"a skill file", write("a/SKILL.md", "---\nname: a\ndescription: other\n---\n")},
		{"a nested one", write("a/deep/er/inner/SKILL.md", "---\nname: inner\ndescription: other\n---\n")},
		{"one more", write("none/of/SKILL.md", "---\nname: of\ndescription: d\n---\n")},
		{"one more in a directory of a skill", write("a/more/x/SKILL.md", "---\nname: x\ndescription: d\n---\n")},
		{"a directory has another name", move("group/b", "group/e")},
		{"a skill file has another name", move("a/SKILL.md", "a/skill.md")},
		{"a skill is not one any more", move("a/skill.md", "a/other.md")},
		{"a directory in the place of another", func() error {
			if err := move("none", "gone")(); err != nil {
				return err
			}
			return move("group", "none")()
		}},
		{"a link in the place of a directory", func() error {
			if err := move("a", "b")(); err != nil {
				return err
			}
			return os.Symlink("b", filepath.Join(dir, "a"))
		}},
		{"all is gone", func() error { return os.RemoveAll(filepath.Join(dir, "none")) }},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		want, err := Scan(t.Context(), []Root{{Dir: dir}}, &ScanOptions{Now: func() time.Time { return time.Now().Add(time.Hour) }})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range []string{"as it was", "after a scan"} {
			t.Log(change.name, run)
			compareScans(t, want, scanKept(t, dir, file, false))
		}
		compareScans(t, want, scanKept(t, dir, file, true))
	}
}

// lie makes a cache say something of a tree that was never there.
func lie(t *testing.T, file string, what recordKind) {
	t.Helper()
	known := splitRecords((&Cache{file: file}).read())
	lies := 0
	for i, record := range known {
		changed := []byte(record)
		value := changed[keySize+1:]
		for ; record[len(record)-len(value)-1]&0x80 != 0; value = value[1:] {
		}
		for at := range value {
			if recordKind(record[0]) == what && at+5 <= len(value) && string(value[at:at+5]) == "first" {
				copy(value[at:], "wrong")
				lies++
			}
		}
		known[i] = string(changed)
	}
	if lies == 0 {
		t.Fatal("there is nothing to lie about")
	}
	if err := os.WriteFile(file, joinRecords(known), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is known is not read, but for a sample: if that differs from the file, nothing of the cache is used.
func TestScanKeptWrong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("missing capability: marks of files")
	}
	dir, file := keptTree(t)
	scanKept(t, dir, file, false)
	lie(t, file, ofSkill)
	if got := scanKept(t, dir, file, false).Skill("a").Description(); got != "wrong" {
		t.Errorf("what the cache says is read again: %q", got)
	}
	s := scanKept(t, dir, file, true)
	if got := s.Skill("a").Description(); got != "first" {
		t.Errorf("a wrong cache is believed: %q", got)
	}
	found := 0
	for _, d := range s.Diagnostics {
		if d.Code == CodeCacheWrong {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d diagnostics say that the cache is wrong: %v", found, s.Diagnostics)
	}
	if got := scanKept(t, dir, file, false).Skill("a").Description(); got != "first" {
		t.Errorf("the wrong cache is still there: %q", got)
	}

	lie(t, file, ofSkill)
	cache := NewCache(file)
	cache.Rebuild()
	s, err := Scan(t.Context(), []Root{{Dir: dir}}, &ScanOptions{Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Skill("a").Description(); got != "first" {
		t.Errorf("a cache that is rebuilt is believed: %q", got)
	}
}
