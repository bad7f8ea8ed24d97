package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// RunRequest asks for one script of an activated skill.
type RunRequest struct {
	Call    Call
	Skill   string // path or unique name
	Path    string // relative to the skill, below scripts/ unless the allowlist names another place
	Args    []string
	Cwd     string
	Timeout time.Duration // 0: the entry's, else the configured one, else a minute
	Stdin   []byte        // nil: no standard input

	// Invalid, if not nil, is why the arguments were rejected; the other fields are those that parsed. The
	// attempt is recorded, and nothing runs.
	Invalid *Error

	ShowOut bool // whether the caller shows files of /out

	CanAsk bool    // whether the user can be asked to approve the run
	Fields bool    // whether a question has fields for long texts; see [approval.Facts.Form]
	Answer *Answer // to the question that an earlier call returned; nil if it returned none
}

// RunResult is the result of a script that started and ended, or that was canceled before it started.
type RunResult struct {
	Outcome        string
	ExitCode       int
	Signal         string
	Duration       time.Duration
	Backend        string
	Stdout, Stderr Stream
	Out            []cfharness.OutFile
	OutShown       []OutShown      // parallel to Out; empty if nothing is shown
	OutSkips       int             // entries of /out that were not kept
	Skipped        []string        // quoted names of the first entries that were not kept
	Writes         []sandbox.Write // changes to a staged workspace, in order
	Remote         bool            // the user may have no access to the server's machine
	Sealed         bool            // some output was withheld; Out, OutSkips and Skipped are then empty
	ExitWithheld   bool            // ExitCode and Signal are withheld from the caller
	Opaque         bool            // see [cfharness.RunExtension]: withheld fields are zero
	Output         cfharness.RunOutput
}

// WorkspaceDir is the path of the workspace in a sandbox.
const WorkspaceDir = sandbox.WorkspaceDir

// SeesWorkspace reports whether the script was given a workspace, in any mode.
func (r *RunResult) SeesWorkspace() bool {
	return r.Output.Skillsd != nil && r.Output.Skillsd.Workspace != string(sandbox.WorkspaceNone)
}

// run is one call of RunScript: its request, the rules that apply to it, and the results of its stages. Only
// the functions that call the stages set its fields: RunScript, again, awaitLate and work. A stage fails with
// *policy.Denial, *Question or *Error, which notRun records.
type run struct {
	*request
	in      RunRequest
	at      time.Time
	secrets *redact.Redactor // of every declared secret; nil without secrets

	// recorded waits until the request of the run is on the disk. It is nil for a run that another server
	// requested. Its errors are *Error.
	recorded func() error

	script *scriptFile   // set by scriptOf
	grant  authorization // set by authorize
	tree   *store.Tree   // set by openTree
	cmd    *command      // set by command
}

// RunRoom returns the bytes that are reserved for the outcome of a run while it runs: its streams, the files
// of /out, the events and what the caller is shown. A principal whose quota has less room left runs nothing.
func RunRoom(limits sandbox.Limits) int64 { return 2*limits.WithDefaults().Output + 16<<20 + 1<<20 }

// authorization is the policy's grant and the approval of the user; approved and asked are zero if the user
// was not asked.
type authorization struct {
	policy.Grant
	approved approval.Key
	asked    digest.Digest // of the call and what it could use when it was approved; see callDigest
}

