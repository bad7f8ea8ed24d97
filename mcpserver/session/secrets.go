package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/lmittmann/tint"

	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/provenance/schema"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/skills/policy"
)

const (
	// maxVariable is the most bytes of a variable's value; the kernel refuses longer strings.
	maxVariable = 120 << 10

	// maxEarlier is how many values that secrets had before are still found.
	maxEarlier = 64
)

var errNoSecrets = errors.New("the server has no secrets")

// knownSecrets keeps the present and the earlier values of the entries' secrets. The zero value is empty; it
// is safe for concurrent use.
type knownSecrets struct {
	mu       sync.Mutex
	values   map[string]string // those that the redactor can find
	earlier  map[string]string // values that were replaced; a script may have kept one
	redactor *redact.Redactor
}

// Secrets returns a redactor of the declared secrets with their present values; nil without secrets. Callers
// apply it to the names, paths, arguments and ids that a client or a model chose, before they repeat them in
// an answer, a record or a log line. The contents of skills' files are not redacted.
//
// It redacts the secrets of all entries: a script can find a secret that was meant for another one, and a
// model can repeat a text that it was shown elsewhere. A script gets no secret that the redactor cannot find.
// A secret that cannot be read at the moment keeps its last value; one that never could be read, or that the
// redactor cannot find, is left out.
func (s *Sessions) Secrets() *redact.Redactor {
	rules := s.rules.Load()
	if len(rules.secrets) == 0 {
		return nil
	}
	values := map[string]string{}
	for _, name := range rules.secrets {
		value, err := rules.secret(name)
		if n := len(strings.TrimSpace(value)); err == nil && n >= redact.MinBytes &&
			len(value) <= redact.MaxBytes {
			values[name] = value
		}
	}
	k := &s.known
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range rules.secrets {
		last, known := k.values[name]
		if _, present := values[name]; known && !present {
			values[name] = last
		}
	}
	if maps.Equal(k.values, values) {
		return k.redactor
	}
	for name, value := range k.values {
		if now, ok := values[name]; ok && now != value && len(k.earlier) < maxEarlier {
			if k.earlier == nil {
				k.earlier = map[string]string{}
			}
			k.earlier[fmt.Sprintf("%s (earlier %d)", name, len(k.earlier)+1)] = value
		}
	}
	k.values = values
	// New refuses only sizes, which were checked above.
	k.redactor, _ = redact.New(k.all())
	return k.redactor
}

// redactorWith returns a redactor of all declared secrets and of the values in more, by name.
//
// Errors: redact.ErrSize.
func (s *Sessions) redactorWith(more map[string]string) (*redact.Redactor, error) {
	// The secrets may have changed since the run was requested.
	s.Secrets()
	s.known.mu.Lock()
	all := s.known.all()
	s.known.mu.Unlock()
	maps.Copy(all, more)
	return redact.New(all)
}

// all returns the present values and the earlier ones. k.mu is held.
func (k *knownSecrets) all() map[string]string {
	all := maps.Clone(k.values)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, k.earlier)
	return all
}

// Logger returns a logger that writes to l without the declared secrets.
func (s *Sessions) Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(redact.NewHandler(l.Handler(), s.Secrets))
}

// variables returns the variables that an entry adds to a script's environment, and its secrets by name.
//
// Errors: one whose text names the variable or secret and no value.
func (s *Sessions) variables(
	rules *Rules, entry policy.Entry,
) (env []string, secrets map[string]string, err error) {
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
		value, err := rules.secret(name)
		if err != nil {
			return nil, nil, fmt.Errorf("secret %s is missing: %w", name, err)
		}
		if err := add("secret", name, value); err != nil {
			return nil, nil, err
		}
		secrets[name] = value
	}
	return env, secrets, nil
}

// secret returns the present value of a secret.
func (r *Rules) secret(name string) (string, error) {
	if r.Secret == nil {
		return "", errNoSecrets
	}
	value, err := r.Secret(name)
	if err != nil {
		return value, err
	}
	if strings.TrimSpace(value) == "" {
		return "", errors.New("it is empty")
	}
	return value, err
}

// redactResult removes the secrets from the result of a run, before any of it is stored. The streams are
// counted and hashed again if the run was given secrets or printed some, since a digest of the original
// output would confirm a guess; anew reports that. withheld lists the binary files of /out that contain a
// secret.
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
			// The digest of a written file would confirm a guess too.
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

// CheckEntries rejects allowlist entries that no run could satisfy, and warns of entries with variables or
// secrets that are missing now. It looks only at the configuration and is meant for the start of a server; a
// run checks again.
//
// Errors: an error that names the entry, for an invalid host and for a secret that is too short or too long
// to be found in output, or is a word of the server's answers.
func (s *Sessions) CheckEntries(ctx context.Context) error {
	is := s.rules.Load()
	return s.checkEntries(ctx, &is.Rules)
}

func (s *Sessions) checkEntries(ctx context.Context, rules *Rules) error {
	for _, entry := range rules.Policy.Entries() {
		where := entry.Skill + ":" + entry.Path
		if _, err := egress.ParseTargets(entry.Network); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		_, values, err := s.variables(rules, entry)
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
