package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/spf13/pflag"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
)

// resumeOptions are the flags of serve by which a recorded session goes on.
type resumeOptions struct {
	Session string
	Drift   string
}

func (o *resumeOptions) register(flags *pflag.FlagSet) {
	flags.StringVar(&o.Session, "resume", "", "stdio: go on with this `SESSION`, or latest; what it loaded is active again if it is still the same")
	flags.StringVar(&o.Drift, "resume-drift", "fail", "when a skill of the resumed session has changed: `WORD` is fail, or reload it as it is now")
}

func (o *resumeOptions) check(http bool, cfg *config.Configuration) error {
	if err := oneOf("resume-drift", o.Drift, "fail", "reload"); err != nil {
		return err
	}
	if o.Session == "" && cfg.OriginOf("resume-drift").Kind == config.FromFlag {
		return exit.Usagef("add --resume SESSION", "--resume-drift has no effect without --resume")
	}
	if o.Session != "" && http {
		return exit.Usagef("over HTTP, activation handles find their session after a restart by themselves", "--resume has no effect on HTTP")
	}
	return nil
}

// resume makes the session the process's own, before anything is answered.
func (o *resumeOptions) resume(ctx context.Context, find func(context.Context, string) (string, error), server *mcpserver.Server) error {
	if o.Session == "" {
		return nil
	}
	id, err := find(ctx, o.Session)
	if err != nil {
		return err
	}
	err = server.Resume(ctx, id, o.Drift == "reload")
	if drifted, ok := errors.AsType[*session.DriftedError](err); ok {
		lines := make([]string, len(drifted.Drifts))
		for i, d := range drifted.Drifts {
			lines[i] = "\n  " + d.String()
		}
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("--resume %s: skills are not those that the session loaded:%s", id, strings.Join(lines, "")),
			Hint: "review the change and add --resume-drift reload, or start without --resume"}
	}
	if errors.Is(err, provenance.ErrUnavailable) {
		return unwritable(id, err)
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

// unwritable says in a sentence why the record of a session cannot go on.
func unwritable(id string, err error) error {
	return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("--resume %s: the session cannot be written to: %s", id, lastWords(err)),
		Hint: "if another server has the session, end it first"}
}

// lastWords is the cause at the end of what was being done.
func lastWords(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		return text[i+2:]
	}
	return text
}