// RunScript runs one script if all checks pass; they are made in the order below.
//
// Errors: *Denied, *Question, *Error. A script that fails, is killed or is canceled is a result.
func (s *Session) RunScript(ctx context.Context, in RunRequest) (*RunResult, error) {
	// The end of the session must come after the outcome of each run in the record.
	s.runs.RLock()
	defer s.runs.RUnlock()
	// No script runs while the outcome of an earlier run is unrecorded.
	if err := s.flushPending(ctx); err != nil {
		return nil, err
	}
	r := s.newRun(in)
	// Recording waits for the disk. The stages below overlap with it; a stage that starts or records
	// something waits for r.recorded first.
	r.recorded = s.recordRequest(ctx, r)
	if r.in.Invalid != nil {
		return nil, s.refuse(ctx, r, r.in.Invalid)
	}
	var err error
	r.script, err = s.scriptOf(r)
	if err != nil {
		return nil, s.refuse(ctx, r, err)
	}
	r.grant, err = s.authorize(ctx, r, r.script) // the policy, then the user
	if err != nil {
		return nil, s.refuse(ctx, r, err)
	}
	if err := s.check(r, r.script); err != nil {
		return nil, s.refuse(ctx, r, err)
	}
	turn, err := s.waitTurn(ctx, r)
	if errors.Is(err, errWaitEnded) {
		return s.canceledWaiting(ctx, r)
	}
	if err != nil {
		return nil, s.refuse(ctx, r, err)
	}
	defer turn.release()
	// On this machine it is nil: a run that waits must compare the files afterwards.
	r.tree = turn.tree
	if turn.queued {
		// While the run waited, the rules, the loaded files and the approval may have changed.
		r, err = s.again(ctx, r)
		if err != nil {
			return nil, s.refuse(ctx, r, err)
		}
	}
	if r.tree == nil {
		// The run gets the bytes that were allowed, compared with the disk.
		r.tree, err = s.openTree(ctx, r)
		if err != nil {
			return nil, s.refuse(ctx, r, err)
		}
	}
	r.cmd, err = s.command(ctx, r, turn)
	if err != nil {
		return nil, s.refuse(ctx, r, err)
	}
	defer r.cmd.close()
	// From here on, these also have the secrets that the script is given.
	r.secrets = r.cmd.secrets
	room := func() {}
	mayStart := sync.OnceValue(func() error {
		// The room is set before anything else, so that it is released even after a panic.
		var full error
		room, full = s.reserve(ctx, r)
		return s.mayStart(ctx, r, full)
	})
	defer func() { room() }()
	result, err := s.execute(ctx, r, turn.worker, mayStart)
	// If the script may not start, the record has the reason. Execution may also have failed before it asked:
	// then this call waits for the record of the request.
	if failed := mayStart(); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, s.failedRun(ctx, r, turn, err)
	}
	// The next run can start while the output is recorded.
	turn.release()
	return s.finish(ctx, r, result, ending{room: room})
}

// newRun returns the run that a call requests. Arguments that are too large are invalid.
func (s *Session) newRun(in RunRequest) *run {
	if err := script.CheckArgs(in.Args); err != nil {
		in.Invalid = cmp.Or(in.Invalid, fault.ArgumentsInvalid.Because(err))
	}
	if path.Clean(in.Cwd) == "." {
		// An approval must not depend on the spelling of the default directory.
		in.Cwd = ""
	}
	r := &run{request: s.newRequest(in.Call, policy.SideEffect), in: in, at: s.cfg.Now(),
		secrets: s.Secrets()}
	r.summary.Skill, r.summary.Path = new(policy.Clip(in.Skill)), new(policy.Clip(in.Path))
	if in.Args != nil {
		r.summary.ArgsCount = new(len(in.Args))
	}
	if in.Invalid != nil {
		// Arguments that were rejected may be too long for a record.
		r.in.Args = nil
	}
	if in.Timeout > 0 {
		r.summary.TimeoutMS = new(in.Timeout.Milliseconds())
	}
	if in.Cwd != "" {
		r.summary.CWD = new(policy.Clip(in.Cwd))
	}
	r.output = s.outputID(in.Call)
	r.id = strings.TrimPrefix(r.output, s.id+":")
	// The question and the run that answers it share one ID.
	if in.Answer != nil {
		r.id = cmp.Or(s.approver.IDOf(in.Answer.State, s.id), r.id)
	}
	return r
}

// recordRequest begins to record the request of a run, which comes before all its other events, and returns a
// function that waits until it is on the disk.
func (s *Session) recordRequest(ctx context.Context, r *run) (recorded func() error) {
	e := &provenance.Event{Kind: provenance.KindScriptRequested, Skill: policy.Clip(r.in.Skill),
		Path: policy.Clip(r.in.Path), Detail: "requested",
		Row: encode(cfharness.ScriptRequest{Type: cfharness.TypeScriptRequest, OutputID: r.output})}
	if s.clientNames(r.rules, r.in.Call) {
		// No other event names the client's directory.
		e.Detail += ", workspace of the client: " + strconv.Quote(r.in.Call.Workspace.Path)
	}
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = s.append(ctx, r.request, e)
	}()
	return func() error {
		<-done
		return err
	}
}

