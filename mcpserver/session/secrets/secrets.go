// Package secrets looks up the variables and secrets that the operator declared for scripts, and removes the
// secrets from results and records.
//
// Guarantees:
//   - a value is read for each run, and is passed only to the scripts whose entries name it;
//   - a secret that was read once is still redacted after it can no longer be read;
//   - errors name a variable or a secret, and contain no value.
package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
)

// maxVariable is the most bytes of a variable's value; the kernel refuses longer strings.
const maxVariable = 120 << 10

var errNoSecrets = errors.New("the server has no secrets")

// Source looks up the values that entries name.
type Source struct {
	Env    func(name string) (string, bool)  // of the server's environment; may be nil
	Secret func(name string) (string, error) // may be nil; its errors contain no value
}

// Variables returns the variables that an entry adds to a script's environment, and its secrets by name.
//
// Errors: one whose text names the variable or secret and no value.
func (s Source) Variables(entry policy.Entry) (env []string, secrets map[string]string, err error) {
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
		if s.Env != nil {
			value, ok = s.Env(name)
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
			return nil, nil, fmt.Errorf("secret %s is missing: %w", name, err)
		}
		if err := add("secret", name, value); err != nil {
			return nil, nil, err
		}
		secrets[name] = value
	}
	return env, secrets, nil
}

func (s Source) secret(name string) (string, error) {
	if s.Secret == nil {
		return "", errNoSecrets
	}
	value, err := s.Secret(name)
	if err != nil {
		return value, err
	}
	if strings.TrimSpace(value) == "" {
		return "", errors.New("it is empty")
	}
	return value, err
}

// maxEarlier is how many values that secrets had before are still found.
const maxEarlier = 64

// Known keeps the present and the earlier values of the entries' secrets. The zero value is empty; it is safe
// for concurrent use.
type Known struct {
	mu       sync.Mutex
	values   map[string]string // those that the redactor can find
	earlier  map[string]string // values that were replaced; a script may have kept one
	redactor *redact.Redactor
}

// Redactor returns a redactor of the secrets of some entries with their present values; nil without secrets.
// A secret that cannot be read at the moment keeps its last value; one that never could be read, or that the
// redactor cannot find, is left out.
func (k *Known) Redactor(source Source, entries []policy.Entry) *redact.Redactor {
	values, gone := map[string]string{}, map[string]bool{}
	for _, entry := range entries {
		for _, name := range entry.Secrets {
			if _, done := values[name]; done || gone[name] {
				continue
			}
			value, err := source.secret(name)
			if n := len(strings.TrimSpace(value)); err != nil || n < redact.MinBytes ||
				len(value) > redact.MaxBytes {
				gone[name] = true
			} else {
				values[name] = value
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name := range gone {
		if last, ok := k.values[name]; ok {
			values[name] = last
		}
	}
	if !maps.Equal(k.values, values) {
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
	}
	return k.redactor
}

// With returns a redactor of the known secrets and of those in more, by name.
//
// Errors: redact.ErrSize.
func (k *Known) With(more map[string]string) (*redact.Redactor, error) {
	k.mu.Lock()
	all := k.all()
	k.mu.Unlock()
	maps.Copy(all, more)
	return redact.New(all)
}

// all returns the present values and the earlier ones. k.mu is held.
func (k *Known) all() map[string]string {
	all := maps.Clone(k.values)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, k.earlier)
	return all
}

// Event takes the secrets out of everything in an event that a call chose. Digests and the id of the session
// stay exact, since they are compared.
func Event(r *redact.Redactor, e *provenance.Event) {
	if r == nil {
		return
	}
	for _, text := range []*string{&e.Client, &e.Skill, &e.Path, &e.Detail} {
		*text = r.Text(*text)
	}
	e.Row, e.Decision, e.Invocation = r.JSON(e.Row), r.JSON(e.Decision), r.JSON(e.Invocation)
}

// Result removes the secrets from the result of a run, before any of it is stored. The streams are counted
// and hashed again if the run was given secrets or printed some, since a digest of the original output would
// confirm a guess; anew reports that. withheld lists the binary files of /out that contain a secret.
func Result(r *redact.Redactor, res *sandbox.Result, given bool) (withheld []int, anew bool) {
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
