package provenance

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// headNoteTitle is the first line of the text of a head note.
const headNoteTitle = "skillsd session head"

// maxHeadNote is the maximum size of a head note, in bytes.
const maxHeadNote = 16 << 10

// registered is the last line of the text in a note whose session is in the register.
const registered = "registered"

// SignHead returns the signed note for the head of a session in the register. Its five lines are the title,
// the session, the sequence number of the last event, its hash and "registered"; the signature follows. Notes
// from before the register lack the fifth line.
//
// Errors: the error of signing.
func SignHead(session string, head Head, signer note.Signer) ([]byte, error) {
	text := fmt.Sprintf("%s\n%s\n%d\n%s\n%s\n", headNoteTitle, session, head.Seq, head.Hash, registered)
	data, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return nil, fmt.Errorf("sign head of session %s: %w", session, err)
	}
	return data, nil
}

// OpenHead returns the head in a note written by [SignHead] for a session. If keys are given, one of them
// must have signed it; otherwise the signature is not checked. inRegister reports whether the session was in
// the register when the note was signed.
//
// Errors: ErrInvalid.
func OpenHead(session string, data []byte, keys ...note.Verifier) (head Head, inRegister bool, err error) {
	if len(data) > maxHeadNote {
		return Head{}, false, fmt.Errorf("%w: note of %d bytes", ErrInvalid, len(data))
	}
	n, err := note.Open(data, note.VerifierList(keys...))
	// Without keys no signature can be verified; the text is returned nevertheless.
	if unsigned, ok := err.(*note.UnverifiedNoteError); ok && len(keys) == 0 {
		n, err = unsigned.Note, nil
	}
	if err != nil {
		what := strings.TrimPrefix(err.Error(), "note: ")
		switch err.(type) {
		case *note.UnverifiedNoteError:
			what = "not signed with this key"
		case *note.InvalidSignatureError:
			what = "the signature is not of this text"
		}
		return Head{}, false, fmt.Errorf("%w: %s", ErrInvalid, what)
	}
	lines := strings.Split(n.Text, "\n")
	inRegister = len(lines) == 6 && lines[4] == registered
	// The other lines are the same in both forms.
	if inRegister {
		lines = append(lines[:4], lines[5])
	}
	var seq uint64
	if len(lines) == 5 {
		seq, _ = strconv.ParseUint(lines[2], 10, 64)
	}
	if seq == 0 || lines[0] != headNoteTitle || lines[2] != strconv.FormatUint(seq, 10) ||
		!isHash(lines[3]) ||
		lines[4] != "" {
		return Head{}, false, fmt.Errorf("%w: not the note of a session", ErrInvalid)
	}
	if lines[1] != session {
		return Head{}, false, fmt.Errorf("%w: note of session %.128q", ErrInvalid, lines[1])
	}
	return Head{Seq: seq, Hash: lines[3]}, inRegister, nil
}
