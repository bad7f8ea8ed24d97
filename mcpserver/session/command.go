package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// systemPath is the part of PATH that every script has.
const systemPath = "/usr/local/bin:/usr/bin:/bin"

// command is the command that runs a script, with the form in which records and answers show it.
type command struct {
	sandbox.Cmd

	// Answers show argv and cwd, without secrets. Paths are sandbox paths, on the host too: only the operator
	// may see the paths of this machine.
	argv  []string // starts with the runtime's name instead of the path of its program
	cwd   string
	added []string // the variables in Env that not every script has
	ran   []string // argv with the real paths, for the record; nil if no command was to start

	secrets  *redact.Redactor // of every declared secret, those that the script is given included
	given    bool             // the script is given a value that must not be shown
	proxy    *egress.Proxy    // nil without a network
	uncached *cacheKey        // of compiled modules that could be cached and are not; nil if there are none
	cached   digest.Digest    // of the tree with the cache that the run got, or ""
	home     string           // home directory of a script on the host; "" in the sandbox
	hostCwd  string           // directory in which a script on the host starts, for the record
	named    bool             // the client named the workspace, which is open for this run
	packages *packages.Given  // nil without an environment
	keeper   *keeper          // of what the run changes in a staged workspace; nil if nothing is kept
	done     *elsewhere.Done  // the report of the worker; nil on this machine
}

// command makes the command of a run: interpreter and packages, secrets, workspace, then what the target of
// the run needs.
//
// Errors: *Error.
func (s *Session) command(ctx context.Context, r *run, turn *turn) (_ *command, err error) {
	if turn.worker != nil {
		// The worker makes the command on its own machine.
		return s.outline(r)
	}
	if err := r.script.unsupported(); err != nil {
		return nil, err
	}
	// This is a copy, because the flags that an entry adds must not change the index, which all sessions
	// share.
	info := *r.script.file.Program()
	c := &command{secrets: r.secrets}
	c.Stdin, c.Limits = r.in.Stdin, s.limits(r.rules.Limits, r.in.Timeout, r.grant.Entry)
	defer func() {
		// The caller closes only a command that it gets.
		if err != nil {
			c.close()
		}
	}()
	if err := s.giveInterpreter(ctx, r, c, info.Runtime); err != nil {
		return nil, err
	}
	env, secrets, err := s.variables(&r.rules.Rules, r.grant.Entry)
	c.given = len(secrets) > 0
	if err == nil && c.given {
		c.secrets, err = s.redactorWith(secrets)
	}
	if err != nil {
		// The cause after the colon may contain a path.
		what, _, _ := strings.Cut(err.Error(), ": ")
		return nil, fault.EnvDenied.Because(err, "{what}", what)
	}
	if err := s.giveWorkspace(ctx, r, c); err != nil {
		return nil, err
	}
	c.Tree, err = r.tree.Open()
	if err != nil {
		return nil, fault.Internal(err)
	}
	if r.grant.Target == policy.TargetHost {
		err = s.onHost(r, c, info, secrets)
	} else {
		err = s.inSandbox(ctx, r, c, info)
	}
	if err != nil {
		return nil, err
	}
	c.added = append(c.added, env...)
	c.Env = slices.Concat(c.Env, info.Runtime.Interpreter().Vars, c.added)
	named := func(argv []string) []string {
		return c.secrets.Texts(slices.Concat([]string{string(info.Runtime)}, argv[1:]))
	}
	c.argv, c.ran = named(c.argv), named(c.Argv)
	c.cwd = c.secrets.Text(policy.Clip(c.cwd))
	return c, nil
}

// close closes the files of the command and removes its home. The command may be incomplete.
func (c *command) close() {
	if c.Tree != nil {
		c.Tree.Close()
	}
	if c.Cache.Dir != nil {
		c.Cache.Dir.Close()
	}
	if c.packages != nil {
		c.packages.Close()
	}
	if c.home != "" {
		removeHome(c.home)
	}
	if c.named {
		c.Workspace.Dir.Close()
	}
}

