package provenance_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
)

func FuzzReadRegister(f *testing.F) {
	private, public, err := note.GenerateKey(nil, "test")
	if err != nil {
		f.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		f.Fatal(err)
	}
	key, err := note.NewVerifier(public)
	if err != nil {
		f.Fatal(err)
	}
	var whole, line []byte
	for i, what := range []string{provenance.RegisterStarted, provenance.RegisterResumed, provenance.RegisterEnded, provenance.RegisterDeleted} {
		l := provenance.RegisterLine{Time: provenance.Stamp(time.Unix(int64(i), 0)), What: what, Session: "s"}
		if what != provenance.RegisterDeleted {
			l.Events, l.Hash = uint64(i+1), provenance.FirstPrev
		}
		line, err = l.Sign(line, signer)
		if err != nil {
			f.Fatal(err)
		}
		whole = append(whole, line...)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(line)
	f.Add(bytes.Replace(whole, []byte("resumed"), []byte("ended"), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		reg, err := provenance.ReadRegister(bytes.NewReader(data))
		signed, errSigned := provenance.ReadRegister(bytes.NewReader(data), key)
		if wrong, ok := errors.AsType[*provenance.VerifyError](err); err != nil && (!ok || wrong.Line < 1) {
			t.Fatalf("ReadRegister = %v, want a difference", err)
		}
		if err != nil {
			return
		}
		if reg.Lines != bytes.Count(data, []byte("\n")) || reg.Lines > 0 && reg.CheckHead(reg.Head()) != nil {
			t.Errorf("%d lines are read as %+v", bytes.Count(data, []byte("\n")), reg)
		}
		// Nothing but a beginning of what was signed is signed.
		last := data[:bytes.LastIndexByte(data, '\n')+1]
		if errSigned == nil && !bytes.HasPrefix(whole, last) {
			t.Errorf("signed register %q, %+v", data, signed)
		}
	})
}
