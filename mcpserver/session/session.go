// Package session serves the calls of clients: it looks up facts, applies the policy, runs scripts and
// records what happened. A [Session] has three verbs, [Session.Activate], [Session.ReadResource] and
// [Session.RunScript]; each is one linear function that makes every check in order and returns early.
//
// Guarantees:
//   - no byte of a skill is returned, and no script starts, before the policy allowed it;
//   - no answer is returned before the provenance store accepted its event: a call that cannot be
//     recorded is answered provenance_unavailable, and its script does not start. The progress of a run
//     whose start is recorded may show one line of released output before the outcome is recorded;
//   - a script runs from the content-addressed store, from the tree whose digest was activated, and
//     only while the files on disk still equal it. If its entry pins the script alone, the script must
//     still be the one that was activated; the tree around it is the one on disk, which is stored and
//     recorded like any other. The tree may also contain modules that the script's interpreter compiled
//     before: see the type caches;
//   - a secret is passed to the environment of the scripts whose entries name it and nowhere else. The
//     output of a run is stored and shown without the declared secrets that it contains in the clear or
//     in a usual encoding. A script that is written to reveal a secret can do so: see package redact;
//   - the declared secrets are removed from all arguments of a call before they are recorded or logged:
//     see Session.write and Sessions.Secrets;
//   - errors are *Denied or *Error and contain no host path.
//
// The package does not depend on MCP, HTTP or a sandbox backend. All exported methods are safe for
// concurrent use.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/admit"
	"github.com/skillsd/skillsd/mcpserver/picture"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// Config is the configuration of all sessions of a server. Fields are required unless marked optional.
type Config struct {
	Registry *skills.Registry
	Policy   *policy.Policy
	Trees    *store.Store
	Records  provenance.Store
	// Originals keeps what runs change in staged workspaces; nil keeps nothing.
	Originals provenance.Originals

	// Runner and Interpreter return results of the detection that runs while the server starts; they may
	// wait for it. Interpreter returns nil if the host has no interpreter of that name.
	Runner      func(ctx context.Context) (sandbox.Runner, error)
	Interpreter func(ctx context.Context, name string) (*sandbox.Interpreter, error)

	// ApartInterpreter is Interpreter for programs that scripts start by name. It returns nil for
	// programs that every sandbox has. Optional.
	ApartInterpreter func(ctx context.Context, name string) (*sandbox.Interpreter, error)

	// Host runs the scripts with the host as target, without isolation. Optional: nil refuses them.
	// HostInterpreter is Interpreter for them: it looks in the directories of the entry first. Optional.
	Host            sandbox.Runner
	HostInterpreter func(ctx context.Context, name string, dirs []string) (*sandbox.Interpreter, error)

	Environments *packages.Environments // optional

	// Tampered reports whether the files of a skill are not those that were installed. Optional.
	Tampered func(ctx context.Context, sk *skills.Skill) bool

	// Peers finds the sessions of all servers that record into Records; each server can continue the
	// sessions of the others. Approver shares its questions with theirs. Optional: nil means that there are
	// no other servers.
	Peers    *elsewhere.Peers
	Approver *approval.Approver

	// Codes holds refused calls that a user can approve outside of their client. Optional: nil means that
	// approvals are given in the client only.
	Codes *approval.Codes

	Pool elsewhere.Pool // optional: workers that run scripts instead of Runner
	// Principals are the configured principals, by name; they narrow the jobs of other servers. Optional.
	Principals map[string]policy.Principal

	Workspace sandbox.Workspace // optional: the zero value grants no workspace

	// ClientWorkspace opens the directory that a client names, which then replaces Workspace; the caller
	// closes it. Its errors are shown to the client and contain no host path. It is not called for remote
	// clients. Optional: nil ignores the directories of clients.
	ClientWorkspace func(dir ClientDir) (sandbox.Workspace, error)

	// Env looks up a variable of the server's environment that an entry passes through; Secret returns
	// the present value of a secret that an entry names. Both are called for each run. The errors of Secret
	// are for the log and contain no value. Optional: without them, entries that name a variable or a secret
	// refuse to run.
	Env    func(name string) (string, bool)
	Secret func(name string) (string, error)

	Facts  snapshot.Facts // optional: facts for the records besides the policy
	Limits sandbox.Limits // defaults and ceilings; zero fields mean sandbox.DefaultLimits

	Concurrent int // most runs at once, up to MaxConcurrent; 0 means [admit.Default]
	// ConcurrentOf returns the most runs at once of one principal. Optional: nil means Concurrent.
	ConcurrentOf  func(principal string) int
	MaxRemote     int    // most remote sessions open at once; 0 and more than 1,024 mean 1,024
	RefuseDrift   bool   // refuse a file that changed since it was loaded, instead of marking it
	NamesInErrors bool   // whether the error about an unknown skill lists the names of skills
	Version       string // of the server, for session.json
	Logger        *slog.Logger
	Now           func() time.Time // optional: time.Now
}

