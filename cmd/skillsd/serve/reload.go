package serve

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"
	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/packages"
	"github.com/skillsd/skillsd/sandbox/environment"
)

// lookEvery is the interval of checks for a changed configuration, in addition to the check at each request.
const lookEvery = time.Second

// A configuration is read once it has not changed for a while. The first half of a file that is being written
// in place may be valid, and allow what the whole file does not.
const (
	settle        = 20 * time.Millisecond
	settleWritten = time.Second
	maxSettle     = 5 * time.Second
)

// reloader applies changes of the configuration to a running server. They can affect decisions about calls;
// other changes need a restart, which is logged.
type reloader struct {
	plan     *Plan
	sessions *session.Sessions
	publish  func()
	serving  context.Context
	logger   *slog.Logger

	mu      sync.Mutex
	changed func() config.Change
	pending bool     // the file was still being written
	now     *Options // its configuration is in force, or needs a restart
	offered bool     // the sandbox was detected
}

// reloads returns the reloader, or nil if the process cannot read its configuration again.
func (p *Plan) reloads(ctx context.Context, sessions *session.Sessions, logger *slog.Logger) *reloader {
	o := p.options
	if o.Again == nil {
		return nil
	}
	return &reloader{plan: p, sessions: sessions, logger: logger, serving: ctx, now: o,
		changed: o.Process.RulesChanged(), offered: p.Policy.Offers(mcpserver.ToolRun), publish: func() {}}
}

// follow checks for changes until ctx ends, so that clients without calls are notified too.
func (r *reloader) follow(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.refresh(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// refresh applies the configuration if it has changed since the last call. An invalid one is not applied.
func (r *reloader) refresh(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change := r.changed()
	if change == config.Unchanged && !r.pending {
		return
	}
	r.pending = !r.settled(change)
	if r.pending {
		return
	}
	ctx = context.WithoutCancel(ctx) // the client of this request may disconnect
	if err := r.reload(ctx); err != nil {
		var hint string
		if failed, ok := errors.AsType[*exit.Error](err); ok {
			hint = failed.Hint
		}
		// Records name that the rules in force are not those in the file.
		r.sessions.Unheeded(true)
		r.logger.ErrorContext(ctx, "the changed configuration is not valid: the previous one stays in "+
			"force", tint.Err(err), slog.String("hint", hint))
		return
	}
	r.sessions.Unheeded(false)
}

// settled waits until the file stops changing, and reports whether it did.
func (r *reloader) settled(change config.Change) bool {
	for begin := time.Now(); time.Since(begin) < maxSettle; {
		// A file that was replaced by a rename is complete; one that is written in place may have a part
		// missing.
		if change == config.Replaced {
			time.Sleep(settle)
		} else {
			time.Sleep(settleWritten)
		}
		change = r.changed()
		if change == config.Unchanged {
			return true
		}
	}
	return false
}

// reload checks the configuration like a start, and applies it.
func (r *reloader) reload(ctx context.Context) (err error) {
	next, err := r.plan.options.Again()
	if err != nil {
		return err
	}
	p := next.Plan() // completes the options
	if p.Workspace.Dir != nil {
		defer p.Workspace.Dir.Close()
	}
	if err := p.Err(); err != nil {
		return err
	}
	live, restart := differences(r.now, next)
	if r.plan.Cluster != nil {
		// The servers of a cluster must decide alike, so that rules change only with a generation.
		live, restart = nil, slices.Concat(live, restart)
	}
	if len(live) > 0 {
		if err := r.replace(ctx, p, live); err != nil {
			return err
		}
		r.logger.InfoContext(ctx, "configuration changed", slog.String("keys", strings.Join(live, ", ")))
	}
	if len(restart) > 0 {
		r.logger.WarnContext(ctx, "this change of the configuration needs a restart of the server",
			slog.String("keys", strings.Join(restart, ", ")))
	}
	r.now = next
	if len(live) > 0 {
		r.publish()
	}
	return nil
}

// replace applies a plan without problems.
func (r *reloader) replace(ctx context.Context, p *Plan, live []string) error {
	was, next, facts := r.plan, p.options, p.facts
	facts.WorkspacePath, facts.KeepsShown, facts.Enforces = was.facts.WorkspacePath, was.facts.KeepsShown,
		was.facts.Enforces
	facts.Path, facts.Origin = was.facts.Path, was.facts.Origin
	if p.usesEnvironments() && was.environments == nil {
		var err error
		was.environments, err = environment.Open(config.EnvironmentsDir(was.own.state.path))
		if err != nil {
			return exit.Directory("state directory", "--state", err)
		}
	}
	// Finding interpreters again starts each of them, which calls would wait for.
	if !slices.Equal(was.own.all(), p.own.all()) || slices.Contains(live, "interpreters") {
		was.Detection.interpreters.Store(next.finder(p, was.Detection.writable))
	}
	rules := session.Rules{Policy: p.Policy, Secret: next.Process.Secret, Limits: next.Limits.Limits,
		Facts: facts, ClientWorkspace: was.fromClient,
		Environments: &packages.Environments{Store: was.environments, Lock: p.lock,
			Python: was.Detection.python}}
	if was.client != nil && p.client != nil {
		// Otherwise a reload would forget where paths led, and a script could redirect one.
		p.client.continues(was.client)
		rules.ClientWorkspace = p.client.open
	}
	if err := r.sessions.Replace(ctx, rules, strings.Join(live, ", ")); err != nil {
		return entriesError(err)
	}
	was.own = p.own
	if p.client != nil {
		was.client = p.client
	}
	if p.Policy.Offers(mcpserver.ToolRun) && !r.offered {
		r.offered = true
		// The context of the request would end the sandboxes that are prepared.
		was.Detection.Start(r.serving, r.logger, true)
	}
	return nil
}

// live reports whether a change of an option takes effect in a running server.
func live(option *config.Option) bool {
	switch option.Key {
	case "principals", "policy.drift", "limits.concurrent", "sandbox.backend", "sandbox.uids",
		"workspace.dir", "workspace.from_client", "workspace.owner":
		return false
	}
	return option.Section == config.SectionPolicy || option.Section == config.SectionRuns
}

// aside reports whether an option is for commands other than the server.
func aside(option *config.Option) bool {
	return strings.HasPrefix(option.Key, "trust.") || option.Key == "index"
}

// differences returns the keys of the changed options, separated by whether they take effect in a running
// server or need a restart.
func differences(was, is *Options) (running, restart []string) {
	before, after := was.values(), is.values()
	for i, option := range is.Table() {
		if aside(&option) || reflect.DeepEqual(before[i], after[i]) {
			continue
		}
		key := option.Key
		if live(&option) {
			running = append(running, key)
			continue
		}
		restart = append(restart, key)
	}
	return running, restart
}

// values returns the values of all options, in the order of the table.
func (o *Options) values() []any {
	var all []any
	given, inFile := o.Table(), o.Process.Cfg.Keys.Table()
	for i := range given {
		pair := [2]any{}
		for j, value := range []any{given[i].Value, inFile[i].InFile} {
			if v := reflect.ValueOf(value); v.IsValid() && !v.IsNil() {
				pair[j] = v.Elem().Interface()
			}
		}
		all = append(all, pair)
	}
	return all
}
