package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
	"github.com/skillsd/skillsd/skills/store"
)

// RunRequest asks for one script of an activated skill.
type RunRequest struct {
	Call    Call
	Skill   string // path or unique name
	Path    string // relative to the skill, below scripts/
	Args    []string
	Cwd     string
	Timeout time.Duration // 0: the entry's, else a minute
	Stdin   []byte        // nil is none

	CanAsk bool    // whether the user can be asked to approve the run
	Answer *Answer // to the question an earlier call ended with; nil when there was none
}

// Stream is one output stream as it was released.
type Stream struct {
	Head, Tail string // text; Tail only when Truncated
	Total      int64  // bytes the script wrote
	Truncated  bool   // the middle was not kept
	Digest     digest.Digest
	Withheld   string // id of the opaque handle that stands for the stream; Head and Tail are empty
}

// RunResult is a script that started and ended.
type RunResult struct {
	Outcome        string
	ExitCode       int
	Signal         string
	Duration       time.Duration
	Backend        string
	Stdout, Stderr Stream
	Out            []cfharness.OutFile
	OutSkips       int             // entries of /out that were left behind
	Skipped        []string        // names of the first of those, quoted
	Writes         []sandbox.Write // changes to a staged workspace, in order
	Output         cfharness.RunOutput
}

// OutputObject is the reference's output object, also of a run that failed.
func (r *RunResult) OutputObject() any {
	if r == nil {
		return nil
	}
	return r.Output
}

// run is the state of one RunScript on its way down.
type run struct {
	*request
	in     RunRequest
	at     time.Time
	out    cfharness.RunOutput
	grant  policy.Grant
	index  *skills.Index
	file   *skills.Resource
	tree   *store.Tree
	cmd    sandbox.Cmd
	result *sandbox.Result
	named  bool // the workspace is one the client named, open for this run
	waited bool // for its slot

	approved *approvalKey // what the user has approved the call for; nil when they were not asked

	redact   *redact.Redactor  // of every declared secret; nil when there are none
	secrets  map[string]string // those the run is handed, by name
	secret   bool              // the run is handed something that must not be shown
	redacted bool              // the streams were counted anew without them
	env      []string          // what its entry adds to the environment
	proxy    *egress.Proxy     // nil without a network
	home     string            // of a run on the host; empty in the sandbox
	withheld []int             // files of /out that cannot be shown, by position
	cache    *cacheRun         // nil when its interpreter has none
}