// MaxConcurrent is the most runs at once that a [Config] may ask for.
const MaxConcurrent = admit.Max

// Sessions opens the sessions of one server process.
type Sessions struct {
	cfg     Config
	queue   *admit.Queue // of concurrent runs
	reading *admit.Queue // of artifacts held in memory, one at a time

	preload []*skills.Skill // set by Start, before the first call

	rules     atomic.Pointer[inForce] // that are in force now; at first those of cfg, pinned by Start
	replacing sync.Mutex              // held while rules are replaced
	unheeded  atomic.Bool             // see Unheeded

	serving  context.Context // ends with the server
	patient  context.Context // ends registryPatience later
	over     context.CancelFunc
	registry snapshot.Registries
	known    knownSecrets
	narrow   narrowed
	approver *approval.Approver
	caches   *caches
	earlier  *earlier.Index
	rooms    sync.RWMutex // write-locked to reserve room; read-locked from its release until it is used
	table    *table
}

// New returns the sessions of a server. It writes no record; the first call does.
func New(cfg Config) *Sessions {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Sessions{cfg: cfg, queue: admit.NewQueue(cfg.Concurrent, cfg.ConcurrentOf), caches: newCaches(),
		reading: admit.NewQueue(1, nil), approver: cmp.Or(cfg.Approver, approval.New())}
	s.rules.Store(newRules(Rules{cfg.Policy, cfg.Secret, cfg.ClientWorkspace, cfg.Environments, cfg.Limits,
		cfg.Facts}, nil))
	s.serving, s.over = context.WithCancel(context.Background())
	patient, stop := context.WithCancel(context.Background())
	s.patient = patient
	context.AfterFunc(s.serving, func() { time.AfterFunc(registryPatience, stop) })
	s.cfg.Logger = s.Logger(cfg.Logger)
	s.table = newTable(cfg.MaxRemote, cfg.Peers != nil, s.cfg.Logger, func() time.Time { return s.cfg.Now() })
	s.earlier = earlier.New(cfg.Records, s.cfg.Logger, func() time.Time { return s.cfg.Now() },
		func() map[string]bool { return s.table.ids() })
	return s
}

// registryPatience is how long the end of the server waits for the hashing of a large catalogue. The registry
// of a session that ends before lists only the SKILL.md of each skill. The end of a single session waits
// without a limit.
const registryPatience = 2 * time.Second

// Start looks up the skills to preload, and indexes, pins and stores the trees of allowlisted skills. It must
// return before the first call. It warns of an allowlist entry without a skill or a script.
//
// Errors: *skills.NotFoundError and *skills.AmbiguousError for a preload.
func (s *Sessions) Start(ctx context.Context, preload []string) error {
	snapshot := s.cfg.Registry.Snapshot()
	for _, name := range preload {
		sk, err := snapshot.Lookup(name)
		if err != nil {
			return err
		}
		if !slices.Contains(s.preload, sk) {
			s.preload = append(s.preload, sk)
		}
	}
	is := s.rules.Load()
	for _, profile := range is.Policy.Config().Profiles {
		for _, path := range profile.Activate {
			if snapshot.Skill(path) == nil {
				s.cfg.Logger.WarnContext(ctx, "skill that a profile activates is not there",
					slog.String("skill", path), slog.String("profile", profile.Name))
			}
		}
	}
	for _, entry := range is.Policy.Entries() {
		sk := snapshot.Skill(entry.Skill)
		if sk == nil {
			s.cfg.Logger.WarnContext(ctx, "allowed skill is not there", slog.String("skill", entry.Skill),
				slog.String("path", entry.Path))
			continue
		}
		if err := s.pin(ctx, is, sk, entry); err != nil {
			s.cfg.Logger.WarnContext(ctx, "allowed script cannot be prepared",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), tint.Err(err))
		}
	}
	return nil
}

