package provenance

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// RegisterFile is the name of the register of sessions. No session has this name.
const RegisterFile = "~register"

// MaxRegisterLine is the longest line of a register in bytes, newline included.
const MaxRegisterLine = 4 << 10

// What a line of the register says of a session. It is deleted by Collect.
const (
	RegisterStarted = "started"
	RegisterResumed = "resumed"
	RegisterEnded   = "ended"
	RegisterDeleted = "deleted"
)

const typeRegister = "skillsd.register"

// RegisterLine is one line of the register: a signed list of the moments at which sessions started, were
// resumed, ended and were deleted. A signed session that somebody puts back to an earlier end agrees with
// itself, and one that somebody removes leaves nothing; a list of all sessions shows both. Each line covers
// the one before it, so that none can be left out but the last ones.
type RegisterLine struct {
	Type    string    `json:"type"` // skillsd.register
	N       uint64    `json:"n"`    // from 1, without gaps
	Time    Timestamp `json:"time"`
	What    string    `json:"what"` // one of the Register constants
	Session string    `json:"session"`
	Events  uint64    `json:"events"` // sequence number of its last event; 0 if it was deleted
	Hash    string    `json:"hash"`   // of that event; empty if it was deleted
	Prev    string    `json:"prev"`   // hex sha256 of the line before with its newline, 64 zeros at first
	Key     string    `json:"key"`    // name and hash of the key that signed
	Sig     string    `json:"sig"`    // base64 of the signature of the line up to ,"sig"
}

// keyID returns what a line says of its key.
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

// Sign sets the fields that depend on the line before, nil for none, and on the signer. It returns the line,
// newline included. If the line before names the key of the signer, that must have signed it.
//
// Errors: ErrCorrupt for a line before that cannot be one, or the error of signing.
func (l *RegisterLine) Sign(before []byte, signer note.Signer) ([]byte, error) {
	l.Type, l.N, l.Prev, l.Key = typeRegister, 1, FirstPrev, keyID(signer)
	if before != nil {
		was, err := readRegisterLine(before)
		if err != nil {
			return nil, fmt.Errorf("%w: last line of %s: %v", ErrCorrupt, RegisterFile, err)
		}
		// A signature by one of these keys depends on nothing but the key and the text.
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

// signedBy reports whether one of these keys signed the line.
func (l RegisterLine) signedBy(keys []note.Verifier) bool {
	text, err := l.signedText()
	sig, wrong := base64.StdEncoding.DecodeString(l.Sig)
	return err == nil && wrong == nil && slices.ContainsFunc(keys, func(key note.Verifier) bool {
		return l.Key == keyID(key) && key.Verify(text, sig)
	})
}

// readRegisterLine parses a line, newline included, that Sign may have written.
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
	known := slices.Contains([]string{RegisterStarted, RegisterResumed, RegisterEnded}, l.What) &&
		l.Events > 0 &&
		isHash(l.Hash) || l.What == RegisterDeleted && l.Events == 0 && l.Hash == ""
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

// Register is what the lines of a register say.
type Register struct {
	Lines    int
	Began    Timestamp              // of the first line
	Sessions map[string]*Registered // those that were deleted too
	sums     []string               // of the lines
}

// Registered is what the register says of a session.
type Registered struct {
	Line    int // the last that names it
	Events  uint64
	Hash    string
	Since   Timestamp // of its first line
	Deleted bool
	// Again is the first line at which it had no more events than before, although it was not deleted in
	// between; else 0.
	Again int
}

// ReadRegister reads a register up to a torn last line. With keys, one of them must have signed each line;
// without keys no signature is checked.
//
// Errors: *VerifyError for the first line that does not follow the one before it, or the error of r.
func ReadRegister(r io.Reader, keys ...note.Verifier) (*Register, error) {
	reg := &Register{Sessions: make(map[string]*Registered)}
	prev, lines := FirstPrev, bufio.NewReaderSize(r, MaxRegisterLine)
	for {
		raw, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return reg, nil
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

// Head identifies the register up to its last line: N:HASH. It is empty for a register without lines.
func (r *Register) Head() string {
	if r.Lines == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%s", r.Lines, r.sums[r.Lines-1])
}

// CheckHead reports whether the register had this head, now or earlier.
//
// Errors: *VerifyError, ErrInvalid for what cannot be a head.
func (r *Register) CheckHead(head string) error {
	var n int
	var sum string
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
