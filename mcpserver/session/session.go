// Package session is where facts, decisions, processes and records meet. A [Session] has three
// verbs, [Session.Activate], [Session.ReadResource] and [Session.RunScript]; each is one linear
// function that holds every check in order and returns early.
//
// Guarantees:
//   - no byte of a skill leaves, and no script starts, before the policy allowed it;
//   - no answer is returned whose event the provenance store did not accept: a call that cannot be
//     recorded is answered provenance_unavailable, and a script does not start. The progress of a run whose
//     start is recorded may show one line of released output before its outcome is;
//   - a script runs from the content-addressed store, from the tree whose digest was activated, and
//     only while the files on disk still equal it. If its entry pins the script alone, the script must
//     still be the one that was activated, and the tree around it is the one on disk, which is stored and
//     recorded like any other. The tree may also hold what the script's interpreter compiled of it
//     before: see caches;
//   - a secret goes to the environment of the scripts whose entries name it and nowhere else; what a
//     run brings back is kept and shown without the declared secrets that it holds in the clear or in
//     a usual encoding. A script that means to reveal one can: see package redact;
//   - the declared secrets are taken out of everything a call brings with it before any of it is recorded
//     or logged: see Session.write and Sessions.Secrets;
//   - errors are *Denied or *Error and hold no host path.
//
// The package knows nothing of MCP, HTTP or any sandbox backend. All exported methods are safe for
// concurrent use.
package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/mcpserver/picture"
	"github.com/skillsd/skillsd/mcpserver/session/approval"
	"github.com/skillsd/skillsd/mcpserver/session/caches"
	"github.com/skillsd/skillsd/mcpserver/session/earlier"
	"github.com/skillsd/skillsd/mcpserver/session/elsewhere"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/mcpserver/session/recorder"
	"github.com/skillsd/skillsd/mcpserver/session/secrets"
	"github.com/skillsd/skillsd/mcpserver/session/slots"
	"github.com/skillsd/skillsd/mcpserver/session/snapshot"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// HandleLife is how long an activation handle is good for.
const HandleLife = earlier.Life

// Config is what all sessions of a server share. All fields but those marked optional are required.
type Config struct {
	Registry *skills.Registry
	Policy   *policy.Policy
	Trees    *store.Store
	Records  provenance.Store

	// Runner and Interpreter answer from the detection that runs while the server starts; they may wait
	// for it. Interpreter returns nil if the host has none of that name.
	Runner      func(ctx context.Context) (sandbox.Runner, error)
	Interpreter func(ctx context.Context, name string) (*sandbox.Interpreter, error)

	// ApartInterpreter is Interpreter for programs that scripts start by name: it returns nil for those that
	// every sandbox has. Optional.
	ApartInterpreter func(ctx context.Context, name string) (*sandbox.Interpreter, error)

	// Host runs the scripts whose target is the host, without isolation. Optional: nil refuses them.
	// HostInterpreter is Interpreter for them: it looks in the directories of the entry first. Optional.
	Host            sandbox.Runner
	HostInterpreter func(ctx context.Context, name string, dirs []string) (*sandbox.Interpreter, error)

	Environments *packages.Environments // optional: nil has none

	// Peers finds the sessions of all servers that record into Records, each of which continues the sessions
	// of the others; Approver has its questions in common with theirs. Optional: nil has no other servers.
	Peers    *elsewhere.Peers
	Approver *approval.Approver

	// Elsewhere keeps refused calls that a user can approve at another place than their client. Optional:
	// without it there is none.
	Elsewhere *approval.Elsewhere

	Pool elsewhere.Pool // optional: runs scripts in the place of Runner
	// Principals of the configuration narrow the jobs of other servers. Optional.
	Principals map[string]policy.Principal

	Workspace sandbox.Workspace // optional: the zero value grants none

	// ClientWorkspace opens the directory a client names, which then takes the place of Workspace; the
	// caller closes it. Its errors are shown to the client and hold no host path. Optional: nil
	// ignores what clients name. Remote clients are never asked.
	ClientWorkspace func(dir ClientDir) (sandbox.Workspace, error)

	// Env looks up a variable of the server's environment that an entry passes through; Secret returns
	// the value of a secret that an entry names, as it is at the moment. Both are asked for each run.
	// The errors of Secret are for the log and hold no value. Optional: nil has none, and entries that
	// name one refuse to run.
	Env    func(name string) (string, bool)
	Secret func(name string) (string, error)

	Facts  snapshot.Facts // optional: what the records say besides the policy
	Limits sandbox.Limits // defaults and ceilings; zero fields mean sandbox.DefaultLimits

	Concurrent int // most runs at once, up to MaxConcurrent; 0 means [slots.Default]
	// ConcurrentOf returns the most runs at once of one principal; nil: all.
	ConcurrentOf  func(principal string) int
	MaxRemote     int    // most remote sessions open at once; 0 and more than 1,024 mean 1,024
	RefuseDrift   bool   // a file that changed since it was loaded is refused, not marked
	NamesInErrors bool   // whether an unknown skill is answered with the names there are
	Version       string // of the server, for session.json
	Logger        *slog.Logger
	Now           func() time.Time // optional: time.Now
}