// refuse records why a run does not start, and returns the error for the caller.
func (s *Session) refuse(ctx context.Context, r *run, err error) error {
	// The record of the request comes before its refusal.
	if failed := r.recorded(); failed != nil {
		return failed
	}
	_, err = s.notRun(ctx, r, s.advised(ctx, r, err))
	return err
}

// advised returns err, the reason why a run does not start, or the same denial with another remedy if it
// would not help to allow the script: changed files of an installed skill must be restored, and a script
// without an interpreter does not run anyway.
func (s *Session) advised(ctx context.Context, r *run, err error) error {
	denial, ok := errors.AsType[*policy.Denial](err)
	if !ok {
		return err
	}
	sk := s.visible(r.call).Skill(denial.Skill)
	if sk == nil {
		return err
	}
	loaded := s.loadedScript(sk, denial.Path)
	sk, _, failure := s.current(ctx, sk)
	if failure != nil {
		return err
	}
	advised := *denial
	if s.Restorable(ctx, sk, denial) {
		advised.Remedy, advised.Operator = tampered.remedy, tampered.operator
		return &advised
	}
	isAllowed := denial.Code != policy.CodeScriptNotAllowlisted && denial.Code != policy.CodeToolNotAllowed
	if isAllowed || loaded.file == nil || loaded.file.Program() == nil {
		return err
	}
	if lacks, ok := errors.AsType[*Error](loaded.unsupported()); ok {
		info := loaded.file.Program()
		advised.Plain, advised.Remedy = lacks.Public(), lacks.Remedy
		advised.Operator = policy.Clip(info.Problem) + "; " + cmp.Or(info.Fix(),
			"`skillsd help env` lists which shebangs run")
	}
	return &advised
}

// Restorable reports whether a denial about a script has the cause that somebody changed the files of its
// installed skill.
func (s *Session) Restorable(ctx context.Context, sk *skills.Skill, denial *policy.Denial) bool {
	switch denial.Code {
	case policy.CodeScriptSnapshotMismatch, policy.CodeScriptNotAllowlisted, policy.CodeToolNotAllowed:
		return s.cfg.Tampered != nil && s.cfg.Tampered(ctx, sk)
	}
	return false
}

// failedRun records why a run that was allowed to start has no result, and returns the error for the caller.
func (s *Session) failedRun(ctx context.Context, r *run, turn *turn, err error) error {
	event, err := s.notRun(ctx, r, err)
	failure, ok := errors.AsType[*Error](err)
	if turn.worker != nil && ok && failure.Code == fault.CodeOutcomeUnknown {
		// The worker may still report the outcome.
		s.background.Go(func() { s.awaitLate(r, event, nil) })
	}
	return err
}

// runFacts returns the facts of a run for the policy.
func (s *Session) runFacts(r *request, in *RunRequest, f *scriptFile) policy.Request {
	start := r.rules.pins[f.skill.Path+":"+f.path]
	facts := policy.Request{
		Path: f.path, Workspace: s.hasWorkspace(r.rules, in.Call), Args: in.Args, Lease: in.Call.Lease,
		Now: s.cfg.Now(), Unnamed: in.Call.unnamed(), StartTree: start.tree, StartFile: start.file,
	}
	if f.index == nil {
		return facts
	}
	facts.Activated, facts.TreeDigest = true, f.index.TreeDigest
	if f.file != nil {
		facts.FileDigest = f.file.Digest
		if info := f.file.Program(); info != nil {
			facts.Runtime = info.Runtime
		}
	} else {
		facts.Instead = s.insteadRun(r, in, f)
	}
	s.mu.Lock()
	approved := maps.Clone(s.approved)
	s.mu.Unlock()
	// approvalFor opens the workspace: it is not called with mu held, nor if nothing is approved.
	if len(approved) > 0 && approved[s.approvalFor(r, in.Call, f)] {
		facts.Approved = policy.ApprovalRemembered
	}
	return facts
}

