package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/cmd/skillsd/report"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/detect"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// ownPath is a directory or file of the server that neither models nor scripts may see.
type ownPath struct {
	what, path string
	real       string // path with its links resolved
}

// ownPaths are the directories and files of the server that neither models nor scripts may see. Open uses
// the first two for the stores.
type ownPaths struct {
	state, records ownPath
	others         []ownPath // private keys and other secrets
}

func (o *ownPaths) all() []ownPath {
	return append([]ownPath{o.state, o.records}, o.others...)
}

// paths returns all paths as given.
func (o *ownPaths) paths() []string {
	paths := []string{o.state.path, o.records.path}
	for _, own := range o.others {
		paths = append(paths, own.path)
	}
	return paths
}

// isInside reports whether path is dir or below it. Neither has links.
func isInside(path, dir string) bool {
	_, below := fsys.Below(dir, path)
	return below
}

// findPaths finds the workspace and the directories of state and records, which must be outside of the
// skills roots and of what scripts see.
func (p *Plan) findPaths() (err error) {
	o := p.options
	p.scan = o.Roots.ScanOptions()
	if err := o.Choice.Apply(p.scan, o.Process); err != nil {
		return err
	}
	p.Workspace, p.WorkspacePath, err = o.openWorkspace()
	if err != nil {
		return err
	}
	p.Workspace.Owner, err = o.WorkspaceOwner()
	if err != nil {
		return err
	}
	own, err := o.privatePaths()
	if err != nil {
		return err
	}
	configFile, err := o.Process.ConfigPath()
	if err != nil {
		return err
	}
	p.own = own
	real := realRoots(p.roots)
	// Roots that are dropped need no check below, so it comes first.
	p.dropAwaited(real)
	searched, err := o.searched()
	if err != nil {
		return err
	}
	err = checkPaths(p.roots, real, configFile, p.own.all(), p.WorkspacePath, p.Workspace.Mode)
	if err != nil {
		return err
	}
	p.Workspace.ReadOnly, err = servedBelow(p.WorkspacePath, p.Workspace, p.roots,
		slices.Concat(o.Roots.Allowed, o.Process.ProgramDirs(p.WorkspacePath)))
	if err != nil {
		return exit.Usagef("grant the project directory read-only, or serve skills from elsewhere",
			"--workspace %s: %w", p.WorkspacePath, err)
	}
	writable := p.WorkspacePath
	if p.Workspace.Mode == sandbox.WorkspaceRO {
		writable = "" // read-only for scripts
	}
	if err := checkPaths(p.roots, real, "", searched, writable, p.Workspace.Mode); err != nil {
		return err
	}
	if !o.FromClient {
		return nil
	}
	return p.takeFromClient(configFile, searched)
}

// takeFromClient makes the workspaces that clients can name. configFile and searched must stay out of their
// reach.
func (p *Plan) takeFromClient(configFile string, searched []ownPath) error {
	o := p.options
	if o.HTTP.Enabled() {
		return exit.Usagef("give --workspace DIR instead",
			"--workspace-from-client has no effect over HTTP, because clients may be on other machines")
	}
	_, mode := config.SplitWorkspace(o.Workspace)
	own := p.own.paths()
	for _, dir := range searched {
		own = append(own, dir.path)
	}
	p.client = &clientWorkspaces{
		roots: p.roots, allowed: o.Roots.Allowed, config: configFile, own: own, mode: mode,
		programs: o.programs(), programDirs: o.Process.ProgramDirs,
		owner: p.Workspace.Owner,
		known: map[string]string{},
	}
	p.fromClient = p.client.open
	return nil
}