// Preloaded returns the skills that every session without a parent starts with, in the order given. It must
// not be called before Start has returned.
func (s *Sessions) Preloaded() []*skills.Skill { return s.preload }

// End records the end of every session with a record, and waits for events that are still being recorded.
// Runs that wait for a slot are canceled.
func (s *Sessions) End(ctx context.Context) error {
	s.over()
	s.queue.Close()
	s.caches.close()
	s.table.endWhere(func(*Session) bool { return true })
	s.table.recording.Wait()
	if ses := s.Current(); ses != nil {
		return ses.end(ctx)
	}
	return nil
}

// Live returns the open questions to users, the oldest first, and the state of the queue of runs.
func (s *Sessions) Live() ([]approval.Pending, admit.State) {
	return s.approver.Pending(s.cfg.Now()), s.queue.State()
}

// Call describes a request apart from its arguments. Only evidence that the transport authenticated may be
// set; of all fields, the model chooses only Handle.
type Call struct {
	Method     string // tool name, or the JSON-RPC method for reads that are not tool calls
	ToolCallID string
	Handle     string // the activation argument, or ""
	Principal  policy.Principal
	Client     string             // "name version", as the client introduced itself
	Protocol   string             // revision of MCP that the client uses
	Slot       *policy.PromptSlot // the call's own binding
	Mode       policy.Mode        // the client raises its mode to this; the zero value raises nothing

	// Remote is set if the call did not come over the one connection of a stdio process. The session
	// is then found by Named, Handle, ClientSession or ProtocolSession, in this order and only among the
	// sessions of the principal.
	Remote bool
	// Forwarded is set if another server forwarded the call, because this one has the session.
	Forwarded bool
	// Named is the name of the session in a parameter that this server defines. The call then belongs to that
	// session, on stdio too: a handle, which a model may send, cannot select another one.
	Named         string
	ClientSession string // the client's own id of its session; not verified
	// Conversation is the call's own name of its conversation, or "". On stdio several conversations may
	// share the session of the process.
	Conversation    string
	ProtocolSession string // id of the protocol session, verified by the transport
	Opens           bool   // whether the call opens a session if it belongs to none
	// Alone identifies the only conversation that the principal seems to have, for calls that belong to no
	// session. It is empty if there are several, or if the server must not guess.
	Alone string

	// Profile narrows the call further than the operator does; calls with and without a profile belong to
	// different sessions, also on stdio. Parent is the id of the parent session, or the name that the client
	// gave it; it is recorded, and the child inherits nothing.
	Profile, Parent string

	// Lease is for the browser that the client lets a script control, or nil.
	Lease *policy.Lease

	RunID       string                 // the id that the caller requests for its session, or ""
	OutputID    string                 // the id that the caller requests for its output, or ""
	Source      cfharness.Source       // of an activation, if the caller states it, or ""
	InputLabels *cfharness.InputLabels // of the inputs of a run, or nil
	Manifest    *cfharness.RunManifest // of a session that the call begins; nil: the server's manifest
	Records     *Recorder              // collects what the call records, or nil

	// Turn is the client's own id of the model's turn to which the call belongs.
	Turn string
	// Workspace is the directory in which the client works; the client names it.
	Workspace ClientDir

	// Progress, if not nil, receives short messages about a long call. It does not block.
	Progress func(message string)
	// YieldSlot, if not nil, is called before a run waits for its slot: it releases the transport's own slot
	// of the call. It reports whether the call may wait; if not, the call ends with fault.CodeServerBusy.
	YieldSlot func() bool
	// Room, if not nil, waits until there is memory for a file of size bytes; its error is an *Error.
	Room func(ctx context.Context, size int64) error
	// HostPaths is set if a client on this machine asks for paths of files, which a model is not shown
	// otherwise.
	HostPaths bool
	// Borrow, if not nil, provides the memory to decode pictures.
	Borrow picture.Borrow
}

// ClientDir is a directory that a client, not the model, names. The zero value names no directory.
type ClientDir struct {
	Path     string // absolute, on the server's machine; not checked
	ReadOnly bool   // the client itself may not write there
}

