package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/session/caches"
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

// command is what runs a script, and how records show it.
type command struct {
	sandbox.Cmd

	// Answers show these fields, without secrets. Paths are sandbox paths, on the host too: only the
	// operator may know the paths of this machine.
	argv  []string // with the runtime's name in the place of its program
	cwd   string
	added []string // the part of Env that not every script has
	ran   []string // argv with the paths of where it runs, for the record; nil if nothing was to start

	secrets  *redact.Redactor // of every declared secret, those that the script is given included
	given    bool             // the script is given something that must not be shown
	proxy    *egress.Proxy    // nil without a network
	cache    caches.Key       // of what its interpreter compiled; zero if that cannot be kept
	cached   digest.Digest    // of the tree with the cache that the run got; empty without
	home     string           // of a script on the host; empty in the sandbox
	hostCwd  string           // where a script on the host starts, for the record; empty in the sandbox
	named    bool             // the workspace is one the client named, open for this run
	packages *packages.Given  // nil without an environment
	done     *elsewhere.Done  // what a worker says of it; nil on this machine
}

// close releases what the command holds open. The command may be incomplete.
func (c *command) close() {
	if c.Tree != nil {
		c.Tree.Close()
	}
	if c.Cache.Dir != nil {
		c.Cache.Dir.Close()
	}
	c.packages.Close()
	if c.home != "" {
		removeHome(c.home)
	}
	if c.named {
		c.Workspace.Dir.Close()
	}
}

// command turns the script of a run into a command: runtime, interpreter, variables and secrets, then what
// the target of the run needs.
func (s *Session) command(ctx context.Context, r *run, turn *turn) (_ *command, err error) {
	if turn.worker != nil {
		return s.outline(r) // the worker makes it
	}
	if err := r.script.unsupported(); err != nil {
		return nil, err
	}
	info := *r.script.file.Script
	find := s.cfg.Interpreter
	if r.grant.Target == policy.TargetHost && s.cfg.HostInterpreter != nil {
		find = func(ctx context.Context, name string) (*sandbox.Interpreter, error) {
			return s.cfg.HostInterpreter(ctx, name, r.grant.Entry.SearchPath)
		}
	}
	if name := r.grant.Entry.Environment; name != "" {
		find = r.rules.Environments.Finder(name, find)
	}
	interpreter, err := find(context.WithoutCancel(ctx), string(info.Runtime))
	if _, refused := errors.AsType[*packages.Refusal](err); refused {
		return nil, fault.OfEnvironment(err)
	}
	if err != nil || interpreter == nil {
		return nil, fault.InterpreterNotFound.Because(err, "{runtime}", string(info.Runtime))
	}
	c := &command{secrets: r.secrets}
	c.Interpreter, c.Limits = interpreter, s.limits(r.rules.Limits, r.in.Timeout, r.grant.Entry)
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if name := r.grant.Entry.Environment; name != "" {
		c.packages, err = r.rules.Environments.Give(ctx, name, systemPath, interpreter)
		if err != nil {
			return nil, fault.OfEnvironment(err)
		}
		c.Interpreter, c.Packages, c.Root = c.packages.Interpreter, c.packages.Mounts, c.packages.Root
	}
	env, secrets, err := s.declared(&r.rules.Rules).Variables(r.grant.Entry)
	c.given = len(secrets) > 0
	if err == nil && c.given {
		c.secrets, err = s.redactorWith(secrets)
	}
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), ": ") // the cause may hold a path
		return nil, fault.EnvDenied.Because(err, "{what}", what)
	}
	if r.grant.Entry.Workspace != string(sandbox.WorkspaceNone) {
		c.Workspace = s.cfg.Workspace
		if s.clientNames(r.rules, r.call) {
			c.Workspace, err = r.rules.ClientWorkspace(r.call.Workspace)
			if err != nil {
				return nil, fault.WorkspaceDenied.Because(err)
			}
			c.named = true
		}
		c.Workspace.Mode = narrower(c.Workspace.Mode, r.grant.Entry)
		if c.secrets != nil {
			c.Workspace.Withhold = c.secrets.Contains
		}
	}
	c.Tree, err = r.tree.Open()
	if err != nil {
		return nil, fault.Internal(err)
	}
	c.Stdin = r.in.Stdin
	if r.grant.Target == policy.TargetHost {
		err = s.onHost(r, c, info, secrets)
	} else {
		err = s.inSandbox(ctx, r, c, info)
	}
	if err != nil {
		return nil, err
	}
	c.added = append(c.added, env...)
	c.Env = append(c.Env, c.added...)
	named := func(argv []string) []string {
		return c.secrets.Texts(slices.Concat([]string{string(info.Runtime)}, argv[1:]))
	}
	c.argv, c.ran = named(c.argv), named(c.Argv)
	switch {
	case rank(c.Workspace.Mode) > 0:
		c.cwd = sandbox.WorkspaceDir
	case r.grant.Target == policy.TargetHost:
		c.cwd = "~"
	default:
		c.cwd = sandbox.OutDir
	}
	if given := r.in.Cwd; path.IsAbs(given) {
		c.cwd = path.Clean(given)
	} else {
		c.cwd = path.Join(c.cwd, given)
	}
	c.cwd = c.secrets.Text(policy.Clip(c.cwd))
	return c, nil
}

