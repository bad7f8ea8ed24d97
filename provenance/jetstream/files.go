package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
)

const (
	// chunk is the maximum number of bytes of a file in one message.
	chunk = 256 << 10

	// Bytes are not written again within fresh, and unnamed bytes are not deleted within kept. The difference
	// is the time for naming bytes that were not written again.
	fresh = time.Hour
	kept  = 24 * time.Hour

	// maxKnown is how many digests a store remembers as present in the cluster.
	maxKnown = 10_000
)

// headerChunks is the header, in each message of a file, with the number of messages.
const headerChunks = "Chunks"

func (c *cluster) chunkOf(d digest.Digest, n int) string {
	return c.subject(cmp.Or(c.shelf, "blob"), d.Encoded(), strconv.Itoa(n))
}

// chunksOf returns the messages for a file's bytes.
func (c *cluster) chunksOf(sum digest.Digest, data []byte) []*nats.Msg {
	all := make([]*nats.Msg, max(1, (len(data)+chunk-1)/chunk))
	for i := range all {
		all[i] = &nats.Msg{Subject: c.chunkOf(sum, i), Data: data[i*chunk : min(len(data), (i+1)*chunk)],
			Header: nats.Header{headerChunks: {strconv.Itoa(len(all))}}}
	}
	return all
}

// putBlob writes bytes unless the cluster has them, so that they are kept long enough to be named.
func (st *Store) putBlob(ctx context.Context, sum digest.Digest, data []byte) error {
	st.mu.Lock()
	until := st.known[sum]
	st.mu.Unlock()
	now := st.opts.Now()
	if now.Before(until) {
		return nil
	}
	chunks := st.chunksOf(sum, data)
	// The last chunk is written last, so its presence proves all others.
	last, err := st.last(ctx, st.blobs, chunks[len(chunks)-1].Subject)
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return err
	}
	has := err == nil && now.Before(last.Time.Add(fresh))
	until = now.Add(fresh)
	if has {
		until = last.Time.Add(fresh)
	}
	for i := 0; i < len(chunks) && !has; i++ {
		if err := st.put(ctx, chunks[i]); err != nil {
			return err
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.known) >= maxKnown {
		clear(st.known)
	}
	st.known[sum] = until
	return nil
}

// blob returns the bytes of a digest, at most most. If a chunk is missing or wrong, it reads again.
//
// Errors: provenance.ErrUnavailable; provenance.ErrInvalid if there are more than most bytes.
func (c *cluster) blob(ctx context.Context, sum digest.Digest, most int64) ([]byte, error) {
	for begin := time.Now(); ; time.Sleep(pause) {
		var data bytes.Buffer
		n := 1
		var err error
		for i := 0; i < n && err == nil; i++ {
			var m *jetstream.RawStreamMsg
			m, err = c.last(ctx, c.blobs, c.chunkOf(sum, i))
			if err != nil {
				break
			}
			if int64(data.Len()+len(m.Data)) > most {
				return nil, fmt.Errorf("%w: %s has more than %d bytes", provenance.ErrInvalid, sum, most)
			}
			data.Write(m.Data)
			n, err = strconv.Atoi(m.Header.Get(headerChunks))
		}
		if err == nil && digest.FromBytes(data.Bytes()) == sum {
			return data.Bytes(), nil
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, provenance.ErrSilent):
			// The cluster is silent, so the bytes may exist.
			return nil, err
		// Until then, a newly elected leader of the stream may lack messages.
		case time.Since(begin) > c.opts.Patience:
			return nil, fmt.Errorf("%w: bytes of %s are missing or wrong", provenance.ErrUnavailable, sum)
		}
	}
}

// fileOf returns the subject prefix under which the digest of a session file is published. The digest is the
// last part of the subject, so a server that lost the session cannot replace a file that an event names.
func (c *cluster) fileOf(session, name string) string {
	return c.subject(append([]string{"file", session}, strings.Split(name, "/")...)...)
}