// authorize evaluates the policy for a run of a script and, if only an approval is missing, asks the user.
// An approval that the run already has is valid for the same files and the same call only.
//
// Errors: *policy.Denial, *Question, *Error.
func (s *Session) authorize(ctx context.Context, r *run, f *scriptFile) (authorization, error) {
	facts := s.runFacts(r.request, &r.in, f)
	grant, err := s.decide(r.request, f.skill, facts)
	needs, asks := errors.AsType[*policy.ApprovalRequired](err)
	switch {
	case asks:
	// The policy denied or granted it, in both cases without the user.
	case err != nil:
		return authorization{}, s.othersMayRun(r, f, s.allowedSince(ctx, r, f, err))
	default:
		return authorization{grant, r.grant.approved, r.grant.asked}, nil
	}
	facts.Approved = policy.ApprovalOfCall
	if f.index != nil && r.grant.approved == f.approval() && r.grant.asked == s.callDigest(r, f, needs) {
		grant, err = s.decide(r.request, f.skill, facts)
		return authorization{grant, r.grant.approved, r.grant.asked}, s.othersMayRun(r, f, err)
	}
	if err := s.approve(ctx, r, f, needs); err != nil {
		return authorization{}, err
	}
	// The grant depends on the approval: the policy is evaluated again with it.
	grant, err = s.decide(r.request, f.skill, facts)
	return authorization{grant, f.approval(), s.callDigest(r, f, needs)}, err
}

// approve returns nil if the user approves a run, in this call or before it, and asks the user otherwise.
//
// Errors: *policy.Denial, *Question, *Error.
func (s *Session) approve(ctx context.Context, r *run, f *scriptFile, needs *policy.ApprovalRequired) error {
	// A missing file, or a script without an interpreter, cannot run: the user is not asked to approve it.
	if err := s.check(r, f); err != nil {
		return err
	}
	if err := f.unsupported(); err != nil {
		return err
	}
	// The next call of a guessed session may come from another conversation, which must not use an approval
	// of this one.
	if s.isGuessed() && needs.Remember {
		once := *needs
		once.Remember, needs = false, &once
	}
	// The events about a question come after the request in the record.
	if err := r.recorded(); err != nil {
		return err
	}
	given, err := s.givenByCode(ctx, r, f, needs)
	switch {
	case given || err != nil:
		return err
	case s.tired(ctx, r.call, f):
		return s.unapproved(ctx, r, f, declinedOften, needs)
	case r.in.Answer != nil:
		return s.answered(ctx, r, f, needs)
	case r.in.CanAsk:
		return s.ask(ctx, r, f, needs)
	}
	return s.unapproved(ctx, r, f, clientCannotAsk, needs)
}

// allowedSince returns err, the denial of a run, or a better one: if the skill changed after the session
// loaded it, and the policy would allow its new files, loading the skill again is enough. The denial then
// has that remedy.
func (s *Session) allowedSince(ctx context.Context, r *run, f *scriptFile, err error) error {
	denial, ok := errors.AsType[*policy.Denial](err)
	if !ok || denial.Code != policy.CodeScriptSnapshotMismatch {
		return err
	}
	sk := s.visible(r.call).Skill(f.skill.Path)
	if sk == nil {
		return err
	}
	sk, index, failure := s.current(ctx, sk)
	if failure != nil || index.TreeDigest == f.index.TreeDigest {
		return err
	}
	now := &scriptFile{skill: sk, path: f.path, index: index, file: index.Resource(f.path)}
	_, failure = s.decide(r.request, sk, s.runFacts(r.request, &r.in, now))
	if _, asks := errors.AsType[*policy.ApprovalRequired](failure); failure != nil && !asks {
		return err
	}
	return r.denial(loadedOld, f.skill.Path, f.path)
}

// facts returns the facts of an indexed script in the version that the session loaded.
func (f *scriptFile) facts() cfharness.FileFacts {
	return cfharness.FileFacts{SandboxResourcePath: snapshot.SandboxPath(f.skill, f.path),
		RegistryDigest: f.file.Digest, RegistrySizeBytes: &f.file.Size}
}

// check reports as an error that the path is not an indexed script. It is called after the policy, which
// refuses a script without an entry even if the file does not exist.
func (s *Session) check(r *run, f *scriptFile) error {
	below := func(other skills.Resource) bool { return strings.HasPrefix(other.Path, f.path+"/") }
	switch {
	case f.file == nil && slices.ContainsFunc(f.index.Resources, below):
		return fault.ScriptIsDirectory.Because(nil)
	case f.file == nil:
		return fault.ScriptNotIndexed.Because(nil, "{skill}", f.skill.Path, "{path}", fault.Plain(f.path),
			"{instead}", s.insteadRun(r.request, &r.in, f))
	case f.file.Program() == nil:
		return fault.ResourceNotScript.Because(nil, "{path}", fault.Plain(f.path))
	}
	return nil
}

