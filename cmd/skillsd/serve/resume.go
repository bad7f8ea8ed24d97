package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
	"github.com/skillsd/skillsd/cmd/skillsd/exit"

	"github.com/skillsd/skillsd/mcpserver"
	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance"
)

// checkResumption refuses flags that make no sense together.
func (o *Options) checkResumption() error {
	if err := oneOf("resume-drift", o.Resume.Drift, "fail", "reload"); err != nil {
		return err
	}
	if o.Resume.Session == "" && o.Process.Cfg.OriginOf("resume-drift").Kind == config.FromFlag {
		return exit.Usagef("add --resume SESSION", "--resume-drift has no effect without --resume")
	}
	if o.Resume.Session != "" && o.HTTP.Enabled() {
		return exit.Usagef("over HTTP, activation handles find their session after a restart by themselves",
			"--resume has no effect on HTTP")
	}
	return nil
}

// resume makes the session the process's own, before anything is answered.
func (o *Options) resume(ctx context.Context, server *mcpserver.Server) error {
	if o.Resume.Session == "" {
		return nil
	}
	id, err := o.FindSession(ctx, o.Resume.Session)
	if err != nil {
		return err
	}
	err = server.Resume(ctx, id, o.Resume.Drift == "reload")
	if drifted, ok := errors.AsType[*session.DriftedError](err); ok {
		lines := make([]string, len(drifted.Drifts))
		for i, d := range drifted.Drifts {
			lines[i] = "\n  " + d.String()
		}
		return &exit.Error{Code: exit.Failure,
			Err: fmt.Errorf("--resume %s: skills are not those that the session loaded:%s", id,
				strings.Join(lines, "")),
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
	return &exit.Error{Code: exit.Failure, Err: fmt.Errorf(
		"--resume %s: the session cannot be written to: %s", id, lastWords(err)),
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
