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

// log is an open events.jsonl and the state of its chain. It is not safe for concurrent use.
type log struct {
	file     file
	now      func() time.Time
	tally    fold
	offset   int64  // end of the acknowledged lines
	synced   int64  // end of the lines on stable storage
	unsynced []byte // the lines between the two
	suspect  bool   // the file after synced may differ from what was written
	// first is called before the file is synced; it syncs the files that the lines name.
	first func() error
	// begin is called once the first lines are on stable storage; after an error they are truncated. It is
	// nil after it succeeded.
	begin func() error
	// note is called with the events that belong in the register, after the sync and begin; after an error
	// the lines are truncated. It is nil if sessions are not signed.
	note func([]*provenance.Event) error
}

// append records events in order and returns the error for each. They share one write and, if any of them is
// durable or durably is set, one sync. If either fails, no event is recorded.
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
		if err != nil {
			// A refused event leaves no gap: the next one follows the last accepted event.
			errs[i] = err
			continue
		}
		if lines == nil {
			// Most often there is only one line.
			lines = line
		} else {
			lines = append(lines, line...)
		}
		durably = durably || e.Kind.Durable()
		if l.note != nil && marks(e) {
			noted, durably = append(noted, e), true
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

// write appends lines to the file, or leaves the file unchanged.
func (l *log) write(lines []byte, durably bool, noted []*provenance.Event) error {
	_, err := l.file.WriteAt(lines, l.offset)
	if err == nil && durably {
		err = l.harden(noted)
	}
	if err != nil {
		// Some of the lines may be in the file, and a reader would take them for recorded.
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

// harden syncs the file, then calls begin and note.
func (l *log) harden(noted []*provenance.Event) error {
	if err := l.flush(); err != nil {
		// After a failed sync, the kernel may drop the pages and report them clean.
		l.suspect = true
		return err
	}
	if l.begin != nil {
		if err := l.begin(); err != nil {
			return err
		}
		l.begin = nil
	}
	if len(noted) == 0 {
		return nil
	}
	return l.note(noted)
}

// sync syncs every acknowledged line.
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

// flush syncs the file, after the files that its lines name.
func (l *log) flush() error {
	if l.first != nil {
		if err := l.first(); err != nil {
			return err
		}
	}
	return l.file.Sync()
}

// clean marks every line as synced. It frees a buffer that grew large.
func (l *log) clean() {
	l.synced, l.unsynced = l.offset, l.unsynced[:0]
	if cap(l.unsynced) > maxIdle {
		l.unsynced = nil
	}
}

// repair rewrites the lines that a failure may have lost.
func (l *log) repair() error {
	if !l.suspect {
		return nil
	}
	// The file may contain lines whose append failed, and may lack acknowledged lines since the last
	// successful sync.
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
	return nil
}

// fold is the session state folded from a record's events, and the heads of its views.
type fold struct {
	provenance.Tally
	cfharness.Heads
}

// Extend adds an event to the Tally and to Heads. After an error the fold is unchanged, because Heads accepts
// every event that a Tally accepts.
func (f *fold) Extend(e *provenance.Event, now func() time.Time) ([]byte, error) {
	line, err := f.Tally.Extend(e, now)
	if err != nil {
		return line, err
	}
	return line, f.Heads.Add(e)
}