// file returns the bytes of a file: the version that the last event names, or else the version written last.
//
// Errors: provenance.ErrNotFound; the errors of blob.
func (r *reader) file(ctx context.Context, session, name string) ([]byte, error) {
	var found []digest.Digest
	for m, err := range r.messages(ctx, r.blobs, r.fileOf(session, name)+".*", 1) {
		if err != nil {
			return nil, err
		}
		var f provenance.File
		if err := json.Unmarshal(m.Data, &f); err != nil || f.Digest.Validate() != nil {
			return nil, fmt.Errorf("%w: its digest in the cluster is invalid", provenance.ErrCorrupt)
		}
		found = append(found, f.Digest)
	}
	if len(found) == 0 {
		return nil, provenance.ErrNotFound
	}
	sum := found[len(found)-1]
	if len(found) > 1 {
		// A Put whose event was not recorded leaves another digest, so the events decide.
		named, err := r.digestOf(ctx, session, name)
		if err != nil {
			return nil, err
		}
		sum = cmp.Or(named, sum)
	}
	return r.blob(ctx, sum, math.MaxInt64)
}

// digestOf returns the digest of a file in the last event that names it, or "" without such an event.
func (r *reader) digestOf(ctx context.Context, session, name string) (sum digest.Digest, err error) {
	for e, err := range r.scan(ctx, session) {
		if errors.Is(err, provenance.ErrNotFound) {
			break
		}
		if err != nil {
			return "", err
		}
		for _, f := range e.Files {
			if f.Name == name {
				sum = f.Digest
			}
		}
	}
	return sum, nil
}