// privatePaths returns the directories and files of the server that scripts must not reach. The
// directories of state and records are checked.
func (o *Options) privatePaths() (own ownPaths, err error) {
	state, err := o.Process.StateDir()
	if err != nil {
		return own, err
	}
	records, err := o.Process.ArtifactDir()
	if err != nil {
		return own, err
	}
	if err := o.Process.CheckDirs(); err != nil {
		return own, err
	}
	secrets := o.Process.Cfg.Keys.Secrets
	files := []ownPath{{what: "--auth-token-file", path: o.HTTP.TokenFile},
		{what: "--tls-key", path: o.HTTP.Key}, {what: "--sign-key", path: o.Records.SignKey},
		{what: "--cluster-key", path: o.Cluster.Key}, {what: "--cluster-creds", path: o.Cluster.Creds},
		{what: "--cluster-cert-key", path: o.Cluster.CertKey}}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		files = append(files, ownPath{what: "the file of the secret " + name, path: secrets[name].File})
	}
	if own.state, err = resolve("--state", state); err != nil {
		return own, err
	}
	if own.records, err = resolve("--artifact-root", records); err != nil {
		return own, err
	}
	for _, file := range files {
		if file.path == "" {
			continue
		}
		file, err = resolve(file.what, file.path)
		if err != nil {
			return own, err
		}
		own.others = append(own.others, file)
	}
	return own, nil
}

func resolve(what, path string) (ownPath, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return ownPath{}, err
	}
	return ownPath{what, path, config.Real(path)}, nil
}

// realRoots returns the directories of roots with their links resolved, by the directory as given. Each is
// compared with many paths, and to resolve one that does not exist takes a system call for each of its names.
func realRoots(roots []skills.Root) map[string]string {
	real := make(map[string]string, len(roots))
	for i := range roots {
		if dir := roots[i].Dir; real[dir] == "" && roots[i].FS == nil {
			real[dir] = config.Real(dir)
		}
	}
	return real
}

// dropAwaited stops waiting for a missing skills directory that a script could create, or that would contain
// the server's own files. Changes to a staged workspace never create a conventional directory.
func (p *Plan) dropAwaited(real map[string]string) {
	o := p.options
	dir, mode := p.WorkspacePath, p.Workspace.Mode
	if o.FromClient && dir == "" {
		_, mode = config.SplitWorkspace(o.Workspace)
	}
	p.roots = slices.DeleteFunc(p.roots, func(root skills.Root) bool {
		if !root.Awaited {
			return false
		}
		missing := real[root.Dir]
		holds := func(own ownPath) bool { return isInside(own.real, missing) }
		installed := isInside(missing, p.own.state.real)
		writable := mode == sandbox.WorkspaceRW && !installed &&
			(o.FromClient || dir != "" && isInside(missing, dir))
		// A script could let the link lead to skills of its own before the directory exists.
		linked := dir != "" && mode != sandbox.WorkspaceRO && linkBelow(dir, root.Dir)
		return writable || linked || slices.ContainsFunc(p.own.all(), holds)
	})
}

// present returns the number of roots that exist, or should.
func (p *Plan) present() (n int) {
	for _, root := range p.roots {
		if !root.Awaited {
			n++
		}
	}
	return n
}

// searched returns the directories in which scripts on the host search for programs: a user with write access
// there controls what these scripts start.
func (o *Options) searched() (dirs []ownPath, err error) {
	allowed, err := o.Allowlist()
	if err != nil {
		return nil, nil // the policy reports it
	}
	for _, entry := range allowed.Entries() {
		for _, dir := range entry.SearchPath {
			what := "the path of " + ScriptName(entry)
			if info, err := os.Stat(dir); err == nil && info.Mode()&0o002 != 0 {
				return nil, exit.Usagef("run: chmod o-w "+report.ShellLine(dir),
					"everyone can write to %s %s, where its script searches for programs", what, dir)
			}
			dirs = append(dirs, ownPath{what, dir, config.Real(dir)})
		}
	}
	return dirs, nil
}

// programs returns the paths of programs that the server may start, and the directories in which it searches
// for them.
func (o *Options) programs() (paths []string) {
	text, _ := o.Process.Env("PATH")
	var names []string
	for _, in := range script.Interpreters() {
		names = append(names, string(in.Runtime))
		if named := o.Process.Cfg.Keys.Interpreters[config.InterpreterKey(in.Runtime)]; named != "" {
			paths = append(paths, named)
		}
	}
	for _, dir := range filepath.SplitList(text) {
		paths = append(paths, dir)
		for _, name := range append(names, detect.Names()...) {
			program := filepath.Join(dir, name)
			if filepath.IsAbs(dir) && fsys.Exists(program) {
				paths = append(paths, program)
			}
		}
	}
	return paths
}

