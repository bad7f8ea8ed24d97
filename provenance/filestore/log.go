package filestore

import (
	"slices"
	"time"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// maxUnsynced is how many bytes may wait for stable storage before an append waits for it.
const maxUnsynced = 8 << 20

// maxIdle is how many bytes of buffer an idle log keeps.
const maxIdle = 64 << 10

// log is an events.jsonl and the state of its chain. It is not safe for concurrent use.
type log struct {
	file     file
	now      func() time.Time
	tally    fold
	offset   int64  // end of the acknowledged lines
	synced   int64  // end of the lines on stable storage
	unsynced []byte // the lines between the two
	suspect  bool   // the file from synced on may not be what was written
	// first is called before the file is synced, and puts on stable storage what the lines name.
	first func() error
	// begin is called once the first lines are on stable storage; an error takes them back. It is nil
	// after it succeeded.
	begin func() error
	// note is called with the events that the register names, after they and begin; an error takes the lines
	// back. It is nil for a session that is not signed.
	note func([]*provenance.Event) error
}

// append records events in order and returns the error of each. They share one write and, if one of them
// is durable or durably is set, one sync. If either fails, none is recorded.
func (l *log) append(events []*provenance.Event, durably bool) []error {
	if err := l.repair(); err != nil {
		return slices.Repeat([]error{unavailable("append event", err)}, len(events))
	}
	errs := make([]error, len(events))
	var lines []byte
	var noted []*provenance.Event
	tally := l.tally
	for i, e := range events {
		line, err := tally.Extend(e, l.now)
		// An event that is refused leaves no gap: the next one follows the last that was accepted.
		errs[i] = err
		if err == nil {
			if lines == nil {
				lines = line // most often the only one
			} else {
				lines = append(lines, line...)
			}
			durably = durably || e.Kind.Durable()
			if l.note != nil && marks(e) {
				noted, durably = append(noted, e), true
			}
		}
	}
	var failed error
	if len(lines) > 0 {
		failed = l.write(lines, durably || len(l.unsynced)+len(lines) > maxUnsynced, noted)
	}
	if failed == nil {
		l.tally = tally
	}
	for i, e := range events {
		if errs[i] == nil && failed != nil {
			errs[i] = unavailable("append event", failed)
		}
		if errs[i] != nil {
			e.Unplace()
		}
	}
	return errs
}

// write adds lines at the end of the file, or leaves the file as it was.
func (l *log) write(lines []byte, durably bool, noted []*provenance.Event) error {
	_, err := l.file.WriteAt(lines, l.offset)
	if err == nil && durably {
		if err = l.flush(); err != nil {
			// After a failed sync, the kernel may drop the pages and report them clean.
			l.suspect = true
		} else if l.begin != nil {
			err = l.begin()
			if err == nil {
				l.begin = nil
			}
		}
		if err == nil && len(noted) > 0 {
			err = l.note(noted)
		}
	}
	if err != nil {
		// A part of the lines may be in the file; a reader must not take them for recorded.
		if l.file.Truncate(l.offset) != nil {
			l.suspect = true
		}
		return err
	}
	l.offset += int64(len(lines))
	l.unsynced = append(l.unsynced, lines...)
	if durably {
		l.clean()
	}
	return nil
}

// sync puts every acknowledged line on stable storage.
func (l *log) sync() error {
	if l.suspect {
		return l.repair()
	}
	if len(l.unsynced) == 0 {
		return nil
	}
	if err := l.flush(); err != nil {
		l.suspect = true
		return err
	}
	l.clean()
	return nil
}

// flush puts the file on stable storage, after what its lines name.
func (l *log) flush() error {
	if l.first != nil {
		if err := l.first(); err != nil {
			return err
		}
	}
	return l.file.Sync()
}

// clean notes that every line is on stable storage. It frees a buffer that grew large.
func (l *log) clean() {
	l.synced, l.unsynced = l.offset, l.unsynced[:0]
	if cap(l.unsynced) > maxIdle {
		l.unsynced = nil
	}
}

// repair writes the lines again that may be lost after a failure.
func (l *log) repair() error {
	if !l.suspect {
		return nil
	}
	// Lines whose append failed may be in the file, and acknowledged lines since the last good sync may
	// be gone from it.
	err := l.file.Truncate(l.offset)
	if err != nil {
		return err
	}
	_, err = l.file.WriteAt(l.unsynced, l.synced)
	if err != nil {
		return err
	}
	err = l.flush()
	if err != nil {
		return err
	}
	l.clean()
	l.suspect = false
	return err
}

// fold is the session that the events of a record make, with what its views say besides their rows.
type fold struct {
	provenance.Tally
	cfharness.Heads
}

// Extend adds events to the Tally. After an error the fold is as before, because Heads accepts every event
// that a Tally accepts.
func (f *fold) Extend(e *provenance.Event, now func() time.Time) ([]byte, error) {
	line, err := f.Tally.Extend(e, now)
	if err != nil {
		return line, err
	}
	err = f.Heads.Add(e)
	return line, err
}
