package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// lateLife is the longest wait for the outcome of a run that a worker has begun.
const lateLife = 10 * time.Minute

// turnAway waits for a slot at a worker and opens the tree. A worker waits only a moment for its job, so it
// is asked for a slot after the request is recorded and the tree compared.
//
// Errors: *policy.Denial, *Error, errWaitEnded.
func (s *Session) turnAway(ctx context.Context, r *run, waiting func(before int)) (*turn, error) {
	open := sync.OnceValues(func() (*store.Tree, error) { return s.openTree(ctx, r) })
	// This takes a while, and the call waits in the queue meanwhile.
	go open()
	ready := func() error {
		_, err := open()
		return cmp.Or(r.recorded(), err)
	}
	slot, err := s.cfg.Pool.Acquire(ctx, r.output, r.call.Principal.Name, ready, waiting)
	// The reason why the run is not ready comes before the errors of the queue, whichever Acquire saw first.
	if failed := ready(); failed != nil {
		return nil, failed
	}
	switch {
	case err == nil:
		// The function ready has returned the error already.
		tree, _ := open()
		return &turn{release: sync.OnceFunc(slot.Release), queued: slot.Queued(), worker: slot,
			tree: tree}, nil
	case ctx.Err() != nil:
		return nil, errWaitEnded
	case errors.Is(err, elsewhere.ErrBusy):
		return nil, fault.WorkersBusy.Because(err)
	}
	return nil, fault.OfSandbox(err)
}

// executeAway sends the job of a run to a worker and waits for its result.
//
// Errors: *policy.Denial if the worker refuses it, *Error.
func (s *Session) executeAway(ctx context.Context, r *run, worker elsewhere.Slot) (*sandbox.Result, error) {
	if r.call.Progress != nil {
		defer r.reportRun()()
	}
	done, err := worker.Run(ctx, elsewhere.Encode(elsewhere.Job{Run: r.output, Session: s.id, At: r.at,
		Method: r.call.Method, Principal: r.call.Principal.Name, Mode: r.mode, Unnamed: r.call.unnamed(),
		Skill: r.script.skill.Path, Path: r.script.path, Tree: r.tree.Digest, Args: r.in.Args, Cwd: r.in.Cwd,
		Stdin: r.in.Stdin, Timeout: r.in.Timeout, Limits: r.cmd.Limits, Grant: r.grant.Grant}))
	switch {
	// Nothing has started.
	case errors.Is(err, elsewhere.ErrBusy):
		return nil, fault.WorkersBusy.Because(err)
	// The worker may have begun the run. Only its own answer that it has not makes the call one to repeat.
	case err != nil:
		return nil, fault.OutcomeUnknown.Because(err, "{what}", "the worker that ran it")
	}
	return r.finished(done)
}

// finished decodes the report of a run's worker: it returns the result, and completes the command from the
// report.
//
// Errors: as executeAway.
func (r *run) finished(data []byte) (*sandbox.Result, error) {
	var done elsewhere.Done
	if err := json.Unmarshal(data, &done); err != nil {
		return nil, fault.Internal(err)
	}
	switch {
	case done.Denial != nil:
		// The operator must see whose allowlist refused the run.
		rules := " (by the rules of worker " + done.Name + ")"
		done.Denial.Detail += rules
		done.Denial.Plain += rules
		return nil, done.Denial
	case done.Failure != nil:
		return nil, &Error{Code: fault.Code(done.Failure.Code), Message: done.Failure.Message,
			Remedy: done.Failure.Remedy, Plain: done.Failure.Plain, Err: errors.New("worker " + done.Name)}
	case done.Result == nil:
		return nil, fault.Internal(errors.New("a worker returned no result"))
	}
	c := r.cmd
	c.done, c.argv, c.ran, c.cwd, c.Argv = &done, done.Argv, done.Ran, done.Cwd, done.Ran
	if in := done.Record.Interpreter; in != nil {
		c.Interpreter = &sandbox.Interpreter{Path: in.Path, Version: in.Version, Digest: string(in.Digest)}
	}
	if done.Release == policy.ReleaseOpaque {
		// The stricter rule of both servers applies.
		r.grant.Release = done.Release
	}
	return done.Result, nil
}

// settleUnfinished records the outcomes of the scripts that were requested in a session that is continued,
// and have no outcome yet. With workers, it waits in the background for a report of one. Without, or if there
// is no report, it records the outcome as unknown.
//
// Errors: *Error.
func (s *Session) settleUnfinished(ctx context.Context, past *cfharness.Recollection) error {
	for _, e := range past.Unfinished {
		r := s.unfinishedRun(e)
		recordUnknown := func(ctx context.Context) (event string, _ error) {
			e := s.failed(ctx, r, fault.OutcomeUnknown.Because(nil, "{what}", "its server"))
			e.Call = r.id
			err := s.write(ctx, e)
			return e.ID(), err
		}
		if s.cfg.Pool == nil {
			if _, err := recordUnknown(ctx); err != nil {
				return err
			}
			continue
		}
		s.background.Go(func() {
			s.awaitLate(r, "", func() string {
				// The wait also ends with the session, and the outcome must be recorded even then.
				event, err := recordUnknown(context.Background())
				if err != nil {
					s.cfg.Logger.Warn("outcome not recorded", slog.String("session", s.id), tint.Err(err))
				}
				return event
			})
		})
	}
	return nil
}