// RunScript runs one script, if everything allows it: record the request, look up, check the path,
// decide, check the file, wait for a slot and decide once more when that took a while, open the stored
// tree and compare it with the disk, prepare the command, run it isolated, release or withhold its
// output, record, answer.
//
// Errors: *Denied, *Error; the result is then nil or holds only Output. A script that started is a
// result whatever became of it.
func (s *Session) RunScript(ctx context.Context, in RunRequest) (*RunResult, error) {
	defer s.hold()()
	r := s.newRun(in)
	if err := script.CheckArgs(in.Args); err != nil {
		return nil, s.plain(&Error{Code: CodeInvalidArguments, Message: err.Error(), Remedy: "shorten or mend the arguments", Err: err})
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if err := s.append(ctx, s.requested(r)); err != nil {
		return nil, err
	}
	if failed, err := s.allow(ctx, r); err != nil {
		return failed, err
	}
	release, failure := s.await(ctx, r)
	if failure != nil {
		return s.runFailed(ctx, r, failure)
	}
	if failed, err := s.runInSlot(ctx, r, release); err != nil {
		return failed, err
	}
	result, err := s.finish(ctx, r)
	if err != nil {
		return nil, err
	}
	s.makeCache(r)
	s.release(r, result)
	if !s.isReleased(r.out.OutputID) {
		result.Output.Skillsd = sealed(result.Output.Skillsd)
	}
	return result, nil
}

// allow looks the script up and decides about the run.
//
// Errors: as those of RunScript, with its result.
func (s *Session) allow(ctx context.Context, r *run) (*RunResult, error) {
	sk, err := s.lookup(r.in.Call, r.in.Skill)
	if excluded := s.excludes(r.request, r.in.Skill, err); excluded != nil {
		return nil, s.deny(ctx, r.request, excluded)
	}
	if err != nil {
		return s.runFailed(ctx, r, s.lookupError(r.in.Call, err))
	}
	r.skill = sk
	if r.path, err = script.CleanPath(r.in.Path); err != nil {
		return s.runFailed(ctx, r, &Error{Code: CodeScriptPathInvalid, Message: err.Error(), Remedy: "use the path of a script below scripts/, as load_skill lists it", Err: err})
	}
	if err := s.decideRun(ctx, r); err != nil {
		return nil, err
	}
	if err := r.checkFile(); err != nil {
		return s.runFailed(ctx, r, err)
	}
	return nil, nil
}

// close releases what prepare opened.
func (r *run) close() {
	r.cmd.Tree.Close()
	if r.cmd.Cache.Dir != nil {
		r.cmd.Cache.Dir.Close()
	}
	if r.home != "" {
		removeHome(r.home)
	}
	if r.named {
		r.cmd.Workspace.Dir.Close()
	}
}

func (s *Session) newRun(in RunRequest) *run {
	r := &run{request: s.newRequest(in.Call, policy.SideEffect), in: in, at: s.cfg.Now()}
	r.redact, _ = s.redaction()
	timeout, count := s.timeout(in.Timeout, policy.Entry{}).Milliseconds(), len(in.Args)
	r.summary.Skill, r.summary.Path, r.summary.ArgsCount, r.summary.TimeoutMS = new(clip(in.Skill)), new(clip(in.Path)), &count, &timeout
	if in.Cwd != "" {
		r.summary.CWD = new(clip(in.Cwd))
	}
	r.out = cfharness.RunOutput{Type: cfharness.TypeRunOutput, OutputID: s.outputID(in.Call.Method),
		Skill: clip(in.Skill), Path: clip(in.Path), Status: cfharness.StatusExecuted, Args: r.redact.Texts(in.Args)}
	r.request.output = r.out.OutputID
	return r
}

// requested is the record of a request. It alone says which directory the client named.
func (s *Session) requested(r *run) *provenance.Event {
	e := &provenance.Event{Kind: provenance.KindScriptRequested, Skill: r.out.Skill, Path: r.out.Path, Detail: "requested",
		Row: scriptRequest(r)}
	if s.clientNames(r.in.Call) {
		e.Detail += ", workspace of the client: " + strconv.Quote(r.in.Call.Workspace.Path)
	}
	return e
}

// scriptRequest names a request in the events that tell of it.
func scriptRequest(r *run) json.RawMessage {
	return encode(cfharness.ScriptRequest{Type: cfharness.TypeScriptRequest, OutputID: r.out.OutputID})
}

// decideRun asks the policy with the facts of the activated tree, not of what lies on disk now, and
// where it says so the user.
//
// Errors: *Denied, *Question, *Error.
func (s *Session) decideRun(ctx context.Context, r *run) error {
	facts := s.runFacts(r)
	if r.approved != nil && *r.approved == r.approval() {
		facts.Approved = policy.ApprovalOfCall
	}
	grant, err := s.decide(r.request, facts)
	if needs, ok := errors.AsType[*policy.ApprovalRequired](err); ok && r.file != nil {
		var denial *policy.Denial
		switch {
		case s.tired(r):
			denial = s.denial(r.request, policy.CodeApprovalDeclined, "the user has declined this script several times", "ask the user in the conversation; an hour later they can be asked again")
		case r.in.Answer != nil:
			if denial, err = s.answered(ctx, r, needs); err != nil {
				return err
			}
		case r.in.CanAsk:
			return s.ask(ctx, r, needs)
		default:
			denial = needs.Denial
		}
		if denial != nil {
			return s.deny(ctx, r.request, denial)
		}
		facts.Approved, r.approved = policy.ApprovalOfCall, new(r.approval())
		grant, err = s.decide(r.request, facts)
	}
	if err != nil {
		return s.deny(ctx, r.request, policy.DenialOf(err))
	}
	r.grant = grant
	return nil
}

// runFacts are what the policy is asked with about a run of a skill and a path. The run is of the skill
// as its session loaded it from then on.
func (s *Session) runFacts(r *run) policy.Request {
	facts := policy.Request{Path: r.path, Workspace: s.mounts(r.in.Call), Args: r.in.Args, Lease: r.in.Call.Lease, Now: s.cfg.Now()}
	if a := s.activated(r.skill.Path); a != nil {
		r.skill, r.index = a.skill, a.index
		facts.Activated, facts.TreeDigest = true, a.index.TreeDigest
		if r.file = a.index.Resource(r.path); r.file != nil {
			facts.FileDigest = r.file.Digest
		}
		if s.remembered(r.approval()) {
			facts.Approved = policy.ApprovalRemembered
		}
	}
	facts.StartTree = s.pins[r.skill.Path]
	return facts
}

// checkFile makes sure that the path is an indexed script.
func (r *run) checkFile() *Error {
	below := func(f skills.Resource) bool { return strings.HasPrefix(f.Path, r.path+"/") }
	switch {
	case r.file == nil && slices.ContainsFunc(r.index.Resources, below):
		return &Error{Code: CodeResourceNotScript, Message: "the path is a directory", Remedy: "use the path of a script from the skill's file list"}
	case r.file == nil:
		return &Error{Code: CodeScriptNotIndexed, Message: "no such file in the skill", Remedy: "use the path of a script from the skill's file list"}
	case r.file.Kind != skills.KindScript || r.file.Script == nil:
		return &Error{Code: CodeResourceNotScript, Message: "the file is not a script", Remedy: "use the path of a script from the skill's file list"}
	}
	r.out.Skill, r.out.Path = r.skill.Path, r.path
	r.out.SandboxResourcePath = sandboxPath(r.skill, r.path)
	r.out.RegistryDigest, r.out.RegistrySizeBytes = r.file.Digest, &r.file.Size
	return nil
}

// openTree opens the stored tree of the activated digest. It refuses when the files on disk have
// changed since: what was approved is then not what its author has there.
func (s *Session) openTree(ctx context.Context, r *run) error {
	// A call that was cancelled must not look like one whose files had changed.
	ctx = context.WithoutCancel(ctx)
	if err := r.skill.Verify(ctx); err != nil {
		return err
	}
	tree, err := s.cfg.Trees.Tree(ctx, r.index.TreeDigest)
	if err != nil {
		// Not stored, or damaged in the store: both are mended from the skill, whose bytes Stage
		// checks against their digests.
		if tree, err = r.skill.Stage(ctx, s.cfg.Trees); err != nil {
			return err
		}
	}
	r.tree = tree
	matches := true
	r.out.ObservedDigest, r.out.ObservedSizeBytes, r.out.DigestMatchesRegistry = r.file.Digest, &r.file.Size, &matches
	return nil
}

// treeFailed answers a run whose tree could not be opened: what cannot be compared is refused as what
// differs is, unless the server lacks the means to look for now.
func (s *Session) treeFailed(ctx context.Context, r *run, err error) (*RunResult, error) {
	if failure := busyError(err); failure != nil {
		return s.runFailed(ctx, r, failure)
	}
	denial := s.denial(r.request, policy.CodeScriptSnapshotMismatch, "the skill's files differ from those that were loaded and allowed",
		"the operator can review the change and restart the server; then load the skill again")
	if drift, ok := errors.AsType[*skills.DriftError](err); ok && drift.Path != "" {
		denial.Detail += ": " + clip(drift.Path)
	}
	return nil, s.deny(ctx, r.request, denial)
}
