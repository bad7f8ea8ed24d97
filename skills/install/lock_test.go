package install

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/store"
)

// sample is a lock with what a lock file can hold.
func sample() *Lock {
	content := func(paths ...string) *Version {
		v := &Version{InstalledAt: time.Unix(1e9, 0).UTC()}
		var files []store.File
		for _, path := range paths {
			files = append(files, store.File{Path: path, Digest: digest.FromString(path)})
		}
		v.Files, v.Tree = files, store.TreeDigest(files)
		return v
	}
	one, two := content("SKILL.md", "a \"quoted\" name.md", "ünï/ \u2028.md"), content("SKILL.md")
	two.Commit = strings.Repeat("a", 40)
	return &Lock{Skills: []*Entry{
		{Name: "A", Tier: skills.TierUser, Enabled: true,
			Origin: Origin{Kind: KindDirectory, Source: string(filepath.Separator) + "srv", Path: "."},
			Tree:   one.Tree, Files: one.Files, InstalledAt: one.InstalledAt},
		{Name: "true", Tier: skills.TierThirdParty,
			Origin: Origin{Kind: KindGit, Source: "https://example.com/a", Ref: "main",
				Commit: strings.Repeat("b", 40), Subdir: "x", Path: "x/y"},
			Tree: one.Tree, Files: one.Files, InstalledAt: one.InstalledAt, Previous: two},
	}}
}

func TestLockRoundTrip(t *testing.T) {
	for _, lock := range []*Lock{{}, sample()} {
		other := append([]byte("\ufeff"), bytes.ReplaceAll(lock.Encode(), []byte("\n"), []byte("\r\n"))...)
		if got, err := ParseLock(other); err != nil || cmp.Diff(lock, got) != "" {
			t.Errorf("with a byte order mark and CR LF: %v", err)
		}
		got, err := ParseLock(lock.Encode())
		if err != nil {
			t.Fatalf("%v\n%s", err, lock.Encode())
		}
		if diff := cmp.Diff(lock, got); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
		if !bytes.Equal(got.Encode(), lock.Encode()) {
			t.Error("written again it is another text")
		}
	}
}