// names returns the names of a session's files.
func (r *reader) names(ctx context.Context, session string) ([]string, error) {
	base := r.subject("file", session) + "."
	names, err := r.subjects(ctx, r.blobs, base+">")
	for i, name := range names {
		name = strings.TrimPrefix(name[:strings.LastIndexByte(name, '.')], base)
		names[i] = strings.NewReplacer(".", "/", "~", ".").Replace(name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// size returns the size of a session, including bytes that it shares with other sessions.
func (r *reader) size(ctx context.Context, of found) (int64, error) {
	size := of.state.Bytes
	for m, err := range r.messages(ctx, r.blobs, r.subject("file", of.id)+".>", 1) {
		if err != nil {
			return 0, fmt.Errorf("measure session %s: %w", of.id, err)
		}
		var f provenance.File
		if json.Unmarshal(m.Data, &f) == nil {
			size += f.Size
		}
	}
	return size, nil
}

// Put implements provenance.Writer.
func (st *Store) Put(ctx context.Context, session, name string, data []byte) (provenance.File, error) {
	name = provenance.CleanFileName(name)
	if err := provenance.CheckFileName(name); err != nil {
		return provenance.File{}, fmt.Errorf("put: %w", err)
	}
	if strings.HasPrefix(name, provenance.OutputsDir+"/") && provenance.ValidSessionID(session) {
		if err := st.replaceable(ctx, session, name); err != nil {
			return provenance.File{}, fmt.Errorf("put %s: %w", name, err)
		}
	}
	return st.keep(ctx, session, name, digest.FromBytes(data), data)
}

// replaceable returns an error if an event names the output, because such an output is evidence.
func (st *Store) replaceable(ctx context.Context, session, name string) error {
	_, err := st.last(ctx, st.blobs, st.fileOf(session, name)+".*")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for e, err := range st.Events(ctx, provenance.Query{Session: session}) {
		if errors.Is(err, provenance.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(e.Files, func(f provenance.File) bool { return f.Name == name }) {
			return fmt.Errorf("%w: an event names this output", provenance.ErrInvalid)
		}
	}
	return nil
}

// keep writes a file: first its bytes, then its name.
func (st *Store) keep(
	ctx context.Context, session, name string, sum digest.Digest, data []byte,
) (provenance.File, error) {
	err := ctx.Err()
	st.mu.Lock()
	closed := st.closed
	st.mu.Unlock()
	switch {
	case closed:
		err = provenance.ErrClosed
	case !provenance.ValidSessionID(session):
		err = fmt.Errorf("%w: session id", provenance.ErrInvalid)
	}
	if err != nil {
		return provenance.File{}, fmt.Errorf("put %s: %w", name, err)
	}
	// The bytes come first, since a reader must not find the name of a file without its bytes.
	if err := st.putBlob(ctx, sum, data); err != nil {
		return provenance.File{}, fmt.Errorf("put %s: %w", name, err)
	}
	f := provenance.File{Name: name, Size: int64(len(data)), Digest: sum}
	if err := st.setFile(ctx, st.fileOf(session, name)+"."+sum.Encoded(), f); err != nil {
		return provenance.File{}, fmt.Errorf("put %s: %w", name, err)
	}
	return f, nil
}

// setFile publishes the digest and size of a file.
func (c *cluster) setFile(ctx context.Context, subject string, f provenance.File) error {
	encoded, err := provenance.Encode(f)
	if err != nil {
		return err
	}
	return c.put(ctx, &nats.Msg{Subject: subject, Data: encoded})
}

// sweep deletes the bytes that no session names and that were not written recently.
func (c *cluster) sweep(ctx context.Context) error {
	named := map[string]bool{}
	for _, subject := range []string{c.subject("file", ">"), c.subject("long", ">")} {
		for m, err := range c.messages(ctx, c.blobs, subject, 1) {
			if err != nil {
				return fmt.Errorf("collect files: %w", err)
			}
			var f provenance.File
			if err := json.Unmarshal(m.Data, &f); err != nil {
				return fmt.Errorf("collect files: %w", err)
			}
			named[f.Digest.Encoded()] = true
		}
	}
	base := c.subject("blob", "")
	first, err := c.subjects(ctx, c.blobs, base+"*.0")
	if err != nil {
		return fmt.Errorf("collect files: %w", err)
	}
	for _, subject := range first {
		sum := strings.TrimSuffix(strings.TrimPrefix(subject, base), ".0")
		if named[sum] {
			continue
		}
		// forget keeps bytes that were written recently, since a session may be about to name them.
		if err := c.forget(ctx, base+sum); err != nil {
			return fmt.Errorf("collect files: %w", err)
		}
	}
	return nil
}

// forget deletes the chunks below a subject, unless the last chunk was written recently. Chunks that are
// written again meanwhile have higher sequence numbers and stay.
func (c *cluster) forget(ctx context.Context, base string) error {
	m, err := c.last(ctx, c.blobs, base+".0")
	if err != nil {
		return err
	}
	if n, _ := strconv.Atoi(m.Header.Get(headerChunks)); n > 1 {
		m, err = c.last(ctx, c.blobs, base+"."+strconv.Itoa(n-1))
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		// Another store is about to write it.
		return nil
	}
	if err != nil || c.opts.Now().Before(m.Time.Add(kept)) {
		return err
	}
	return c.purge(ctx, c.blobs, base+".*", jetstream.WithPurgeSequence(m.Sequence+1))
}

// PutShared implements provenance.Writer. The content is generated once for all sessions of the process.
func (st *Store) PutShared(
	ctx context.Context, session, name string, s *provenance.Shared,
) (provenance.File, error) {
	name = provenance.CleanFileName(name)
	if err := provenance.CheckFileName(name); err != nil {
		return provenance.File{}, fmt.Errorf("put: %w", err)
	}
	s.Lock()
	defer s.Unlock()
	data, made := s.Kept.([]byte)
	if !made {
		var content bytes.Buffer
		now := func(at time.Time) error {
			content.WriteString(provenance.FormatTime(at))
			return nil
		}
		if err := s.Write(&content, now); err != nil {
			return provenance.File{}, err
		}
		data = content.Bytes()
		s.Kept = data
	}
	return st.keep(ctx, session, name, digest.FromBytes(data), data)
}

// Keep implements provenance.Writer.
func (st *Store) Keep(ctx context.Context, session string, data []byte) (digest.Digest, error) {
	sum := digest.FromBytes(data)
	_, err := st.keep(ctx, session, provenance.ShownName(sum), sum, data)
	if err != nil {
		return "", err
	}
	return sum, nil
}

// Claim implements provenance.Writer.
func (st *Store) Claim(ctx context.Context, session string) error {
	if !provenance.ValidSessionID(session) {
		return fmt.Errorf("claim %.60q: %w: session id", session, provenance.ErrInvalid)
	}
	_, err := st.last(ctx, st.events, st.subjectOf(session))
	switch {
	case err == nil:
		err = provenance.ErrTaken
	case errors.Is(err, jetstream.ErrMsgNotFound):
		err = st.create(ctx, st.subject("claim", session))
	}
	if err != nil {
		return fmt.Errorf("claim %s: %w", session, err)
	}
	return nil
}

// Reserve implements provenance.Writer. It does nothing: servers of a cluster do not reserve space.
func (st *Store) Reserve(context.Context, string, int64) (release func(), err error) {
	return func() {}, nil
}