// openWorkspace opens the granted workspace. The caller closes the handle.
func (o *Options) openWorkspace() (ws sandbox.Workspace, path string, err error) {
	if o.Workspace == "" {
		return ws, "", nil
	}
	dir, mode := config.SplitWorkspace(o.Workspace)
	if dir == "" {
		if !o.FromClient {
			return ws, "", exit.Usagef("give DIR"+o.Workspace+", or --workspace-from-client as well",
				"--workspace: %s is a mode without a directory", o.Workspace)
		}
		return ws, "", nil
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return ws, "", exit.Flag("workspace", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// A misspelt mode reads as a part of the path; the message must not be about a missing directory.
		if at := strings.LastIndexByte(dir, ':'); at > 0 {
			if config.IsDir(dir[:at]) {
				return ws, "", exit.Flag("workspace",
					fmt.Errorf("%q is not a mode; the modes are ro, staged and rw", dir[at+1:]))
			}
		}
		return ws, "", exit.Usagef("make the directory, or name another",
			"--workspace: there is no directory %s", dir)
	}
	if err != nil {
		hint := cmp.Or(exit.SystemHint(err), "name another directory")
		return ws, "", exit.Usagef(hint, "--workspace: %s: %w", dir, err)
	}
	// Scripts get the handle, so a directory that is moved later stays the one that was checked.
	handle, err := os.OpenFile(real, os.O_RDONLY|fsys.NonBlock, 0)
	if err != nil {
		return ws, "", exit.Flag("workspace", err)
	}
	if info, err := handle.Stat(); err != nil || !info.IsDir() {
		handle.Close()
		return ws, "", exit.Flag("workspace", fmt.Errorf("%s is not a directory", real))
	}
	return sandbox.Workspace{Mode: mode, Dir: handle, Protected: o.Roots.Within(o.Process, real)}, real, nil
}

// Shows reports whether scripts may see a directory, whose path has no links: no file of the server is in it,
// and it is in no directory of the server.
func (p *Plan) Shows(dir string) bool {
	return !slices.ContainsFunc(p.own.all(), func(own ownPath) bool {
		return isInside(own.real, dir) || isInside(dir, own.real)
	})
}

// checkPaths rejects a layout in which a model or a script could reach the server's own files, or a script
// could write the configuration of the next server or the skills of others. configFile is the path of the
// configuration file, which may not exist; the path of the workspace has no links. real has the directories
// of the roots without links.
func checkPaths(
	roots []skills.Root, real map[string]string, configFile string, own []ownPath, workspace string,
	mode sandbox.WorkspaceMode,
) error {
	for _, root := range roots {
		if root.FS != nil {
			continue
		}
		for _, own := range own {
			if isInside(own.real, real[root.Dir]) {
				return exit.Usagef("move it outside of the directories of skills",
					"%s %s lies inside the directory of skills %s", own.what, own.path, root.Dir)
			}
		}
	}
	if workspace == "" {
		return nil
	}
	for _, own := range own {
		switch {
		case isInside(own.real, workspace):
			return exit.Usagef("name a smaller directory, that of one project, or move it out of this one",
				"%s %s lies inside the project directory of --workspace, %s", own.what, own.path, workspace)
		case isInside(workspace, own.real):
			return exit.Usagef("move state and session logs outside of the project directory",
				"the project directory %s lies inside %s %s", workspace, own.what, own.path)
		}
	}
	// Only writing matters here: scripts may read the directory of the configuration.
	if mode != sandbox.WorkspaceRO && configFile != "" && config.Inside(configFile, workspace) {
		return exit.Usagef("grant the project directory read-only, or move the configuration",
			"the configuration %s lies inside the writable project directory %s",
			configFile, workspace)
	}
	return nil
}

// A servedError is the reason why scripts could change the skills of a root through a writable workspace.
type servedError struct {
	why  error
	root string // private; the texts of why are shown to clients
}

func (e *servedError) Error() string {
	return "the directory of skills " + e.root + ": " + e.why.Error()
}
func (e *servedError) Unwrap() error { return e.why }

// servedBelow returns the directories below a workspace at dir that scripts may only read although they can
// write the rest: skills roots, and others, which are the targets of links in roots and the directories of
// programs that the server starts.
//
// Errors: *servedError if a sandbox cannot prevent scripts from changing served skills.
func servedBelow(dir string, ws sandbox.Workspace, roots []skills.Root, others []string) ([]string, error) {
	if dir == "" || ws.Mode == sandbox.WorkspaceRO {
		return nil, nil
	}
	info, err := ws.Dir.Stat()
	if err != nil {
		return nil, err
	}
	var below []string
	for i := range roots {
		rel, isBelow, err := rootBelow(dir, info, &roots[i])
		if err != nil {
			return nil, &servedError{err, roots[i].Dir}
		}
		if isBelow {
			below = append(below, filepath.ToSlash(rel))
		}
	}
	for _, other := range others {
		rel, isBelow := fsys.Below(dir, config.Resolved(other))
		if isBelow && rel != "." && config.IsDir(other) {
			below = append(below, filepath.ToSlash(rel))
		}
	}
	slices.Sort(below)
	return slices.Compact(below), nil
}

// rootBelow returns the path of a skills root in the workspace at dir, whose info is given, and reports
// whether it is there.
//
// Errors: the reason why a sandbox cannot keep scripts from changing its skills.
func rootBelow(dir string, info fs.FileInfo, root *skills.Root) (rel string, isBelow bool, err error) {
	if liesIn(dir, root.Dir) {
		return "", false, errInSkills
	}
	if root.Awaited && !config.IsDir(root.Dir) {
		return "", false, nil // scripts cannot create it, see dropAwaited
	}
	// Each scan resolves the links again.
	if linkBelow(dir, root.Dir) {
		return "", false, errLinked
	}
	if !holds(dir, info, root.Dir) {
		return "", false, nil
	}
	rel, isBelow = fsys.Below(dir, config.Resolved(root.Dir))
	switch {
	case !isBelow: // the workspace contains it under another name
		return "", false, errHoldsSkills
	case root.FS != nil:
		return "", false, errArchive
	case !config.IsDir(root.Dir):
		return "", false, errNoSkills
	}
	return rel, true, nil
}

// maxLinks is the maximum of links that the kernel resolves in one path.
const maxLinks = 40

// linkBelow reports whether the resolution of path goes through a link below dir. The path of dir itself has
// no links.
func linkBelow(dir, path string) bool {
	at := filepath.VolumeName(path) + string(filepath.Separator)
	names := strings.Split(filepath.ToSlash(path[len(filepath.VolumeName(path)):]), "/")
	// filepath.EvalSymlinks returns only where the path leads, not which links it goes through.
	for links := 0; len(names) > 0 && links < maxLinks; {
		at, names = filepath.Join(at, names[0]), names[1:]
		target, err := os.Readlink(at)
		if err != nil {
			continue
		}
		if _, isBelow := fsys.Below(dir, at); isBelow {
			return true
		}
		at = filepath.Dir(at)
		if filepath.IsAbs(target) {
			at = filepath.VolumeName(target) + string(filepath.Separator)
		}
		names = append(strings.Split(filepath.ToSlash(target), "/"), names...)
		links++
	}
	return false
}

// maxClientDirs is the maximum of directories that the client of one process may name.
const maxClientDirs = 256

// Reasons why a directory that a client names is not mounted. The texts are shown to the client.
var (
	errNotAbsolute = errors.New("its path is not absolute")
	errNoDirectory = errors.New("it is not a directory that the server can open")
	errMoved       = errors.New("its path has another target than when it was first named")
	errOwnState    = errors.New("it overlaps the server's own directories and files")
	errHoldsConfig = errors.New("scripts could write the configuration of the server")
	errPrograms    = errors.New("scripts could write programs that the server starts")
	errHoldsSkills = errors.New("scripts could write skills that are served from it")
	errLinked      = errors.New("a link in it leads to skills that are served, and scripts could " +
		"replace the link")
	errNoSkills = errors.New("skills are served from a directory in it that does not exist, and scripts " +
		"could make it")
	errArchive  = errors.New("skills are served from a file in it, and scripts could replace the file")
	errInSkills = errors.New("it lies inside a directory of skills")
	errManyDirs = errors.New("the client has named too many directories")
)

// clientWorkspaces opens directories that the client names, if the operator allows that.
type clientWorkspaces struct {
	roots    []skills.Root
	allowed  []string // targets that links in the roots may have
	own      []string // state and records
	programs []string // that the server may start, and the directories it searches for them
	// programDirs returns the directories of a workspace that scripts may only read.
	programDirs func(workspace string) []string
	config      string // path of the configuration, which may not exist; empty without one
	mode        sandbox.WorkspaceMode
	owner       sandbox.Owner // used whatever directory the client names

	mu    sync.Mutex
	known map[string]string // resolved path of each named path at its first use
}

// continues copies from was the resolved paths of earlier directories, and uses the same mode.
func (c *clientWorkspaces) continues(was *clientWorkspaces) {
	was.mu.Lock()
	defer was.mu.Unlock()
	c.known, c.mode, c.owner, c.roots = maps.Clone(was.known), was.mode, was.owner, was.roots
}

// open opens the directory under the rules for --workspace, and one more: it must not be inside a skills
// root. The check and the open must see the same directory: a path whose links have changed is refused,
// because scripts with write access to one workspace could redirect the path to another.
func (c *clientWorkspaces) open(named session.ClientDir) (ws sandbox.Workspace, err error) {
	ws.Owner = c.owner
	ws.Mode, ws.Protected = c.mode, []string{"skills", ".agents/skills", ".claude/skills",
		".github/skills"}
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
	// The checks use the path and scripts get the handle, so both must still name the same directory.
	if again, err := os.Lstat(real); err != nil || !os.SameFile(info, again) ||
		config.Resolved(real) != real {
		return ws, errMoved
	}
	ws.Dir, err = root.Open(".")
	if err != nil {
		return ws, errNoDirectory
	}
	ws.ReadOnly, err = servedBelow(real, ws, c.roots,
		slices.Concat(c.allowed, c.programDirs(real)))
	if err != nil {
		return ws, errors.Join(cmp.Or(errors.Unwrap(err), errNoDirectory), ws.Dir.Close())
	}
	return ws, nil
}

// canonical resolves the links of a path, which must have the same target as at its first use.
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

// check compares a directory with the paths of the server.
func (c *clientWorkspaces) check(dir string, info fs.FileInfo, mode sandbox.WorkspaceMode) error {
	for _, own := range c.own {
		if holds(dir, info, own) || liesIn(dir, own) {
			return errOwnState
		}
	}
	// Through a read-only workspace, scripts cannot change the configuration or the skills.
	if mode != sandbox.WorkspaceRO && c.config != "" && holds(dir, info, c.config) {
		return errHoldsConfig
	}
	writable := detect.Writable{Dir: dir, ReadOnly: c.programDirs(dir)}
	if mode != sandbox.WorkspaceRO && slices.ContainsFunc(c.programs, writable.LeadsThrough) {
		return errPrograms
	}
	for _, root := range c.roots {
		if liesIn(dir, root.Dir) {
			return errInSkills
		}
	}
	return nil
}

// liesIn reports whether dir is top or below it.
func liesIn(dir, top string) bool {
	info, err := os.Stat(top)
	return config.Inside(dir, top) || err == nil && holds(top, info, dir)
}

// holds reports whether dir, described by info, is path or contains it, even under another name: on some
// systems names that differ in case only are the same.
func holds(dir string, info fs.FileInfo, path string) bool {
	if config.Inside(path, dir) {
		return true
	}
	for at := config.Resolved(path); ; at = filepath.Dir(at) {
		// Comparing inodes also finds bind mounts.
		if other, err := os.Stat(at); err == nil && os.SameFile(info, other) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}