// TestForeignLock refuses a lock file that says what none can.
func TestForeignLock(t *testing.T) {
	good := string(sample().Encode())
	for _, test := range []struct{ name, old, new, want string }{
		{"version", "version: 1", "version: 2",
			`:2:10: version: "2" is not supported; this skillsd reads version 1`},
		{"no version", "version: 1\n", "", ":2:1: version: is missing"},
		{"unknown key", "    enabled: true", "    enabled: true\n    shell: x",
			`:7:5: the key "shell" is not known; there are name, tier, `},
		{"twice", "    enabled: true", "    enabled: true\n    enabled: true", `duplicate key "enabled"`},
		{"tier", `tier: "user"`, `tier: "root"`, `unknown tier "root"`},
		{"name up", `name: "A"`, `name: "../A"`, "is not a name of letters"},
		{"name twice", `name: "A"`, `name: "True"`, "duplicate name true"},
		{"file up", `"SKILL.md": `, `"../SKILL.md": `, "is not a path of a file"},
		{"absolute file", `"SKILL.md": `, `"/SKILL.md": `, "is not a path of a file"},
		{"digest", `sha256:` + digest.FromString("SKILL.md").Encoded(), "sha256:" + strings.Repeat("0", 64),
			"is not the digest of the files"},
		{"no digest", `sha256:` + digest.FromString("SKILL.md").Encoded(), "md5:0", "has no digest"},
		{"ext", `"https://example.com/a"`, `"ext::sh -c id"`, "source: "},
		{"file URL", `"https://example.com/a"`, `"file://h/a"`, "source: "},
		{"option", `"https://example.com/a"`, `"--upload-pack=x://"`, "source: "},
		{"relative source", `"` + sample().Skills[0].Origin.Source + `"`, `"srv"`, "not an absolute path"},
		{"ref", `ref: "main"`, `ref: "--main"`, "is not a name of a branch"},
		{"commit", `commit: "` + strings.Repeat("b", 40), `commit: "HEAD`, "commit: is not a commit"},
		{"path", `path: "x/y"`, `path: "../y"`, "path: is not a path"},
		{"subdir", `subdir: "x"`, `subdir: "/x"`, "subdir: is not a path"},
		{"anchor", `name: "A"`, `name: &a "A"`, "name: is not a text"},
		{"merge", "    enabled: true", "    <<: {}", `"<<" is not known`},
		{"enabled", "enabled: true", "enabled: maybe", "neither true nor false"},
		{"time", `installedAt: "2001`, `installedAt: "x2001`, "installedAt: is not a time"},
		{"previous commit", `commit: "` + strings.Repeat("a", 40) + `"`, `tree: "x"`, `duplicate key "tree"`},
		{"two documents", "version: 1", "version: 1\n---\nversion: 1", ":3:1: a second document"},
		{"an open bracket", "version: 1", "version: [1", ":2: did not find expected ',' or ']'"},
		{"a colon", "version: 1", "version: a: b", ":2: mapping values are not allowed"},
		{"number with an exponent", "version: 1", "version: 1e0", `"1e0" is not supported`},
		{"no UTF-8", "# Written", "# ü\xff", "UTF-8"},
		{"crash of the parser", "version: 1", "{{},<<}: 1", ""},
		{"list", "skills:\n", "skills: x\nother:\n", `the key "other" is not known`},
		{"no list", good[strings.Index(good, "skills:"):], "skills: x\n", ":3:9: skills: is not a list"},
		{"no skills", good[strings.Index(good, "skills:"):], "", ":2:1: skills: is missing"},
		{"nothing", good, "", ": is empty"},
		{"null", good, "null\n", ":1:1: is not a mapping"},
		{"NUL", good, "version: 1\n\x00", "control characters are not allowed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(good, test.old, test.new, 1)
			if text == good {
				t.Fatal("the text has nothing to replace")
			}
			file := filepath.Join(t.TempDir(), "skillsd.lock")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadLock(file)
			if problem, ok := errors.AsType[*LockError](err); !ok ||
				!strings.Contains(problem.Error(), test.want) || problem.File != file {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
	if lock, err := ReadLock(filepath.Join(t.TempDir(), "gone")); err != nil || len(lock.Skills) > 0 {
		t.Errorf("a missing lock file = %v, %v", lock, err)
	}
	if _, err := ReadLock(t.TempDir()); err == nil {
		t.Error("a directory was read as a lock file")
	}
}

func FuzzLock(f *testing.F) {
	f.Add((&Lock{Skills: sample().Skills[:1]}).Encode())
	f.Add([]byte("version: 1\nskills: []\n"))
	f.Add([]byte("{{},<<}"))
	f.Add([]byte("version: 1\nskills: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lock, err := ParseLock(data)
		if err != nil {
			if _, ok := errors.AsType[*LockError](err); !ok {
				t.Fatalf("error is a %T", err)
			}
			return
		}
		again, err := ParseLock(lock.Encode())
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		for n, e := range again.Skills {
			if checkName(e.Name) != nil || e.Name != lock.Skills[n].Name || e.Tree != lock.Skills[n].Tree {
				t.Fatal("what was written is something else")
			}
		}
	})
}

func FuzzSource(f *testing.F) {
	for _, seed := range []string{"https://example.com/a", "git@h:a", "ext::sh", "ssh://-x@h/a", "file:///x", "file:/x",
		"http://[::1]:80/x", "https://a:b@c/d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		protocol, err := parseURL(source, true)
		if err != nil {
			return
		}
		if strings.HasPrefix(source, "-") || strings.ContainsAny(source, " \n\x00\\") {
			t.Fatalf("%q is taken as an argument", source)
		}
		switch protocol {
		case "file":
			if !strings.HasPrefix(source, "file:///") {
				t.Fatalf("%q names a host", source)
			}
		case "https", "http", "git":
			if !strings.HasPrefix(strings.ToLower(source), protocol+"://") {
				t.Fatalf("%q is taken for %s", source, protocol)
			}
		case "ssh":
			if strings.Contains(source, "::") && !strings.Contains(source, "[") {
				t.Fatalf("%q may be a remote helper", source)
			}
		default:
			t.Fatalf("%q has the protocol %q", source, protocol)
		}
	})
}

// TestEarlierLock reads a lock file that an earlier release wrote, and writes it again without a change.
func TestEarlierLock(t *testing.T) {
	if filepath.Separator != '/' {
		t.Skip("its sources are absolute paths with slashes")
	}
	const file = "testdata/skillsd.lock"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := ReadLock(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(lock.Encode())); diff != "" {
		t.Errorf("written again (-before +after):\n%s", diff)
	}
	if want := []string{"Gamma.v1", "alpha", "beta", "delta", "gamma", "zipped"}; !slices.Equal(names(lock),
		want) {
		t.Errorf("names = %q, want %q", names(lock), want)
	}
	alpha, beta := lock.Find("alpha"), lock.Find("beta")
	if from := alpha.previousOrigin(); from.Source != "/srv/skills/pack2" ||
		alpha.Origin.Source != "/srv/skills/pack" {
		t.Errorf("alpha is from %q, its earlier version from %q", alpha.Origin.Source, from.Source)
	}
	if alpha.Tier != skills.TierUser || !alpha.Enabled || beta.Enabled || len(alpha.Files) != 3 {
		t.Errorf("alpha = %+v, beta = %+v", alpha, beta)
	}
}

// A skill whose directory would lie in that of another skill is in no lock file, and is not synced beside it.
func TestGroupsAndSkills(t *testing.T) {
	source := write(t, t.TempDir(), map[string]string{"plugin.json": `{"name":"x"}`, "skills/a/SKILL.md": skillText("a")})
	there, here := newMachine(t), newMachine(t)
	there.install(Request{Source: source, Plugin: "x"})
	here.install(Request{Source: write(t, t.TempDir(), map[string]string{"x/SKILL.md": skillText("x")})})
	i, lock := here.open(), there.open().Lock()
	_, err := synced(t.Context(), i, Sync{Lock: lock})
	if err == nil || !strings.Contains(err.Error(), "x/a cannot be installed beside x") {
		t.Errorf("sync = %v", err)
	}
	both := &Lock{Skills: slices.Concat(i.Lock().Skills, lock.Skills)}
	if _, err := ParseLock(both.Encode()); err == nil || !strings.Contains(err.Error(), "x is the name of a skill and of a group") {
		t.Errorf("ParseLock = %v", err)
	}
	if err := apply(t.Context(), i, Request{Source: source, Plugin: "x"}); err == nil {
		t.Error("x/a is installed beside x")
	}
	// A group is synced, and repaired, as other skills are.
	third := newMachine(t).open()
	if _, err := synced(t.Context(), third, Sync{Lock: lock}); err != nil {
		t.Fatal(err)
	}
	verified(t, third)
}
