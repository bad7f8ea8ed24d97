package serve

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/skillsd/skillsd/cmd/skillsd/config"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
)

// maxClientDirs is how many directories the client of one process may name.
const maxClientDirs = 256

// Why a directory that a client names is not mounted. The texts are shown to it.
var (
	errNotAbsolute = errors.New("its path is not absolute")
	errNoDirectory = errors.New("it is no directory that the server can open")
	errMoved       = errors.New("its path leads elsewhere than when it was first named")
	errOwnState    = errors.New("it holds, or lies in, what the server keeps for itself")
	errHoldsConfig = errors.New("scripts could write the configuration of the server")
	errHoldsSkills = errors.New("scripts could write the skills that are served from there")
	errInSkills    = errors.New("it lies inside a skills root")
	errManyDirs    = errors.New("the client has named too many directories")
)

// clientWorkspaces opens directories that the client names, when the operator lets it.
type clientWorkspaces struct {
	roots  []skills.Root
	own    []string // state and records
	config string   // where a configuration is or would be looked for; empty: nowhere
	mode   sandbox.WorkspaceMode

	mu    sync.Mutex
	known map[string]string // canonical path when it was first named, by path as named
}

// open opens the directory after the rules that hold for --workspace, and one more: it may not lie
// inside a skills root at all. What is checked is what is opened: a path whose links were changed
// meanwhile is refused, as scripts that may write one workspace could lead the way to another.
func (c *clientWorkspaces) open(named session.ClientDir) (ws sandbox.Workspace, err error) {
	ws.Mode, ws.Protected = c.mode, []string{"skills", ".agents/skills", ".claude/skills"}
	if named.ReadOnly {
		ws.Mode = sandbox.WorkspaceRO
	}
	if !filepath.IsAbs(named.Path) {
		return ws, errNotAbsolute
	}
	real, err := c.canonical(named.Path)
	if err != nil {
		return ws, err
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return ws, errNoDirectory
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return ws, errNoDirectory
	}
	if err := c.check(real, info, ws.Mode); err != nil {
		return ws, err
	}
	// The checks use the path and scripts get the handle, so both must still lead to the same directory.
	if again, err := os.Lstat(real); err != nil || !os.SameFile(info, again) ||
		config.Resolved(real) != real {
		return ws, errMoved
	}
	if ws.Dir, err = root.Open("."); err != nil {
		return ws, errNoDirectory
	}
	return ws, nil
}

// canonical resolves the links of a path, which must lead where they led the first time.
func (c *clientWorkspaces) canonical(named string) (string, error) {
	real, err := filepath.EvalSymlinks(named)
	if err != nil {
		return "", errNoDirectory
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first, ok := c.known[named]
	switch {
	case ok && first != real:
		return "", errMoved
	case !ok && len(c.known) >= maxClientDirs:
		return "", errManyDirs
	}
	c.known[named] = real
	return real, nil
}

// check holds a directory against the places of the server.
func (c *clientWorkspaces) check(dir string, info fs.FileInfo, mode sandbox.WorkspaceMode) error {
	for _, own := range c.own {
		if holds(dir, info, own) || liesIn(dir, own) {
			return errOwnState
		}
	}
	// Scripts cannot change the configuration or the skills through a read-only workspace.
	if mode != sandbox.WorkspaceRO && c.config != "" && holds(dir, info, c.config) {
		return errHoldsConfig
	}
	for _, root := range c.roots {
		switch {
		case liesIn(dir, root.Dir):
			return errInSkills
		case mode != sandbox.WorkspaceRO && holds(dir, info, root.Dir):
			return errHoldsSkills
		}
	}
	return nil
}

// liesIn reports whether dir is place or lies below it.
func liesIn(dir, place string) bool {
	info, err := os.Stat(place)
	return config.Inside(dir, place) || err == nil && holds(place, info, dir)
}

// holds reports whether dir, which info describes, is place or holds it, also under another name: on
// some systems names differ in case only and are the same.
func holds(dir string, info fs.FileInfo, place string) bool {
	if config.Inside(place, dir) {
		return true
	}
	for at := config.Resolved(place); ; at = filepath.Dir(at) {
		if other, err := os.Stat(at); err == nil && os.SameFile(info, other) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}
