package session

import (
	"context"
	"time"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/script"
)

// prepare turns the script into a command: runtime, interpreter, argv, environment, limits.
func (s *Session) prepare(ctx context.Context, r *run) *Error {
	info := *r.file.Script
	if info.Runtime == "" {
		return &Error{Code: CodeUnsupportedRuntime, Message: "the script cannot be run: " + info.Problem,
			Remedy: "bash, sh, python3, node and deno scripts run, with the shebang flags the documentation lists"}
	}
	interpreter, err := s.cfg.Interpreter(context.WithoutCancel(ctx), string(info.Runtime))
	if err != nil {
		return internalError(err)
	}
	if interpreter == nil {
		return &Error{Code: CodeInterpreterNotFound, Message: string(info.Runtime) + " is not installed where the server runs",
			Remedy: "the operator can install " + string(info.Runtime) + " on the server's PATH and restart it"}
	}
	workspace, failure := s.workspace(r)
	if failure != nil {
		return failure
	}
	r.cmd.Workspace = workspace
	handle, err := r.tree.Open()
	if err != nil {
		r.close()
		return internalError(err)
	}
	target := sandbox.SkillDir + "/" + r.path
	r.cmd = sandbox.Cmd{
		Argv: script.Argv(info, interpreter.Path, target, r.in.Args), Interpreter: interpreter, Tree: handle,
		Workspace: workspace, Cwd: r.in.Cwd, Stdin: r.in.Stdin, Limits: s.limits(r.in.Timeout),
		Env: []string{
			"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.TmpDir, "LANG=C.UTF-8",
			"CF_HARNESS_RUN_ID=" + s.id, "SKILL_NAME=" + r.skill.Name(), "SKILL_DIR=" + sandbox.SkillDir, "SKILL_SCRIPT=" + target,
			"CF_HARNESS_SKILL_SCRIPT_EXECUTION_TARGET=sandbox",
		},
	}
	r.out.ExecutionTarget, r.out.Runtime, r.out.Argv, r.out.CWD = "sandbox", info.ReferenceRuntime(), r.cmd.Argv, s.cwd(r.in)
	return nil
}

// limits are the configured ones; a call may only lower its timeout.
func (s *Session) limits(timeout time.Duration) sandbox.Limits {
	limits := s.cfg.Limits
	if limits.Timeout == 0 || timeout < limits.Timeout {
		limits.Timeout = timeout
	}
	return limits
}

// cwd is where a script starts, for the records.
func (s *Session) cwd(in RunRequest) string {
	switch {
	case in.Cwd != "":
		return clip(in.Cwd)
	case s.mounts(in.Call):
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

// workspace returns what a run is to see at /workspace.
func (s *Session) workspace(r *run) (sandbox.Workspace, *Error) {
	if !s.clientNames(r.in.Call) {
		return s.cfg.Workspace, nil
	}
	ws, err := s.cfg.ClientWorkspace(r.in.Call.Workspace)
	if err != nil {
		return ws, &Error{Code: CodeCwdDenied, Message: "the workspace that the client names cannot be mounted: " + err.Error(),
			Remedy: "work in another directory, or the operator can start the server without --workspace-from-client", Err: err}
	}
	r.named = true
	return ws, nil
}
