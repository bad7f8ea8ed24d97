package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
	"github.com/skillsd/skillsd/skills/source/served"
	"github.com/skillsd/skillsd/skills/source/web"
)

// maxPatience is the longest time that a started program may take for an answer. It may have to download
// packages before the first one.
const maxPatience = 2 * time.Minute

// errSilent is the error of a program that was started to serve skills and did not answer in time.
var errSilent = errors.New("the program did not answer")

// The prefixes of a source that is an MCP server.
const (
	mcpPrefix   = "mcp+"
	stdioPrefix = "mcp+stdio:"
)

// parseServer splits a source that is an MCP server into a URL, or the arguments of a command to start.
func parseServer(given string, insecure bool) (at *url.URL, argv []string, err error) {
	const hint = "give mcp+https://HOST/mcp, or 'mcp+stdio:PROGRAM ARGUMENT...'"
	if command, ok := strings.CutPrefix(given, stdioPrefix); ok {
		argv = strings.Fields(command)
		if len(argv) == 0 || len(command) > 4096 || strings.ContainsFunc(command, unicode.IsControl) {
			return nil, nil, refuse(hint, "%q names no program", clip(given))
		}
		return nil, argv, nil
	}
	at, err = web.Parse(strings.TrimPrefix(given, mcpPrefix), insecure)
	if err != nil {
		return nil, nil, refuse(hint, "%q %v", clip(given), err)
	}
	return at, nil, nil
}

// mcpKind is the skills that another MCP server serves.
type mcpKind struct{}

func (mcpKind) resolve(given, ref string, insecure bool) (Origin, bool, error) {
	if !strings.HasPrefix(given, mcpPrefix) {
		return Origin{}, false, nil
	}
	if ref != "" {
		return Origin{}, false, refuse("leave it out", "--ref goes with a git URL only")
	}
	_, _, err := parseServer(given, insecure)
	return Origin{Kind: KindMCP, Source: given}, err == nil, err
}

func (mcpKind) check(o Origin) error {
	if _, _, err := parseServer(o.Source, true); err != nil || !strings.HasPrefix(o.Source, mcpPrefix) {
		return fmt.Errorf("source: %q is not an MCP server", clip(o.Source))
	}
	if o.Commit != "" || o.Ref != "" || o.Subdir != o.Path || archive.CheckName(o.Path) != nil {
		return errors.New("path: is not a skill of a server, or there is a ref or a commit")
	}
	if o.Digest.Validate() != nil {
		return errors.New("digest: is missing")
	}
	return nil
}

func (mcpKind) single() bool { return true }

func (mcpKind) unchanged(ctx context.Context, p *Plan, e *Entry, access Access) bool {
	l := p.served(ctx, e.Origin, access)
	return l.err == nil && slices.ContainsFunc(l.skills, func(there *served.Skill) bool {
		return there.Name == e.Origin.Path && there.Problem == "" && there.Digest == e.Origin.Digest
	})
}

func (mcpKind) hint(e *FetchError) string {
	if errors.Is(e, errSilent) {
		return "start its command by itself, and see what it waits for"
	}
	return "see whether it serves skills by the Skills extension (skills/list)"
}

// fetch fetches skills of an MCP server, at the digest of the origin if set.
func (mcpKind) fetch(
	ctx context.Context, p *Plan, f *fetched, access Access,
) (root skills.Root, err error) {
	l := p.served(ctx, f.origin, access)
	if l.err != nil {
		return root, l.err
	}
	parts := make([]part, len(l.skills))
	for n, one := range l.skills {
		parts[n] = part{one.Name, one.Digest, func(ctx context.Context, _, into string) error {
			if err := p.i.root.MkdirAll(into, 0o700); err != nil {
				return err
			}
			root, err := p.i.root.OpenRoot(into)
			if err != nil {
				return err
			}
			return errors.Join(l.explain(l.server.Extract(ctx, one, root)), root.Close())
		}}
	}
	parts, err = f.wanted("server", parts, access)
	if err != nil {
		return root, err
	}
	root, err = p.fetchParts(ctx, f, parts, maxArtifacts)
	return root, unfetched(ctx, f.origin, err)
}