// MaxConcurrent is the most runs at once that a [Config] may ask for.
const MaxConcurrent = slots.Max

// Sessions opens the sessions of one server process.
type Sessions struct {
	cfg     Config
	queue   *slots.Queue // of concurrent runs
	reading *slots.Queue // of artifacts held in memory, one at a time

	// Set by Start, before the first call.
	trees   map[string]digest.Digest // of the start, see inForce
	pins    map[string]pin           // likewise
	preload []*skills.Skill

	snapshots snapshotCache // of the rules that the server started with

	replacing sync.Mutex              // held while rules are replaced
	replaced  atomic.Pointer[inForce] // nil: those that the server started with
	unheeded  atomic.Bool             // see Unheeded

	serving  context.Context // until the server ends
	patient  context.Context // registryPatience longer
	over     context.CancelFunc
	registry snapshot.Registries
	known    secrets.Known
	narrow   narrowed
	approver *approval.Approver
	caches   *caches.Caches
	earlier  *earlier.Index
	rooms    sync.RWMutex // held while room is reserved, and shared from its release until it is used
	table    *table
}

// New returns the sessions of a server. Nothing is written before the first call.
func New(cfg Config) *Sessions {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Sessions{cfg: cfg, queue: slots.New(cfg.Concurrent), caches: caches.New(),
		reading: slots.New(1), approver: cmp.Or(cfg.Approver, approval.New()),
		trees: map[string]digest.Digest{}, pins: map[string]pin{}}
	s.serving, s.over = context.WithCancel(context.Background())
	patient, stop := context.WithCancel(context.Background())
	s.patient = patient
	context.AfterFunc(s.serving, func() { time.AfterFunc(registryPatience, stop) })
	s.queue.Most = cfg.ConcurrentOf
	s.cfg.Logger = s.Logger(cfg.Logger)
	s.table = newTable(cfg.MaxRemote, cfg.Peers != nil, s.cfg.Logger, func() time.Time { return s.cfg.Now() })
	s.earlier = earlier.New(cfg.Records, s.cfg.Logger, func() time.Time { return s.cfg.Now() },
		func() map[string]bool { return s.table.ids() })
	s.snapshots.init(cfg.Facts)
	return s
}

// Live returns the questions that users may answer now, the oldest first, and the state of the queue of runs.
func (s *Sessions) Live() ([]approval.Pending, slots.State) {
	return s.approver.Pending(s.cfg.Now()), s.queue.State()
}

