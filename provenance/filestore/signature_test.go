package filestore_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

func newKey(t *testing.T) (note.Signer, note.Verifier) {
	t.Helper()
	private, public, err := note.GenerateKey(nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer, verifier
}

func signed(t *testing.T, dir, id string, signer note.Signer, kinds ...provenance.Kind) {
	t.Helper()
	st := open(t, dir, &filestore.Options{Signer: signer})
	storetest.Append(t, st, id, kinds...)
	closeStore(t, st)
}

func TestSignedHead(t *testing.T) {
	signer, key := newKey(t)
	other, otherKey := newKey(t)
	began := []provenance.Kind{provenance.KindSessionStarted, provenance.KindSkillActivated}
	ended := append(began[:2:2], provenance.KindSessionEnded)
	path := func(dir, id, name string) string { return filepath.Join(dir, id, name) }
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, dir string)
		key    note.Verifier
		file   string // of the difference; empty for none
		what   string
	}{
		{"signed", func(*testing.T, string) {}, key, "", ""},
		{"without a key", func(*testing.T, string) {}, nil, "", ""},
		{"wrong key", func(*testing.T, string) {}, otherKey, "head.note", "not signed with this key"},
		{"removed note", func(t *testing.T, dir string) {
			if err := os.Remove(path(dir, "s", "head.note")); err != nil {
				t.Fatal(err)
			}
		}, key, "head.note", "missing"},
		{"changed note", func(t *testing.T, dir string) {
			data, err := os.ReadFile(path(dir, "s", "head.note"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path(dir, "s", "head.note"), bytes.Replace(data, []byte("\n3\n"), []byte("\n2\n"), 1), 0o600); err != nil {
				t.Fatal(err)
			}
		}, key, "head.note", "the signature is not of this text"},
		{"note of another session", func(t *testing.T, dir string) {
			signed(t, dir, "t", signer, ended...)
			data, err := os.ReadFile(path(dir, "t", "head.note"))
			if err == nil {
				err = os.WriteFile(path(dir, "s", "head.note"), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, key, "head.note", `note of session "t"`},
		{"rewritten", func(t *testing.T, dir string) {
			data, err := os.ReadFile(path(dir, "s", "head.note"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
				t.Fatal(err)
			}
			signed(t, dir, "s", nil, provenance.KindSessionStarted, provenance.KindResourceRead, provenance.KindSessionEnded)
			if err := os.WriteFile(path(dir, "s", "head.note"), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}, key, "events.jsonl", "not the event that head.note signs"},
		{"rewritten and signed by another", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
				t.Fatal(err)
			}
			signed(t, dir, "s", other, ended...)
		}, key, "head.note", "not signed with this key"},
		{"shorter", func(t *testing.T, dir string) {
			data, err := os.ReadFile(path(dir, "s", "head.note"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
				t.Fatal(err)
			}
			signed(t, dir, "s", nil, began...)
			if err := os.WriteFile(path(dir, "s", "head.note"), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}, key, "events.jsonl", "head.note names event 3"},
		{"longer", func(t *testing.T, dir string) {
			signed(t, dir, "s", nil, provenance.KindSessionResumed, provenance.KindSessionEnded)
		}, key, "events.jsonl", "not signed"},
		{"killed before it was signed", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
				t.Fatal(err)
			}
			signed(t, dir, "s", nil, ended...)
			st := open(t, dir, &filestore.Options{Signer: signer})
			for _, err := range st.Sessions(t.Context(), time.Time{}) {
				if err != nil {
					t.Error(err)
				}
			}
			closeStore(t, st)
		}, key, "head.note", "missing: the session ended but is not signed"},
		{"not ended", func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, "s")); err != nil {
				t.Fatal(err)
			}
			signed(t, dir, "s", signer, began...)
		}, key, "head.note", "missing: the session has not ended"},
		{"longer, without a key", func(t *testing.T, dir string) {
			signed(t, dir, "s", nil, provenance.KindSessionResumed, provenance.KindSessionEnded)
		}, nil, "", ""},
		{"ended again", func(t *testing.T, dir string) {
			signed(t, dir, "s", signer, provenance.KindSessionResumed, provenance.KindSessionEnded)
		}, key, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			signed(t, dir, "s", signer, ended...)
			tc.change(t, dir)
			var keys []note.Verifier
			if tc.key != nil {
				keys = append(keys, tc.key)
			}
			r, err := filestore.Verify(dir, "s", keys...)
			if tc.file == "" {
				if err != nil || (r.SignedBy == "test") != (tc.key != nil) {
					t.Errorf("Verify = %+v, %v", r, err)
				}
				return
			}
			var ve *provenance.VerifyError
			if !errors.As(err, &ve) || ve.File != tc.file || !strings.Contains(ve.What, tc.what) {
				t.Errorf("Verify = %v, want %s: %s", err, tc.file, tc.what)
			}
		})
	}
}

// watchedSigner notes what session.json says when a signature is made.
type watchedSigner struct {
	note.Signer
	file  string
	found []byte
	err   error
}

func (s *watchedSigner) Sign(msg []byte) ([]byte, error) {
	s.found, s.err = os.ReadFile(s.file)
	return s.Signer.Sign(msg)
}

// The views of a long session take long, and a server may be killed meanwhile.
func TestHeadIsSignedBeforeViewsAreWritten(t *testing.T) {
	t.Parallel()
	signer, key := newKey(t)
	dir := t.TempDir()
	watched := &watchedSigner{Signer: signer, file: filepath.Join(dir, "s", "session.json")}
	signed(t, dir, "s", watched, provenance.KindSessionStarted, provenance.KindSessionEnded)
	if watched.err != nil || bytes.Contains(watched.found, []byte(`"ended"`)) {
		t.Errorf("session.json when the head is signed: %v\n%s", watched.err, watched.found)
	}
	if r, err := filestore.Verify(dir, "s", key); err != nil || r.SignedBy != "test" {
		t.Errorf("Verify = %+v, %v", r, err)
	}
}

func FuzzOpenHead(f *testing.F) {
	f.Add([]byte("skillsd session head\ns\n3\n" + provenance.FirstPrev + "\n\n— test AAAAAAAA\n"))
	f.Add([]byte("skillsd session head\ns\n03\n"))
	f.Add([]byte("skillsd session head\ns\n3\n" + provenance.FirstPrev + "\nregistered\n\n— test AAAAAAAA\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		head, _, err := provenance.OpenHead("s", data)
		if err != nil {
			if !errors.Is(err, provenance.ErrInvalid) {
				t.Errorf("OpenHead = %v, want ErrInvalid", err)
			}
			return
		}
		if head.Seq == 0 || len(head.Hash) != 64 || !bytes.Contains(data, []byte(head.Hash)) {
			t.Errorf("OpenHead(%q) = %+v", data, head)
		}
	})
}