// awaitLate waits for the outcome of a run at a worker, and records it. unknown is the ID of the event that
// recorded the outcome as unknown, or "". If no worker reports that it runs the job, or the session ends
// before, awaitLate calls recordUnknown, which returns such an event; recordUnknown is nil if there is one
// already.
func (s *Session) awaitLate(r *run, unknown string, recordUnknown func() string) {
	ctx, cancel := context.WithTimeout(s.open, lateLife)
	defer cancel()
	giveUp := sync.OnceFunc(func() {
		if recordUnknown != nil {
			unknown = recordUnknown()
		}
	})
	data, done, err := s.cfg.Pool.Late(ctx, r.output, giveUp)
	if err != nil {
		giveUp()
		return
	}
	// The outcome is known now, so the end of the session must not keep it out of the record.
	ctx = context.WithoutCancel(ctx)
	err = s.adopt(ctx, r, data)
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "late outcome not recorded", slog.String("session", s.id),
			tint.Err(err))
		giveUp()
		return
	}
	result, err := r.finished(done)
	switch {
	case err == nil:
		_, err = s.finish(ctx, r, result, ending{late: true, supersedes: unknown})
	// Otherwise that event is the record of the failure.
	case unknown == "":
		_, err = s.notRun(ctx, r, err)
	}
	s.cfg.Logger.InfoContext(ctx, "late outcome of a worker", slog.String("session", s.id), tint.Err(err))
}

// adopt returns an error unless data is the job of a run. It completes a run that another server requested
// from the job.
//
// Errors: *Error, and errors that are not shown to clients.
func (s *Session) adopt(ctx context.Context, r *run, data []byte) error {
	var job elsewhere.Job
	if err := json.Unmarshal(data, &job); err != nil {
		return err
	}
	if job.Run != r.output {
		return errors.New("the worker has the job of another run")
	}
	if r.script != nil {
		// This server requested the run, so the fields of r are set.
		return nil
	}
	r.call.Principal, r.mode = s.principal, job.Mode
	r.in.Args, r.in.Cwd, r.in.Stdin, r.in.Timeout = job.Args, job.Cwd, job.Stdin, job.Timeout
	r.at, r.grant.Grant = job.At, job.Grant
	f, err := s.jobScript(ctx, &job)
	if err != nil {
		return err
	}
	if err := s.check(r, f); err != nil {
		return err
	}
	r.script = f
	r.cmd, err = s.outline(r)
	return err
}

// jobScript returns the script of a job if this machine has the skill with the same tree digest.
//
// Errors: *Error.
func (s *Session) jobScript(ctx context.Context, job *elsewhere.Job) (*scriptFile, error) {
	sk := s.cfg.Registry.Snapshot().Skill(job.Skill)
	if sk != nil {
		index, err := sk.Index(ctx)
		// The skill may have been updated since the scan.
		if err != nil || index.TreeDigest != job.Tree {
			sk, index, err = s.current(ctx, sk)
		}
		if err == nil && index.TreeDigest == job.Tree {
			return &scriptFile{skill: sk, path: job.Path, index: index, file: index.Resource(job.Path)}, nil
		}
	}
	return nil, fault.TreeElsewhere.Because(nil, "{skill}", policy.Clip(job.Skill), "{tree}",
		job.Tree.String())
}

// WorkSlot waits for a slot for the work of a principal of another server.
//
// Errors: the errors of [admit.Queue].
func (s *Sessions) WorkSlot(
	ctx context.Context, principal string, waiting func(before int),
) (release func(), err error) {
	slot, err := s.queue.Acquire(ctx, principal, waiting)
	if err != nil {
		return nil, err
	}
	return slot.Release, nil
}

// Work runs a job of another server if the rules of this one allow it, and returns the encoded
// [elsewhere.Done]. It calls started before the command starts, and starts nothing if started fails. It
// records nothing; the server that sent the job does.
func (s *Sessions) Work(ctx context.Context, by elsewhere.Worker, data []byte, started func() error) []byte {
	done := elsewhere.Done{Worker: by}
	err := s.work(ctx, data, started, &done)
	if err == nil {
		return elsewhere.Encode(done)
	}
	// The parts of a run that failed must not reach the server.
	done = elsewhere.Done{Worker: by}
	if denial, ok := errors.AsType[*policy.Denial](err); ok {
		done.Denial = denial
	} else {
		failure := fault.Internal(err)
		done.Failure = &elsewhere.Failure{Code: string(failure.Code), Message: failure.Message,
			Remedy: failure.Remedy, Plain: failure.Plain}
	}
	s.cfg.Logger.InfoContext(ctx, "job not run", tint.Err(err))
	return elsewhere.Encode(done)
}

