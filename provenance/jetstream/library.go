package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

// Library is what processes read that have a cluster in common: files by their digests, which nothing
// deletes, and a manifest, which says which of them count. It has a stream of its own. Whoever may publish to
// that can change it: a file is compared with its digest, and the manifest is for its reader to verify. It is
// safe for concurrent use.
type Library struct{ *cluster }

// shelfSkills is the shelf of the files.
const shelfSkills = "skill"

// OpenLibrary returns the Library of a cluster, whose stream it makes if create says so. The connection is
// the caller's.
//
// Errors: as Open; see [IsUnused].
func OpenLibrary(ctx context.Context, conn *nats.Conn, opts *Options, create bool) (*Library, error) {
	set := opts.withDefaults()
	if !create {
		set.Replicas = 1 // who only reads need not know how many there are
	}
	c, err := newCluster(conn, set)
	if err != nil {
		return nil, fmt.Errorf("open the library: %w", err)
	}
	c.shelf = shelfSkills
	c.blobs, err = c.stream(ctx, streamSkills, create)
	if err != nil {
		return nil, fmt.Errorf("open the library: %w", err)
	}
	return &Library{c}, nil
}

// Put makes the library have a file. What is there already is compared and, if it is something else,
// replaced.
//
// Errors: provenance.ErrUnavailable, or the error of ctx.
func (l *Library) Put(ctx context.Context, sum digest.Digest, data []byte) error {
	for _, m := range l.chunksOf(sum, data) {
		has, err := l.last(ctx, l.blobs, m.Subject)
		same := err == nil && bytes.Equal(has.Data, m.Data) &&
			has.Header.Get(headerChunks) == m.Header.Get(headerChunks)
		if err == nil && !same || errors.Is(err, jetstream.ErrMsgNotFound) {
			err = l.put(ctx, m)
		}
		if err != nil {
			return fmt.Errorf("put %s: %w", sum, err)
		}
	}
	return nil
}

// Get returns a file of at most most bytes.
//
// Errors: provenance.ErrUnavailable if it is not there, or is another one, for as long as a caller waits for
// the cluster; provenance.ErrInvalid if it is longer; the error of ctx.
func (l *Library) Get(ctx context.Context, sum digest.Digest, most int64) ([]byte, error) {
	return l.blob(ctx, sum, most)
}

// SetManifest replaces the manifest of a revision, 0 for none.
//
// Errors: provenance.ErrTaken if that is no longer the last one, provenance.ErrUnavailable, after which it
// may have been replaced or not, or the error of ctx.
func (l *Library) SetManifest(ctx context.Context, text []byte, revision uint64) error {
	made, err := l.swap(ctx, l.blobs, &nats.Msg{Subject: l.subject("skills"), Data: text}, revision, 0)
	if err != nil {
		return fmt.Errorf("replace the manifest: %w", err)
	}
	if !made {
		err = provenance.ErrTaken
	}
	if err != nil {
		return fmt.Errorf("replace the manifest: %w", err)
	}
	return nil
}

// Manifest returns the manifest that was set last, and its revision.
//
// Errors: provenance.ErrNotFound, provenance.ErrUnavailable, or the error of ctx.
func (l *Library) Manifest(ctx context.Context) (text []byte, revision uint64, err error) {
	m, err := l.last(ctx, l.blobs, l.subject("skills"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = provenance.ErrNotFound
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the manifest: %w", err)
	}
	return m.Data, m.Sequence, nil
}
