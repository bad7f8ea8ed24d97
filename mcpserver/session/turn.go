package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// await waits for the slot of a run, which release gives back. A run whose call is cancelled before
// its turn comes has that as its result.
func (s *Session) await(ctx context.Context, r *run) (release func(), failure *Error) {
	call := &r.in.Call
	if call.Aside != nil && !call.Aside() {
		return nil, sandboxError(errCrowded)
	}
	release, waited, err := s.queue.acquire(ctx, call.Principal.Name, func(before int) {
		call.progress(fmt.Sprintf("waiting for a run slot, %d before this one", before))
	})
	r.waited = waited
	switch {
	case err == nil:
		return release, nil
	case ctx.Err() == nil && !errors.Is(err, errEnded):
		return nil, sandboxError(err)
	}
	s.waitEnded(ctx, r)
	return func() {}, nil
}

// waitEnded makes the result of a run that was cancelled while it waited, and notes the command that it
// would have been: nothing of it was checked or given to anything.
func (s *Session) waitEnded(ctx context.Context, r *run) {
	r.canceled(s.limits(r.in.Timeout, r.grant.Entry))
	info := *r.file.Script
	name := string(info.Runtime)
	if interpreter, err := s.cfg.Interpreter(context.WithoutCancel(ctx), name); err == nil && interpreter != nil {
		name = interpreter.Path
	}
	argv := script.Argv(info, name, sandbox.SkillDir+"/"+r.path, r.grant.Args)
	r.out.ExecutionTarget, r.out.Runtime, r.out.Argv = "sandbox", info.ReferenceRuntime(), r.redact.Texts(argv)
	if r.grant.Target == policy.TargetHost {
		r.out.ExecutionTarget = "host"
	}
	if r.in.Cwd != "" {
		r.out.CWD = r.redact.Text(clip(r.in.Cwd))
	}
}

// canceled makes the result of a run that was cancelled before its script started.
func (r *run) canceled(limits sandbox.Limits) {
	r.result = &sandbox.Result{Outcome: sandbox.Canceled, Backend: "none", Limits: limits}
}

// runInSlot does all that is done in the slot of a run, and gives the slot back. What is checked, read
// and opened here is as it is now, however long the run waited. A run that was cancelled while it waited
// has its result already.
//
// Errors: as those of RunScript, with its result.
func (s *Session) runInSlot(ctx context.Context, r *run, release func()) (*RunResult, error) {
	defer release()
	if r.result != nil {
		return nil, s.warn(ctx, r.request, r.grant)
	}
	if r.waited {
		if failed, err := s.allowAgain(ctx, r); err != nil {
			return failed, err
		}
	}
	if err := s.openTree(ctx, r); err != nil {
		return s.treeFailed(ctx, r, err)
	}
	if err := s.prepare(ctx, r); err != nil {
		return s.runFailed(ctx, r, err)
	}
	defer r.close()
	if err := s.warn(ctx, r.request, r.grant); err != nil {
		return nil, err
	}
	if err := s.isolate(ctx, r); err != nil {
		return s.runFailed(ctx, r, err)
	}
	return nil, nil
}

// allowAgain decides once more about a run that has waited: it is this decision that is recorded. An
// approval of the call itself still counts, for the files that it was given for.
func (s *Session) allowAgain(ctx context.Context, r *run) (*RunResult, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	r.mode = s.raise(r.call.Mode)
	r.redact, _ = s.redaction()
	r.out.Args = r.redact.Texts(r.out.Args)
	before := r.approval()
	if failed, err := s.allow(ctx, r); err != nil {
		return failed, err
	}
	if r.approval() != before {
		return s.treeFailed(ctx, r, errAnother)
	}
	return nil, nil
}

// errAnother means that the session has loaded other files of the skill while the run waited.
var errAnother = errors.New("the skill was loaded anew")

// isolate runs the command.
func (s *Session) isolate(ctx context.Context, r *run) *Error {
	runner, err := s.runner(ctx, r)
	if err == nil {
		r.in.Call.progress("running")
		r.result, err = runner.Run(ctx, &r.cmd)
	}
	if err != nil && ctx.Err() != nil {
		r.canceled(r.cmd.Limits)
		if runner != nil {
			r.result.Backend = runner.Name()
		}
		err = nil
	}
	if err != nil {
		return sandboxError(err)
	}
	return nil
}

func (c *Call) progress(message string) {
	if c.Progress != nil {
		c.Progress(message)
	}
}