// Session is the state of one client: its activations, its numbering, its record.
//
// Its locks are acquired in this order, none twice: runs, closing, sequence, mu. table.mu is acquired before
// mu and never held together with the others. No function that locks or blocks is called with mu held.
type Session struct {
	*Sessions
	id        string
	principal policy.Principal
	client    string
	clientID  string      // the client's own id of the session, not verified, or the protocol session's id
	profile   string      // the profile that narrowed the session when it was opened
	protocol  string      // revision of MCP
	keyed     *keyedState // nil for the session of a stdio process

	manifest *cfharness.RunManifest // nil if there is no manifest

	child      bool   // parent is the session to which it belongs
	parentName string // the parent in the client's own words
	wanted     string // the id that the client requested for the session, if it got another one

	first       sync.Once    // restores the client's earlier session before the first call is served
	runs        sync.RWMutex // read-locked by runs, write-locked by the end of the session
	endRecorded bool         // guarded by runs

	closing sync.RWMutex // read-locked while events are recorded, write-locked while ended is set
	ended   atomic.Bool  // no event is recorded any more

	// sequence is held while events are written that belong together: the first events, the events that
	// restore an earlier session, the events that could not be written before.
	sequence   sync.Mutex
	started    bool              // session.started is written
	under      int               // number of the rules that are recorded
	initial    []initialSkill    // skills with which it starts and which are not active yet
	parent     string            // id of the session that it continues or belongs to, or ""
	restored   map[string]bool   // ids of earlier sessions
	pending    []*pendingOutcome // outcomes of runs that could not be recorded, the oldest first
	background sync.WaitGroup
	open       context.Context // ends with the session
	close      context.CancelFunc
	// awaited are files that are written in the background; a channel is closed when its file is done. Nil
	// before recordInBackground.
	awaited atomic.Pointer[map[string]chan struct{}]

	broken    atomic.Bool  // the last append failed
	published atomic.Value // the last handle by which all servers find the session
	raised    *earlier.Mode

	decisions, invocations atomic.Uint64 // the last number of each

	mu       sync.Mutex
	outputs  uint64                          // highest number of an output
	taken    map[string]bool                 // ids of outputs, up to maxTaken
	handles  map[earlier.HandleSum]time.Time // expiry of each handle that the client got
	handle   string                          // the current handle; the record contains its hash only
	expires  time.Time                       // of handle
	active   map[string]*activation          // by skill path
	approved map[approval.Key]bool           // scripts approved for the rest of the session
	released map[string][]string             // files that may be shown, by output id in its file name form
	misses   map[string]int                  // requests for paths that a skill does not have, by skill path
}

// activation pins a skill to the tree that the model was shown.
type activation struct {
	skill *skills.Skill
	index *skills.Index
	shown bool // whether the instructions were sent; false after a preload
	// shownAt is when this server last sent them, and shownTo the conversation. Both are zero if this server
	// has not sent them.
	shownAt time.Time
	shownTo string

	rows map[activationRow]bool // rows that this server recorded; nil before the first
}

// activationRow identifies a row among the rows of one activation.
type activationRow struct {
	handle string
	source cfharness.Source
}

// Open returns the session to which a call belongs: the first of these that the call has.
//
//	the call has          | its session
//	Named                 | the session of that name; on stdio also the session of the process, by its id
//	Handle                | the session that gave out the handle
//	neither, on stdio     | the session of the process, unless the call has a Profile or a Parent
//	ClientSession         | the session of that name
//	ProtocolSession       | the session of that protocol session
//	Alone                 | the session of the principal's only conversation; its record marks it as guessed
//	none, but Opens       | a new session, which later calls find by its handle
//	none of these         | a session that such calls of the principal share; no skill is active in it
//
// A handle is valid only for the principal that got it, and not for a call that names another session,
// profile or parent: a child session gains nothing from its parent. A session other than the session of the
// process stays open at least until ctx ends.
//
// Errors: *Denied with code activation_unknown for an unknown or expired handle, *Error with code
// invalid_arguments for a parent that is not a session of the principal, *Error.
func (s *Sessions) Open(ctx context.Context, call Call) (*Session, error) {
	if call.Named != "" && s.namesProcess(&call) {
		// The session of the process has no key.
		call.Named = ""
	}
	ses, err := s.find(ctx, call)
	if err != nil {
		return nil, fault.Internal(err)
	}
	if ses.ended.Load() {
		switch err := ses.reopen(ctx); {
		case errors.Is(err, provenance.ErrNotFound):
			// Its record was deleted while it rested: the call opens a new session.
			s.table.forget(ses)
			return s.Open(ctx, call)
		case err != nil:
			return nil, err
		}
	}
	if call.RunID != "" {
		ses.noteID(call)
	}
	ses.first.Do(func() { ses.resumeClient(ctx, call) })
	// A run is decided before its first event is on the disk, so the skills of the start must be active by
	// then.
	if err := ses.activateFirst(ctx); err != nil {
		return nil, err
	}
	if call.Handle == "" || ses.ownsSum(earlier.Sum(call.Handle)) {
		return ses, nil
	}
	// The session that gave out the handle may have ended.
	if restored, err := s.restoreHandle(ctx, ses, call); restored != nil || err != nil {
		restored.noteID(call)
		return restored, err
	}
	r := ses.newRequest(call, policy.Read)
	return nil, ses.deny(ctx, r, r.denial(handleUnknown, "", ""))
}

