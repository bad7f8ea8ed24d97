package filestore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
	"github.com/skillsd/skillsd/skills/store/fsys"
)

// maxSessionFile bounds what is read of a session.json, in bytes.
const maxSessionFile = 1 << 20

func readSessionFile(dir *os.Root) (*provenance.Session, error) {
	data, err := readFile(dir, provenance.SessionFile, maxSessionFile)
	if err != nil {
		return nil, err
	}
	var s provenance.Session
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%w: %v", provenance.ErrCorrupt, err)
	}
	return &s, nil
}

// ReadEvents yields the events of a session below dir in order, checking the chain, without
// opening it for writing. A torn last line ends the iteration without an error.
//
// Errors: provenance.ErrNotFound, provenance.ErrCorrupt.
func ReadEvents(dir, id string) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		root, err := os.OpenRoot(dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("session %.60q: %w", id, provenance.ErrNotFound)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer root.Close()
		for e, err := range readEvents(root, id, -1) {
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// readEvents yields the events in the first limit bytes, or all when limit is negative.
func readEvents(root *os.Root, id string, limit int64) iter.Seq2[*provenance.Event, error] {
	return func(yield func(*provenance.Event, error) bool) {
		dir, err := openSession(root, id)
		if err != nil {
			yield(nil, err)
			return
		}
		defer dir.Close()
		f, err := openRegular(dir, provenance.EventsFile)
		if err != nil {
			yield(nil, fmt.Errorf("session %s: %s: %w", id, provenance.EventsFile, err))
			return
		}
		defer f.Close()
		var r io.Reader = f
		if limit >= 0 {
			r = io.LimitReader(f, limit)
		}
		sc := provenance.NewScanner(r)
		for {
			e, err := sc.Next()
			if errors.Is(err, io.EOF) || errors.Is(err, provenance.ErrTorn) {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("session %s: %s:%d: %w", id, provenance.EventsFile, sc.Line, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// readFile reads a regular file of at most limit bytes.
func readFile(dir *os.Root, name string, limit int64) ([]byte, error) {
	f, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	data, err := fsys.ReadAll(f, limit)
	if long, ok := errors.AsType[*fsys.TooLongError](err); ok {
		err = fmt.Errorf("%s is %w", name, long)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, cause(err)
	}
	return data, nil
}

// foldArtifact renders a derived file of a session that this store does not hold.
func foldArtifact(root *os.Root, session, name string) (io.ReadCloser, error) {
	var (
		views cfharness.Views
		tally provenance.Tally
	)
	for e, err := range readEvents(root, session, -1) {
		if err != nil {
			return nil, err
		}
		if err := errors.Join(tally.Add(e), views.Add(e)); err != nil {
			return nil, err
		}
	}
	if name == provenance.SessionFile && tally.Session.Head.Seq > 0 {
		data, err := provenance.EncodePretty(tally.Session)
		return io.NopCloser(bytes.NewReader(data)), err
	}
	var (
		data []byte
		err  error
	)
	if name != provenance.SessionFile {
		data, err = views.Render(name, views.Len(name))
	}
	if err == nil && data == nil {
		err = fmt.Errorf("open %s of session %s: %w", name, session, provenance.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}