// Call is what is known of a request besides its arguments. Only Evidence that the transport
// authenticated belongs here; nothing in it comes from the model but Handle.
type Call struct {
	Method     string // tool name, or the JSON-RPC method for reads that are not tool calls
	ToolCallID string
	Handle     string // the activation argument; empty when not given
	Principal  policy.Principal
	Client     string             // "name version", as the client introduced itself
	Protocol   string             // revision of MCP the client speaks
	Slot       *policy.PromptSlot // the call's own binding
	Mode       policy.Mode        // what the client raises its mode to; the zero value raises nothing

	// Remote says that the call did not come over the one connection of a stdio process. The session
	// is then found by Named, Handle, ClientSession or ProtocolSession, in this order and only among the
	// sessions of the principal.
	Remote bool
	// Forwarded says that another server passed the call on, which found the session here.
	Forwarded bool
	// Named is the name that the client gives the call's session in words of this server. The call then
	// belongs to that session, on stdio too: a handle, which a model may send, leads to no other.
	Named         string
	ClientSession string // the client's own id of its session; not verified
	// Conversation is the name that the call itself has for the conversation that it belongs to; may be
	// empty. On stdio several may share the session of the process.
	Conversation    string
	ProtocolSession string // id of the protocol session, as the transport verified it
	Opens           bool   // whether the call opens a session when it belongs to none
	// Alone is what a call that belongs to no session has in common with all others of the one conversation
	// that its principal seems to have; empty if it has several, or if that is not to be guessed.
	Alone string

	// Profile narrows the call further than the operator does; a call with a profile belongs to another
	// session than one without, also on stdio. Parent is the id of the session that a child session belongs
	// to, or the name that the client gave that session; it is recorded, and nothing is inherited.
	Profile, Parent string

	// Lease is for the browser that the client lets a script drive; nil if the call has none.
	Lease *policy.Lease

	RunID       string                 // the id that the caller wants for its session; may be empty
	OutputID    string                 // the id that the caller wants for its output; may be empty
	Source      cfharness.Source       // of an activation, as the caller says; empty: it does not
	InputLabels *cfharness.InputLabels // of the inputs of a run; nil for none
	Manifest    *cfharness.RunManifest // of a session that the call begins; nil for the server's
	Records     *recorder.Recorder     // collects what the call records; may be nil

	// Turn is the client's own id of the model's turn the call belongs to.
	Turn string
	// Workspace is the directory the client works in, as the client names it.
	Workspace ClientDir

	// Progress, if not nil, gets a few words on what a long call is doing. It does not block.
	Progress func(message string)
	// YieldSlot, if not nil, is called before a run waits for its slot: the caller must release its own of
	// the call. It reports whether the call may wait; one that may not ends with fault.CodeServerBusy.
	YieldSlot func() bool
	// Room, if not nil, waits until there is memory for a file of so many bytes; its error is an *Error.
	Room func(ctx context.Context, size int64) error
	// HostPaths says that a client on this machine asks for the paths of files here, which a model is not
	// shown otherwise.
	HostPaths bool
	// Borrow, if not nil, is what pictures are decoded in.
	Borrow picture.Borrow
}

// ClientDir is a directory that a client, not the model, names. The zero value names none.
type ClientDir struct {
	Path     string // absolute, on the server's machine; not checked
	ReadOnly bool   // the client itself may not write there
}

