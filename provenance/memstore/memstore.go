// Package memstore keeps the provenance of sessions in memory, for tests and for programs that
// embed the server and keep records elsewhere.
//
// It encodes and chains events exactly as a store on disk does, and its views are the same bytes.
// It guarantees nothing once the process ends: no kind of event is durable here.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

var _ provenance.Store = (*Store)(nil)

// Store is a provenance.Store in memory. It is safe for concurrent use; make one with New.
type Store struct {
	mu       sync.RWMutex
	closed   bool
	sessions map[string]*session
}

type session struct {
	tally   provenance.Tally
	at      time.Time // of the last append, by this machine's clock
	lines   [][]byte  // with their newlines
	files   map[string][]byte
	outputs map[string]bool // outputs that events name
}

// New returns an empty Store.
func New() *Store {
	return &Store{sessions: make(map[string]*session)}
}

func newSession() *session {
	return &session{files: make(map[string][]byte), outputs: make(map[string]bool)}
}

// Append implements provenance.Store.
func (st *Store) Append(ctx context.Context, e *provenance.Event) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return provenance.ErrClosed
	}
	s := st.sessions[e.Session]
	if s == nil {
		s = newSession()
	}
	if err := s.append(e); err != nil {
		e.Seq, e.Prev, e.Hash = 0, "", ""
		return err
	}
	st.sessions[e.Session] = s
	return nil
}

func (s *session) append(e *provenance.Event) error {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = provenance.Stamp(e.Time).Time
	e.Seq, e.Prev = s.tally.Next()
	line, err := provenance.EncodeLine(e)
	if err != nil {
		return err
	}
	if err := s.tally.Add(e); err != nil {
		return err
	}
	s.lines, s.at = append(s.lines, line), time.Now()
	for _, f := range e.Files {
		if strings.HasPrefix(f.Name, provenance.OutputsDir+"/") {
			s.outputs[f.Name] = true
		}
	}
	return nil
}

// Put implements provenance.Store.
func (st *Store) Put(ctx context.Context, id, name string, data []byte) (provenance.File, error) {
	name = provenance.CleanFileName(name)
	if err := ctx.Err(); err != nil {
		return provenance.File{}, err
	}
	if !provenance.ValidSessionID(id) {
		return provenance.File{}, fmt.Errorf("put %.60q: %w: session id", name, provenance.ErrInvalid)
	}
	if err := provenance.CheckFileName(name); err != nil {
		return provenance.File{}, fmt.Errorf("put: %w", err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return provenance.File{}, provenance.ErrClosed
	}
	s := st.sessions[id]
	if s == nil {
		s = newSession()
		st.sessions[id] = s
	}
	if s.outputs[name] {
		return provenance.File{}, fmt.Errorf("put %s: %w: an event names this output", name, provenance.ErrInvalid)
	}
	s.files[name] = bytes.Clone(data)
	return provenance.File{Name: name, Size: int64(len(data)), Digest: digest.FromBytes(data)}, nil
}

// Keep implements provenance.Store; everything is kept.
func (st *Store) Keep(ctx context.Context, id string, data []byte) (digest.Digest, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if !provenance.ValidSessionID(id) {
		return "", fmt.Errorf("keep what is shown: %w: session id", provenance.ErrInvalid)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return "", provenance.ErrClosed
	}
	s := st.sessions[id]
	if s == nil {
		s = newSession()
		st.sessions[id] = s
	}
	d := digest.FromBytes(data)
	if _, kept := s.files[provenance.ShownName(d)]; !kept {
		s.files[provenance.ShownName(d)] = bytes.Clone(data)
	}
	return d, nil
}

// Claim implements provenance.Store.
func (st *Store) Claim(_ context.Context, id string) error {
	if !provenance.ValidSessionID(id) {
		return fmt.Errorf("claim %.60q: %w: session id", id, provenance.ErrInvalid)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.closed:
		return provenance.ErrClosed
	case st.sessions[id] != nil:
		return fmt.Errorf("claim %s: %w", id, provenance.ErrTaken)
	}
	st.sessions[id] = newSession()
	return nil
}

// Events implements provenance.Store.
func (st *Store) Events(ctx context.Context, q provenance.Query) iter.Seq2[*provenance.Event, error] {
	lines, _, ok := st.snapshot(q.Session)
	return func(yield func(*provenance.Event, error) bool) {
		if !ok {
			yield(nil, fmt.Errorf("session %.60q: %w", q.Session, provenance.ErrNotFound))
			return
		}
		for _, line := range lines {
			e, err := provenance.DecodeLine(line[:len(line)-1])
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if q.Matches(e) && !yield(e, nil) {
				return
			}
		}
	}
}

// Sessions implements provenance.Store.
func (st *Store) Sessions(ctx context.Context, since time.Time) iter.Seq2[provenance.Session, error] {
	type found struct {
		provenance.Session
		at time.Time
	}
	var all []found
	st.mu.RLock()
	for _, s := range st.sessions {
		if s.tally.Session.Head.Seq > 0 && s.at.After(since) {
			all = append(all, found{s.tally.Session, s.at})
		}
	}
	st.mu.RUnlock()
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(b.ID, a.ID)) })
	return func(yield func(provenance.Session, error) bool) {
		for _, s := range all {
			if err := ctx.Err(); err != nil {
				yield(provenance.Session{}, err)
				return
			}
			if !yield(s.Session, nil) {
				return
			}
		}
	}
}

// snapshot returns the lines of a session, which never change, and its state.
func (st *Store) snapshot(id string) ([][]byte, provenance.Session, bool) {
	st.mu.RLock()
	defer st.mu.RUnlock()
	s := st.sessions[id]
	if s == nil {
		return nil, provenance.Session{}, false
	}
	return s.lines[:len(s.lines):len(s.lines)], s.tally.Session, true
}

// Artifact implements provenance.Store.
func (st *Store) Artifact(_ context.Context, id, name string) (io.ReadCloser, error) {
	name = provenance.CleanFileName(name)
	lines, head, ok := st.snapshot(id)
	if !ok {
		return nil, fmt.Errorf("session %.60q: %w", id, provenance.ErrNotFound)
	}
	var (
		data []byte
		err  error
	)
	switch {
	case name == provenance.EventsFile:
		data = bytes.Join(lines, nil)
	case name == provenance.SessionFile && head.Head.Seq > 0:
		data, err = provenance.EncodePretty(head)
	case provenance.IsView(name):
		data, err = render(lines, name)
	default:
		data, err = st.file(id, name)
	}
	if err == nil && data == nil {
		err = provenance.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open %.60q of session %s: %w", name, id, err)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func render(lines [][]byte, name string) ([]byte, error) {
	var views cfharness.Views
	for _, line := range lines {
		e, err := provenance.DecodeLine(line[:len(line)-1])
		if err == nil {
			err = views.Add(e)
		}
		if err != nil {
			return nil, err
		}
	}
	return views.Render(name, views.Len(name))
}

func (st *Store) file(id, name string) ([]byte, error) {
	if err := provenance.CheckFileName(name); err != nil && !provenance.IsShown(name) {
		return nil, err
	}
	st.mu.RLock()
	defer st.mu.RUnlock()
	data, ok := st.sessions[id].files[name]
	if !ok {
		return nil, provenance.ErrNotFound
	}
	return append([]byte{}, data...), nil
}

// Close implements provenance.Store. What was recorded stays readable.
func (st *Store) Close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	return nil
}