// systemPath is where every script looks for programs.
const systemPath = "/usr/local/bin:/usr/bin:/bin"

// HostPath returns the PATH of a script of an entry on the host: nothing of it comes from the environment of
// the server or from a client.
func HostPath(entry policy.Entry) string {
	return strings.Join(append(slices.Clone(entry.SearchPath), systemPath), string(filepath.ListSeparator))
}

// commandLine sets the command of a script: of the file, or if its entry says so of the same bytes on the
// standard input of its interpreter.
func (c *command) commandLine(r *run, info script.Info, file string) error {
	c.Argv = script.Argv(info, c.Interpreter.Path, file, r.grant.Args)
	if r.grant.Entry.Execution != policy.ExecutionStdin {
		return nil
	}
	if r.in.Stdin != nil {
		return fault.StdinTaken.Because(nil)
	}
	text, err := r.tree.ReadFile(r.script.path)
	if err != nil {
		return fault.Internal(err)
	}
	// info has the permissions that the entry adds; the question is about the script itself.
	if problem := script.StdinProblem(*r.script.file.Script, text); problem != "" {
		return fault.RuntimeNotOnStdin.Because(nil, "{problem}", problem)
	}
	c.Argv, c.Stdin = script.StdinArgv(info, c.Interpreter.Path, r.grant.Args), text
	return nil
}

// environ sets the variables that every command has, and those that say which script it is: dir is the
// directory of its skill, file is its own path.
func (s *Session) environ(c *command, skill *skills.Skill, dir, file, home string, target policy.Target) {
	c.Env = []string{"PATH=" + systemPath, "HOME=" + home, "LANG=C.UTF-8"}
	c.added = []string{
		"CF_HARNESS_RUN_ID=" + s.id, "SKILL_NAME=" + skill.Name(), "SKILL_DIR=" + dir, "SKILL_SCRIPT=" + file,
		"CF_HARNESS_SKILL_SCRIPT_EXECUTION_TARGET=" + string(target),
	}
}

// inSandbox completes the command of a script that runs in the sandbox.
func (s *Session) inSandbox(ctx context.Context, r *run, c *command, info script.Info) error {
	allow, err := egress.ParseTargets(r.grant.Entry.Network)
	if err != nil {
		return fault.Internal(err) // entries were checked at the start
	}
	file := sandbox.SkillDir + "/" + r.script.path
	s.environ(c, r.script.skill, sandbox.SkillDir, file, sandbox.TmpDir, r.grant.Target)
	if v := c.Interpreter.Venv; v != nil { // as if it were activated
		c.Env[0] = "PATH=" + v.Dir + "/bin:" + systemPath
	}
	if c.packages != nil {
		c.Env[0] = "PATH=" + c.packages.Path
		info.Flags = slices.Concat(c.packages.Flags, info.Flags)
	}
	s.startable(ctx, c)
	if len(allow) == 0 {
		c.Env = append(c.Env, script.Offline()...)
	}
	if len(allow) > 0 {
		c.proxy = egress.New(egress.Config{Allow: allow})
		c.Network = sandbox.Network{Proxy: c.proxy}
		c.added = append(c.added, egress.Environ(allow...)...)
		granted := make([]string, len(allow))
		for i, t := range allow {
			granted[i] = t.String()
		}
		info.Flags = append(slices.Clone(info.Flags), script.NetFlags(info, granted)...)
	}
	// Public scripts look for files above their own. Compiled modules may be found by their shorter path.
	at := file
	c.Name = path.Base(r.script.skill.Path)
	if info.Runtime.Interpreter().CacheDir == "" {
		at = c.TreeDir() + "/" + r.script.path
	}
	if entry := r.grant.Entry; holdsTree(entry) {
		c.Env = append(c.Env, script.Environ(c.TreeDir())...)
	}
	if err := c.commandLine(r, info, at); err != nil {
		return err
	}
	s.mountCache(ctx, r, c)
	c.Cwd, c.argv = r.in.Cwd, c.Argv
	at, below := strings.CutPrefix(path.Clean(c.Cwd), sandbox.WorkspaceDir)
	if below && (at == "" || at[0] == '/') && rank(c.Workspace.Mode) == 0 {
		return fault.CwdWithoutWorkspace.Because(nil)
	}
	if r.grant.Entry.Execution != policy.ExecutionStdin {
		c.argv = script.Argv(info, c.Interpreter.Path, file, r.grant.Args)
	}
	// A script that writes into its directory means the file for its caller.
	if c.Cwd == "" && rank(c.Workspace.Mode) == 0 {
		c.Cwd = sandbox.OutDir
	}
	return nil
}

