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

// Library stores files for the processes that share a cluster: files by their digests, which are never
// deleted, and a manifest that lists the valid ones. It has a stream of its own. A client that may publish
// to that stream can change the library: Get compares a file with its digest, and readers must verify the
// manifest. It is safe for concurrent use.
type Library struct{ *cluster }

// shelfSkills is the shelf of the library's files.
const shelfSkills = "skill"

// OpenLibrary returns the Library of a cluster. If create is set, it creates the stream if that does not
// exist. The caller owns the connection.
//
// Errors: see [Open] and [IsUnused].
func OpenLibrary(ctx context.Context, conn *nats.Conn, opts *Options, create bool) (*Library, error) {
	set := opts.withDefaults()
	if !create {
		// A reader need not know the number of replicas.
		set.Replicas = 1
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

// Put writes a file to the library. It compares existing chunks and replaces the ones that differ.
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
// Errors: provenance.ErrUnavailable if the file is still missing or wrong after [Options.Patience];
// provenance.ErrInvalid if it is longer; the error of ctx.
func (l *Library) Get(ctx context.Context, sum digest.Digest, most int64) ([]byte, error) {
	return l.blob(ctx, sum, most)
}

// SetManifest replaces the manifest with the given revision, 0 if there is no manifest yet.
//
// Errors: provenance.ErrTaken if revision is not the last one; provenance.ErrUnavailable, after which the
// manifest may or may not have been replaced; the error of ctx.
func (l *Library) SetManifest(ctx context.Context, text []byte, revision uint64) error {
	made, err := l.swap(ctx, l.blobs, &nats.Msg{Subject: l.subject("skills"), Data: text}, revision, 0)
	if err != nil {
		return fmt.Errorf("replace the manifest: %w", err)
	}
	if !made {
		return fmt.Errorf("replace the manifest: %w", provenance.ErrTaken)
	}
	return nil
}

// Manifest returns the last manifest and its revision.
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