// activateFirst activates the skills with which the session starts, at the start of its record. A session
// without such skills begins its record with its first event.
//
// Errors: *Error.
func (s *Session) activateFirst(ctx context.Context) error {
	activates := s.rules.Load().Policy.Activates(s.principal, s.profile, s.child)
	if (s.child || len(s.preload) == 0) && len(activates) == 0 {
		return nil
	}
	return s.ensureStarted(ctx)
}

// noteID reports to the recorder of a call that its session has another id than the call requested.
func (s *Session) noteID(call Call) {
	if s != nil && call.Records != nil && call.RunID != "" && call.RunID != s.id {
		call.Records.opened(s, s.shortened(call.RunID))
	}
}

// keyed reports whether a call belongs to a session that is found by a key.
func (c *Call) keyed() bool { return c.Remote || c.Named != "" || c.Profile != "" || c.Parent != "" }

// name returns the client's name for the session of a call, or "".
func (c *Call) name() string { return cmp.Or(c.Named, c.ClientSession) }

// lasting returns the name by which the session of a call is found again after the process has ended, or "".
// The name of a protocol session is a hash, which does not reveal the id.
func (c *Call) lasting() string {
	if name := c.name(); name != "" || c.ProtocolSession == "" {
		return name
	}
	return "mcp-session " + digest.FromString(c.ProtocolSession).Encoded()[:32]
}

// unnamed reports whether only a handle connects a call with other calls of its conversation.
func (c *Call) unnamed() bool { return c.Remote && c.name() == "" && c.ProtocolSession == "" }

// admits reports whether the handle of a session with this profile and parent is valid for a call.
func (c *Call) admits(profile, parentName string) bool {
	return (c.Profile == "" || c.Profile == profile) &&
		(c.Parent == "" || policy.Clip(c.Parent) == parentName)
}

// newSession returns a session without a record. If parent is not empty, the session is a child of the
// session with that id. table.mu is held if the call has a RunID.
func (s *Sessions) newSession(call Call, parent string) (*Session, error) {
	id, err := s.runID(call)
	if err != nil {
		return nil, err
	}
	wanted := ""
	if id != call.RunID {
		wanted = s.shortened(call.RunID)
	}
	ses := &Session{
		wanted:   wanted,
		Sessions: s, id: id, principal: call.Principal, client: call.Client,
		clientID: policy.Clip(call.lasting()),
		parent:   parent, child: parent != "", parentName: policy.Clip(call.Parent),
		manifest: cmp.Or(call.Manifest, s.rules.Load().Facts.Manifest),
		protocol: call.Protocol, profile: call.Profile, raised: new(earlier.Mode),
		restored: map[string]bool{}, handles: map[earlier.HandleSum]time.Time{},
		active:   map[string]*activation{},
		approved: map[approval.Key]bool{}, released: map[string][]string{},
		taken: map[string]bool{}, misses: map[string]int{},
	}
	ses.open, ses.close = context.WithCancel(s.serving)
	ses.raised.Raise(call.Mode)
	return ses, nil
}

// Current returns the session of the process, or nil before its first call.
func (s *Sessions) Current() *Session { return s.table.current() }

// ID returns the session's id, which is also the name of the directory with its records.
func (s *Session) ID() string { return s.id }

