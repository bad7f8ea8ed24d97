package staged

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/skillsd/skillsd/sandbox"
)

// A memoryKeeper keeps in memory.
type memoryKeeper struct {
	contents map[string][]byte
	room     int64
	planned  []sandbox.Change
	broken   error
}

func (k *memoryKeeper) Room(n int64) error {
	k.room = n
	return k.broken
}

func (k *memoryKeeper) Keep(r io.Reader) (string, error) {
	b, err := io.ReadAll(r)
	d := digest.FromBytes(b).String()
	if k.contents == nil {
		k.contents = map[string][]byte{}
	}
	k.contents[d] = b
	return d, err
}

func (k *memoryKeeper) Plan(changes []sandbox.Change) error {
	k.planned = changes
	return nil
}

func (k *memoryKeeper) open(d string) (io.ReadCloser, error) {
	b, ok := k.contents[d]
	if !ok {
		return nil, errors.New("missing")
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// everything returns kind, permissions and content of each entry of a directory, by path.
func everything(t *testing.T, dir *os.File) map[string]string {
	t.Helper()
	all := map[string]string{}
	for p, info := range paths(t, dir) {
		at := filepath.Join(dir.Name(), p)
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if err != nil {
				t.Fatal(err)
			}
			all[p] = "link " + target
		case info.IsDir():
			all[p] = "dir " + (info.Mode() & (os.ModePerm | os.ModeSticky)).String()
		default:
			b, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			all[p] = "file " + info.Mode().Perm().String() + " " + string(b)
		}
	}
	return all
}

func whiteout(t *testing.T, dir *os.File, name string) {
	t.Helper()
	if err := unix.Mknod(filepath.Join(dir.Name(), name), unix.S_IFCHR, 0); err != nil {
		t.Skipf("missing capability: whiteouts: %v", err)
	}
}

// changedByRun returns a workspace to which a layer with every kind of change was applied, with its keeper, the
// changes, and what was there before.
func changedByRun(t *testing.T) (ws *os.File, keeper *memoryKeeper, kept *sandbox.Kept, before map[string]string) {
	t.Helper()
	ws = tree(t, "changed", "gone", "same", "dir/gone", "dir/sub/gone", "becomes-dir", "becomes-file/x/y",
		"replaced/old", "replaced/sub/old", "mode", ".env")
	for name, mode := range map[string]os.FileMode{"changed": 0o640, "gone": 0o755, "dir/sub": 0o777 | os.ModeSticky} {
		if err := os.Chmod(filepath.Join(ws.Name(), name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("no/where", filepath.Join(ws.Name(), "dir/link")); err != nil {
		t.Fatal(err)
	}
	before = everything(t, ws)
	upper := tree(t, "changed", "new", "new-dir/sub/new", "becomes-dir/a", "becomes-file", "replaced/new", "mode", ".env")
	for name, text := range map[string]string{"changed": "other", "mode": "mode", ".env": "of another size"} {
		if err := os.WriteFile(filepath.Join(upper.Name(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(upper.Name(), "mode"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(filepath.Join(upper.Name(), "replaced"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Skipf("missing capability: user attributes: %v", err)
	}
	whiteout(t, upper, "gone")
	whiteout(t, upper, "dir")
	l := layerOf(upper, ws)
	keeper = &memoryKeeper{}
	l.Workspace.Keeper = keeper
	Apply(t.Context(), l)
	return ws, keeper, l.Kept, before
}

func undo(t *testing.T, u *Undo) []Undone {
	t.Helper()
	u.Timeout = time.Minute
	done, err := u.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// What a run changed, deleted and made is as before, and a second undo does nothing.
func TestUndo(t *testing.T) {
	ws, keeper, kept, before := changedByRun(t)
	after := everything(t, ws)
	if kept == nil || kept.Problem != "" || fmt.Sprint(after) == fmt.Sprint(before) {
		t.Fatalf("kept %+v, the workspace has %v", kept, after)
	}
	if _, ok := after["dir"]; ok || after["becomes-dir/a"] == "" || after["replaced/old"] != "" {
		t.Fatalf("not applied: %v", after)
	}
	for _, c := range kept.Changes {
		if c.Path == "same" || c.Path == ".env" || c.After == nil {
			t.Errorf("kept %+v", c)
		}
	}
	for _, content := range keeper.contents {
		if strings.Contains(string(content), ".env") {
			t.Error("a protected file was kept")
		}
	}
	u := &Undo{Dir: ws, Changes: kept.Changes, Open: keeper.open, DryRun: true}
	planned := undo(t, u)
	if got := everything(t, ws); fmt.Sprint(got) != fmt.Sprint(after) {
		t.Errorf("a dry run changed the workspace: %v, want %v", got, after)
	}
	u.DryRun = false
	done := undo(t, u)
	if fmt.Sprint(done) != fmt.Sprint(planned) {
		t.Errorf("done is %+v, planned was %+v", done, planned)
	}
	for _, d := range done {
		if d.Refused != "" {
			t.Errorf("refused: %+v", d)
		}
	}
	if got := everything(t, ws); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the workspace has %v, want %v", got, before)
	}
	if again := undo(t, u); len(again) != 0 {
		t.Errorf("a second undo did %+v", again)
	}
}

// What somebody changed since the run stays, unless that is forced.
func TestUndoLosesNoUpdate(t *testing.T) {
	ws, keeper, kept, before := changedByRun(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(ws.Name(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("changed", "theirs")
	write("gone", "theirs")
	write("new-dir/sub/theirs", "theirs")
	u := &Undo{Dir: ws, Changes: kept.Changes, Open: keeper.open}
	refused := map[string]string{}
	for _, d := range undo(t, u) {
		if d.Refused != "" {
			refused[d.Path] = d.Refused
		}
	}
	want := map[string]string{"changed": errLater.Error(), "gone": errLater.Error(),
		"new-dir": errHasMore.Error(), "new-dir/sub": errHasMore.Error()}
	if fmt.Sprint(refused) != fmt.Sprint(want) {
		t.Errorf("refused %v, want %v", refused, want)
	}
	got := everything(t, ws)
	for _, p := range []string{"changed", "gone", "new-dir/sub/theirs"} {
		if !strings.HasSuffix(got[p], "theirs") {
			t.Errorf("%s holds %q", p, got[p])
		}
	}
	if got["new"] != "" || got["dir/gone"] != before["dir/gone"] {
		t.Errorf("the rest was not returned: %v", got)
	}
	// After a crash, nothing shows what the run left.
	crashed := []sandbox.Change{{Path: "changed", Before: kept.Changes[indexOf(kept, "changed")].Before}}
	done := undo(t, &Undo{Dir: ws, Changes: crashed, Open: keeper.open})
	if len(done) != 1 || done[0].Refused != errUnended.Error() || !done[0].Changed {
		t.Errorf("after a crash: %+v", done)
	}
	u.Force = true
	undo(t, u)
	got = everything(t, ws)
	if got["changed"] != before["changed"] || got["gone"] != before["gone"] || got["new-dir/sub/theirs"] == "" {
		t.Errorf("forced: %v", got)
	}
}

func indexOf(kept *sandbox.Kept, p string) int {
	return slices.IndexFunc(kept.Changes, func(c sandbox.Change) bool { return c.Path == p })
}

// No link is followed, no protected name is written, no content that was changed is returned.
func TestUndoRules(t *testing.T) {
	ws, outside := tree(t, "d/x"), tree(t, "x")
	if err := os.Rename(filepath.Join(ws.Name(), "d"), filepath.Join(ws.Name(), "real")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside.Name(), filepath.Join(ws.Name(), "d")); err != nil {
		t.Fatal(err)
	}
	keeper := &memoryKeeper{}
	good, err := keeper.Keep(strings.NewReader("before"))
	if err != nil {
		t.Fatal(err)
	}
	bad := digest.FromString("expected").String()
	keeper.contents[bad] = []byte("something else")
	file := func(d string) sandbox.State { return sandbox.State{Kind: sandbox.KindFile, Mode: 0o644, Digest: d} }
	none := &sandbox.State{Kind: sandbox.KindNone}
	var changes []sandbox.Change
	for p, st := range map[string]sandbox.State{
		"d/x": file(good), ".git/config": file(good), "sub/.bashrc": file(good), "../x": file(good), "/x": file(good),
		"a//b": file(good), "HEAD": file(good), "tampered": file(bad), "lost": file(digest.FromString("lost").String()),
		"unread": file(""),
	} {
		changes = append(changes, sandbox.Change{Path: p, Before: st, After: none})
	}
	for _, name := range []string{"objects", "refs"} {
		if err := os.Mkdir(filepath.Join(ws.Name(), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before, beyond := everything(t, ws), everything(t, outside)
	for _, force := range []bool{false, true} {
		for _, d := range undo(t, &Undo{Dir: ws, Changes: changes, Open: keeper.open, Force: force}) {
			if d.Refused == "" {
				t.Errorf("force %v: not refused: %+v", force, d)
			}
		}
	}
	if got := everything(t, ws); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the workspace has %v, want %v", got, before)
	}
	if got := everything(t, outside); fmt.Sprint(got) != fmt.Sprint(beyond) {
		t.Errorf("outside is %v, want %v", got, beyond)
	}
}

// Nothing makes way for an entry that cannot be returned, nor what the run made below it.
func TestUndoKeepsWhatItCannotReplace(t *testing.T) {
	for name, spoil := range map[string]func(k *memoryKeeper, d string){
		"missing":  func(k *memoryKeeper, d string) { delete(k.contents, d) },
		"tampered": func(k *memoryKeeper, d string) { k.contents[d] = []byte("something else") },
	} {
		ws, upper, keeper := tree(t, "t", "u"), tree(t, "t/x/y", "u/x"), &memoryKeeper{}
		for file, text := range map[string]string{"t": "of t", "u": "of u"} {
			if err := os.WriteFile(filepath.Join(ws.Name(), file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l := layerOf(upper, ws)
		l.Workspace.Keeper = keeper
		Apply(t.Context(), l)
		want := everything(t, ws)
		spoil(keeper, digest.FromString("of t").String())
		u := &Undo{Dir: ws, Changes: l.Kept.Changes, Open: keeper.open, DryRun: true}
		planned := undo(t, u)
		u.DryRun = false
		if done := undo(t, u); fmt.Sprint(done) != fmt.Sprint(planned) {
			t.Errorf("%s: done is %+v, planned was %+v", name, done, planned)
		}
		refused := map[string]string{}
		for _, d := range planned {
			if d.Refused != "" {
				refused[d.Path] = d.Refused
			}
		}
		reasons := map[string]string{"t": errGone.Error(), "t/x": errAbove.Error(), "t/x/y": errAbove.Error()}
		if fmt.Sprint(refused) != fmt.Sprint(reasons) {
			t.Errorf("%s: refused %v, want %v", name, refused, reasons)
		}
		delete(want, "u/x")
		want["u"] = "file -rw-r--r-- of u"
		if got := everything(t, ws); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the workspace has %v, want %v", name, got, want)
		}
	}
	// A name that would make a repository is refused before what is there makes way.
	ws, keeper := tree(t, "objects/x", "refs/x"), &memoryKeeper{}
	if err := os.Mkdir(filepath.Join(ws.Name(), "HEAD"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := keeper.Keep(strings.NewReader("before"))
	if err != nil {
		t.Fatal(err)
	}
	before := everything(t, ws)
	undo(t, &Undo{Dir: ws, Open: keeper.open, Force: true, Changes: []sandbox.Change{
		{Path: "HEAD", Before: sandbox.State{Kind: sandbox.KindFile, Mode: 0o644, Digest: d}}}})
	if got := everything(t, ws); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("the workspace has %v, want %v", got, before)
	}
}

// A root server gives no directory away that another process put in the place of a returned one.
func TestUndoChangesNoForeignDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("missing capability: root, who can give directories away")
	}
	ws := tree(t, "full/x", "theirs/x", "same/x")
	for name, mode := range map[string]os.FileMode{"empty": 0o755, "fresh": 0o700} {
		if err := os.Mkdir(filepath.Join(ws.Name(), name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(ws.Name(), "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(ws.Name(), "same"), someone, someone); err != nil {
		t.Fatal(err)
	}
	top, err := openDir(ws)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	inodeOf := func(name string) inode {
		e, err := top.stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return e.inode()
	}
	r := &undoer{Undo: &Undo{}, a: &applier{root: true}}
	state := sandbox.State{Kind: sandbox.KindDir, Mode: 0o1777, UID: someone, GID: someone}
	for _, tt := range []struct {
		name string
		at   inode
		ok   bool
	}{
		{"full", inode{}, false}, {"empty", inode{}, false}, {"fresh", inode{}, true},
		{"theirs", inodeOf("theirs"), false}, {"same", inodeOf("full"), false}, {"same", inodeOf("same"), true},
	} {
		d, err := top.enter(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		was := d.entry
		err = r.likeBefore(d, state, tt.at)
		if failed := d.refresh(); failed != nil {
			t.Fatal(failed)
		}
		if (err == nil) != tt.ok || !tt.ok && (d.Mode != was.Mode || d.Uid != was.Uid || d.Gid != was.Gid) {
			t.Errorf("%s: %v, owner %d, mode %o", tt.name, err, d.Uid, d.Mode)
		}
		if tt.ok && (d.Uid != someone || d.Gid != someone || d.Mode&0o7777 != 0o1777) {
			t.Errorf("%s has owner %d, mode %o", tt.name, d.Uid, d.Mode)
		}
		d.Close()
	}
	// The directory that the first look did not find is not changed either.
	if err := r.putDir(top, "theirs", state, inode{}); !errors.Is(err, os.ErrExist) {
		t.Errorf("putDir = %v", err)
	}
}

// A command cannot prevent its undo with changes that are refused.
func TestRefusedChangesPreventNoUndo(t *testing.T) {
	ws := tree(t, "a", "large/.git/x", "way/.git/x", "repo/objects/x", "repo/refs/x", "hidden/.git/x", "hidden/gone")
	for _, name := range []string{"large/x", "way/x", "repo/x", "hidden/.git/large"} {
		err := os.WriteFile(filepath.Join(ws.Name(), name), nil, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		err = os.Truncate(filepath.Join(ws.Name(), name), maxKeptBytes+1)
		if err != nil {
			t.Fatal(err)
		}
	}
	upper := tree(t, "a", "way", "repo/HEAD", "repo/x", "hidden/new")
	whiteout(t, upper, "large")
	err := unix.Setxattr(filepath.Join(upper.Name(), "hidden"), "user.overlay.opaque", []byte("y"), 0)
	if err != nil {
		t.Skipf("missing capability: user attributes: %v", err)
	}
	if err := os.WriteFile(filepath.Join(upper.Name(), "a"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	names := func() []string { return slices.Sorted(maps.Keys(paths(t, ws))) }
	before := names()
	l, keeper := layerOf(upper, ws), &memoryKeeper{}
	l.Workspace.Keeper = keeper
	writes := Apply(t.Context(), l)
	if l.Kept == nil || l.Kept.Problem != "" {
		t.Fatalf("kept %+v", l.Kept)
	}
	for p, want := range map[string]string{"a": "", "hidden/gone": "", "hidden/.git": errName.Error(),
		"large": errHolds.Error(), "way": errHolds.Error(), "repo/x": errGit.Error()} {
		if got := refusedAs(writes, p); got != want {
			t.Errorf("%s is refused as %q, want %q", p, got, want)
		}
	}
	undo(t, &Undo{Dir: ws, Changes: l.Kept.Changes, Open: keeper.open})
	if after := names(); !slices.Equal(after, before) {
		t.Errorf("%v are left of %v", after, before)
	}
}

// Files that a command makes need no room, and no more are listed than are applied.
func TestMadeFilesPreventNoUndo(t *testing.T) {
	ws, upper := tree(t, "zz"), tree(t)
	for i := range maxKeptEntries + 1 {
		err := os.Mkdir(filepath.Join(upper.Name(), fmt.Sprint("z", i)), 0o755)
		if err != nil {
			t.Fatal(err)
		}
	}
	l := layerOf(upper, ws)
	l.Workspace.Keeper = &memoryKeeper{}
	a, top := applierOf(t, l)
	k := a.keep(a.layer, top)
	if k.problem != "" || len(k.changes) != maxWrites {
		t.Errorf("%d changes are kept, %q", len(k.changes), k.problem)
	}
	k = &keeping{}
	for range maxKeptEntries + 1 {
		k.add("p", sandbox.State{Kind: sandbox.KindNone})
	}
	for range maxKeptEntries {
		k.add("p", sandbox.State{Kind: sandbox.KindDir})
	}
	if k.problem != "" {
		t.Error(k.problem)
	}
	if k.add("p", sandbox.State{Kind: sandbox.KindDir}); k.problem == "" {
		t.Error("more entries were kept than the limit")
	}
}

func applierOf(t *testing.T, l *Layer) (a *applier, top *dir) {
	t.Helper()
	from, err := openDir(l.Upper)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	top, err = openDir(l.Workspace.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { top.Close() })
	return newApplier(t.Context(), l, from), top
}

// No deletion is made of which nothing was kept, even if it is possible when it is applied.
func TestNothingUnkeptIsDeleted(t *testing.T) {
	ws, upper := tree(t, "a", "d/.git/x"), tree(t)
	whiteout(t, upper, "d")
	l := layerOf(upper, ws)
	l.Workspace.Keeper = &memoryKeeper{}
	a, top := applierOf(t, l)
	a.keep(a.layer, top)
	if err := os.RemoveAll(filepath.Join(ws.Name(), "d/.git")); err != nil {
		t.Fatal(err)
	}
	a.Began = time.Now().Add(time.Hour) // the directory that lost an entry is no foreign change
	if a.remove(top, "d", "d", nil) {
		t.Error("d was deleted")
	}
}

// A run whose changes are too many or cannot be kept is applied, and says that it cannot be undone.
func TestKeepFails(t *testing.T) {
	for name, broken := range map[string]error{"no room": errors.New("full"), "large": nil} {
		ws, upper := tree(t, "a", "large"), tree(t, "a")
		if err := os.WriteFile(filepath.Join(upper.Name(), "a"), []byte("new"), 0o644); err != nil {
			t.Fatal(err)
		}
		if broken == nil {
			if err := os.Truncate(filepath.Join(ws.Name(), "large"), maxKeptBytes+1); err != nil {
				t.Fatal(err)
			}
			whiteout(t, upper, "large")
		}
		l := layerOf(upper, ws)
		keeper := &memoryKeeper{broken: broken}
		l.Workspace.Keeper = keeper
		Apply(t.Context(), l)
		b, err := os.ReadFile(filepath.Join(ws.Name(), "a"))
		if l.Kept == nil || l.Kept.Problem == "" || err != nil || string(b) != "new" || len(keeper.contents) != 0 {
			t.Errorf("%s: kept %+v, a holds %q, %v, %d contents", name, l.Kept, b, err, len(keeper.contents))
		}
	}
	// A run that did not exit, or that changed nothing, keeps nothing.
	l := layerOf(tree(t, "a"), tree(t, "a"))
	l.Outcome, l.Workspace.Keeper = sandbox.TimedOut, &memoryKeeper{}
	if Apply(t.Context(), l); l.Kept != nil {
		t.Errorf("kept %+v", l.Kept)
	}
	// Nor is anything listed of a run all of whose changes were refused.
	l = layerOf(tree(t, "a"), tree(t, "a"))
	l.Workspace.Keeper, l.MaxBytes = &memoryKeeper{}, 0
	if Apply(t.Context(), l); l.Kept == nil || len(l.Kept.Changes) != 0 {
		t.Errorf("kept %+v", l.Kept)
	}
}

// A content that is read to its end is judged by its digest, even if the time ends with the last byte.
func TestCheckAtTheEndOfTheTime(t *testing.T) {
	for text, want := range map[string]error{"kept": nil, "another": errGone} {
		keeper := &memoryKeeper{contents: map[string][]byte{digest.FromString("kept").String(): []byte(text)}}
		// The context is asked before each of the two reads.
		r := &undoer{Undo: &Undo{Open: keeper.open}, ctx: &countdown{Context: t.Context(), left: 2}}
		if err := r.check(digest.FromString("kept").String()); !errors.Is(err, want) {
			t.Errorf("%s: check = %v, want %v", text, err, want)
		}
	}
}