// giveInterpreter gives a command the program that runs its script: of the machine, or of the environment of
// its entry with the packages of that, checked.
//
// Errors: *Error.
func (s *Session) giveInterpreter(ctx context.Context, r *run, c *command, runtime script.Runtime) error {
	find, name := s.cfg.Interpreter, r.grant.Entry.Environment
	if r.grant.Target == policy.TargetHost && s.cfg.HostInterpreter != nil {
		find = func(ctx context.Context, name string) (*sandbox.Interpreter, error) {
			return s.cfg.HostInterpreter(ctx, name, r.grant.Entry.SearchPath)
		}
	}
	if name != "" {
		find = r.rules.Environments.Finder(name, find)
	}
	// A canceled call must not be recorded as a call without an interpreter.
	interpreter, err := find(context.WithoutCancel(ctx), string(runtime))
	if _, refused := errors.AsType[*packages.Refusal](err); refused {
		return fault.OfEnvironment(err)
	}
	if err != nil || interpreter == nil {
		return fault.InterpreterNotFound.Because(err, "{runtime}", string(runtime))
	}
	c.Interpreter = interpreter
	if name == "" {
		return nil
	}
	given, err := r.rules.Environments.Give(ctx, name, systemPath, interpreter)
	if err != nil {
		return fault.OfEnvironment(err)
	}
	c.packages = given
	c.Interpreter, c.Packages, c.Root = given.Interpreter, given.Mounts, given.Root
	return nil
}

// defaultTimeout applies if the call, its entry and the configuration set no timeout.
const defaultTimeout = time.Minute

// limits returns the configured limits, lowered by the entry and the call. A call without a timeout has the
// entry's, else the configured one, else defaultTimeout.
func (s *Session) limits(
	configured sandbox.Limits, timeout time.Duration, entry policy.Entry,
) sandbox.Limits {
	limits := configured
	most := cmp.Or(configured.Timeout, policy.MaxTimeout)
	if entry.Timeout > 0 {
		most = min(most, entry.Timeout)
		timeout = cmp.Or(timeout, most)
	}
	limits.Timeout = min(cmp.Or(timeout, configured.Timeout, defaultTimeout), most)
	if entry.Memory > 0 {
		limits.Memory = min(entry.Memory, configured.WithDefaults().Memory)
	}
	return limits
}

// Timeouts returns the timeout of a script if neither its entry nor the call sets one, and the longest
// timeout that a call may set.
func (s *Sessions) Timeouts() (usual, most time.Duration) {
	configured := s.rules.Load().Limits
	return cmp.Or(configured.Timeout, defaultTimeout), cmp.Or(configured.Timeout, policy.MaxTimeout)
}

// giveWorkspace gives a command the workspace of its call, in the mode that its entry allows.
//
// Errors: *Error.
func (s *Session) giveWorkspace(ctx context.Context, r *run, c *command) error {
	if r.grant.Entry.Workspace == string(sandbox.WorkspaceNone) {
		return nil
	}
	var err error
	c.Workspace, c.named, err = s.openWorkspace(r.rules, r.call)
	if err != nil {
		return fault.WorkspaceDenied.Because(err)
	}
	c.Workspace.Mode = narrower(c.Workspace.Mode, r.grant.Entry)
	if c.secrets != nil {
		// A staged file that contains a secret must not reach the client's directory.
		c.Workspace.Withhold = c.secrets.Contains
	}
	if c.Workspace.Mode == sandbox.WorkspaceStaged {
		c.keeper = s.keeperOf(ctx, r, filepath.Clean(c.Workspace.Dir.Name()))
	}
	// A nil *keeper in the interface would not be a nil Keeper.
	if c.keeper != nil {
		c.Workspace.Keeper = c.keeper
	}
	return nil
}

// clientNames reports whether the workspace of a call is the directory that its client names.
func (s *Session) clientNames(rules *inForce, call Call) bool {
	return rules.ClientWorkspace != nil && !call.Remote && call.Workspace.Path != ""
}

// hasWorkspace reports whether there is a workspace for a call, of the client or of the server.
func (s *Session) hasWorkspace(rules *inForce, call Call) bool {
	return s.clientNames(rules, call) || rank(s.cfg.Workspace.Mode) > 0
}

