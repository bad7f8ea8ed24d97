package filestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/storetest"
)

// registered is a directory of signed sessions, with copies of how they were before.
type registered struct {
	t      *testing.T
	dir    string
	signer note.Signer
	key    note.Verifier
}

// begun returns a directory in which session s has ended, and other has.
func begun(t *testing.T) *registered {
	t.Helper()
	r := &registered{t: t, dir: t.TempDir()}
	r.signer, r.key = newKey(t)
	for _, id := range []string{"s", "other"} {
		signed(t, r.dir, id, r.signer, provenance.KindSessionStarted, provenance.KindSkillActivated, provenance.KindSessionEnded)
	}
	return r
}

// copied copies something of the directory and returns what puts it back.
func (r *registered) copied(name string) (putBack func()) {
	r.t.Helper()
	from, aside := filepath.Join(r.dir, name), filepath.Join(r.t.TempDir(), "aside")
	replace := func(to, from string) {
		r.t.Helper()
		info, err := os.Stat(from)
		if err == nil {
			err = os.RemoveAll(to)
		}
		if err == nil && info.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
		} else if err == nil {
			var data []byte
			data, err = os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, data, 0o600)
			}
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	replace(aside, from)
	return func() { replace(from, aside) }
}

func (r *registered) resume(id string, more ...provenance.Kind) {
	r.t.Helper()
	signed(r.t, r.dir, id, r.signer, append([]provenance.Kind{provenance.KindSessionResumed}, more...)...)
}

func (r *registered) remove(name string) {
	r.t.Helper()
	if err := os.RemoveAll(filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

// signAsBefore puts a note in the place of a session's that has no word of a register.
func (r *registered) signAsBefore(id string) {
	r.t.Helper()
	path := filepath.Join(r.dir, id, provenance.HeadNoteFile)
	data, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(data), "\n\n")
	data, err = note.Sign(&note.Note{Text: strings.TrimSuffix(text, "registered")}, r.signer)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// edit changes the lines of the register.
func (r *registered) edit(change func(lines []string) []string) {
	r.t.Helper()
	path := filepath.Join(r.dir, provenance.RegisterFile)
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Join(change(strings.SplitAfter(string(data), "\n")), "")), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestRegister puts signed sessions back to earlier states, each of which was true once.
func TestRegister(t *testing.T) {
	ended := provenance.KindSessionEnded
	for name, tc := range map[string]struct {
		do   func(r *registered)
		want string // of Verify, after file and line; empty for none
	}{
		"nothing":           {func(*registered) {}, ""},
		"resumed and ended": {func(r *registered) { r.resume("s", provenance.KindResourceRead, ended) }, ""},
		"back to the first end": {func(r *registered) {
			back := r.copied("s")
			r.resume("s", provenance.KindResourceRead, ended)
			back()
		}, "events.jsonl:4: missing: line 6 of ~register names event 6"},
		"back to the first end, after a resumption that was killed": {func(r *registered) {
			back := r.copied("s")
			r.resume("s", provenance.KindResourceRead)
			back()
		}, "events.jsonl:4: missing: line 5 of ~register names event 4"},
		"back to the first end, and resumed by a server without a key": {func(r *registered) {
			back := r.copied("s")
			r.resume("s", provenance.KindResourceRead, ended)
			back()
			signed(r.t, r.dir, "s", nil, provenance.KindSessionResumed, provenance.KindResourceRead, ended)
		}, "events.jsonl:4: not signed: head.note covers the events up to 3"},
		"made again": {func(r *registered) {
			r.remove("s")
			signed(r.t, r.dir, "s", r.signer, provenance.KindSessionStarted, provenance.KindResourceRead, ended)
		}, "~register:5: session s had as many events before: it was rolled back or created again"},
		"a line is left out": {func(r *registered) {
			r.edit(func(lines []string) []string { return append(lines[:1:1], lines[2:]...) })
		}, "~register:2: does not follow the line before it"},
		"a line is changed": {func(r *registered) {
			r.edit(func(lines []string) []string {
				lines[3] = strings.Replace(lines[3], `"events":3`, `"events":2`, 1)
				return lines
			})
		}, "~register:4: not signed with this key"},
		"a line of another key": {func(r *registered) {
			other, _ := newKey(r.t)
			signed(r.t, r.dir, "third", other, provenance.KindSessionStarted)
		}, "~register:5: not signed with this key"},
		"a torn line": {func(r *registered) {
			r.edit(func(lines []string) []string { return append(lines, `{"type":`) })
			r.resume("s", ended)
		}, ""},
		"a link": {func(r *registered) {
			back := r.copied(provenance.RegisterFile)
			back()
			r.remove(provenance.RegisterFile)
			if err := os.Symlink("other/events.jsonl", filepath.Join(r.dir, provenance.RegisterFile)); err != nil {
				r.t.Skip("no symbolic links:", err)
			}
		}, "~register:1: not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begun(t)
			tc.do(r)
			found, err := filestore.Verify(r.dir, "s", r.key)
			if tc.want == "" && (err != nil || found.SignedBy != "test") ||
				tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)) {
				t.Errorf("Verify = %+v, %v, want %s", found, err, tc.want)
			}
		})
	}
}

