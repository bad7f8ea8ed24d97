package provenance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// RegisterFile is the name of the register of sessions. No session can have this name.
const RegisterFile = "~register"

// MaxRegisterLine is the maximum length of a line in a register, in bytes, including the newline.
const MaxRegisterLine = 4 << 10

// The values of RegisterLine.What. Collect deletes sessions.
const (
	RegisterStarted = "started"
	RegisterResumed = "resumed"
	RegisterEnded   = "ended"
	RegisterDeleted = "deleted"
)

const typeRegister = "skillsd.register"

// RegisterLine is a line in the register: a signed log of when sessions started, were resumed, ended and were
// deleted. A signed session that is reset to an earlier end is consistent in itself, and a removed session
// leaves no trace; the register reveals both. Each line includes the hash of the previous one, so only the
// last lines can be removed unnoticed.
type RegisterLine struct {
	Type    string    `json:"type"` // skillsd.register
	N       uint64    `json:"n"`    // from 1, without gaps
	Time    Timestamp `json:"time"`
	What    string    `json:"what"` // one of the Register constants
	Session string    `json:"session"`
	Events  uint64    `json:"events"` // sequence number of the last event; 0 if deleted
	Hash    string    `json:"hash"`   // of that event; empty if deleted
	Prev    string    `json:"prev"`   // hex sha256 of the previous line and its newline; first: 64 zeros
	Key     string    `json:"key"`    // name and hash of the signing key
	Sig     string    `json:"sig"`    // base64 of the signature of the line up to ,"sig"
}

// keyID returns the identifier of a key in a line.
func keyID(k interface {
	Name() string
	KeyHash() uint32
}) string {
	return fmt.Sprintf("%s+%08x", k.Name(), k.KeyHash())
}

// signedText returns the bytes of a line that its signature covers.
func (l RegisterLine) signedText() ([]byte, error) {
	l.Sig = ""
	raw, err := Encode(l)
	return bytes.TrimSuffix(raw, []byte(`,"sig":""}`)), err
}

// Sign sets the fields that depend on the signer and on the previous line, or nil. It returns the line,
// including the newline. If the previous line names the key of the signer, its signature must be valid.
//
// Errors: ErrCorrupt for an invalid previous line, or the error of signing.
func (l *RegisterLine) Sign(before []byte, signer note.Signer) ([]byte, error) {
	l.Type, l.N, l.Prev, l.Key = typeRegister, 1, FirstPrev, keyID(signer)
	if before != nil {
		was, err := readRegisterLine(before)
		if err != nil {
			return nil, fmt.Errorf("%w: last line of %s: %v", ErrCorrupt, RegisterFile, err)
		}
		// Signatures by these keys are deterministic, so comparing them verifies the previous line.
		if sig, err := was.signature(signer); was.Key == l.Key && (err != nil || sig != was.Sig) {
			return nil, fmt.Errorf("%w: last line of %s: not signed by %s", ErrCorrupt, RegisterFile, l.Key)
		}
		l.N, l.Prev = was.N+1, sumOf(before)
	}
	var err error
	l.Sig, err = l.signature(signer)
	if err != nil {
		return nil, fmt.Errorf("sign the register of sessions: %w", err)
	}
	raw, err := Encode(l)
	return append(raw, '\n'), err
}

func (l RegisterLine) signature(signer note.Signer) (string, error) {
	text, err := l.signedText()
	if err != nil {
		return "", err
	}
	sig, err := signer.Sign(text)
	return base64.StdEncoding.EncodeToString(sig), err
}

// signedBy reports whether one of the keys signed the line.
func (l RegisterLine) signedBy(keys []note.Verifier) bool {
	text, err := l.signedText()
	sig, wrong := base64.StdEncoding.DecodeString(l.Sig)
	return err == nil && wrong == nil && slices.ContainsFunc(keys, func(key note.Verifier) bool {
		return l.Key == keyID(key) && key.Verify(text, sig)
	})
}

// readRegisterLine parses a line, including the newline. It rejects lines that Sign cannot have written.
//
// Errors: ErrInvalid.
func readRegisterLine(line []byte) (*RegisterLine, error) {
	var l RegisterLine
	if err := json.Unmarshal(line, &l); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	again, err := Encode(l)
	if err != nil || !bytes.Equal(append(again, '\n'), line) {
		return nil, fmt.Errorf("%w: not in the written form", ErrInvalid)
	}
	// A deletion has no last event; every other line must have one.
	known := false
	switch l.What {
	case RegisterStarted, RegisterResumed, RegisterEnded:
		known = l.Events > 0 && isHash(l.Hash)
	case RegisterDeleted:
		known = l.Events == 0 && l.Hash == ""
	}
	if l.Type != typeRegister || l.N == 0 || !known || !ValidSessionID(l.Session) || !isHash(l.Prev) {
		return nil, fmt.Errorf("%w: not a line of a register", ErrInvalid)
	}
	return &l, nil
}

