package filestore

import (
	"context"
	"iter"

	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
)

// with calls do with a Reader of dir.
func with[T any](dir string, do func(provenance.Reader) (T, error)) (T, error) {
	r, err := OpenReader(dir)
	if err != nil {
		var none T
		return none, err
	}
	defer r.Close()
	return do(r)
}

// Verify verifies a session below dir with a Reader of its own.
func Verify(dir, id string, keys ...note.Verifier) (*provenance.Report, error) {
	return with(dir, func(r provenance.Reader) (*provenance.Report, error) {
		return r.Verify(context.Background(), id, keys...)
	})
}

// List lists the sessions below dir.
func List(dir string) ([]provenance.Session, error) {
	return with(dir, func(r provenance.Reader) ([]provenance.Session, error) {
		return provenance.ListSessions(context.Background(), r)
	})
}

// Collect deletes sessions below dir.
func Collect(ctx context.Context, dir string, opts provenance.CollectOptions) ([]provenance.Collected, error) {
	return with(dir, func(r provenance.Reader) ([]provenance.Collected, error) { return r.Collect(ctx, opts) })
}

// DropNamed drops the digests that sessions below dir name.
func DropNamed(ctx context.Context, dir string, digests map[digest.Digest]bool) error {
	_, err := with(dir, func(r provenance.Reader) (bool, error) { return true, r.DropNamed(ctx, digests) })
	return err
}

// ReadEvents yields the events of a session below dir.
func ReadEvents(dir, id string) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		r, err := OpenReader(dir)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		for e, err := range r.Events(context.Background(), provenance.Query{Session: id}) {
			if !yield(e, err) {
				return
			}
		}
	}
}
