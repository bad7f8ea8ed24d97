package clients

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// skillsHome makes a home directory with skills of two clients, one of which links to the skills of the other.
func skillsHome(t *testing.T) (dir string, found []OwnSkill) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{".agents/skills/a", ".agents/skills/b", ".claude/skills/c", "src/mine"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "SKILL.md"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"a": "../../.agents/skills/a", "mine": "../../src/mine"} {
		if err := os.Symlink(to, filepath.Join(dir, ".claude", "skills", name)); err != nil {
			t.Skip("missing capability: symbolic links:", err)
		}
	}
	agents, claude := filepath.Join(dir, ".agents", "skills"), filepath.Join(dir, ".claude", "skills")
	found, elsewhere := FindSkills([]string{claude, agents, claude, filepath.Join(dir, "missing")})
	if want := []string{filepath.Join(claude, "mine")}; !slices.Equal(elsewhere, want) {
		t.Errorf("links elsewhere: %q, want %q", elsewhere, want)
	}
	return dir, found
}

func names(found []OwnSkill) (list []string) {
	for _, skill := range found {
		name := filepath.Base(filepath.Dir(skill.Dir)) + "/" + skill.Name
		if skill.Link {
			name += " link"
		}
		list = append(list, name)
	}
	return list
}

func TestFind(t *testing.T) {
	_, found := skillsHome(t)
	want := []string{".claude/a link", ".claude/c", ".agents/a", ".agents/b"}
	if got := names(found); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// Whatever was taken comes back to its place, links too, also from a record that another process reads.
func TestTakeAndReturn(t *testing.T) {
	dir, found := skillsHome(t)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecord(state)
	if err != nil {
		t.Fatal(err)
	}
	taken, err := r.Take(found[:2])
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(taken)
	if err != nil || len(entries) != 1 || entries[0].Name() != "c" {
		t.Fatalf("the directory to install has %v, %v; a link must not be in it", entries, err)
	}
	if _, err := r.Take(found[2:]); err != nil {
		t.Fatal(err)
	}
	if left, _ := FindSkills([]string{filepath.Join(dir, ".claude", "skills"), filepath.Join(dir, ".agents", "skills")}); left != nil {
		t.Fatalf("left: %q", names(left))
	}

	// A new skill in the place of one that was moved is kept.
	inTheWay := filepath.Join(dir, ".agents", "skills", "b")
	if err := os.Mkdir(inTheWay, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err = OpenRecord(state)
	if err != nil {
		t.Fatal(err)
	}
	returned, err := r.Return(func(Move) bool { return true })
	if err == nil || len(returned) != 3 || len(r.Moves) != 1 {
		t.Fatalf("returned %v, %v; %v stay", returned, err, r.Moves)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Return(func(Move) bool { return true }); err != nil {
		t.Fatal(err)
	}
	again, _ := FindSkills([]string{filepath.Join(dir, ".claude", "skills"), filepath.Join(dir, ".agents", "skills")})
	if got := names(again); !slices.Equal(got, names(found)) {
		t.Errorf("after the return: %q, before: %q", got, names(found))
	}
	if _, err := os.Lstat(RecordFile(state)); err == nil {
		t.Error("the record of nothing is left")
	}
}

// Of two skills that were taken from one place, the newer returns to it, and the older one stays in the record.
func TestReturnOfTwoFromOnePlace(t *testing.T) {
	dir, found := skillsHome(t)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecord(state)
	if err != nil {
		t.Fatal(err)
	}
	one := found[3:]
	place := filepath.Join(one[0].Dir, one[0].Name, "SKILL.md")
	for _, text := range []string{"older", "newer"} {
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(place, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Take(one); err != nil {
			t.Fatal(err)
		}
	}
	returned, err := r.Return(func(Move) bool { return true })
	if err == nil || len(returned) != 1 || len(r.Moves) != 1 {
		t.Errorf("returned %v, %v; %v stay", returned, err, r.Moves)
	}
	if text, err := os.ReadFile(place); string(text) != "newer" {
		t.Errorf("in the place is %q, %v", text, err)
	}
}

// A later setup of the same entry adds its permissions to the record.
func TestConnectedAgain(t *testing.T) {
	state := t.TempDir()
	r, err := OpenRecord(state)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(state, "client.json")
	for i, c := range []Connection{
		{Client: "claude", Entry: "skills"},
		{Client: "claude", Entry: "skills", Permitted: []string{"a"}},
		{Client: "claude", Entry: "other"},
		{Client: "claude", Entry: "skills"},
	} {
		before := LookAt([]string{file})
		if err := os.WriteFile(file, []byte{byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Connected(c, before); err != nil {
			t.Fatal(err)
		}
	}
	r, err = OpenRecord(state)
	if err != nil || len(r.Clients) != 2 || !slices.Equal(r.Clients[0].Permitted, []string{"a"}) {
		t.Errorf("the record has %+v, %v", r.Clients, err)
	}
}

// A crash between the record and the rename leaves a skill in its place; the return leaves it there.
func TestReturnOfWhatWasNotMoved(t *testing.T) {
	dir, found := skillsHome(t)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &Record{state: state, Moves: []Move{{
		filepath.Join(found[1].Dir, found[1].Name), filepath.Join(state, "adopted", "1", "c")}}}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	returned, err := r.Return(func(Move) bool { return true })
	if err != nil || len(returned) != 0 || len(r.Moves) != 0 {
		t.Errorf("returned %v, %v; %v stay", returned, err, r.Moves)
	}
	if _, err := os.Stat(filepath.Join(found[1].Dir, found[1].Name, "SKILL.md")); err != nil {
		t.Error(err)
	}
}

func TestOpenInvalid(t *testing.T) {
	state := t.TempDir()
	inside := filepath.Join(state, "adopted", "1", "a")
	for _, text := range []string{
		"{",
		`{"moves": [{"from": "/home/me/.claude/skills/a", "to": "/etc"}]}`,
		`{"moves": [{"from": "/home/me/.claude/skills/a", "to": "` + inside + `/../../../x"}]}`,
		`{"moves": [{"from": "a", "to": "` + inside + `"}]}`,
	} {
		if err := os.WriteFile(RecordFile(state), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenRecord(state); err == nil {
			t.Errorf("%s is a record", text)
		}
	}
}

// A directory of skills that is a link may lead to a repository: its skills stay.
func TestFindThroughLink(t *testing.T) {
	dir, _ := skillsHome(t)
	link := filepath.Join(dir, ".cursor")
	if err := os.MkdirAll(link, 0o755); err != nil {
		t.Fatal(err)
	}
	link = filepath.Join(link, "skills")
	if err := os.Symlink(filepath.Join(dir, "src"), link); err != nil {
		t.Fatal(err)
	}
	if found, _ := FindSkills([]string{link}); found != nil {
		t.Errorf("found %q", names(found))
	}
}

// A link returns with the skill that it leads to.
func TestReturnWithLink(t *testing.T) {
	dir, found := skillsHome(t)
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &Record{state: state}
	for _, group := range [][]OwnSkill{found[:2], found[2:]} {
		if _, err := r.Take(group); err != nil {
			t.Fatal(err)
		}
	}
	skill := filepath.Join(dir, ".agents", "skills", "a")
	if _, err := r.Return(func(m Move) bool { return m.From == skill }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".claude", "skills", "a", "SKILL.md")); err != nil {
		t.Error(err)
	}
}