// work runs a job and completes done. The stages are the same as in RunScript, without records and questions.
//
// Errors: the errors of [policy.Policy.Decide], *Error.
func (s *Sessions) work(ctx context.Context, data []byte, started func() error, done *elsewhere.Done) error {
	var job elsewhere.Job
	if err := json.Unmarshal(data, &job); err != nil {
		return err
	}
	ses, r := s.jobRun(&job)
	f, err := ses.jobScript(ctx, &job)
	if err != nil {
		return err
	}
	r.grant.Grant, err = ses.authorizeJob(r, f, &job)
	if err != nil {
		return err
	}
	r.script = f
	if err := ses.check(r, f); err != nil {
		return err
	}
	r.tree, err = ses.openTree(ctx, r)
	if err != nil {
		return err
	}
	r.cmd, err = ses.command(ctx, r, &turn{})
	if err != nil {
		return err
	}
	defer r.cmd.close()
	r.secrets, r.cmd.Limits = r.cmd.secrets, r.cmd.Limits.Lower(job.Limits)
	// Nothing starts before the sender has heard of it, because a sender that hears nothing may offer the run
	// to another worker.
	if err := started(); err != nil {
		return fault.WorkersBusy.Because(err)
	}
	// The sending server has recorded the request.
	result, err := ses.execute(ctx, r, nil, func() error { return nil })
	if err != nil {
		return err
	}
	if r.cmd.uncached != nil {
		ses.makeCache(r, result)
	}
	// The sender does not have the values of this machine's secrets, so it could not redact them.
	done.Withheld, done.Recounted = redactResult(r.secrets, result, r.cmd.given)
	done.Record = *r.extension(result, answerOf(result, nil), done.Recounted, ending{})
	done.Record.Worker, done.Record.WorkerRules = done.Name, done.Rules
	done.Result, done.Release = result, r.grant.Release
	done.Argv, done.Ran, done.Cwd, done.Env = r.cmd.argv, r.cmd.ran, r.cmd.cwd,
		cfharness.SummarizeEnv(slices.Clone(r.cmd.added))
	return nil
}

// jobRun returns the run of a job, and a session for it that has no record.
func (s *Sessions) jobRun(job *elsewhere.Job) (*Session, *run) {
	// The configuration of this worker may narrow the principal to a profile, and the job must not
	// widen that.
	principal := s.cfg.Principals[job.Principal]
	// The sending server has checked the evidence.
	principal.Name, principal.Evidence = job.Principal, true
	call := Call{Method: job.Method, Principal: principal, Remote: true, Mode: job.Mode}
	// The grant rested on a prompt slot, which the job does not contain.
	if job.Grant.Evidence != "" && job.Grant.Evidence != policy.EvidenceApproval {
		call.Slot = &policy.PromptSlot{Role: policy.DirectCommand}
	}
	ses := &Session{Sessions: s, id: job.Session, principal: call.Principal, raised: new(earlier.Mode)}
	r := &run{request: ses.newRequest(call, policy.SideEffect), at: job.At, secrets: s.Secrets(),
		in: RunRequest{Call: call, Skill: job.Skill, Path: job.Path, Args: job.Args, Cwd: job.Cwd,
			Timeout: job.Timeout, Stdin: job.Stdin}}
	r.output = job.Run
	return ses, r
}

// authorizeJob evaluates the policy of this server for the script of a job. The user was asked by the server
// that sent the job.
//
// Errors: the errors of [policy.Policy.Decide], *Error.
func (s *Session) authorizeJob(r *run, f *scriptFile, job *elsewhere.Job) (policy.Grant, error) {
	facts := s.runFacts(r.request, &r.in, f)
	facts.Unnamed = job.Unnamed
	if job.Grant.Evidence == policy.EvidenceApproval {
		facts.Approved = policy.ApprovalOfCall
	}
	grant, err := s.decide(r.request, f.skill, facts)
	// The entry of this server may name the host, but a job is for the sandbox only.
	if err == nil && grant.Target == policy.TargetHost {
		err = fault.WorkedOnHost.Because(nil)
	}
	return grant, err
}

// unfinishedRun returns the run of a recorded request, with the fields that the record has.
func (s *Session) unfinishedRun(e *provenance.Event) *run {
	var row cfharness.ScriptRequest
	// This cannot fail, because Recall has decoded the row.
	_ = json.Unmarshal(e.Row, &row)
	r := &run{request: s.newRequest(Call{Method: methodOf(row.OutputID), Principal: s.principal},
		policy.SideEffect), at: e.Time, secrets: s.Secrets(), in: RunRequest{Skill: e.Skill, Path: e.Path}}
	r.output, r.id = row.OutputID, e.Call
	return r
}
