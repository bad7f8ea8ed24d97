package session

import (
	"bytes"
	"log/slog"
	"unicode/utf8"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/redact"
	"github.com/skillsd/skillsd/sandbox"
)

// Secrets returns a redactor of the declared secrets as they are at the moment. It takes them out of
// what a call brought with it before it is repeated in an answer, a record or a log line: the names,
// paths, arguments and ids that a client or a model chose. The contents of skills' files are no such
// text and are shown as they are.
func (s *Sessions) Secrets() *redact.Redactor {
	r, _ := s.redaction()
	return r
}

// Logger returns a logger that passes on to l what is logged without the secrets in it.
func (s *Sessions) Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	return slog.New(redact.NewHandler(l.Handler(), s.Secrets))
}

// redactEvent takes the secrets out of all that an event repeats of a call. What it names by digest and by
// session stays exact, since it is compared.
func redactEvent(r *redact.Redactor, e *provenance.Event) {
	if r == nil {
		return
	}
	for _, text := range []*string{&e.Client, &e.Skill, &e.Path, &e.Detail} {
		*text = r.Text(*text)
	}
	e.Row, e.Decision, e.Invocation = r.JSON(e.Row), r.JSON(e.Decision), r.JSON(e.Invocation)
}

// redactResult takes the secrets out of everything a run has brought back, before any of it is kept. What
// is left of the streams is counted and hashed anew when the run was given secrets, or showed some,
// since a digest of what a script printed would confirm a guess; anew says so. withheld are the files
// of /out that cannot be shown: those that are no text and hold a secret.
func redactResult(r *redact.Redactor, res *sandbox.Result, given bool) (withheld []int, anew bool) {
	if r == nil {
		return nil, false
	}
	anew = r.Streams((*redact.Stream)(&res.Stdout), (*redact.Stream)(&res.Stderr), res.Outcome != sandbox.Exited, given)
	res.Mediation = r.Bytes(res.Mediation)
	res.Skipped = r.Texts(res.Skipped)
	for i := range res.Writes {
		w := &res.Writes[i]
		w.Path, w.Refused = r.Text(w.Path), r.Text(w.Refused)
		if anew {
			// What was written may be the secret.
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