// unsupported returns an error if no runtime can run the script, else nil.
func (f *scriptFile) unsupported() error {
	info := f.file.Program()
	if info.Runtime != "" {
		return nil
	}
	failure := fault.RuntimeUnsupported.Because(nil, "{path}", f.path, "{problem}", info.Problem)
	if fix := info.Fix(); fix != "" {
		failure.Remedy = "its author can " + fix
	}
	return failure
}

// turn is the slot of a run, on this machine or at a worker.
type turn struct {
	release func()         // releases the slot; only the first call has an effect
	queued  bool           // the run waited for the slot
	worker  elsewhere.Slot // nil on this machine
	tree    *store.Tree    // opened before a worker gives its slot; nil on this machine
}

// waitTurn waits for the slot of a run, here or, if there are workers and the target is the sandbox, at one.
//
// Errors: *policy.Denial, *Error, errWaitEnded.
func (s *Session) waitTurn(ctx context.Context, r *run) (*turn, error) {
	// A call that waits must not occupy the place of a call that could be served meanwhile.
	if r.call.YieldSlot != nil && !r.call.YieldSlot() {
		return nil, fault.RunsCrowded.Because(admit.ErrCrowded)
	}
	waiting := func(before int) {
		// A run whose progress a user sees is in the record. RunScript returns the error.
		_ = r.recorded()
		if r.call.Progress != nil {
			r.call.Progress(fmt.Sprintf("waiting for a run slot, %d before this one", before))
		}
	}
	if s.cfg.Pool != nil && r.grant.Target != policy.TargetHost {
		return s.turnAway(ctx, r, waiting)
	}
	slot, err := s.queue.Acquire(ctx, r.call.Principal.Name, waiting)
	late, isLate := errors.AsType[*admit.LateError](err)
	switch {
	case err == nil:
		return &turn{release: slot.Release, queued: slot.Queued()}, nil
	case isLate:
		return nil, waitedTooLong(late)
	case ctx.Err() == nil && !errors.Is(err, admit.ErrClosed):
		return nil, fault.RunsCrowded.Because(err)
	}
	return nil, errWaitEnded
}

// waitedTooLong returns the error of a run that got no slot in time.
func waitedTooLong(late *admit.LateError) *Error {
	return fault.RunsLate.Because(late, "{wait}", fmt.Sprintf("%g minutes", admit.MaxWait.Minutes()),
		"{before}", strconv.Itoa(late.Before))
}

// errWaitEnded means that the call was canceled, or its server stopped, while the run waited for its slot.
var errWaitEnded = errors.New("the run was canceled while it waited")

// canceledWaiting records a run that was canceled while it waited for its slot. The record has the command
// line that would have run; nothing of it was checked or started.
func (s *Session) canceledWaiting(ctx context.Context, r *run) (*RunResult, error) {
	if err := s.recordWarning(ctx, r); err != nil {
		return nil, err
	}
	outline, err := s.outline(r)
	if err != nil {
		return nil, s.refuse(ctx, r, err)
	}
	r.cmd = &command{argv: outline.argv, cwd: outline.cwd}
	return s.finish(ctx, r, canceled("none", outline.Limits), ending{})
}

// outline returns the parts of a run's command that do not depend on the machine on which it runs.
//
// Errors: *Error.
func (s *Session) outline(r *run) (*command, error) {
	if err := r.script.unsupported(); err != nil {
		return nil, err
	}
	info := *r.script.file.Program()
	argv := script.Argv(info, string(info.Runtime), sandbox.SkillDir+"/"+r.script.path, r.grant.Args)
	if r.grant.Entry.Execution == policy.ExecutionStdin && script.StdinProblem(info, nil) == "" {
		argv = script.StdinArgv(info, string(info.Runtime), r.grant.Args)
	}
	c := &command{argv: r.secrets.Texts(argv), cwd: r.secrets.Text(policy.Clip(r.in.Cwd)), secrets: r.secrets}
	c.Limits, c.Stdin = s.limits(r.rules.Limits, r.in.Timeout, r.grant.Entry), r.in.Stdin
	return c, nil
}

// canceled returns the result of a run that was canceled before its script started.
func canceled(backend string, limits sandbox.Limits) *sandbox.Result {
	return &sandbox.Result{Outcome: sandbox.Canceled, Backend: backend, Limits: limits}
}

