package filestore

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
)

// maxHeadNote bounds what is read of a head.note, in bytes.
const maxHeadNote = 64 << 10

// signHead writes head.note for a session that has ended.
func (s *session) signHead() error {
	if s.opts.Signer == nil {
		return nil
	}
	m, err := s.mark(markSynced)
	if err != nil || m.tally.Session.State != provenance.StateEnded {
		// What is not on stable storage is not signed; writing the views met the same error.
		return nil
	}
	data, err := provenance.SignHead(s.id, m.tally.Session.Head, s.opts.Signer)
	if err != nil {
		return err
	}
	dir, err := s.openDir()
	if err == nil {
		err = errors.Join(writeFile(dir, provenance.HeadNoteFile, data, fileMode), dir.Close())
	}
	if err != nil {
		return unavailable("write "+provenance.HeadNoteFile, err)
	}
	return nil
}

// readNote returns the head that head.note names, or the zero Head when there is none and no key
// asks for one.
func (v *verifier) readNote(keys []note.Verifier) (provenance.Head, error) {
	found, err := v.readDerived(provenance.HeadNoteFile, maxHeadNote)
	switch {
	case err != nil:
		return provenance.Head{}, err
	case found.missing && len(keys) > 0:
		return provenance.Head{}, &VerifyError{provenance.HeadNoteFile, 1, "missing: the session is not signed"}
	case found.missing:
		return provenance.Head{}, nil
	}
	head, err := provenance.OpenHead(v.id, found.data, keys...)
	if err != nil {
		return head, &VerifyError{provenance.HeadNoteFile, 1, err.Error()}
	}
	v.report.Files++
	return head, nil
}

// checkNote compares the head that was signed with the record. With a key the whole record must be
// covered by it.
func (v *verifier) checkNote(signed provenance.Head, hash string, keyed bool) error {
	switch {
	case signed.Seq == 0:
		return nil
	case signed.Seq > uint64(v.report.Events):
		return &VerifyError{provenance.EventsFile, v.report.Events + 1, fmt.Sprintf("missing: %s names event %d", provenance.HeadNoteFile, signed.Seq)}
	case hash != signed.Hash:
		return &VerifyError{provenance.EventsFile, int(signed.Seq), fmt.Sprintf("not the event %s was made for: the hash is another", provenance.HeadNoteFile)}
	case keyed && signed.Seq < uint64(v.report.Events):
		return &VerifyError{provenance.EventsFile, int(signed.Seq) + 1, fmt.Sprintf("not signed: %s covers the events up to %d", provenance.HeadNoteFile, signed.Seq)}
	}
	v.report.Signed = keyed
	return nil
}
