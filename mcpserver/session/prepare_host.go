package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// prepareHost turns a script whose target is the host into a command with the paths of this machine: it
// runs from the stored tree. What is shown and recorded of the command are the paths the sandbox would
// have; those of this machine are nobody's but the operator's.
func (s *Session) prepareHost(r *run, interpreter *sandbox.Interpreter) *Error {
	info := *r.file.Script
	workspace, failure := s.workspace(r)
	if failure != nil {
		return failure
	}
	r.cmd.Workspace = workspace
	handle, dir, err := hostTree(r)
	if err == nil {
		r.cmd.Tree = handle
		r.home, err = os.MkdirTemp("", "skillsd-home-")
	}
	if err != nil {
		r.close()
		return internalError(err)
	}
	cwd, failure := s.hostCwd(r)
	if failure == nil {
		failure = s.scrubEndpoint(r)
	}
	if failure != nil {
		r.close()
		return failure
	}
	target := filepath.Join(dir, filepath.FromSlash(r.path))
	r.cmd = sandbox.Cmd{
		Argv: script.Argv(info, interpreter.Path, target, r.grant.Args), Interpreter: interpreter, Tree: handle,
		Workspace: workspace, Cwd: cwd, Stdin: r.in.Stdin, Limits: s.limits(r.in.Timeout, r.grant.Entry),
		Env: []string{
			"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + r.home, "LANG=C.UTF-8",
			"CF_HARNESS_RUN_ID=" + s.id, "SKILL_NAME=" + r.skill.Name(), "SKILL_DIR=" + dir, "SKILL_SCRIPT=" + target,
			"CF_HARNESS_SKILL_SCRIPT_EXECUTION_TARGET=host",
			// What an interpreter leaves beside the modules it loads would damage the stored tree.
			"PYTHONDONTWRITEBYTECODE=1",
		},
	}
	r.cmd.Env = append(r.cmd.Env, r.env...)
	if r.grant.CDP != "" {
		r.cmd.Env = append(r.cmd.Env, "AGENT_BROWSER_CDP="+r.grant.CDP)
	}
	shown := script.Argv(info, interpreter.Path, sandbox.SkillDir+"/"+r.path, r.grant.Args)
	r.out.ExecutionTarget, r.out.Runtime = "host", info.ReferenceRuntime()
	r.out.Args, r.out.Argv, r.out.CWD = r.redact.Texts(r.in.Args), r.redact.Texts(shown), r.redact.Text(shownCwd(r))
	return nil
}

// hostTree opens the stored tree of a run and returns where it lies on this machine.
func hostTree(r *run) (handle *os.File, dir string, err error) {
	handle, err = r.tree.Open()
	if err != nil {
		return nil, "", err
	}
	if dir, err = filepath.Abs(handle.Name()); err == nil {
		err = sameDir(handle, dir)
	}
	if err != nil {
		return nil, "", errors.Join(err, handle.Close())
	}
	return handle, dir, nil
}

// sameDir makes sure that a path still leads to the directory that was opened.
func sameDir(handle *os.File, dir string) error {
	opened, err := handle.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(dir)
	if err == nil && !os.SameFile(opened, there) {
		err = errors.New("the stored tree was replaced")
	}
	return err
}

// hostCwd is where the runner starts the command: in the workspace, or without one in the command's own
// home. A working directory can be written as in the sandbox.
func (s *Session) hostCwd(r *run) (string, *Error) {
	if wideness(r.cmd.Workspace.Mode) == 0 {
		if r.in.Cwd != "" {
			return "", &Error{Code: CodeCwdDenied, Message: "no workspace is granted to this script, so it has no other directory than its own",
				Remedy: "leave cwd out, or the operator can grant a workspace"}
		}
		return r.home, nil
	}
	rest, below := strings.CutPrefix(r.in.Cwd, sandbox.WorkspaceDir)
	if below && (rest == "" || rest[0] == '/') && !strings.HasPrefix(r.cmd.Workspace.Dir.Name(), sandbox.WorkspaceDir) {
		return strings.TrimLeft(rest, "/"), nil
	}
	return r.in.Cwd, nil
}

// shownCwd is the working directory of a run on the host as it is shown.
func shownCwd(r *run) string {
	switch {
	case r.in.Cwd != "":
		return clip(r.in.Cwd)
	case wideness(r.cmd.Workspace.Mode) > 0:
		return sandbox.WorkspaceDir
	}
	return "~"
}

// scrubEndpoint keeps the endpoint of a leased browser out of what the script prints: whoever has it
// drives the browser. It is also looked for as the address alone, which the endpoint's other schemes
// have in common.
func (s *Session) scrubEndpoint(r *run) *Error {
	if r.grant.CDP == "" {
		return nil
	}
	endpoint, err := url.Parse(r.grant.CDP)
	if err != nil {
		return internalError(err)
	}
	_, known := s.redaction()
	known = maps.Clone(known)
	if known == nil {
		known = map[string]string{}
	}
	maps.Copy(known, r.secrets)
	known["AGENT_BROWSER_CDP"], known["AGENT_BROWSER_ADDRESS"] = strings.TrimSuffix(r.grant.CDP, "/"), endpoint.Host
	if r.redact, err = redact.New(known); err != nil {
		return internalError(err)
	}
	r.secret = true
	return nil
}

// hostRunner runs a prepared command on the host, from a tree that it checks again: what else runs on the
// host can write to the store at any time.
type hostRunner struct {
	session *Session
	run     *run
}

func (h hostRunner) Name() string { return h.session.cfg.Host.Name() }

func (h hostRunner) Run(ctx context.Context, cmd *sandbox.Cmd) (*sandbox.Result, error) {
	dir, err := filepath.Abs(cmd.Tree.Name())
	if err == nil {
		_, err = h.session.cfg.Trees.Tree(ctx, h.run.index.TreeDigest)
	}
	if err == nil {
		err = sameDir(cmd.Tree, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("check the stored tree: %w", err)
	}
	return h.session.cfg.Host.Run(ctx, cmd)
}

// runner returns what runs a prepared command.
//
// Errors: those of Config.Runner, *[sandbox.UnavailableError].
func (s *Session) runner(ctx context.Context, r *run) (sandbox.Runner, error) {
	switch {
	case r.grant.Target != policy.TargetHost:
		return s.cfg.Runner(ctx)
	case s.cfg.Host == nil:
		return nil, &sandbox.UnavailableError{Backend: "host", Reason: "this server runs no scripts on the host", Remedy: "the operator can set the entry's target to sandbox"}
	}
	return hostRunner{s, r}, nil
}

// removeHome removes the home of a run on the host, also what the script made unreadable. What is left
// costs space only.
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