// again authorizes a run that waited for its slot by the rules that are in force now, and returns the run
// with that decision, which is the one that is recorded. The run is not nil if there is an error: it is what
// the error is recorded about.
//
// Errors: *policy.Denial, *Question, *Error.
func (s *Session) again(ctx context.Context, before *run) (*run, error) {
	r, request := *before, *before.request
	r.request, r.tree = &request, nil
	// Another run may have ended meanwhile without a record.
	if err := s.flushPending(ctx); err != nil {
		return &r, err
	}
	r.rules = s.rules.Load()
	// The client may have raised the mode, and the secrets may have changed.
	r.mode, r.secrets = s.raise(r.rules, r.call.Mode), s.Secrets()
	f, err := s.scriptOf(&r)
	if err != nil {
		return &r, err
	}
	grant, err := s.authorize(ctx, &r, f)
	if err != nil {
		return &r, err
	}
	r.script, r.grant = f, grant
	if err := s.check(&r, f); err != nil {
		return &r, err
	}
	if f.approval() != before.script.approval() {
		// The session has loaded another version of the skill since the call was made.
		return &r, r.denial(treeDiffers, f.skill.Path, f.path, "{file}", "")
	}
	return &r, nil
}

// openTree opens the stored tree from which a run starts. It is the tree of the activated digest; the run is
// refused if the files on disk differ from it. If the entry pins the script alone, the tree is the one on
// disk, stored now, and only a change of the script is refused. If the files cannot be compared, the run is
// refused as if they differed, unless the server has only run out of file descriptors.
//
// Errors: *policy.Denial, *Error.
func (s *Session) openTree(ctx context.Context, r *run) (*store.Tree, error) {
	// A canceled call must not be recorded as a call whose files had changed.
	ctx = context.WithoutCancel(ctx)
	f, err := r.script, error(nil)
	sk, index := f.skill, f.index
	if r.grant.Entry.PinScript {
		sk, index, err = s.current(ctx, sk)
	} else {
		err = sk.Verify(ctx)
	}
	if err != nil {
		return nil, s.treeRefused(ctx, r, err)
	}
	if r.grant.Entry.PinScript {
		now := index.Resource(f.path)
		if now == nil || now.Digest != f.file.Digest || now.Kind != f.file.Kind {
			return nil, s.treeRefused(ctx, r, &skills.DriftError{Want: f.file.Digest, Path: f.path})
		}
	}
	tree, err := s.cfg.Trees.Tree(ctx, index.TreeDigest)
	if err != nil {
		// The tree is missing in the store or damaged there. Stage stores it from the skill's files, and
		// checks their bytes against the digests.
		tree, err = sk.Stage(ctx, s.cfg.Trees)
	}
	if err != nil {
		return nil, s.treeRefused(ctx, r, err)
	}
	return tree, nil
}

// treeRefused returns the error of a run whose files differ from the disk, or cannot be compared with it; err
// is the error of the comparison.
func (s *Session) treeRefused(ctx context.Context, r *run, err error) error {
	if fault.OutOfFiles(err) {
		return fault.FilesExhausted.Because(err)
	}
	f := r.script
	r.runtime, r.facts = f.file.Program().ReferenceRuntime(), f.facts()
	if now, unread := f.skill.Read(ctx, f.path, skills.MaxFile); unread == nil {
		r.facts.ObservedDigest, r.facts.ObservedSizeBytes = now.Digest, &now.Size
		r.facts.DigestMatchesRegistry = new(now.Digest == f.file.Digest)
		if !*r.facts.DigestMatchesRegistry {
			return r.denial(scriptDiffers, f.skill.Path, f.path)
		}
	}
	if f.skill.Gone() {
		return r.denial(skillRemoved, f.skill.Path, f.path, "{name}", fault.Quote(f.skill.Path))
	}
	file := ""
	if drift, ok := errors.AsType[*skills.DriftError](err); ok && drift.Path != "" {
		file = ": " + policy.Clip(drift.Path)
	}
	// The files that were approved are then not the files that the author published.
	return r.denial(treeDiffers, f.skill.Path, f.path, "{file}", file)
}