// openWorkspace returns the workspace of a call. It is open for this call only, and the caller closes it, if
// the client named it.
//
// Errors: the errors of [Config.ClientWorkspace].
func (s *Session) openWorkspace(rules *inForce, call Call) (_ sandbox.Workspace, named bool, err error) {
	if !s.clientNames(rules, call) {
		return s.cfg.Workspace, false, nil
	}
	opened, err := rules.ClientWorkspace(call.Workspace)
	return opened, err == nil, err
}

// rank returns the position of a workspace mode in the order of access; 0 is no access.
func rank(mode sandbox.WorkspaceMode) int {
	modes := []sandbox.WorkspaceMode{sandbox.WorkspaceNone, sandbox.WorkspaceRO, sandbox.WorkspaceStaged,
		sandbox.WorkspaceRW}
	return max(slices.Index(modes, mode), 0)
}

// narrower returns the mode with less access: the one granted to all scripts, or the entry's.
func narrower(granted sandbox.WorkspaceMode, entry policy.Entry) sandbox.WorkspaceMode {
	mode := sandbox.WorkspaceMode(entry.Workspace)
	if mode == "" || rank(mode) >= rank(granted) {
		return granted
	}
	return mode
}

// inSandbox completes the command of a script that runs in the sandbox.
//
// Errors: *Error.
func (s *Session) inSandbox(ctx context.Context, r *run, c *command, info script.Info) error {
	allow, err := egress.ParseTargets(r.grant.Entry.Network)
	if err != nil {
		// Entries were checked at the start, so this is no fault of the call.
		return fault.Internal(err)
	}
	if c.packages != nil {
		info.Flags = slices.Concat(c.packages.Flags, info.Flags)
	}
	if len(allow) > 0 {
		granted := make([]string, len(allow))
		for i, t := range allow {
			granted[i] = t.String()
		}
		info.Flags = append(slices.Clone(info.Flags), script.NetFlags(info, granted)...)
	}
	// Published scripts look for files above their own, as below the real directory, which has the skill's
	// name. An interpreter with a cache keeps the shorter path, by which it finds its compiled modules.
	file := sandbox.SkillDir + "/" + r.script.path
	from := file
	c.Name = path.Base(r.script.skill.Path)
	if info.Runtime.Interpreter().CacheDir == "" {
		from = c.TreeDir() + "/" + r.script.path
	}
	err = s.launch(r, c, info, place{from: from, file: file, dir: sandbox.SkillDir, home: sandbox.TmpDir,
		path: s.searchPath(ctx, c), cwd: sandbox.OutDir})
	if err != nil {
		return err
	}
	if len(allow) > 0 {
		c.proxy = egress.New(egress.Config{Allow: allow})
		c.Network = sandbox.Network{Proxy: c.proxy}
		c.added = append(c.added, egress.Environ(allow...)...)
	} else {
		// Without these variables, npm, npx, pip and uv retry a network that the sandbox does not have.
		c.Env = append(c.Env, script.Offline()...)
	}
	if holdsTree(r.grant.Entry) {
		c.Env = append(c.Env, script.Environ(c.TreeDir())...)
	}
	// Only these interpreters find compiled modules of an earlier run.
	switch info.Runtime {
	case script.Python3, script.Deno:
		s.mountCache(ctx, r, c)
	}
	c.Cwd, err = sandboxCwd(r.in.Cwd, c)
	return err
}

// sandboxCwd returns the directory in which a command starts in the sandbox; "" is the sandbox's default.
//
// Errors: *Error for the workspace of a command without one.
func sandboxCwd(cwd string, c *command) (string, error) {
	if rank(c.Workspace.Mode) > 0 {
		return cwd, nil
	}
	// The sandbox would report a directory that does not exist, although the cause is the missing workspace.
	at, below := strings.CutPrefix(path.Clean(cwd), sandbox.WorkspaceDir)
	if below && (at == "" || at[0] == '/') {
		return "", fault.CwdWithoutWorkspace.Because(nil)
	}
	// Without a workspace, a script that writes into its current directory makes output for its caller.
	return cmp.Or(cwd, sandbox.OutDir), nil
}

// holdsTree reports whether an entry approves all files of the skill, so that they may be imported. An entry
// for a script alone does not: an interpreter imports some files by itself (sitecustomize.py), and a file
// next to an approved script could shadow a module.
func holdsTree(entry policy.Entry) bool {
	whole := entry.Tree != "" || entry.Pin == "" && !entry.PinScript
	return whole && entry.Execution != policy.ExecutionStdin
}