// holdsTree reports whether an entry approves all files of the skill: an interpreter imports some by itself
// (sitecustomize.py), and one next to an approved script could take the place of a module.
func holdsTree(entry policy.Entry) bool {
	whole := entry.Tree != "" || entry.Pin == "" && !entry.PinScript
	return whole && entry.Execution != policy.ExecutionStdin
}

// startable has a script find the interpreters that scripts are run with, if they are not those of every
// sandbox: programs that it starts by name are then the same.
func (s *Session) startable(ctx context.Context, c *command) {
	if s.cfg.ApartInterpreter == nil || c.Root != nil {
		return
	}
	dirs := ""
	for _, name := range []script.Runtime{script.Python3, script.Node} {
		in, err := s.cfg.ApartInterpreter(context.WithoutCancel(ctx), string(name))
		if err != nil || in == nil || slices.ContainsFunc(in.Mounts, func(dir string) bool {
			_, err := os.Stat(dir) // it may be gone since it was found
			return err != nil
		}) {
			continue
		}
		c.Interpreter = c.Interpreter.With(in)
		dirs += path.Dir(in.Path) + ":"
	}
	c.Env[0] = strings.Replace(c.Env[0], systemPath, dirs+systemPath, 1)
}

// onHost completes the command of a script that runs on the host, from the stored tree and with the paths
// of this machine.
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
	if err := c.commandLine(r, info, file); err != nil {
		return err
	}
	c.argv = c.Argv
	if r.grant.Entry.Execution != policy.ExecutionStdin {
		c.argv = script.Argv(info, c.Interpreter.Path, sandbox.SkillDir+"/"+r.script.path, r.grant.Args)
	}
	// A cache that the interpreter writes next to the modules it loads would damage the stored tree.
	s.environ(c, r.script.skill, dir, file, c.home, r.grant.Target)
	c.Env[0], c.added = "PATH="+HostPath(r.grant.Entry), append(c.added, "PYTHONDONTWRITEBYTECODE=1")
	if r.grant.CDP == "" {
		return nil
	}
	c.added = append(c.added, "AGENT_BROWSER_CDP="+r.grant.CDP)
	endpoint, err := url.Parse(r.grant.CDP)
	if err != nil {
		return fault.Internal(err)
	}
	// Whoever has the endpoint of the browser can drive it. The address is redacted too, since it is the
	// same in the endpoint's other schemes.
	hidden := map[string]string{}
	maps.Copy(hidden, secrets)
	hidden["<lease endpoint>"], hidden["<lease endpoint> address"] = strings.TrimSuffix(r.grant.CDP, "/"),
		endpoint.Host
	c.secrets, err = s.redactorWith(hidden)
	if err != nil {
		return fault.Internal(err)
	}
	c.given = true
	return nil
}

// hostCwd returns where the runner starts a command on the host: in the workspace, or without a workspace
// in the command's own home. cwd may be a sandbox path.
func hostCwd(cwd string, c *command) (string, error) {
	switch {
	case rank(c.Workspace.Mode) > 0:
	case cwd != "":
		return "", fault.CwdWithoutWorkspace.Because(nil)
	default:
		return c.home, nil
	}
	rest, below := strings.CutPrefix(cwd, sandbox.WorkspaceDir)
	if below && (rest == "" || rest[0] == '/') &&
		!strings.HasPrefix(c.Workspace.Dir.Name(), sandbox.WorkspaceDir) {
		return strings.TrimLeft(rest, "/"), nil
	}
	return cwd, nil
}

// defaultTimeout applies if neither the call nor its entry nor the configuration names a timeout.
const defaultTimeout = time.Minute

