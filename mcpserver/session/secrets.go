package session

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session/secrets"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox/egress"
)

// CheckEntries refuses allowlist entries that no run could satisfy, and warns of entries whose variables and
// secrets are missing now. It looks only at the configuration and is meant for the start of a server; a run
// checks again.
//
// Errors: an error that names the entry, for an invalid host and for a secret that is too short or too long
// to be found in output.
func (s *Sessions) CheckEntries(ctx context.Context) error {
	for _, entry := range s.cfg.Policy.Entries() {
		where := entry.Skill + ":" + entry.Path
		if _, err := egress.ParseTargets(entry.Network); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		_, values, err := s.declared().Variables(entry)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "allowlisted script lacks what it is to get",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), tint.Err(err))
			continue
		}
		if _, err := redact.New(values); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	return nil
}

// declared returns where the values are that entries name.
func (s *Sessions) declared() secrets.Source {
	return secrets.Source{Env: s.cfg.Env, Secret: s.cfg.Secret}
}

// Secrets returns a redactor of the declared secrets with their present values; nil without secrets. Callers
// apply it to the names, paths, arguments and ids that a client or a model chose, before they repeat them in
// an answer, a record or a log line. The contents of skills' files are shown as they are.
//
// It has the secrets of all entries: a script can find what was meant for another one, and a model can pass
// on what it was shown elsewhere. No script gets a secret that it cannot find.
func (s *Sessions) Secrets() *redact.Redactor {
	return s.known.Redactor(s.declared(), s.cfg.Policy.Entries())
}

// redactorWith returns a redactor of all declared secrets and of those in more, by name.
//
// Errors: redact.ErrSize.
func (s *Sessions) redactorWith(more map[string]string) (*redact.Redactor, error) {
	s.Secrets() // they may have changed since the run was requested
	return s.known.With(more)
}

// Logger returns a logger that passes on to l what is logged, without the declared secrets.
func (s *Sessions) Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(redact.NewHandler(l.Handler(), s.Secrets))
}