// reserve reserves room for the outcome of a run, since a run without room could not be recorded. release is
// never nil.
//
// Errors: the errors of the records.
func (s *Session) reserve(ctx context.Context, r *run) (release func(), err error) {
	s.rooms.Lock()
	defer s.rooms.Unlock()
	release, err = s.cfg.Records.Reserve(ctx, s.id, RunRoom(r.cmd.Limits))
	if err != nil {
		return func() {}, err
	}
	return release, nil
}

// mayStart waits until the request of a run and the policy's warning are recorded. full is why there is no
// room for the outcome, or nil: room is reserved while the request is being recorded, and a failure is an
// event that comes after it.
//
// Errors: *Error and *Denied, which are recorded; nothing may start then.
func (s *Session) mayStart(ctx context.Context, r *run, full error) error {
	if err := s.recordWarning(ctx, r); err != nil {
		return err
	}
	if full != nil {
		return s.refuse(ctx, r, fault.OfRecord(full))
	}
	return nil
}

// execute runs the command of a run after mayStart returned nil: at a worker, or on this machine if worker is
// nil.
//
// Errors: *Error; *policy.Denial if a worker refuses it.
func (s *Session) execute(
	ctx context.Context, r *run, worker elsewhere.Slot, mayStart func() error,
) (*sandbox.Result, error) {
	if worker != nil {
		// A worker cannot wait for this server's disk: its job is sent when the script may start.
		if err := mayStart(); err != nil {
			return nil, err
		}
		return s.executeAway(ctx, r, worker)
	}
	runner, err := s.cfg.Host, error(nil)
	onHost := r.grant.Target == policy.TargetHost
	switch {
	case !onHost:
		runner, err = s.cfg.Runner(ctx)
	case runner == nil:
		err = &sandbox.UnavailableError{Backend: "host", Reason: "this server runs no scripts on the host",
			Remedy: "the user can set the entry's target to sandbox"}
	}
	if err != nil {
		return s.canceledOr(ctx, r, nil, err)
	}
	if r.call.Progress != nil {
		defer r.reportRun()()
	}
	if onHost {
		// Other processes may change the tree while the request is being recorded: it is compared
		// afterwards.
		if err := mayStart(); err != nil {
			return nil, err
		}
		if err := s.sameTree(ctx, r); err != nil {
			return s.canceledOr(ctx, r, runner, err)
		}
	}
	// The sandbox is made while the request is being recorded; its command starts after mayStart.
	result, err := sandbox.RunAfter(ctx, runner, &r.cmd.Cmd, mayStart)
	if err != nil {
		return s.canceledOr(ctx, r, runner, err)
	}
	return result, nil
}

// canceledOr returns a canceled result if the caller canceled the run, else the error of the sandbox. runner
// is nil if none was found.
func (s *Session) canceledOr(
	ctx context.Context, r *run, runner sandbox.Runner, err error,
) (*sandbox.Result, error) {
	if ctx.Err() == nil {
		return nil, fault.OfSandbox(err)
	}
	backend := "none"
	if runner != nil {
		backend = runner.Name()
	}
	return canceled(backend, sandbox.Enforced(runner, r.cmd.Limits)), nil
}

// notRun records why a run did not start. It returns the ID of the event, if there is one, and the error for
// the caller.
func (s *Session) notRun(ctx context.Context, r *run, err error) (event string, _ error) {
	if denial, ok := errors.AsType[*policy.Denial](err); ok {
		return "", s.deny(ctx, r.request, denial)
	}
	failure, ok := errors.AsType[*Error](err)
	if !ok || failure.Code == fault.CodeProvenanceUnavailable {
		// A question is recorded when it is asked, and a second write to a failed record would fail too.
		return "", err
	}
	e := s.failed(ctx, r, failure)
	if err := s.record(ctx, r.request, e); err != nil {
		return "", err
	}
	return e.ID(), failure
}

// failed returns the event of a run without a result, and sets the error's output object.
func (s *Session) failed(ctx context.Context, r *run, failure *Error) *provenance.Event {
	failure.Message = r.secrets.Text(failure.Message)
	output := s.runOutput(r)
	output.Status = cfharness.StatusError
	output.Error = &cfharness.RecordError{Code: string(failure.Code), Message: failure.Message}
	// The reference implementation names the target in the records of this error only.
	if failure.Code != fault.CodeCwdDenied {
		output.ExecutionTarget = ""
	}
	failure.Output = output
	return s.runEvent(ctx, r, &output)
}