// limits returns the configured limits, lowered by what the entry and the call say. Without a timeout, a call
// has the entry's, or the configured one, or a minute.
func (s *Session) limits(
	configured sandbox.Limits, timeout time.Duration, entry policy.Entry,
) sandbox.Limits {
	limits := configured
	most := mostOf(configured)
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

// Timeouts returns how long a script may take whose entry and call name no timeout, and the most that a call
// may name.
func (s *Sessions) Timeouts() (usual, most time.Duration) {
	configured := s.inForce().Limits
	return cmp.Or(configured.Timeout, defaultTimeout), mostOf(configured)
}

// mostOf returns how long a script may take at most by the configured limits.
func mostOf(l sandbox.Limits) time.Duration { return cmp.Or(l.Timeout, policy.MaxTimeout) }

// clientNames reports whether the workspace of a call is the directory its client names.
func (s *Session) clientNames(rules *inForce, call Call) bool {
	return rules.ClientWorkspace != nil && !call.Remote && call.Workspace.Path != ""
}

// hasWorkspace reports whether a run of the call sees a workspace.
func (s *Session) hasWorkspace(rules *inForce, call Call) bool {
	return s.clientNames(rules, call) || rank(s.cfg.Workspace.Mode) > 0
}

// rank orders what a workspace lets a script do; 0 is nothing.
func rank(mode sandbox.WorkspaceMode) int {
	modes := []sandbox.WorkspaceMode{sandbox.WorkspaceNone, sandbox.WorkspaceRO, sandbox.WorkspaceStaged,
		sandbox.WorkspaceRW}
	return max(slices.Index(modes, mode), 0)
}

// narrower returns the narrower of two modes: granted to all scripts, and named by an entry.
func narrower(granted sandbox.WorkspaceMode, entry policy.Entry) sandbox.WorkspaceMode {
	mode := sandbox.WorkspaceMode(entry.Workspace)
	if mode == "" || rank(mode) >= rank(granted) {
		return granted
	}
	return mode
}

// sameTree makes sure that a run on the host starts from the tree that was checked: other processes of this
// machine can write to the store at any time.
func (s *Session) sameTree(ctx context.Context, r *run) error {
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
	if !os.SameFile(opened, found) {
		err = errors.New("the stored tree was replaced")
	}
	return err
}

// removeHome removes the home of a run on the host, including what the script made unreadable. A failure
// costs only space.
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
	_ = os.RemoveAll(home)
}

// denoCache is where deno looks for what it translated.
const denoCache = sandbox.TmpDir + "/.cache/deno/gen"

// mountCache puts the cache of the interpreter, if there is one, into the command of a run that starts from
// a file of its tree.
func (s *Session) mountCache(ctx context.Context, r *run, c *command) {
	info := r.script.file.Script
	// The compiler of a root file system's interpreter would have to run on that.
	if r.grant.Entry.Execution == policy.ExecutionStdin || c.Interpreter.Digest == "" || c.Root != nil {
		return
	}
	key := caches.Key{
		Tree:        r.tree.Digest,
		Interpreter: c.Interpreter.Digest + " " + c.Interpreter.Version,
	}
	switch info.Runtime {
	case script.Python3:
	case script.Deno:
		key.Script = r.script.path
	default:
		return
	}
	c.cache = key
	found := s.caches.Get(key)
	if found == "" {
		return
	}
	tree, err := s.cfg.Trees.Tree(context.WithoutCancel(ctx), found)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "the stored cache of an interpreter is not used, and made anew",
			slog.String("skill", r.script.skill.Path), tint.Err(err))
		s.caches.Drop(key)
		return
	}
	handle, err := tree.Open()
	if err != nil {
		return
	}
	c.cached = found
	if info.Runtime == script.Deno {
		c.Cache = sandbox.Cache{Dir: handle, At: denoCache}
		return
	}
	// The stored tree with a cache has all files of the first.
	c.Tree.Close()
	c.Tree = handle
}

// makeCache makes the cache for a run that has ended, in the background, for later runs.
func (s *Session) makeCache(r *run, result *sandbox.Result) {
	key := r.cmd.cache
	if key.Tree == "" || r.cmd.cached != "" || result.Outcome != sandbox.Exited {
		return
	}
	ctx, ok := s.caches.Begin(key)
	if !ok {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	slot, ok := s.queue.Spare(r.call.Principal.Name, stop)
	if !ok {
		stop()
		s.caches.End(key, "", true)
		return
	}
	tree, f, interpreter := r.tree, r.script, r.cmd.Interpreter
	if r.cmd.packages != nil {
		interpreter = r.cmd.packages.Base
	}
	go func() {
		compiler := caches.Compiler{Runner: s.cfg.Runner, Trees: s.cfg.Trees, Limits: s.inForce().Limits}
		made, err := compiler.Compile(ctx, *f.file.Script, interpreter, tree, f.path)
		givenUp := ctx.Err() != nil
		// The slot is released before the next cache may begin: only one spare slot is held at a time.
		slot.Release()
		stop()
		s.caches.End(key, made, givenUp)
		if err != nil && !givenUp {
			s.cfg.Logger.Debug("no cache of an interpreter", slog.String("skill", f.skill.Path),
				slog.String("interpreter", interpreter.Name), tint.Err(err))
		}
	}()
}
