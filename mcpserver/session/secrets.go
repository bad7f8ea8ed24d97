package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// maxVariable is the most bytes of a variable's value; the kernel refuses longer strings.
const maxVariable = 120 << 10

var errNoSecrets = errors.New("the server has no secrets")

// knownSecrets holds the redactor of the values the declared secrets had last. It is safe for
// concurrent use.
type knownSecrets struct {
	mu       sync.Mutex
	values   map[string]string // those that the redactor can find
	redactor *redact.Redactor
}

// CheckEntries refuses allowlist entries that no run could satisfy, and warns of entries whose variables and
// secrets are missing now. It looks only at the configuration and is meant for the start of a server; a run
// checks again.
//
// Errors: an error that names the entry, for an invalid host and for a secret that is too short or too long
// to be found in output.
func (s *Sessions) CheckEntries(ctx context.Context) error {
	for _, entry := range s.cfg.Policy.Entries() {
		where := entry.Skill + ":" + entry.Path
		if _, err := targets(entry); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		_, values, err := s.variables(entry)
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

// variables returns what an entry adds to a script's environment, and its secrets by name.
//
// Errors: one whose text names the variable or secret and no value.
func (s *Sessions) variables(entry policy.Entry) (env []string, secrets map[string]string, err error) {
	add := func(kind, name, value string) error {
		switch {
		case strings.ContainsRune(value, 0):
			return fmt.Errorf("%s %s holds a NUL byte", kind, name)
		case len(value) > maxVariable:
			return fmt.Errorf("%s %s has more than %d bytes", kind, name, maxVariable)
		}
		env = append(env, name+"="+value)
		return nil
	}
	for _, name := range entry.Env {
		value, ok := "", false
		if s.cfg.Env != nil {
			value, ok = s.cfg.Env(name)
		}
		if !ok {
			return nil, nil, fmt.Errorf("variable %s is not in the server's environment", name)
		}
		if err := add("variable", name, value); err != nil {
			return nil, nil, err
		}
	}
	secrets = map[string]string{}
	for _, name := range entry.Secrets {
		value, err := s.secret(name)
		if err != nil {
			return nil, nil, fmt.Errorf("secret %s cannot be had: %w", name, err)
		}
		if err := add("secret", name, value); err != nil {
			return nil, nil, err
		}
		secrets[name] = value
	}
	return env, secrets, nil
}

func (s *Sessions) secret(name string) (string, error) {
	if s.cfg.Secret == nil {
		return "", errNoSecrets
	}
	value, err := s.cfg.Secret(name)
	if err == nil && strings.TrimSpace(value) == "" {
		return "", errors.New("it is empty")
	}
	return value, err
}

// Secrets returns a redactor of the declared secrets with their present values; nil without secrets. Callers
// apply it to the names, paths, arguments and ids that a client or a model chose, before they repeat them in
// an answer, a record or a log line. The contents of skills' files are shown as they are.
//
// It has the secrets of all entries: a script can find what was meant for another one, and a model can pass
// on what it was shown elsewhere. A secret that cannot be read at the moment keeps its last value; one that
// never could be read, or that the redactor cannot find, is left out, and no script gets it.
func (s *Sessions) Secrets() *redact.Redactor {
	values, gone := map[string]string{}, map[string]bool{}
	for _, entry := range s.cfg.Policy.Entries() {
		for _, name := range entry.Secrets {
			if _, done := values[name]; done || gone[name] {
				continue
			}
			value, err := s.secret(name)
			if n := len(strings.TrimSpace(value)); err != nil || n < redact.MinBytes ||
				len(value) > redact.MaxBytes {
				gone[name] = true
			} else {
				values[name] = value
			}
		}
	}
	k := &s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range gone {
		if last, ok := k.values[name]; ok {
			values[name] = last
		}
	}
	if !maps.Equal(k.values, values) {
		k.values = values
		k.redactor, _ = redact.New(values) // refuses sizes only
	}
	return k.redactor
}

// redactorWith returns a redactor of all declared secrets and of those in more, by name.
//
// Errors: redact.ErrSize.
func (s *Sessions) redactorWith(more map[string]string) (*redact.Redactor, error) {
	// The secrets may have changed since the run was requested.
	s.Secrets()
	s.known.mu.Lock()
	all := map[string]string{}
	maps.Copy(all, s.known.values)
	s.known.mu.Unlock()
	maps.Copy(all, more)
	return redact.New(all)
}

// Logger returns a logger that passes on to l what is logged, without the declared secrets.
func (s *Sessions) Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(redact.NewHandler(l.Handler(), s.Secrets))
}

// redactEvent takes the secrets out of everything in an event that a call chose. Digests and the id of the
// session stay exact, since they are compared.
func redactEvent(r *redact.Redactor, e *provenance.Event) {
	if r == nil {
		return
	}
	for _, text := range []*string{&e.Client, &e.Skill, &e.Path, &e.Detail} {
		*text = r.Text(*text)
	}
	e.Row, e.Decision, e.Invocation = r.JSON(e.Row), r.JSON(e.Decision), r.JSON(e.Invocation)
}

// redactResult takes the secrets out of everything a run brought back, before any of it is kept. The
// streams are counted and hashed again if the run was given secrets or printed some, since a digest of what
// it printed would confirm a guess; anew reports that. withheld are the files of /out that cannot be shown:
// binary files that hold a secret.
func redactResult(r *redact.Redactor, res *sandbox.Result, given bool) (withheld []int, anew bool) {
	if r == nil {
		return nil, false
	}
	anew = r.Streams((*redact.Stream)(&res.Stdout), (*redact.Stream)(&res.Stderr),
		res.Outcome != sandbox.Exited, given)
	res.Mediation = r.JSON(res.Mediation)
	res.Skipped = r.Texts(res.Skipped)
	for i := range res.Writes {
		w := &res.Writes[i]
		w.Path, w.Refused = r.Text(w.Path), r.Text(w.Refused)
		if anew {
			// The digest of what was written would confirm a guess too.
			w.Digest = ""
		}
	}
	for i := range res.Out {
		file := &res.Out[i]
		file.Name = r.Text(file.Name)
		switch {
		case utf8.Valid(file.Data) && bytes.IndexByte(file.Data, 0) < 0:
			file.Data = r.Bytes(file.Data)
		case r.Contains(file.Data):
			file.Data = nil
			withheld = append(withheld, i)
		}
	}
	return withheld, anew
}