// startsProgram returns an error if the entry has an origin that starts a program and is not installed here.
// A lock file from another machine must not choose a program to run.
func (e *Entry) startsProgram(here *Entry) error {
	origins := []Origin{e.Origin}
	// A sync fetches the earlier version too, so its origin could start a program as well.
	if e.Previous != nil {
		origins = append(origins, e.previousOrigin())
	}
	for _, o := range origins {
		known := here != nil && (here.Origin.Same(o) || here.Previous != nil && here.previousOrigin().Same(o))
		if strings.HasPrefix(o.Source, stdioPrefix) && !known {
			return refuse("install it here yourself, if you trust the program: skillsd install",
				"%s comes from a program that the lock file names: %s", e.Name, clip(o.Source))
		}
	}
	return nil
}

// FromProgram reports whether the skill or its earlier version comes from an MCP server that is a program.
// Such an entry cannot be synced to another machine.
func (e *Entry) FromProgram() bool { return e.startsProgram(nil) != nil }

// listing is a connection to an MCP server and the skills that it serves. The connection ends with the plan.
type listing struct {
	server *served.Server
	skills []*served.Skill
	err    error

	running  context.Context         // of the program; nil for a URL
	end      context.CancelCauseFunc // kills the program and its children
	patience time.Duration
	mu       sync.Mutex
	waiting  int         // unanswered requests
	silence  *time.Timer // kills the program
}

// wait adds n to the number of unanswered requests, and restarts the timer if there are any.
func (l *listing) wait(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silence != nil {
		l.silence.Stop()
	}
	// One limit for all requests would end a program that answers each of them slowly.
	l.waiting += n
	if l.waiting > 0 {
		l.silence = time.AfterFunc(l.patience, func() { l.end(errSilent) })
	}
}

// patient is middleware that kills the program if it does not answer a request in time.
func (l *listing) patient(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(l.running, cancel)()
		l.wait(1)
		defer l.wait(-1)
		return next(ctx, method, req)
	}
}

// explain returns err, or errSilent if the program was killed.
func (l *listing) explain(err error) error {
	if err != nil && l.running != nil && context.Cause(l.running) == errSilent {
		return fmt.Errorf("%w within %v and was killed", errSilent, l.patience)
	}
	return err
}

// served connects to an MCP server and lists its skills, at most once per plan.
func (p *Plan) served(ctx context.Context, from Origin, access Access) *listing {
	if known := p.servers[from.Source]; known != nil {
		return known
	}
	p.i.progress("asking the server", 0, 0)
	l := &listing{patience: cmp.Or(p.i.cfg.patience, maxPatience)}
	l.err = p.connect(ctx, l, from, access)
	if l.err == nil {
		l.skills, l.err = l.server.Skills(ctx)
	}
	l.err = l.explain(l.err)
	l.err = unfetched(ctx, from, l.err)
	p.servers[from.Source] = l
	return l
}

// unfetched wraps the error of a server in a FetchError, unless the source was refused or ctx ended.
func unfetched(ctx context.Context, from Origin, err error) error {
	if _, refused := errors.AsType[*SourceError](err); err == nil || refused || ctx.Err() != nil {
		return err
	}
	return &FetchError{from.Source, err, KindMCP}
}

func (p *Plan) connect(ctx context.Context, l *listing, from Origin, access Access) error {
	at, argv, err := parseServer(from.Source, access.Insecure)
	if err != nil {
		return err
	}
	if argv == nil {
		l.server, err = served.Connect(ctx, served.HTTP(at.String(), p.client(at, access).HTTP()))
		return err
	}
	l.running, l.end = context.WithCancelCause(ctx)
	cmd := exec.CommandContext(l.running, argv[0], argv[1:]...)
	killTree(cmd)
	l.server, err = served.Connect(ctx, &mcp.CommandTransport{Command: cmd}, l.patient)
	return err
}
