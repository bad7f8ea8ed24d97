package filestore

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
)

// maxHeadNote bounds what is read of a head.note, in bytes.
const maxHeadNote = 64 << 10

// signHead writes head.note for a session that has ended. Nothing signs a session later, because whoever can
// write to the directory would get a signature for a record of their own.
func (s *session) signHead() error {
	if s.opts.Signer == nil {
		return nil
	}
	m, err := s.mark(true)
	if err != nil || m.tally.Session.State != provenance.StateEnded {
		// Events that are not on stable storage are not signed. Writing the views returns the same error.
		return nil
	}
	data, err := provenance.SignHead(s.id, m.tally.Session.Head, s.opts.Signer)
	if err != nil {
		return err
	}
	err = patiently(func() error {
		dir, err := s.openDir()
		if err != nil {
			return err
		}
		return errors.Join(writeFile(dir, provenance.HeadNoteFile, data, fileMode), dir.Close())
	})
	if err != nil {
		return unavailable("write "+provenance.HeadNoteFile, err)
	}
	return nil
}

// readNote returns the head that head.note names, or the zero Head if there is no note.
func (v *verifier) readNote(keys []note.Verifier) (provenance.Head, error) {
	found, err := v.read(provenance.HeadNoteFile, maxHeadNote)
	if err != nil || found == nil {
		return provenance.Head{}, err
	}
	head, err := provenance.OpenHead(v.id, found, keys...)
	if err != nil {
		return head, difference(provenance.HeadNoteFile, 1, err.Error())
	}
	v.report.Files++
	return head, nil
}

// checkNote compares the head that was signed with the record. With a key, the note must cover the whole
// record.
func (v *verifier) checkNote(signed provenance.Head, hash string, keyed bool) error {
	why := "the session has not ended; sessions are signed when they end"
	if v.report.Session.State == provenance.StateEnded {
		why = "the session ended but is not signed: the server had no key, was killed before it signed, " +
			"or the note was removed"
	}
	switch {
	case signed.Seq == 0 && keyed:
		return difference(provenance.HeadNoteFile, 1, "missing: "+why)
	case signed.Seq == 0:
		return nil
	case signed.Seq > uint64(v.report.Events):
		return difference(provenance.EventsFile, v.report.Events+1,
			fmt.Sprintf("missing: %s names event %d", provenance.HeadNoteFile, signed.Seq))
	case hash != signed.Hash:
		return difference(provenance.EventsFile, int(signed.Seq),
			fmt.Sprintf("not the event %s was made for: the hash is another", provenance.HeadNoteFile))
	case keyed && signed.Seq < uint64(v.report.Events):
		return difference(provenance.EventsFile, int(signed.Seq)+1,
			fmt.Sprintf("not signed: %s covers the events up to %d", provenance.HeadNoteFile, signed.Seq))
	}
	v.report.Signed = keyed
	return nil
}