// TestRegisterKeepsShortRecords wants a server not to go on with a record that was put back: what it signs then
// would hide it.
func TestRegisterKeepsShortRecords(t *testing.T) {
	t.Parallel()
	r := begun(t)
	back := r.copied("s")
	r.resume("s", provenance.KindSessionEnded)
	back()
	st := open(t, r.dir, &filestore.Options{Signer: r.signer})
	defer closeStore(t, st)
	err := st.Append(t.Context(), storetest.Event("s", provenance.KindSessionResumed, 1))
	if !errors.Is(err, provenance.ErrCorrupt) || !strings.Contains(err.Error(), "line 6 of ~register names event 5") {
		t.Errorf("Append to a record that was put back = %v, want ErrCorrupt", err)
	}
}

// TestRegisterCut wants a process that added a line not to sign on without it, and the event that it was to add
// a line for not recorded.
func TestRegisterCut(t *testing.T) {
	t.Parallel()
	r := begun(t)
	st := open(t, r.dir, &filestore.Options{Signer: r.signer})
	defer func() { _ = st.Close() }()
	back := r.copied(provenance.RegisterFile)
	storetest.Append(t, st, "s", provenance.KindSessionResumed, provenance.KindResourceRead)
	back()
	before, err := os.ReadFile(filepath.Join(r.dir, "s", provenance.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	err = st.Append(t.Context(), storetest.Event("s", provenance.KindSessionEnded, 3))
	if !errors.Is(err, provenance.ErrUnavailable) || !strings.Contains(err.Error(), "~register was cut or replaced") {
		t.Errorf("Append after the register was cut = %v", err)
	}
	after, err := os.ReadFile(filepath.Join(r.dir, "s", provenance.EventsFile))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the refused event is in the record: %v\n%s", err, after)
	}
}

// TestRegisterOfForeignEnd wants a signature by the server's key at the end of the register before it adds to it.
func TestRegisterOfForeignEnd(t *testing.T) {
	t.Parallel()
	r := begun(t)
	r.edit(func(lines []string) []string {
		lines[3] = strings.Replace(lines[3], `"events":3`, `"events":2`, 1)
		return lines
	})
	st := open(t, r.dir, &filestore.Options{Signer: r.signer})
	defer closeStore(t, st)
	err := st.Append(t.Context(), storetest.Event("new", provenance.KindSessionStarted, 1))
	if !errors.Is(err, provenance.ErrUnavailable) || !strings.Contains(err.Error(), "not signed by test+") {
		t.Errorf("Append with a foreign line at the end of the register = %v", err)
	}
}

// TestRegisterBegan wants a signed session that the register lacks to be a difference, and one that was signed
// before there was a register not.
func TestRegisterBegan(t *testing.T) {
	t.Parallel()
	r := begun(t)
	at := time.Now()
	later := &filestore.Options{Signer: r.signer, Now: func() time.Time { at = at.Add(time.Hour); return at }}
	back := r.copied(provenance.RegisterFile)
	st := open(t, r.dir, later)
	for _, kind := range []provenance.Kind{provenance.KindSessionStarted, provenance.KindSessionEnded} {
		if err := st.Append(t.Context(), &provenance.Event{Kind: kind, Session: "new", Principal: "local"}); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, st)
	back()
	const want = "~register:5: missing: session new was signed at event 2"
	if _, err := filestore.Verify(r.dir, "new", r.key); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Verify = %v, want %s", err, want)
	}
	r.remove(provenance.RegisterFile)
	// The session says itself that there was a register.
	if _, err := filestore.Verify(r.dir, "new", r.key); err == nil || !strings.HasPrefix(err.Error(), "~register:1: missing: session new was signed") {
		t.Errorf("Verify without the register = %v", err)
	}
	r.signAsBefore("s")
	for _, began := range []bool{false, true} {
		if began {
			signed(t, r.dir, "third", r.signer, provenance.KindSessionStarted)
		}
		// The events of storetest are of an earlier day.
		if found, err := filestore.Verify(r.dir, "s", r.key); err != nil || !found.Unregistered {
			t.Errorf("Verify of a session of before the register (began %v) = %+v, %v", began, found, err)
		}
		if found, err := filestore.Verify(r.dir, "s"); err != nil || found.Unregistered {
			t.Errorf("Verify without a key = %+v, %v: nothing is expected to be signed", found, err)
		}
	}
}

