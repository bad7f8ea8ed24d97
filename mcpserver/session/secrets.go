package session

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/mcpserver/session/secrets"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/provenance/schema"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/skills/policy"
)

// CheckEntries rejects allowlist entries that no run could satisfy, and warns of entries with variables or
// secrets that are missing now. It looks only at the configuration and is meant for the start of a server; a
// run checks again.
//
// Errors: an error that names the entry, for an invalid host and for a secret that is too short or too long
// to be found in output, or is a word of the server's answers.
func (s *Sessions) CheckEntries(ctx context.Context) error {
	is := s.inForce()
	return s.checkEntries(ctx, &is.Rules)
}

func (s *Sessions) checkEntries(ctx context.Context, rules *Rules) error {
	for _, entry := range rules.Policy.Entries() {
		where := entry.Skill + ":" + entry.Path
		if _, err := egress.ParseTargets(entry.Network); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		_, values, err := s.declared(rules).Variables(entry)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "allowed script lacks what it is to get",
				slog.String("skill", entry.Skill), slog.String("path", entry.Path), tint.Err(err))
			continue
		}
		if err := checkSecrets(values); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	return nil
}

// checkSecrets rejects secrets, values by name, that cannot be removed from answers and records: secrets of a
// wrong size, and secrets that are words of the published schemas.
func checkSecrets(values map[string]string) error {
	if len(values) == 0 {
		return nil
	}
	words, err := schema.Words()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		redactor, err := redact.New(map[string]string{name: values[name]})
		if err != nil {
			return err
		}
		// Answers without one of these words would not conform to the schemas.
		changed := func(word string) bool { return redactor.Text(word) != word }
		if slices.ContainsFunc(words, changed) {
			return fmt.Errorf("secret %s is a word that skillsd's own answers have", name)
		}
	}
	return nil
}

// declared returns the source of the variables and secrets that entries name.
func (s *Sessions) declared(rules *Rules) secrets.Source {
	return secrets.Source{Env: s.cfg.Env, Secret: rules.Secret}
}

// Secrets returns a redactor of the declared secrets with their present values; nil without secrets. Callers
// apply it to the names, paths, arguments and ids that a client or a model chose, before they repeat them in
// an answer, a record or a log line. The contents of skills' files are not redacted.
//
// It redacts the secrets of all entries: a script can find a secret that was meant for another one, and a
// model can repeat a text that it was shown elsewhere. A script gets no secret that the redactor cannot find.
func (s *Sessions) Secrets() *redact.Redactor {
	is := s.inForce()
	entries := is.Policy.Entries()
	// Scripts may have got the secrets of replaced rules, so these stay redacted.
	if len(is.secrets) > 0 {
		entries = append(slices.Clone(entries), policy.Entry{Secrets: is.secrets})
	}
	return s.known.Redactor(s.declared(&is.Rules), entries)
}

// redactorWith returns a redactor of all declared secrets and of the values in more, by name.
//
// Errors: redact.ErrSize.
func (s *Sessions) redactorWith(more map[string]string) (*redact.Redactor, error) {
	// The secrets may have changed since the run was requested.
	s.Secrets()
	return s.known.With(more)
}

// Logger returns a logger that writes to l without the declared secrets.
func (s *Sessions) Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(redact.NewHandler(l.Handler(), s.Secrets))
}