// sumOf returns the hex sha256 of a line, newline included.
func sumOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// Register is the content of a register.
type Register struct {
	Lines    int
	Began    Timestamp              // time of the first line
	Sessions map[string]*Registered // including deleted ones
	sums     []string               // hashes of the lines
}

// Registered is the state of a session in the register.
type Registered struct {
	Line    int // last line of the session
	Events  uint64
	Hash    string
	Since   Timestamp // time of its first line
	Deleted bool
	// Again is the first line with no more events than an earlier line, unless the session was deleted in
	// between; else 0.
	Again int
}

// ReadRegister reads a register up to a torn last line. If keys are given, one of them must have signed each
// line; otherwise no signature is checked.
//
// Errors: *VerifyError for the first line that does not follow the previous one, or the error of r.
func ReadRegister(r io.Reader, keys ...note.Verifier) (*Register, error) {
	reg := &Register{Sessions: make(map[string]*Registered)}
	prev, lines := FirstPrev, bufio.NewReaderSize(r, MaxRegisterLine)
	for {
		raw, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return reg, nil
		// A line that does not fit into the buffer lacks its newline, so readRegisterLine refuses it.
		case err != nil && err != bufio.ErrBufferFull:
			return nil, err
		}
		reg.Lines++
		wrong := func(what string) (*Register, error) {
			return nil, &VerifyError{File: RegisterFile, Line: reg.Lines, What: what}
		}
		l, err := readRegisterLine(raw)
		switch {
		case err != nil:
			return wrong(strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
		case l.N != uint64(reg.Lines) || l.Prev != prev:
			return wrong("does not follow the line before it")
		case len(keys) > 0 && !l.signedBy(keys):
			return wrong("not signed with this key")
		}
		prev = sumOf(raw)
		reg.sums = append(reg.sums, prev)
		reg.add(l)
	}
}

func (r *Register) add(l *RegisterLine) {
	if r.Lines == 1 {
		r.Began = l.Time
	}
	s := r.Sessions[l.Session]
	switch {
	case s == nil || s.Deleted && l.What != RegisterDeleted:
		s = &Registered{Since: l.Time, Events: l.Events, Hash: l.Hash}
		r.Sessions[l.Session] = s
	case l.What != RegisterDeleted && l.Events <= s.Events && s.Again == 0:
		s.Again = r.Lines
	case l.What != RegisterDeleted:
		s.Events, s.Hash = l.Events, l.Hash
	}
	s.Line, s.Deleted = r.Lines, l.What == RegisterDeleted
}

// Head identifies the register up to its last line: N:HASH. It is empty for an empty register.
func (r *Register) Head() string {
	if r.Lines == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%s", r.Lines, r.sums[r.Lines-1])
}

// CheckHead returns an error unless head is the current head of the register or an earlier one.
//
// Errors: *VerifyError; ErrInvalid for a malformed head.
func (r *Register) CheckHead(head string) error {
	var n int
	var sum string
	// Sscanf accepts other spellings of a number too.
	if _, err := fmt.Sscanf(strings.Replace(head, ":", " ", 1), "%d %s", &n, &sum); err != nil || n < 1 ||
		!isHash(sum) || head != fmt.Sprintf("%d:%s", n, sum) {
		return fmt.Errorf("%w: %.100q is not the head of a register", ErrInvalid, head)
	}
	switch {
	case n > r.Lines:
		return &VerifyError{File: RegisterFile, Line: r.Lines + 1,
			What: fmt.Sprintf("missing: there were %d lines", n)}
	case r.sums[n-1] != sum:
		return &VerifyError{File: RegisterFile, Line: n, What: "not the line of this head"}
	}
	return nil
}

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
	text, err := noteText(data, keys)
	if err != nil {
		return Head{}, false, fmt.Errorf("%w: %s", ErrInvalid, err)
	}
	lines := strings.Split(text, "\n")
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
		!isHash(lines[3]) || lines[4] != "" {
		return Head{}, false, fmt.Errorf("%w: not the note of a session", ErrInvalid)
	}
	if lines[1] != session {
		return Head{}, false, fmt.Errorf("%w: note of session %.128q", ErrInvalid, lines[1])
	}
	return Head{Seq: seq, Hash: lines[3]}, inRegister, nil
}

// noteText returns the text of a note that one of the keys signed, or of any note if there are no keys.
func noteText(data []byte, keys []note.Verifier) (string, error) {
	if len(data) > maxHeadNote {
		return "", fmt.Errorf("note of %d bytes", len(data))
	}
	n, err := note.Open(data, note.VerifierList(keys...))
	switch wrong := err.(type) {
	case nil:
		return n.Text, nil
	case *note.UnverifiedNoteError:
		// Without keys no signature can be verified.
		if len(keys) == 0 {
			return wrong.Note.Text, nil
		}
		return "", errors.New("not signed with this key")
	case *note.InvalidSignatureError:
		return "", errors.New("the signature is not of this text")
	}
	return "", errors.New(strings.TrimPrefix(err.Error(), "note: "))
}