// searchPath returns the PATH of a script in the sandbox. It adds to the mounts of the command the
// interpreters with which scripts run, unless every sandbox has them.
func (s *Session) searchPath(ctx context.Context, c *command) string {
	found := systemPath
	// The script finds it as in an activated virtual environment.
	if v := c.Interpreter.Venv; v != nil {
		found = v.Dir + "/bin:" + systemPath
	}
	if c.packages != nil {
		found = c.packages.Path
	}
	if s.cfg.ApartInterpreter == nil || c.Root != nil {
		return found
	}
	dirs := ""
	for _, name := range []script.Runtime{script.Python3, script.Node} {
		in, err := s.cfg.ApartInterpreter(context.WithoutCancel(ctx), string(name))
		if err != nil || in == nil || slices.ContainsFunc(in.Mounts, func(dir string) bool {
			// The directory may have been removed since the detection.
			_, err := os.Stat(dir)
			return err != nil
		}) {
			continue
		}
		// A program that the script starts by name is then the same one.
		c.Interpreter = c.Interpreter.With(in)
		dirs += path.Dir(in.Path) + ":"
	}
	return strings.Replace(found, systemPath, dirs+systemPath, 1)
}

// place is the place of a script for its interpreter and for the script itself.
type place struct {
	from string // file from which the interpreter reads the script
	file string // path of the script in its variables, and dir the directory of its skill
	dir  string
	home string
	path string // PATH
	cwd  string // the directory in which it starts without a workspace, in records
}

// launch sets the command line of a script, its variables, and the directory in which it starts in records.
// Env gets the variables of every command, added the ones that describe the script.
//
// Errors: *Error.
func (s *Session) launch(r *run, c *command, info script.Info, at place) error {
	c.Argv = script.Argv(info, c.Interpreter.Path, at.from, r.grant.Args)
	// Records and answers have /skill, the path that the reference implementation uses, wherever the
	// interpreter finds the script. On the host, the other path is one of this machine.
	c.argv = script.Argv(info, c.Interpreter.Path, sandbox.SkillDir+"/"+r.script.path, r.grant.Args)
	// The interpreter reads the script from its file or, if the entry requires that, from standard input.
	if r.grant.Entry.Execution == policy.ExecutionStdin {
		if r.in.Stdin != nil {
			return fault.StdinTaken.Because(nil)
		}
		text, err := r.tree.ReadFile(r.script.path)
		if err != nil {
			return fault.Internal(err)
		}
		// The check is about the script as its author wrote it: info also has flags that the entry adds.
		if problem := script.StdinProblem(*r.script.file.Program(), text); problem != "" {
			return fault.RuntimeNotOnStdin.Because(nil, "{problem}", problem)
		}
		c.Argv, c.Stdin = script.StdinArgv(info, c.Interpreter.Path, r.grant.Args), text
		c.argv = c.Argv
	}

	c.Env = []string{"PATH=" + at.path, "HOME=" + at.home, "LANG=C.UTF-8"}
	c.added = []string{
		"CF_HARNESS_RUN_ID=" + s.id, "SKILL_NAME=" + r.script.skill.Name(), "SKILL_DIR=" + at.dir,
		"SKILL_SCRIPT=" + at.file,
		"CF_HARNESS_SKILL_SCRIPT_EXECUTION_TARGET=" + string(r.grant.Target),
	}
	if root := skills.PluginRoot(r.tree.Files); root != "" {
		// Both names are in use, and the plugin has no data that lasts longer than the run.
		data := sandbox.OutDir
		if r.grant.Target == policy.TargetHost {
			data = at.home
		}
		for _, prefix := range []string{"", "CLAUDE_"} {
			c.added = append(c.added, prefix+"PLUGIN_ROOT="+filepath.Join(at.dir, root),
				prefix+"PLUGIN_DATA="+data)
		}
	}

	start := at.cwd
	if rank(c.Workspace.Mode) > 0 {
		start = sandbox.WorkspaceDir
	}
	c.cwd = path.Join(start, r.in.Cwd)
	if path.IsAbs(r.in.Cwd) {
		c.cwd = path.Clean(r.in.Cwd)
	}
	return nil
}