// ownsSum reports whether the session gave out the handle with a hash, and the handle has not expired.
func (s *Session) ownsSum(sum earlier.HandleSum) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, given := s.handles[sum]
	return given && s.cfg.Now().Before(until)
}

// activate adds a skill to the session, and sets the handle in l. It returns the activation, and a copy of
// it from before the call sent the instructions. A skill that is active with the same tree keeps its
// activation; another tree replaces it.
func (s *Session) activate(l *Loaded, source cfharness.Source) (a *activation, before activation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if s.handle == "" || !now.Before(s.expires) {
		s.handle = rand.Text()
		s.expires = now.Add(earlier.Life)
		s.handles[earlier.Sum(s.handle)] = s.expires
	}
	a = s.active[l.Skill.Path]
	if a == nil || a.index.TreeDigest != l.Index.TreeDigest {
		a = &activation{skill: l.Skill, index: l.Index}
		s.active[l.Skill.Path] = a
	}
	row := activationRow{s.handle, source}
	l.Handle, l.Until, l.recorded = s.handle, s.expires, a.rows[row]
	if a.rows == nil {
		a.rows = map[activationRow]bool{}
	}
	a.rows[row] = true
	return a, *a
}

// activated returns the activation of a skill, or nil.
func (s *Session) activated(path string) *activation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[path]
}

// activatedAs returns the activation of the skill with that path, or of the only skill with that name, or
// nil.
func (s *Session) activatedAs(name string) *activation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.active[name]; a != nil {
		return a
	}
	var only *activation
	for _, a := range s.active {
		if a.skill.Name() == name {
			if only != nil {
				// The name is ambiguous, and a guess could choose the session of another conversation.
				return nil
			}
			only = a
		}
	}
	return only
}

// maxTaken is the most ids of outputs that a session keeps. Afterwards, callers cannot choose ids.
const maxTaken = 100_000

// outputID returns the id of an output: the one that the caller requests if it is new and has the form
// RUN:TOOL:NUMBER of this session and tool, else one with the next number. The numbers of the server are
// unique in a session, over all tools. The answer contains the id.
func (s *Session) outputID(call Call) string {
	prefix := s.id + ":" + call.Method + ":"
	number, own := strings.CutPrefix(call.OutputID, prefix)
	n, err := strconv.ParseUint(number, 10, 31)
	id := call.OutputID
	s.mu.Lock()
	// A number with leading zeros would be a second id of the same output.
	own = own && err == nil && n > 0 && strconv.FormatUint(n, 10) == number && !s.taken[id] &&
		len(s.taken) < maxTaken
	if !own {
		n = s.outputs + 1
		id = prefix + strconv.FormatUint(n, 10)
	}
	s.outputs = max(s.outputs, n)
	if len(s.taken) < maxTaken {
		s.taken[id] = true
	}
	s.mu.Unlock()
	if !own && call.OutputID != "" {
		s.cfg.Logger.Warn("the caller's id of an output is ignored: not new, or not of this run and tool",
			slog.String("session", s.id), slog.String("id", policy.Clip(call.OutputID)))
	}
	return id
}

// methodOf returns the method of an output id, which is SESSION:METHOD:NUMBER.
func methodOf(output string) string {
	_, rest, _ := strings.Cut(output, ":")
	method, _, _ := strings.Cut(rest, ":")
	return method
}

// shortened returns a client's text clipped, and without the declared secrets.
func (s *Sessions) shortened(text string) string { return policy.Clip(s.Secrets().Text(text)) }

// runID returns the id of a session that a call opens: the caller's run id if no session has it and it
// contains no secret, which the name of a directory would show, else a new one. In the second case the answer
// and the record contain the requested id too: a harness whose server died in the middle of a run can go on,
// and sees that its rows have another id. table.mu is held.
//
// Errors: the errors of the system's random source.
func (s *Sessions) runID(call Call) (string, error) {
	id := call.RunID
	// On a command line, "latest" is the newest session, and an id that starts with a hyphen is an option.
	if !provenance.ValidSessionID(id) || strings.ContainsRune("-._", rune(id[0])) ||
		strings.EqualFold(id, "latest") || s.Secrets().Text(id) != id || s.table.taken(id) ||
		s.cfg.Records.Claim(context.Background(), id) != nil {
		return provenance.NewSessionID()
	}
	return id, nil
}