// Session is one client's state: its activations, its numbering, its record.
//
// Its locks are taken in this order, none twice: runs, closing, sequence, mu. table.mu comes before mu
// and is never held with the others. Nothing is called with mu held.
type Session struct {
	*Sessions
	id        string
	principal policy.Principal
	client    string
	clientID  string      // the client's own id of its session, not verified, or that of its protocol session
	profile   string      // what the session was narrowed to when it was opened
	protocol  string      // revision of MCP
	keyed     *keyedState // nil for the session of a stdio process

	manifest *cfharness.RunManifest // nil for none

	child      bool   // parent is the session it belongs to
	parentName string // the parent as the client named it
	wanted     string // the id that the client wanted for the session, if it has another

	first       sync.Once    // of what is done before the first call is served
	runs        sync.RWMutex // held by runs, and by the end of the session
	endRecorded bool         // guarded by runs

	closing sync.RWMutex // held by what is recorded, and while ended is set
	ended   atomic.Bool  // nothing is recorded any more

	// sequence is held while events are written that belong together: the first events, the events that
	// restore an earlier session, the events that could not be written before.
	sequence   sync.Mutex
	began      bool            // session.started is written
	under      int             // number of the rules that are recorded
	initial    []initialSkill  // what it starts with and is not yet active
	parent     string          // id of the session it continues or belongs to; empty for none
	restored   map[string]bool // ids of earlier sessions
	pending    []*pendingOutcome         // outcomes of runs that could not be recorded, the oldest first
	background sync.WaitGroup
	open       context.Context // until the session ends
	close      context.CancelFunc
	awaited    map[string]chan struct{} // files that are written in the background; closed when that is over

	broken    atomic.Bool  // the last append failed
	published atomic.Value // the last handle by which all servers find the session
	raised    *earlier.Mode

	decisions, invocations atomic.Uint64 // last number of each

	mu       sync.Mutex
	outputs  uint64                          // highest number of an output
	taken    map[string]bool                 // ids of outputs, up to maxTaken
	secrets  map[earlier.HandleSum]time.Time // when each handle given out expires
	handle   string                          // the one that is given out; the record holds its hash only
	expires  time.Time                       // of handle
	active   map[string]*activation          // by skill path
	approved map[approval.Key]bool           // what the user approved for the rest of the session
	released map[string][]string             // files that may be seen, by output id as in file names
	misses   map[string]int                  // paths that a skill does not have, by its path
}

// activation pins a skill to the tree the model was shown.
type activation struct {
	skill *skills.Skill
	index *skills.Index
	shown bool // whether the instructions were sent, not merely preloaded
	// shownAt is when this server sent them last, and shownTo the conversation; the zero values if another
	// server did, or none.
	shownAt time.Time
	shownTo string

	rows map[activationRow]bool // that this server recorded; made at the first
}

// activationRow is by which rows of one activation differ.
type activationRow struct {
	handle string
	source cfharness.Source
}

// Open returns the session a call belongs to. On stdio that is the session of the process, unless the call
// names its session, narrows itself, names a parent or has the handle of such a session. A call that names
// its session belongs to that. Other calls belong to the session of their handle; without a handle, to the
// session of the id the client gives itself; without that id, to the session of their protocol session. A
// remote client with none of these has one session as long as its principal seems to have one conversation
// (Call.Alone), whose record says so. Else it opens a session with each load_skill and is then known by the
// handle; its other calls share a session in which nothing is active. A handle counts only for the
// principal it was given to, and not for a call that names another session, profile or parent: nothing of a
// session reaches a child of it. A keyed session stays open at least until ctx ends.
//
// Errors: *Denied with code activation_unknown for an unknown or expired handle, *Error with code
// invalid_arguments for a parent that is not a session of the principal, *Error.
func (s *Sessions) Open(ctx context.Context, call Call) (*Session, error) {
	if s.namesProcess(&call) {
		call.Named = ""
	}
	ses, err := s.find(ctx, call)
	if err != nil {
		return nil, fault.Internal(err)
	}
	switch err := ses.reopen(ctx); {
	case errors.Is(err, provenance.ErrNotFound):
		s.table.forget(ses)
		return s.Open(ctx, call)
	case err != nil:
		return nil, err
	}
	ses.noteID(call)
	ses.resumeClient(ctx, call)
	if ses.startsActive() {
		if err := ses.begun(ctx); err != nil {
			return nil, err
		}
	}
	if call.Handle == "" || ses.ownsSum(earlier.Sum(call.Handle)) {
		return ses, nil
	}
	if restored, err := s.restoreHandle(ctx, ses, call); restored != nil || err != nil {
		restored.noteID(call)
		return restored, err
	}
	r := ses.newRequest(call, policy.Read)
	return nil, ses.deny(ctx, r, r.denial(handleUnknown, "", ""))
}

