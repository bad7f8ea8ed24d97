package serve

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
)

// dirsIn makes directories below a new one.
func dirsIn(t *testing.T, names ...string) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(base, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

func TestClientWorkspaces(t *testing.T) {
	base := dirsIn(t, "work/sub", "project/.agents/skills/demo", "home/state/sessions", "records",
		"conf/skillsd", "linked", "elsewhere", "tools/.venv/bin", "more")
	for link, target := range map[string]string{"link": "work", "to-state": "home/state",
		"linked/skills": "elsewhere"} {
		if err := os.Symlink(filepath.Join(base, target), filepath.Join(base, link)); err != nil {
			t.Skipf("missing capability: symbolic links: %v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		mode     sandbox.WorkspaceMode
		readOnly bool
		want     error
		got      sandbox.WorkspaceMode
	}{
		{"work", sandbox.WorkspaceRO, false, nil, sandbox.WorkspaceRO},
		{"work", sandbox.WorkspaceRW, false, nil, sandbox.WorkspaceRW},
		{"work", sandbox.WorkspaceStaged, true, nil, sandbox.WorkspaceRO},
		{"work/../work/sub", sandbox.WorkspaceRW, false, nil, sandbox.WorkspaceRW},
		{"link/sub", sandbox.WorkspaceRW, false, nil, sandbox.WorkspaceRW},
		{"project", sandbox.WorkspaceRO, false, nil, sandbox.WorkspaceRO},
		{"project", sandbox.WorkspaceRW, true, nil, sandbox.WorkspaceRO},
		{"project", sandbox.WorkspaceStaged, false, nil, sandbox.WorkspaceStaged},
		{"linked", sandbox.WorkspaceRO, false, nil, sandbox.WorkspaceRO},
		{"linked", sandbox.WorkspaceRW, false, errLinked, ""},
		{"project/.agents/skills", sandbox.WorkspaceRO, false, errInSkills, ""},
		{"project/.agents/skills/demo", sandbox.WorkspaceRO, false, errInSkills, ""},
		{"conf", sandbox.WorkspaceRO, false, nil, sandbox.WorkspaceRO},
		{"conf", sandbox.WorkspaceRW, false, errHoldsConfig, ""},
		{"conf", sandbox.WorkspaceRW, true, nil, sandbox.WorkspaceRO},
		{"tools", sandbox.WorkspaceRW, false, nil, sandbox.WorkspaceRW}, // scripts may only read .venv
		{"tools/.venv", sandbox.WorkspaceRW, false, nil, sandbox.WorkspaceRW},
		{"more", sandbox.WorkspaceRO, false, nil, sandbox.WorkspaceRO},
		{"more", sandbox.WorkspaceRW, false, errPrograms, ""}, // a script could make the directory
		{"home", sandbox.WorkspaceRO, false, errOwnState, ""},
		{"home/state", sandbox.WorkspaceRO, false, errOwnState, ""},
		{"home/state/sessions", sandbox.WorkspaceRO, false, errOwnState, ""},
		{"to-state", sandbox.WorkspaceRO, false, errOwnState, ""},
		{"records", sandbox.WorkspaceRO, false, errOwnState, ""},
		{".", sandbox.WorkspaceRO, false, errOwnState, ""},
		{"none", sandbox.WorkspaceRO, false, errNoDirectory, ""},
		{"file", sandbox.WorkspaceRO, false, errNoDirectory, ""},
	} {
		t.Run(tt.name+" "+string(tt.mode), func(t *testing.T) {
			c := &clientWorkspaces{config: filepath.Join(base, "conf/skillsd/config.yaml"),
				roots: []skills.Root{{Dir: filepath.Join(base, "project/.agents/skills")},
					{Dir: filepath.Join(base, "linked/skills")}},
				own:      []string{filepath.Join(base, "home/state"), filepath.Join(base, "records")},
				programs: []string{filepath.Join(base, "tools/.venv/bin"), filepath.Join(base, "more/bin")},
				programDirs: func(workspace string) []string {
					return detect.ProgramDirs(workspace, filepath.Join(base, "tools/.venv/bin"), nil)
				},
				mode: tt.mode, known: map[string]string{}}
			ws, err := c.open(session.ClientDir{Path: filepath.Join(base, tt.name), ReadOnly: tt.readOnly})
			if !errors.Is(err, tt.want) {
				t.Fatalf("open = %v, want %v", err, tt.want)
			}
			if err != nil {
				return
			}
			defer ws.Dir.Close()
			info, err := ws.Dir.Stat()
			want, wantErr := os.Stat(filepath.Join(base, tt.name))
			if err != nil || wantErr != nil || !os.SameFile(info, want) || ws.Mode != tt.got {
				t.Errorf("opened %v as %s: %v, %v", info, ws.Mode, err, wantErr)
			}
			keeps := map[string]string{"project": ".agents/skills", "tools": ".venv", "tools/.venv": "bin"}[tt.name]
			if ws.Mode == sandbox.WorkspaceRO {
				keeps = ""
			}
			if strings.Join(ws.ReadOnly, " ") != keeps {
				t.Errorf("keeps %q read-only, want %q", ws.ReadOnly, keeps)
			}
		})
	}
}

func TestClientWorkspaceRedirected(t *testing.T) {
	base := dirsIn(t, "a/sub", "b/sub", "state")
	link := filepath.Join(base, "link")
	if err := os.Symlink(filepath.Join(base, "a"), link); err != nil {
		t.Skipf("missing capability: symbolic links: %v", err)
	}
	c := &clientWorkspaces{programDirs: func(string) []string { return nil }, own: []string{filepath.Join(base, "state")}, mode: sandbox.WorkspaceRO,
		known: map[string]string{}}
	named := session.ClientDir{Path: filepath.Join(link, "sub")}
	for range 2 {
		ws, err := c.open(named)
		if err != nil {
			t.Fatal(err)
		}
		ws.Dir.Close()
	}
	if err := errors.Join(os.Remove(link), os.Symlink(filepath.Join(base, "b"), link)); err != nil {
		t.Fatal(err)
	}
	if ws, err := c.open(named); !errors.Is(err, errMoved) {
		t.Errorf("open = %v, %v", ws, err)
	}
	if _, err := c.open(session.ClientDir{Path: "a/sub"}); !errors.Is(err, errNotAbsolute) {
		t.Errorf("a relative path: %v", err)
	}
	for i := range 2 * maxClientDirs {
		dir := filepath.Join(base, "a", strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		ws, err := c.open(session.ClientDir{Path: dir})
		if err == nil {
			ws.Dir.Close()
			continue
		}
		if !errors.Is(err, errManyDirs) || i < maxClientDirs-2 {
			t.Errorf("directory %d: %v", i, err)
		}
	}
	if len(c.known) > maxClientDirs {
		t.Errorf("%d directories are remembered", len(c.known))
	}
}

// The rules for --workspace hold in both directions.
func TestCheckPaths(t *testing.T) {
	base := dirsIn(t, "skills/demo", "state/sessions", "work", "conf")
	at := func(name string) string { return filepath.Join(base, name) }
	roots := []skills.Root{{Dir: at("skills")}}
	own := []ownPath{{"--state", at("state"), at("state")},
		{"--artifact-root", at("state/sessions"), at("state/sessions")}}
	for _, tt := range []struct {
		workspace string
		mode      sandbox.WorkspaceMode
		ok        bool
	}{
		{"work", sandbox.WorkspaceRW, true},
		{"conf", sandbox.WorkspaceRO, true},
		{"conf", sandbox.WorkspaceRW, false},
		{"conf", sandbox.WorkspaceStaged, false},
		{".", sandbox.WorkspaceRO, false},
		{"state/sessions", sandbox.WorkspaceRO, false},
		{"state/inner", sandbox.WorkspaceRO, false},
		{"skills", sandbox.WorkspaceRO, true},
		{"skills/demo", sandbox.WorkspaceRO, true},
	} {
		err := checkPaths(roots, realRoots(roots), at("conf/config.yaml"), own, at(tt.workspace), tt.mode)
		if (err == nil) != tt.ok {
			t.Errorf("checkPaths(%s, %s) = %v", tt.workspace, tt.mode, err)
		}
	}
	if err := os.Symlink(at("state"), at("link")); err != nil {
		t.Skipf("missing capability: symbolic links: %v", err)
	}
	roots[0].Dir = at("link")
	if err := checkPaths(roots, realRoots(roots), "", own, "", sandbox.WorkspaceRO); err == nil {
		t.Error("a link to the state is served")
	}
}

// TestDropAwaited stops waiting for directories that a script could make, also if a link leads there.
func TestDropAwaited(t *testing.T) {
	base := dirsIn(t, "ws", "elsewhere", "state")
	at := func(name string) string { return filepath.Join(base, name) }
	if err := os.Symlink(at("ws"), at("link")); err != nil {
		t.Skipf("missing capability: symbolic links: %v", err)
	}
	for _, tt := range []struct {
		dir  string
		mode sandbox.WorkspaceMode
		left int
	}{
		{"elsewhere/skills", sandbox.WorkspaceRW, 1},
		{"ws/skills", sandbox.WorkspaceRW, 0},
		{"ws/skills", sandbox.WorkspaceStaged, 1},
		{"link/skills", sandbox.WorkspaceRW, 0},
		{"link/skills", sandbox.WorkspaceStaged, 1},
	} {
		own := ownPaths{state: ownPath{"--state", at("state"), at("state")},
			records: ownPath{"--artifact-root", at("records"), at("records")}}
		p := &Plan{options: &Options{}, own: own, roots: []skills.Root{{Dir: at(tt.dir), Awaited: true}}, WorkspacePath: at("ws"),
			Workspace: sandbox.Workspace{Mode: tt.mode}}
		if p.dropAwaited(realRoots(p.roots)); len(p.roots) != tt.left {
			t.Errorf("%s, %s: %d roots are left, want %d", tt.dir, tt.mode, len(p.roots), tt.left)
		}
	}
}

func TestServedBelow(t *testing.T) {
	base := dirsIn(t, "ws/skills/demo/ws", "ws/a/b/skills", "ws/real/skills", "out/skills", "shared")
	at := func(name string) string { return filepath.Join(base, name) }
	for link, target := range map[string]string{"ws/to-out": at("out"), "ws/a/near": "../real", "to-ws": "ws",
		"through": "ws/to-out/skills", "loop": "loop"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Skipf("missing capability: symbolic links: %v", err)
		}
	}
	for _, tt := range []struct {
		ws, root, allowed string
		want              []string
		err               error
	}{
		{"ws", "out/skills", "", nil, nil},
		{"ws", "ws/skills", "", []string{"skills"}, nil},
		{"ws", "ws/a/b/skills", "shared", []string{"a/b/skills"}, nil},
		{"ws", "to-ws/skills", "ws/real", []string{"real", "skills"}, nil},
		{"ws", "ws/a/../skills", "ws/skills", []string{"skills"}, nil},
		{"ws", "ws/skills", "ws", []string{"skills"}, nil},
		{"ws", "ws", "", nil, errInSkills},
		{"ws", "to-ws", "", nil, errInSkills},
		{"ws", ".", "", nil, errInSkills},
		{"ws/skills/demo/ws", "ws/skills", "", nil, errInSkills},
		{"ws", "ws/none", "", nil, errNoSkills},
		{"ws", "ws/to-out/skills", "", nil, errLinked},
		{"ws", "ws/a/near/skills", "", nil, errLinked},
		{"ws", "through", "", nil, errLinked},
		{"ws", "loop", "", nil, nil},
	} {
		dir, err := os.Open(at(tt.ws))
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		for _, mode := range []sandbox.WorkspaceMode{sandbox.WorkspaceRO, sandbox.WorkspaceStaged,
			sandbox.WorkspaceRW} {
			want, wantErr := tt.want, tt.err
			if mode == sandbox.WorkspaceRO {
				want, wantErr = nil, nil
			}
			got, err := servedBelow(at(tt.ws), sandbox.Workspace{Mode: mode, Dir: dir},
				[]skills.Root{{Dir: at(tt.root)}}, []string{at(cmp.Or(tt.allowed, "shared"))})
			if !slices.Equal(got, want) || !errors.Is(err, wantErr) || err != nil && wantErr == nil {
				t.Errorf("%s in %s, %s: %q, %v; want %q, %v", tt.root, tt.ws, mode, got, err, want, wantErr)
			}
		}
	}
}

// TestShows checks that scripts see no directory with or in one of the server's own, whichever it is.
func TestShows(t *testing.T) {
	own := func(path string) ownPath { return ownPath{path, path, path} }
	p := &Plan{own: ownPaths{state: own("/home/me/state"), records: own("/srv/records"),
		others: []ownPath{own("/etc/keys/tls.pem")}}}
	for dir, want := range map[string]bool{
		"/home/me/project": true, "/srv/records2": true, "/etc/key": true,
		"/home/me": false, "/home/me/state": false, "/home/me/state/trees": false,
		"/srv": false, "/srv/records": false, "/srv/records/ses": false, "/etc/keys": false, "/": false,
	} {
		if got := p.Shows(dir); got != want {
			t.Errorf("Shows(%s) = %v", dir, got)
		}
	}
	if got, want := p.own.paths(), []string{"/home/me/state", "/srv/records", "/etc/keys/tls.pem"}; !slices.Equal(got, want) {
		t.Errorf("paths = %q, want %q", got, want)
	}
}