// TestRegisterMissing wants sessions that are gone named, unless Collect deleted them, which needs the key.
func TestRegisterMissing(t *testing.T) {
	t.Parallel()
	r := begun(t)
	unsigned := func() { signed(t, r.dir, "unsigned", nil, provenance.KindSessionStarted) }
	missing := func(want string) {
		t.Helper()
		reader, err := filestore.OpenReader(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		found, err := reader.Missing(t.Context(), r.key)
		var got []string
		for id, s := range found {
			got = append(got, fmt.Sprintf("%s: %d events, line %d", id, s.Events, s.Line))
		}
		if err != nil || strings.Join(got, "; ") != want {
			t.Errorf("Missing = %q, %v, want %q", got, err, want)
		}
	}
	unsigned()
	for _, dry := range []bool{true, false} {
		list, err := filestore.Collect(t.Context(), r.dir, provenance.CollectOptions{Before: time.Now().Add(time.Hour), DryRun: dry})
		kept := 0
		for _, c := range list {
			if errors.Is(c.Err, provenance.ErrRegistered) != (c.ID != "unsigned") {
				t.Errorf("Collect without a key: session %s: %v", c.ID, c.Err)
			}
			if c.Err != nil {
				kept++
			}
		}
		if err != nil || kept != 2 {
			t.Errorf("Collect without a key = %+v, %v, want two kept", list, err)
		}
	}
	missing("")
	r.remove("other")
	missing("other: 3 events, line 4")
	list, err := filestore.Collect(t.Context(), r.dir, provenance.CollectOptions{Before: time.Now().Add(time.Hour), Signer: r.signer})
	if err != nil || len(list) != 1 || list[0].Err != nil {
		t.Errorf("Collect = %+v, %v", list, err)
	}
	missing("other: 3 events, line 4")
	// A deleted id can be used again.
	signed(t, r.dir, "s", r.signer, provenance.KindSessionStarted, provenance.KindSessionEnded)
	if _, err := filestore.Verify(r.dir, "s", r.key); err != nil {
		t.Errorf("Verify of a session with the id of a deleted one = %v", err)
	}
}

// TestRegisterOfMany wants the lines of stores that write at the same time whole and in order.
func TestRegisterOfMany(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	signer, key := newKey(t)
	const stores, each = 3, 8
	var wg sync.WaitGroup
	for i := range stores {
		st := open(t, dir, &filestore.Options{Signer: signer, LockWait: time.Minute})
		for k := range each {
			wg.Go(func() {
				for _, kind := range []provenance.Kind{provenance.KindSessionStarted, provenance.KindSessionEnded} {
					if err := st.Append(t.Context(), storetest.Event(fmt.Sprintf("s%d-%d", i, k), kind, 1)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		defer closeStore(t, st)
	}
	wg.Wait()
	reader, err := filestore.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	reg, err := reader.Register(t.Context(), key)
	if err != nil || reg.Lines != 2*stores*each || len(reg.Sessions) != stores*each {
		t.Errorf("Register = %+v, %v", reg, err)
	}
	if err := reg.CheckHead(reg.Head()); err != nil {
		t.Error(err)
	}
	for head, want := range map[string]string{
		"": "invalid", "1": "invalid", "x:" + provenance.FirstPrev: "invalid", "01:" + provenance.FirstPrev: "invalid",
		"1:" + provenance.FirstPrev: "~register:1: not the line of this head", "49:" + provenance.FirstPrev: "~register:49: missing: there were 49 lines",
	} {
		if err := reg.CheckHead(head); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("CheckHead(%q) = %v, want %s", head, err, want)
		}
	}
}