// onHost completes the command of a script that runs on the host: it starts from the stored tree and gets the
// paths of this machine.
func (s *Session) onHost(r *run, c *command, info script.Info, secrets map[string]string) error {
	dir, err := filepath.Abs(c.Tree.Name())
	if err != nil {
		return fault.Internal(err)
	}
	c.home, err = os.MkdirTemp("", "skillsd-home-")
	if err != nil {
		return fault.Internal(err)
	}
	c.Cwd, err = hostCwd(r.in.Cwd, c)
	if err != nil {
		return err
	}
	c.hostCwd = c.Cwd
	if !filepath.IsAbs(c.Cwd) {
		c.hostCwd = filepath.Join(c.Workspace.Dir.Name(), c.Cwd)
	}
	file := filepath.Join(dir, filepath.FromSlash(r.script.path))
	err = s.launch(r, c, info, place{from: file, file: file, dir: dir, home: c.home,
		path: HostPath(r.grant.Entry), cwd: "~"})
	if err != nil {
		return err
	}
	// Compiled modules next to the sources would damage the stored tree.
	c.added = append(c.added, "PYTHONDONTWRITEBYTECODE=1")
	if r.grant.CDP == "" {
		return nil
	}
	c.added = append(c.added, "AGENT_BROWSER_CDP="+r.grant.CDP)
	endpoint, err := url.Parse(r.grant.CDP)
	if err != nil {
		return fault.Internal(err)
	}
	// The endpoint is a secret: it is enough to control the browser. The address is redacted too, since the
	// same endpoint has it under other URL schemes.
	hidden := map[string]string{}
	maps.Copy(hidden, secrets)
	hidden["<lease endpoint>"] = strings.TrimSuffix(r.grant.CDP, "/")
	hidden["<lease endpoint> address"] = endpoint.Host
	c.secrets, err = s.redactorWith(hidden)
	if err != nil {
		return fault.Internal(err)
	}
	c.given = true
	return nil
}

// hostCwd returns the directory in which a command starts on the host: in the workspace or, without one, in
// the command's home. cwd may be a sandbox path.
func hostCwd(cwd string, c *command) (string, error) {
	switch {
	case rank(c.Workspace.Mode) > 0:
	case cwd != "":
		return "", fault.CwdWithoutWorkspace.Because(nil)
	default:
		return c.home, nil
	}
	// A sandbox path below the workspace means the same directory here, unless the real workspace lies below
	// a directory of that name.
	rest, below := strings.CutPrefix(cwd, sandbox.WorkspaceDir)
	if below && (rest == "" || rest[0] == '/') &&
		!strings.HasPrefix(c.Workspace.Dir.Name(), sandbox.WorkspaceDir) {
		return strings.TrimLeft(rest, "/"), nil
	}
	return cwd, nil
}

// HostPath returns the PATH of an entry's script on the host. No part of it comes from the server's
// environment or from a client.
func HostPath(entry policy.Entry) string {
	// The configuration of a cloned project can start the server, and its PATH would then choose the
	// programs that run on the host.
	return strings.Join(append(slices.Clone(entry.SearchPath), systemPath), string(filepath.ListSeparator))
}

// sameTree returns an error unless a run on the host starts from the tree that was checked.
func (s *Session) sameTree(ctx context.Context, r *run) error {
	// Other processes of this machine can write to the store at any time.
	if _, err := s.cfg.Trees.Tree(ctx, r.tree.Digest); err != nil {
		return fmt.Errorf("check the stored tree: %w", err)
	}
	opened, err := r.cmd.Tree.Stat()
	if err != nil {
		return err
	}
	found, err := os.Lstat(r.cmd.Tree.Name())
	if err != nil {
		return err
	}
	// The script gets the tree's path, the run its open directory: both must be the same tree.
	if !os.SameFile(opened, found) {
		return errors.New("the stored tree was replaced")
	}
	return nil
}

// removeHome removes the home of a run on the host, including directories that the script made unreadable.
func removeHome(home string) {
	root, err := os.OpenRoot(home)
	if err != nil {
		return
	}
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	_ = root.Close()
	// An error costs only disk space.
	_ = os.RemoveAll(home)
}