// noteID notes for the recorder of a call that its session has another id than the call asked for.
func (s *Session) noteID(call Call) {
	if s != nil && call.RunID != "" && call.RunID != s.id {
		call.Records.Opened(s.recorded(), s.shortened(call.RunID))
	}
}

// keyed reports whether a call belongs to a session that is found by a key.
func (c *Call) keyed() bool { return c.Remote || c.Named != "" || c.Profile != "" || c.Parent != "" }

// name returns what the client calls the session of a call, or "".
func (c *Call) name() string { return cmp.Or(c.Named, c.ClientSession) }

// lasting returns the name by which the session of a call is found again after the process has ended, or "".
// A protocol session has one too; the name does not give away its id.
func (c *Call) lasting() string {
	if name := c.name(); name != "" || c.ProtocolSession == "" {
		return name
	}
	return "mcp-session " + digest.FromString(c.ProtocolSession).Encoded()[:32]
}

// Unnamed reports whether nothing but a handle connects a call with others of its conversation.
func (c *Call) Unnamed() bool { return c.Remote && c.name() == "" && c.ProtocolSession == "" }

// admits reports whether the handle of a session with this profile and parent counts for a call.
func (c *Call) admits(profile, parentName string) bool {
	return (c.Profile == "" || c.Profile == profile) &&
		(c.Parent == "" || policy.Clip(c.Parent) == parentName)
}

// newSession returns a session of which nothing is recorded yet, a child of the session with the id parent,
// which is empty for none.
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
		manifest: cmp.Or(call.Manifest, s.inForce().Facts.Manifest),
		protocol: call.Protocol, profile: call.Profile, raised: new(earlier.Mode),
		restored: map[string]bool{}, secrets: map[earlier.HandleSum]time.Time{},
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

// ID returns the session's id, which is also the name of its directory of records.
func (s *Session) ID() string { return s.id }

// ownsSum reports whether a handle, by its hash, is this session's and still good.
func (s *Session) ownsSum(sum earlier.HandleSum) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, given := s.secrets[sum]
	return given && s.cfg.Now().Before(until)
}

// activate adds a skill to the session, and returns its pinned state as it was. It sets what goes out with
// the activation. A skill that is active with the same tree keeps its state; another tree takes its place.
func (s *Session) activate(l *Loaded, source cfharness.Source) (a *activation, was activation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if s.handle == "" || !now.Before(s.expires) {
		s.handle = rand.Text()
		s.expires = now.Add(HandleLife)
		s.secrets[earlier.Sum(s.handle)] = s.expires
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

// activated returns the session's pinned state of a skill, or nil.
func (s *Session) activated(path string) *activation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[path]
}

// activatedAs returns the session's pinned state of the only skill of that path or name, or nil.
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
				return nil
			}
			only = a
		}
	}
	return only
}

// maxTaken is how many ids of outputs are remembered. In a session with more, callers choose none any more.
const maxTaken = 100_000

// outputID returns the id of an output: the caller's own if it is RUN:TOOL:NUMBER of this session and tool
// and is new, else one with the next number. Own numbers are unique in a session and count every tool. The
// answer says which id the output got.
func (s *Session) outputID(call Call) string {
	prefix := s.id + ":" + call.Method + ":"
	number, own := strings.CutPrefix(call.OutputID, prefix)
	n, err := strconv.ParseUint(number, 10, 31)
	id := call.OutputID
	s.mu.Lock()
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

// shortened returns a text that a client chose, bounded and without the declared secrets.
func (s *Sessions) shortened(text string) string { return policy.Clip(s.Secrets().Text(text)) }

// runID returns the id of a session that a call opens: the caller's run id if no session has it and it
// holds no secret, which the name of a directory would show, else a new one. The answer and the record then
// say which was asked for: a harness whose server died in the middle of a run goes on, and sees that its rows
// have another id. table.mu is held.
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
