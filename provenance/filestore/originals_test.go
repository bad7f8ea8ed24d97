package filestore_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
)

// Originals are stored once, for the user alone, beside what readers of a record get; the oldest make room.
func TestOriginals(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	st, err := filestore.Open(dir, &filestore.Options{Originals: 40})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	begin := &provenance.Event{Kind: provenance.KindSessionStarted, Session: "s", Principal: "p", Detail: "d",
		Row: []byte(`{"server":{"version":"1","protocol":"2"}}`)}
	if err := st.Append(ctx, begin); err != nil {
		t.Fatal(err)
	}
	keep := func(text string) digest.Digest {
		t.Helper()
		if err := st.RoomForOriginals(ctx, "s", int64(len(text))); err != nil {
			t.Fatal(err)
		}
		d, err := st.KeepOriginal(ctx, "s", strings.NewReader(text))
		if err != nil || d != digest.FromString(text) {
			t.Fatalf("KeepOriginal = %s, %v", d, err)
		}
		return d
	}
	has := func(d digest.Digest) bool {
		f, err := st.Original(ctx, "s", d)
		if err != nil {
			if !errors.Is(err, provenance.ErrNotFound) {
				t.Error(err)
			}
			return false
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		return err == nil && digest.FromBytes(b) == d
	}
	first, same := keep("the first file"), keep("the first file")
	if first != same || !has(first) {
		t.Errorf("equal files are kept as %s and %s", first, same)
	}
	planned, err := st.KeepChanges(ctx, "s", []byte(`{"planned":1}`), "")
	if err != nil {
		t.Fatal(err)
	}
	list, err := st.KeepChanges(ctx, "s", []byte(`{"done":1}`), planned)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := st.Changes(ctx, "s")
	if err != nil || len(lists) != 1 || string(lists[list]) != `{"done":1}` {
		t.Errorf("the lists are %q, %v", lists, err)
	}
	for _, name := range []string{"originals/" + first.Encoded(), "originals/" + list.Encoded() + ".json", "originals"} {
		if f, err := st.Stored(ctx, "s", name); err == nil {
			t.Errorf("Stored(%s) was opened", name)
			f.Close()
		}
	}
	for name, err := range st.Files(ctx, "s") {
		if err != nil || strings.Contains(name, "originals") {
			t.Errorf("Files lists %s, %v", name, err)
		}
	}
	if report, err := st.Verify(ctx, "s"); err != nil || len(report.Unrecorded) != 0 {
		t.Errorf("Verify = %+v, %v", report, err)
	}

	// 14 and 10 bytes are kept of at most 40. The first file is the oldest.
	second := keep("the second, longer file")
	if has(first) || !has(second) {
		t.Errorf("the first file is kept: %v, the second: %v", has(first), has(second))
	}
	if err := st.RoomForOriginals(ctx, "s", 41); !errors.Is(err, provenance.ErrUnavailable) || !has(second) {
		t.Errorf("room for more than the limit: %v", err)
	}
	for _, bad := range []digest.Digest{"", "sha256:x", "sha512:" + digest.Digest(strings.Repeat("0", 128)), "sha256:../../s"} {
		if has(bad) {
			t.Errorf("%q was opened", bad)
		}
	}
	if _, err := st.Changes(ctx, "other"); !errors.Is(err, provenance.ErrNotFound) {
		t.Errorf("Changes of an unknown session: %v", err)
	}
	name := filepath.Join(dir, "s", "originals", second.Encoded())
	if info, err := os.Stat(name); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(name, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	var differs *provenance.VerifyError
	if _, err := st.Verify(ctx, "s"); !errors.As(err, &differs) || differs.File != "originals/"+second.Encoded() {
		t.Errorf("Verify of a changed original: %v", err)
	}
}

// The originals are part of the bytes of their principal.
func TestOriginalsHaveQuotas(t *testing.T) {
	ctx := t.Context()
	quota := filestore.Quota{Bytes: 10_000}
	st, err := filestore.Open(t.TempDir(), &filestore.Options{Quota: func(string) filestore.Quota { return quota }})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	begin := &provenance.Event{Kind: provenance.KindSessionStarted, Session: "s", Principal: "p", Detail: "d",
		Row: []byte(`{"server":{"version":"1","protocol":"2"}}`)}
	if err := st.Append(ctx, begin); err != nil {
		t.Fatal(err)
	}
	var full *provenance.FullError
	if err := st.RoomForOriginals(ctx, "s", 20_000); !errors.As(err, &full) {
		t.Errorf("room for more than the quota: %v", err)
	}
	if err := st.RoomForOriginals(ctx, "s", 100); err != nil {
		t.Error(err)
	}
}
