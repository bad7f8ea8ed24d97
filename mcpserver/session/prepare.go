package session

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// prepare turns the script into a command: runtime, interpreter, argv, environment, limits.
func (s *Session) prepare(ctx context.Context, r *run) *Error {
	info := *r.file.Script
	if info.Runtime == "" {
		return &Error{Code: CodeUnsupportedRuntime, Message: "the script cannot be run: " + info.Problem,
			Remedy: script.Names() + " scripts run, with the shebang flags the documentation lists"}
	}
	interpreter, err := s.cfg.Interpreter(context.WithoutCancel(ctx), string(info.Runtime))
	if err != nil {
		return internalError(err)
	}
	if interpreter == nil {
		return &Error{Code: CodeInterpreterNotFound, Message: string(info.Runtime) + " is not installed where the server runs",
			Remedy: "the operator can install " + string(info.Runtime) + " on the server's PATH and restart it"}
	}
	if failure := s.environment(r); failure != nil {
		return failure
	}
	if r.grant.Target == policy.TargetHost {
		return s.prepareHost(r, interpreter)
	}
	network, failure := s.network(r)
	if failure != nil {
		return failure
	}
	info.Flags = append(slices.Clone(info.Flags), script.NetFlags(info, network)...)
	if failure := r.execution(info, interpreter.Path); failure != nil {
		return failure
	}
	workspace, failure := s.workspace(r)
	if failure != nil {
		return failure
	}
	r.cmd.Workspace = workspace
	s.findCache(ctx, r, interpreter)
	handle, err := r.tree.Open()
	if err != nil {
		r.close()
		return internalError(err)
	}
	target := sandbox.SkillDir + "/" + r.path
	r.cmd = sandbox.Cmd{
		Argv: r.cmd.Argv, Interpreter: interpreter, Tree: handle,
		Workspace: workspace, Cwd: r.in.Cwd, Stdin: r.cmd.Stdin, Limits: s.limits(r.in.Timeout, r.grant.Entry),
		Env: []string{
			"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.TmpDir, "LANG=C.UTF-8",
			"CF_HARNESS_RUN_ID=" + s.id, "SKILL_NAME=" + r.skill.Name(), "SKILL_DIR=" + sandbox.SkillDir, "SKILL_SCRIPT=" + target,
			"CF_HARNESS_SKILL_SCRIPT_EXECUTION_TARGET=sandbox",
		},
	}
	r.mountCache()
	r.cmd.Env = append(r.cmd.Env, r.env...)
	if r.proxy != nil {
		r.cmd.Network = sandbox.Network{Proxy: r.proxy}
	}
	r.out.ExecutionTarget, r.out.Runtime, r.out.Argv, r.out.CWD = "sandbox", info.ReferenceRuntime(), r.redact.Texts(r.cmd.Argv), r.redact.Text(cwd(r))
	return nil
}

// defaultTimeout is what a call gets that names none, and whose entry names none.
const defaultTimeout = time.Minute

// timeout is how long a run of an entry may take when its call asks for called, or for nothing when
// that is 0. An entry and a call only go below the server's limit, and a call below its entry's.
func (s *Session) timeout(called time.Duration, entry policy.Entry) time.Duration {
	most := cmp.Or(s.cfg.Limits.Timeout, policy.MaxTimeout)
	if entry.Timeout > 0 {
		most = min(most, entry.Timeout)
		called = cmp.Or(called, most)
	}
	return min(cmp.Or(called, defaultTimeout), most)
}

// limits are the configured ones, lowered by what the entry and the call say.
func (s *Session) limits(timeout time.Duration, entry policy.Entry) sandbox.Limits {
	limits := s.cfg.Limits
	limits.Timeout = s.timeout(timeout, entry)
	if entry.Memory > 0 {
		limits.Memory = min(entry.Memory, s.cfg.Limits.WithDefaults().Memory)
	}
	return limits
}

// cwd is where a prepared script starts, for the records.
func cwd(r *run) string {
	switch {
	case r.in.Cwd != "":
		return clip(r.in.Cwd)
	case wideness(r.cmd.Workspace.Mode) > 0:
		return sandbox.WorkspaceDir
	}
	return sandbox.TmpDir
}

// clientNames reports whether the workspace of a call is the one its client names.
func (s *Session) clientNames(call Call) bool {
	return s.cfg.ClientWorkspace != nil && !call.Remote && call.Workspace.Path != ""
}

// mounts reports whether a run of the call sees a workspace.
func (s *Session) mounts(call Call) bool {
	return s.clientNames(call) || s.cfg.Workspace.Mode != "" && s.cfg.Workspace.Mode != sandbox.WorkspaceNone
}

// wideness orders what a workspace lets a script do.
func wideness(mode sandbox.WorkspaceMode) int {
	return max(slices.Index([]sandbox.WorkspaceMode{sandbox.WorkspaceNone, sandbox.WorkspaceRO, sandbox.WorkspaceStaged, sandbox.WorkspaceRW}, mode), 0)
}

// narrow returns the narrower of what is granted to all scripts and what an entry says.
func narrow(granted sandbox.WorkspaceMode, entry policy.Entry) sandbox.WorkspaceMode {
	mode := sandbox.WorkspaceMode(entry.Workspace)
	if mode == "" || wideness(mode) >= wideness(granted) {
		return granted
	}
	return mode
}

// workspace returns what a run is to see at /workspace.
func (s *Session) workspace(r *run) (sandbox.Workspace, *Error) {
	none := narrow(sandbox.WorkspaceRW, r.grant.Entry) == sandbox.WorkspaceNone
	if none {
		return sandbox.Workspace{}, nil
	}
	ws := s.cfg.Workspace
	if s.clientNames(r.in.Call) {
		var err error
		if ws, err = s.cfg.ClientWorkspace(r.in.Call.Workspace); err != nil {
			return ws, &Error{Code: CodeCwdDenied, Message: "the workspace that the client names cannot be mounted: " + err.Error(),
				Remedy: "work in another directory, or the operator can start the server without --workspace-from-client", Err: err}
		}
		r.named = true
	}
	ws.Mode = narrow(ws.Mode, r.grant.Entry)
	return ws, nil
}

// mountOf is what a run would see at /workspace, in words for a user.
func (s *Session) mountOf(r *run, entry policy.Entry) string {
	if !s.mounts(r.in.Call) || entry.Workspace == string(sandbox.WorkspaceNone) {
		return "none"
	}
	if s.clientNames(r.in.Call) {
		return "the directory the client works in"
	}
	return string(narrow(s.cfg.Workspace.Mode, entry))
}
